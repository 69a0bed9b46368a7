"""Convolutions by cuDNN: what is asked of it means what the model says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from onnxplug_compiler.gpu.command import EngineCall
from onnxplug_compiler.ir.buffers import Packed
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide
from onnxplug_cuda.families import convolutions
from onnxplug_cuda.options import ConvolutionSettings

from .on_graphs import BF16, F16, F32, RNG, Array, Memory, assert_close

LAST = {3: (0, 2, 1), 4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}


def reference(x: Array, w: Array, **attributes: Any) -> Array:
    """As ONNX's evaluator has it, in float64."""
    transposed = attributes.pop("transposed", False)
    groups = attributes.pop("group", 1) if transposed else 1
    if groups > 1:  # which the evaluator does not compute
        parts = zip(np.split(x, groups, 1), np.split(w, groups), strict=True)
        both = [reference(*each, transposed=True, **attributes) for each in parts]
        return np.concatenate(both, 1)
    node = helper.make_node(
        "ConvTranspose" if transposed else "Conv", ["x", "w"], ["y"], **attributes
    )
    found = ReferenceEvaluator(node).run(
        None, {"x": x.astype(np.float64), "w": w.astype(np.float64)}
    )
    return np.asarray(found[0])


def convolved(
    memory: Memory,
    dtype: np.dtype[Any],
    x: tuple[int, ...],
    w: tuple[int, ...],
    *,
    last: bool = False,
    out_last: bool | None = None,
    steps: Sequence[str] = (),
    fuses: bool = False,
    rows_first: bool = False,
    **attributes: Any,
) -> tuple[list[str], Array, Array]:
    """Who computed a convolution and what follows, and what, and what it has to be."""
    order = LAST[len(x)] if last else None
    image, weights = memory.random(dtype, *x, axes=order), memory.random(dtype, *w)
    expected = reference(memory.array(image), memory.array(weights), **attributes)
    element = element_of(dtype)
    assert element is not None
    builder = ChainBuilder()
    value = builder.input("f32")
    operands = []
    added = [builder.input(element) for step in steps if step in ("Bias", "Add")]
    if "Bias" in steps:  # as it is planned for the third input of a convolution
        wide = builder.step("Cast", [added.pop(0)], "f32")
        value = builder.step("Add", [value, wide], "f32")
    if element != "f32":
        value = builder.step("Cast", [value], element)
    for step in steps:
        if step in ("Bias", "Add"):
            bias = memory.random(dtype, expected.shape[1])
            ones = (1,) * (len(x) - 2)
            view = View(bias.buffer, 0, dtype, (*bias.shape, *ones), (1, *ones))
            operands.append(view.broadcast_to(expected.shape))
            if step == "Add":
                value = builder.step("Add", [value, added.pop(0)], element)
            expected = expected + memory.array(operands[-1]).astype(np.float64)
        else:
            value = builder.step("Relu", [value], element)
            expected = np.maximum(expected, 0)
    where = last if out_last is None else out_last
    out = memory.new(np.zeros(expected.shape, dtype), LAST[len(x)] if where else None)
    rank = len(x) - 2
    pads = attributes.get("pads", [0] * 2 * rank)
    wide, narrow = (
        (expected.shape, x) if attributes.get("transposed") else (x, expected.shape)
    )
    slides = []
    for axis in range(rank):
        stride = attributes.get("strides", [1] * rank)[axis]
        dilation = attributes.get("dilations", [1] * rank)[axis]
        reach = (narrow[axis + 2] - 1) * stride + (w[axis + 2] - 1) * dilation + 1
        after = max(reach - pads[axis] - wide[axis + 2], 0)
        slides.append(Slide(w[axis + 2], stride, dilation, pads[axis], after))
    family = convolutions.Convolutions(
        memory.cudnn,
        ConvolutionSettings(fuses_bias=fuses, rows_first=rows_first),
        tf32=False,
    )
    took = family.record_convolution(
        memory.recorder,
        image,
        weights,
        slides,
        Epilogue(builder.build([value]), tuple(operands), (out,)),
        transposed=attributes.get("transposed", False),
    )
    return (memory.run() if took else []), memory.array(out), expected


CONVOLUTIONS: list[dict[str, Any]] = [
    {"x": (2, 4, 9, 8), "w": (6, 4, 3, 3), "pads": [1, 1, 1, 1]},
    {"x": (2, 4, 9, 8), "w": (6, 4, 3, 2), "strides": [2, 3], "pads": [0, 1, 2, 0]},
    {"x": (2, 4, 9, 8), "w": (6, 2, 3, 3), "group": 2, "dilations": [2, 1]},
    {"x": (2, 6, 5, 5), "w": (6, 1, 3, 3), "group": 6},
    {"x": (1, 3, 4, 5, 6), "w": (4, 3, 2, 3, 2), "pads": [1, 0, 1, 0, 1, 1]},
    {"x": (2, 4, 12), "w": (6, 4, 3), "pads": [2, 1], "strides": [2]},
    {"x": (2, 4, 5, 4), "w": (4, 6, 3, 3), "strides": [2, 2], "transposed": True},
    {
        "x": (2, 4, 5, 4),
        "w": (4, 3, 3, 2),
        "strides": [2, 2],
        "pads": [1, 0, 1, 0],
        "output_padding": [1, 1],
        "group": 2,
        "transposed": True,
    },
    {"x": (2, 4, 7), "w": (4, 2, 3), "strides": [3], "transposed": True},
]


@pytest.mark.parametrize("case", CONVOLUTIONS)
@pytest.mark.parametrize("last", [False, True])
def test_convolutions_are_those_of_the_reference(
    case: dict[str, Any], last: bool
) -> None:
    memory = Memory()
    ran, found, expected = convolved(memory, F32, last=last, **case)
    assert ran[-1] == "library"
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize("fuses", [False, True])
@pytest.mark.parametrize(
    "steps", [(), ("Add",), ("Add", "Relu"), ("Relu",), ("Add", "Relu", "Add")]
)
def test_bias_and_relu_are_cudnns_where_that_is_asked_for(
    dtype: np.dtype[Any], fuses: bool, steps: tuple[str, ...]
) -> None:
    memory = Memory()
    case = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3), "last": True}
    ran, found, expected = convolved(memory, dtype, steps=steps, fuses=fuses, **case)
    whole = fuses and len(steps) < 3
    assert ran[1:] == (["library"] if whole or not steps else ["library", "kernel"])
    assert_close(found, expected)


@pytest.mark.parametrize("dtype", [F16, BF16])
@pytest.mark.parametrize(
    "steps", [("Bias",), ("Bias", "Relu"), ("Bias", "Relu", "Add")]
)
def test_sums_and_a_narrow_bias_are_rounded_once(
    dtype: np.dtype[Any], steps: tuple[str, ...]
) -> None:
    memory = Memory()
    case = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3), "last": True}
    ran, found, expected = convolved(memory, dtype, steps=steps, fuses=True, **case)
    assert ran[1:] == ["library"] + ["kernel"] * (len(steps) == 3)
    (call,) = (c.call for c in memory.recorder.commands if isinstance(c, EngineCall))
    assert call.has_bias and call.relu == ("Relu" in steps)
    if len(steps) < 3:
        np.testing.assert_array_equal(found, expected.astype(dtype))
    assert_close(found, expected)


def test_a_result_in_another_layout_is_copied() -> None:
    memory = Memory()
    case = {"x": (1, 4, 6, 6), "w": (8, 4, 3, 3)}
    ran, found, expected = convolved(memory, F32, last=True, out_last=False, **case)
    assert ran[-2:] == ["library", "kernel"]
    assert_close(found, expected)


@pytest.mark.parametrize("first", [False, True])
def test_one_axis_becomes_two_as_the_option_says(first: bool) -> None:
    memory = Memory()
    case = {"x": (2, 4, 12), "w": (6, 4, 3), "pads": [2, 1]}
    _, found, expected = convolved(memory, F32, rows_first=first, **case)
    assert_close(found, expected)
    (command,) = memory.recorder.commands
    assert command.call.x.shape == ((2, 4, 1, 12) if first else (2, 4, 12, 1))


def test_weights_that_are_constants_are_laid_out_once() -> None:
    memory = Memory()
    image = memory.random(F16, 1, 4, 6, 6, axes=LAST[4])
    array = RNG.standard_normal((8, 4, 3, 3)).astype(np.float16)
    weights = memory.recorder.constant(array)
    builder = ChainBuilder()
    chain = builder.build([builder.step("Cast", [builder.input("f32")], "f16")])
    family = convolutions.Convolutions(memory.cudnn, ConvolutionSettings(), tf32=False)
    out = memory.new(np.zeros((1, 8, 4, 4), np.float16), LAST[4])
    for _ in range(2):
        assert family.record_convolution(
            memory.recorder,
            image,
            weights,
            [Slide(3, 1, 1, 0, 0)] * 2,
            Epilogue(chain, (), (out,)),
        )
    first, second = memory.recorder.commands
    assert isinstance(first.views[1].buffer, Packed)
    assert first.views[1].buffer is second.views[1].buffer
    assert memory.run() == ["library"] * 2
    assert_close(memory.array(out), reference(memory.array(image), array))


@pytest.mark.parametrize("dtype", [np.dtype(np.float64), np.dtype(np.int8)])
def test_other_elements_are_left_to_kernels(dtype: np.dtype[Any]) -> None:
    memory = Memory()
    case: dict[str, Any] = {"x": (1, 2, 4, 4), "w": (2, 2, 3, 3)}
    ran, _, _ = convolved(memory, dtype, **case)
    assert ran == [] and not memory.recorder.commands


def test_images_that_lie_otherwise_are_left_to_kernels() -> None:
    memory = Memory()
    image = memory.random(F32, 1, 2, 8, 8).slice([0, 0, 0, 0], [1, 2, 6, 6])
    weights = memory.random(F32, 2, 2, 3, 3)
    out = memory.new(np.zeros((1, 2, 4, 4), np.float32))
    builder = ChainBuilder()
    family = convolutions.Convolutions(memory.cudnn, ConvolutionSettings(), tf32=False)
    after = Epilogue(builder.build([builder.input("f32")]), (), (out,))
    slides = [Slide(3, 1, 1, 0, 0)] * 2
    assert not family.record_convolution(memory.recorder, image, weights, slides, after)


def test_without_plans_kernels_compute() -> None:
    memory = Memory()
    memory.frontend.declines = "no engine"
    case: dict[str, Any] = {"x": (1, 2, 4, 4), "w": (2, 2, 3, 3)}
    ran, _, _ = convolved(memory, F32, **case)
    assert ran == [] and not memory.recorder.commands
