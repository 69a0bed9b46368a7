"""Random convolutions: attributes of all kinds, and networks of several."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A model of one convolution, with what it is fed.

    Attributes:
        transposed: whether it is a ConvTranspose.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    transposed: bool


def random_case(seed: int, *, rank: int | None = None) -> Case:
    """A convolution over 1 to 3 spatial axes; about one in eight has no images."""
    choose = random.Random(seed)
    numbers = np.random.default_rng(seed)
    transposed = choose.random() < 0.4
    rank = rank or choose.choice([1, 2, 2, 2, 3])
    groups = choose.choice([1, 1, 1, 2, 3])
    depth, columns = choose.choice([1, 2, 5, 16]), choose.choice([1, 3, 8, 17])
    if choose.random() < 0.2:
        groups, depth, columns = choose.choice([4, 16, 20]), 1, 1
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
