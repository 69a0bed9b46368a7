"""Products by cuBLASLt: what is asked of it means what the model says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.gpu.command import Launch
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Step
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines.product import ACTIVATIONS, product_of
from onnxplug_cuda.families.fused import fused
from onnxplug_cuda.families.products import Products

from . import library_of_products
from .on_products import (
    BF16,
    F16,
    F32,
    F64,
    Memory,
    assert_close,
    in_batches,
    product,
)

# layouts


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_factors_lie_in_rows_or_in_columns(
    dtype: np.dtype[Any], left: bool, right: bool
) -> None:
    memory = Memory()
    a = memory.random(dtype, *((64, 128) if left else (128, 64)), offset=32)
    b = memory.random(dtype, *((192, 64) if right else (64, 192)))
    a = a.transpose((1, 0)) if left else a
    b = b.transpose((1, 0)) if right else b
    out = memory.new(np.zeros((128, 192), dtype), offset=16)
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


def test_parts_of_arrays_are_factors_and_results() -> None:
    memory = Memory()
    a = memory.random(F32, 130, 100).slice([1, 3], [128, 64])
    b = memory.random(F32, 70, 200).slice([5, 7], [64, 130])
    whole = memory.new(np.zeros((140, 160), np.float32))
    out = whole.slice([2, 9], [128, 130])
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    expected = np.zeros((140, 160))
    expected[2:130, 9:139] = product(memory.array(a), memory.array(b))
    assert_close(memory.array(whole), expected)


def test_one_row_or_column_may_lie_in_any_way() -> None:
    memory = Memory()
    a = memory.random(F32, 1, 1024)
    b = memory.random(F32, 1024, 1024)
    out = memory.new(np.zeros((1, 1024), np.float32))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


@pytest.mark.parametrize("repeated", [(), (0,), (1,)])
def test_batches_are_one_axis_and_may_be_repeated(repeated: tuple[int, ...]) -> None:
    memory = Memory()
    a = memory.random(F16, *((1, 1) if 0 in repeated else (2, 3)), 64, 64)
    b = memory.random(F16, *((1, 1) if 1 in repeated else (2, 3)), 64, 128)
    out = memory.new(np.zeros((2, 3, 64, 128), np.float16))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


def test_batches_that_lie_apart_are_several_calls() -> None:
    """As heads of attention do: [images, heads, rows, depth] of [images, rows, …]."""
    memory = Memory()
    heads = [memory.random(F32, 2, 64, 4, 32) for _ in range(2)]
    q, k = (view.transpose((0, 2, 1, 3)) for view in heads)
    out = memory.new(np.zeros((2, 4, 64, 64), np.float32))
    Products(tf32=False).record_matmul(
        memory.recorder, q, k.transpose((0, 1, 3, 2)), out
    )
    assert memory.run() == ["library", "library"]
    expected = product(memory.array(q), memory.array(k).swapaxes(-1, -2))
    assert_close(memory.array(out), expected)


def test_factors_may_be_rounded_to_tf32_where_that_is_allowed() -> None:
    results = []
    for tf32 in (False, True):
        memory = Memory()
        generator = np.random.default_rng(1)
        a, b = (
            memory.new(generator.standard_normal((128, 128)).astype(np.float32))
            for _ in range(2)
        )
        out = memory.new(np.zeros((128, 128), np.float32))
        Products(tf32=tf32).record_matmul(memory.recorder, a, b, out)
        memory.run()
        found = memory.array(out) - product(memory.array(a), memory.array(b))
        results.append(np.abs(found).max())
    assert results[0] < 1e-5 < 1e-3 < results[1]


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((8, 8), (8, 8), "small"),
        ((4096, 2), (2, 1024), "few products of a sum"),
        ((1 << 15, 64), (64, 8), "few columns"),
    ],
)
def test_small_products_are_kernels(
    a: tuple[int, int], b: tuple[int, int], reason: str
) -> None:
    memory = Memory()
    out = memory.new(np.zeros((a[0], b[1]), np.float32))
    views = memory.random(F32, *a), memory.random(F32, *b)
    Products(tf32=False).record_matmul(memory.recorder, *views, out)
    assert [type(each) for each in memory.recorder.commands] == [Launch], reason


def test_what_lies_otherwise_is_a_kernel() -> None:
    memory = Memory()
    a = memory.random(F32, 128, 256).slice([0, 0], [128, 128], [1, 2])
    b = memory.random(F32, 128, 128)
    out = memory.new(np.zeros((128, 128), np.float32))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert [type(each) for each in memory.recorder.commands] == [Launch]
    integers = memory.new(np.ones((128, 128), np.int32))
    assert product_of(*[in_batches(integers)] * 3, tf32=False) is None


# what follows


def chain_of(
    element: str, stored: str, *steps: str, operands: int = 0
) -> tuple[ChainBuilder, Any]:
    builder = ChainBuilder()
    value = builder.input(element)
    others = [builder.input(stored) for _ in range(operands)]
    if element != stored:
        value = builder.step("Cast", [value], stored)
    for step in steps:
        if step == "Add":
            value = builder.step("Add", [others.pop(0), value], stored)
        elif step == "Gelu":
            value = builder.step("Gelu", [value], stored, {"approximate": "tanh"})
        else:
            value = builder.step(step, [value], stored)
    return builder, value


FOLLOWING = [
    (F32, ("Add",), 1, ["library"]),
    (F32, ("Add", "Relu"), 1, ["library"]),
    (F16, ("Add", "Gelu"), 1, ["library"]),
    (F16, (), 0, ["library"]),
    (BF16, ("Relu",), 0, ["library"]),
    (F32, ("Add", "Add"), 2, ["library"]),
    (F16, ("Add", "Add", "Relu"), 2, ["library"]),
]


@pytest.mark.parametrize(("dtype", "steps", "count", "ran"), FOLLOWING)
def test_what_follows_is_the_librarys_as_far_as_it_goes(
    dtype: np.dtype[Any], steps: tuple[str, ...], count: int, ran: list[str]
) -> None:
    memory = Memory()
    a, b = memory.random(dtype, 96, 128), memory.random(dtype, 128, 112)
    element = element_of(dtype)
    assert element is not None
    builder, value = chain_of("f32", element, *steps, operands=count)
    chain = builder.build([value])
    bias = memory.random(dtype, 112).broadcast_to((96, 112))
    residual = memory.random(dtype, 96, 112)
    operands = (bias, residual)[:count]
    target = memory.new(np.zeros((96, 112), dtype))
    out = memory.recorder.temporary(F32, (96, 112))
    Products(tf32=False).record_matmul(
        memory.recorder, a, b, out, epilogue=Epilogue(chain, operands, (target,))
    )
    assert memory.run() == ran
    expected = product(memory.array(a), memory.array(b))
    for operand in operands:
        expected += memory.array(operand).astype(np.float64)
    if "Relu" in steps:
        expected = np.maximum(expected, 0)
    if "Gelu" in steps:
        expected = library_of_products.gelu(expected)
    assert_close(memory.array(target), expected)


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_added_to_results_lies_in_rows_of_batches(turned: bool) -> None:
    memory = Memory()
    a, b = memory.random(F32, 3, 96, 128), memory.random(F32, 128, 112)
    builder, value = chain_of("f32", "f32", "Add", "Relu", operands=1)
    if turned:
        added = memory.random(F32, 3, 112, 96).transpose((0, 2, 1))
    else:
        added = memory.random(F32, 3, 100, 120).slice([0, 4, 8], [3, 96, 112])
    target = memory.new(np.zeros((3, 96, 112), np.float32))
    after = Epilogue(builder.build([value]), (added,), (target,))
    Products(tf32=False).record_matmul(memory.recorder, a, b, target, epilogue=after)
    assert memory.run() == ["library", *["kernel"] * turned]
    expected = product(memory.array(a), memory.array(b)) + memory.array(added)
    assert_close(memory.array(target), np.maximum(expected, 0))


def test_a_result_that_is_read_twice_stays_one() -> None:
    builder, value = chain_of("f32", "f32", "Add", operands=1)
    relu = builder.step("Relu", [value], "f32")
    chain = builder.build([value, relu])
    does = fused(chain, frozenset({"f32"}), lambda _: True, ACTIVATIONS)
    assert (does.bias, does.activation) == (0, "")
    assert does.rest == Chain(("f32",), (), (Step("Relu", (0,), "f32"),), (0, 1))
    builder, value = chain_of("f64", "f64", "Add", operands=1)
    does = fused(
        builder.build([value]), frozenset({"f64"}), lambda _: True, ACTIVATIONS
    )
    assert does.bias is None and does.rest is not None
    exact = ChainBuilder()
    gelu = exact.step("Gelu", [exact.input("f32")], "f32", {"approximate": "none"})
    does = fused(exact.build([gelu]), frozenset({"f32"}), lambda _: True, ACTIVATIONS)
    assert does.activation == "" and does.rest is not None


def with_wide_bias(*, twice: bool = False, narrow: str = "f16") -> Chain:
    """A sum and a narrower bias that are rounded to *narrow* once."""
    builder = ChainBuilder()
    total, bias = builder.input("f32"), builder.input("f16")
    wide = builder.step("Cast", [bias], "f32")
    both = builder.step("Add", [wide, total], "f32")
    results = [builder.step("Cast", [both], narrow)]
    if twice:
        results.append(builder.step("Neg", [wide], "f32"))
    return builder.build(results)


def test_a_narrower_bias_is_the_librarys_where_it_writes_as_narrow_results() -> None:
    results = frozenset({"f16", "f32"})
    does = fused(with_wide_bias(), results, lambda _: True, ACTIVATIONS)
    assert does == ("f16", 0, None, "", None, ())
    does = fused(with_wide_bias(twice=True), results, lambda _: True, ACTIVATIONS)
    assert does[:4] == ("f16", 0, None, "") and does.operands == (0,)
    assert does.rest is not None and does.rest.inputs == ("f16", "f16")
    assert [step.operator for step in does.rest.steps] == ["Cast", "Neg"]
    for chain, takes in (
        (with_wide_bias(), False),
        (with_wide_bias(narrow="f8"), True),
    ):
        does = fused(chain, results, lambda _, takes=takes: takes, ACTIVATIONS)
        assert (does.element, does.bias) == ("f32", None)


def test_a_bias_for_each_row_is_left_to_a_kernel() -> None:
    memory = Memory()
    a, b = memory.random(F32, 128, 128), memory.random(F32, 128, 128)
    builder, value = chain_of("f32", "f32", "Add", operands=1)
    bias = memory.random(F32, 128, 1).broadcast_to((128, 128))
    target = memory.new(np.zeros((128, 128), np.float32))
    out = memory.recorder.temporary(F32, (128, 128))
    after = Epilogue(builder.build([value]), (bias,), (target,))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out, epilogue=after)
    assert memory.run() == ["library", "kernel"]
    expected = product(memory.array(a), memory.array(b)) + memory.array(bias)
    assert_close(memory.array(target), expected)


def test_a_convolution_of_one_place_is_a_product() -> None:
    """[N, 1, lines, rows, *taps, depth], with channels last as images lie then."""
    memory = Memory()
    x, w = memory.random(F32, 2, 1, 16, 16, 1, 1, 64), memory.random(F32, 96, 64)
    weights = View(w.buffer, 0, F32, (1, 1, 1, 1, 64, 96), (0, 0, 0, 0, 1, 64))
    out = memory.new(np.zeros((2, 1, 16, 16, 96), np.float32))
    Products(tf32=False).record_contraction(memory.recorder, x, weights, out)
    assert memory.run() == ["library"]
    images = memory.array(x).reshape(2, 1, 16, 16, 64)
    assert_close(memory.array(out), product(images, memory.array(w).T))
