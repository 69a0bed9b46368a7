"""Convolutions of one place by cuBLASLt."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import STILL, Slide
from onnxplug_cuda.families.pointwise import record_pointwise
from onnxplug_cuda.families.products import Products

from .on_products import F16, F32, Memory, assert_close


def image(memory: Memory, dtype: np.dtype[Any], *shape: int) -> View:
    """With its channels last."""
    batch, channels, *places = shape
    return memory.random(dtype, batch, *places, channels).transpose((0, 3, 1, 2))


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_what_residual_networks_add_is_the_librarys(
    dtype: np.dtype[Any], batch: int
) -> None:
    memory = Memory()
    x, residual = image(memory, dtype, batch, 64, 14, 15), None
    weights = memory.random(dtype, 128, 64, 1, 1)
    residual = image(memory, dtype, batch, 128, 14, 15)
    bias = memory.random(dtype, 128)
    along = View(bias.buffer, bias.offset, dtype, (1, 128, 1, 1), (0, 1, 0, 0))
    out = memory.new(np.zeros((batch, 14, 15, 128), dtype)).transpose((0, 3, 1, 2))
    element = element_of(dtype)
    assert element is not None
    builder = ChainBuilder()
    value, *added = (builder.input(each) for each in ("f32", element, element))
    if element != "f32":
        value = builder.step("Cast", [value], element)
    for each in added:
        value = builder.step("Add", [value, each], element)
    chain = builder.build([builder.step("Relu", [value], element)])
    after = Epilogue(chain, (along.broadcast_to(out.shape), residual), (out,))
    took = record_pointwise(
        Products(tf32=False), memory.recorder, x, weights, [STILL] * 2, after, "Conv"
    )
    assert took and memory.run() == ["library"]
    wide = [memory.array(each).astype(np.float64) for each in (x, weights, residual)]
    expected = np.einsum("nchw,mc->nmhw", wide[0], wide[1][:, :, 0, 0]) + wide[2]
    expected += memory.array(bias).astype(np.float64)[:, None, None]
    assert_close(memory.array(out), np.maximum(expected, 0))


@pytest.mark.parametrize(
    ("x", "filters", "slide"),
    [
        ((1, 64, 14, 15), (128, 64, 1, 1), Slide(1, 2, 1, 0, 0)),
        ((1, 64, 14, 15), (128, 32, 1, 1), STILL),
        ((1, 64, 14, 15), (128, 64, 3, 3), Slide(3, 1, 1, 1, 1)),
    ],
    ids=["strides", "groups", "windows"],
)
def test_others_are_not_products(
    x: tuple[int, ...], filters: tuple[int, ...], slide: Slide
) -> None:
    memory = Memory()
    builder = ChainBuilder()
    out = image(memory, F32, 1, 128, 14, 15)
    after = Epilogue(builder.build([builder.input("f32")]), (), (out,))
    views = image(memory, F32, *x), memory.random(F32, *filters)
    products = Products(tf32=False)
    slides = [slide] * 2
    assert not record_pointwise(
        products, memory.recorder, *views, slides, after, "Conv"
    )
    assert not memory.recorder.commands


def test_images_whose_channels_are_first_are_not_products() -> None:
    memory = Memory()
    builder = ChainBuilder()
    out = memory.new(np.zeros((1, 128, 14, 15), np.float32))
    after = Epilogue(builder.build([builder.input("f32")]), (), (out,))
    x, weights = image(memory, F32, 1, 64, 14, 15), memory.random(F32, 128, 64, 1, 1)
    assert not record_pointwise(
        Products(tf32=False), memory.recorder, x, weights, [STILL] * 2, after, "Conv"
    )
