"""Random convolutions: alone, with attributes of all kinds, and as nodes of graphs."""

from __future__ import annotations

import math
import random
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .random_graphs import F32, MAX_MAGNITUDE, RandomGraph, inexact

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A model of one convolution, with what it is fed.

    Attributes:
        transposed: whether it is a ConvTranspose.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    transposed: bool


def random_case(seed: int) -> Case:
    """A convolution over 1 to 3 spatial axes; about one in eight has no images."""
    choose = random.Random(seed)
    numbers = np.random.default_rng(seed)
    transposed = choose.random() < 0.4
    rank = choose.choice([1, 2, 2, 2, 3])
    groups = choose.choice([1, 1, 1, 2, 3])
    depth, columns = choose.choice([1, 2, 5, 16]), choose.choice([1, 3, 8, 17])
    if choose.random() < 0.2:
        groups, depth, columns = choose.choice([4, 16, 20]), 1, choose.randint(1, 5)
    elif rank < 3 and choose.random() < 0.2:
        groups = choose.choice([2, 4, 9])
        depth = columns = choose.choice([2, 4, 8])
    kernel = [choose.randint(1, 4 if rank < 3 else 3) for _ in range(rank)]
    strides = [choose.randint(1, 3) for _ in range(rank)]
    dilations = [choose.choice([1, 1, 2, 3]) for _ in range(rank)]
    attributes: dict[str, Any] = {"group": groups}
    if any(stride > 1 for stride in strides) or choose.random() < 0.5:
        attributes["strides"] = strides
    if any(dilation > 1 for dilation in dilations) or choose.random() < 0.5:
        attributes["dilations"] = dilations
    if choose.random() < 0.5:
        attributes["kernel_shape"] = kernel
    spans = [(size - 1) * by + 1 for size, by in zip(kernel, dilations, strict=True)]
    spatial = [span + choose.randint(0, 9 if rank < 3 else 4) for span in spans]
    how = choose.choice(["pads", "pads", "SAME_UPPER", "SAME_LOWER", "VALID", ""])
    if how == "pads":
        reach = [size * by for size, by in zip(kernel, dilations, strict=True)]
        attributes["pads"] = [choose.randint(0, size - 1) for size in reach * 2]
        if transposed:  # what they take off
            attributes["pads"] = [pad // 2 for pad in attributes["pads"]]
    elif how:
        attributes["auto_pad"] = how
    if transposed and choose.random() < 0.4:
        attributes["output_padding"] = [
            choose.randint(0, max(pair) - 1)
            for pair in zip(strides, dilations, strict=True)
        ]
    batch = choose.choice([0, 1, 1, 1, 2, 2, 3, 4])
    x = numbers.standard_normal((batch, groups * depth, *spatial))
    shape = (groups * columns, depth, *kernel)
    if transposed:
        shape = (groups * depth, columns, *kernel)
    feeds = {"x": x, "w": numbers.standard_normal(shape)}
    if choose.random() < 0.6:
        feeds["b"] = numbers.standard_normal(groups * columns)
    feeds = {name: array.astype(np.float32) for name, array in feeds.items()}
    nodes = [
        helper.make_node(
            "ConvTranspose" if transposed else "Conv", list(feeds), ["y"], **attributes
        )
    ]
    result = "y"
    if choose.random() < 0.5:
        operator = choose.choice(["Relu", "Sigmoid", "Tanh", "HardSwish", "Neg"])
        nodes.append(helper.make_node(operator, ["y"], ["z"]))
        result = "z"
    fixed = {"x"} if choose.random() < 0.7 else {"x", "w"}
    graph = helper.make_graph(
        nodes,
        "convolution",
        [
            helper.make_tensor_value_info(name, 1, array.shape)
            for name, array in feeds.items()
            if name in fixed
        ],
        [helper.make_tensor_value_info(result, 1, None)],
        [
            numpy_helper.from_array(array, name)
            for name, array in feeds.items()
            if name not in fixed
        ],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10
    )
    given = {name: array for name, array in feeds.items() if name in fixed}
    return Case(model, given, transposed)


def in_float64(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """The same in float64."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    for number, tensor in enumerate(model.graph.initializer):
        array = numpy_helper.to_array(tensor).astype(np.float64)
        wide = numpy_helper.from_array(array, tensor.name)
        model.graph.initializer[number].CopyFrom(wide)
    return model, {name: a.astype(np.float64) for name, a in case.feeds.items()}


def convolution(g: RandomGraph) -> None:
    """A convolution of some value of a random graph."""
    x = g.pick(lambda v: v.dtype == F32 and 3 <= len(v.shape) <= 5)
    if x is None or 0 in x.shape[1:]:
        return
    channels, spatial = x.shape[1], x.shape[2:]
    choose, rank = g.choose, len(spatial)
    transposed = choose.random() < 0.3
    groups = choose.choice([1, 1, 1, channels])
    depth, columns = channels // groups, choose.choice([1, 1, 3, 8])
    if groups == 1:
        columns = choose.choice(g.sizes) or 1
    kernel = [choose.randint(1, 3) for _ in spatial]
    strides = [choose.choice([1, 1, 2]) for _ in spatial]
    dilations = [choose.choice([1, 1, 2]) for _ in spatial]
    if rank == 2 and choose.random() < 0.3:  # what transforms are for
        transposed, kernel, strides, dilations = False, [3, 3], [1, 1], [1, 1]
    pads = [choose.randint(0, 1) for _ in range(2 * rank)]
    size = []
    for axis, length in enumerate(spatial):
        span = (kernel[axis] - 1) * dilations[axis] + 1
        around = pads[axis] + pads[rank + axis]
        if transposed:
            size.append((length - 1) * strides[axis] + span - around)
        else:
            size.append((length + around - span) // strides[axis] + 1)
    shape = (x.shape[0], groups * columns, *size)
    terms = depth * math.prod(kernel)
    # zeros around x times weights that are infinite, or none, are for other tests
    w = g.constant(
        (channels, columns, *kernel)
        if transposed
        else (groups * columns, depth, *kernel),
        F32,
    )
    bound = terms * x.magnitude * w.magnitude + 2
    if min(size) < 1 or math.prod(shape) > g.max_size or bound > 20 * MAX_MAGNITUDE:
        return
    error = inexact(terms * x.error * w.magnitude, x, bound, 4 + terms)
    given = [x, w]
    if choose.random() < 0.5:
        given.append(g.constant((groups * columns,), F32))
    y = g.add(
        "ConvTranspose" if transposed else "Conv",
        given,
        shape,
        F32,
        bound,
        error,
        group=groups,
        strides=strides,
        dilations=dilations,
        pads=pads,
    )
    if y.magnitude > MAX_MAGNITUDE or choose.random() < 0.5:
        scale = g.literal(np.float32(1 / bound))
        g.add("Mul", [y, scale], shape, F32, 1, error / bound + 4 * x.eps)
