"""Chains over whole arrays: broadcasting, strides, tails, chunks, and epilogues."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Scalar, Step
from onnxplug_compiler.ir.epilogue import epilogue
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, Isa

from ..interpreter import ISAS, Interpreter, address, assembly

F32 = np.dtype(np.float32)

each_isa = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)

ADD = Chain(("f32", "f32"), (), (Step("Add", (0, 1), "f32"),), (2,))
LONG = Chain(
    ("f32", "f32"),
    (),
    (
        Step("Sigmoid", (0,), "f32"),
        Step("Mul", (0, 2), "f32"),
        Step("Add", (3, 1), "f32"),
    ),
    (4,),
)


def long(x: Any, y: Any) -> Any:
    x = x.astype(np.float64)
    return x / (1 + np.exp(-x)) + y


def normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


def run(
    isa: Isa,
    chain: Chain,
    inputs: Sequence[Any],
    shape: tuple[int, ...],
    dtypes: Sequence[Any] = (F32,),
    workers: int = 1,
) -> list[Any]:
    """The results for arrays, or pairs of an array and what makes a view of it."""
    interpreter = Interpreter(isa, workers)
    views = []
    for given in inputs:
        array, seen = given if isinstance(given, tuple) else (given, lambda view: view)
        view = interpreter.input(array)
        views.append(
            seen(view if array.ndim else View.contiguous(view.buffer, F32, ()))
        )
    outputs = [interpreter.output(dtype, shape) for dtype in dtypes]
    record_chain(interpreter.recorder, chain, views, outputs)
    interpreter.run()
    return [interpreter.read(output) for output in outputs]


@each_isa
def test_all_sizes(isa: Isa) -> None:
    rng = np.random.default_rng(0)
    for size in [*range(1, 71), 1000]:
        x, y = normal(rng, size), normal(rng, size)
        np.testing.assert_array_equal(run(isa, ADD, [x, y], (size,))[0], x + y)
        np.testing.assert_allclose(
            run(isa, LONG, [x, y], (size,))[0], long(x, y), atol=1e-6
        )


@each_isa
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("chain", [ADD, LONG], ids=["short", "long"])
def test_broadcasting(isa: Isa, workers: int, chain: Chain) -> None:
    rng = np.random.default_rng(1)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((), ()),
        ((1,), (1, 1)),
        ((3, 5), (5,)),
        ((3, 5), (3, 1)),
        ((3, 5), (1,)),
        ((1,), (7, 37)),
        ((7, 1), (1, 37)),
        ((2, 3, 20, 17), (2, 1, 1, 17)),
        ((2, 3, 20, 17), (3, 1, 1)),
        ((2, 3, 1, 17), (1, 1, 20, 1)),
        ((4, 1, 3, 1, 5), (2, 1, 6, 5)),
        ((300, 200), (300, 200)),
        ((2, 90000), (2, 1)),
        ((5000, 3), (3,)),
        ((64, 1, 33), (1, 65, 33)),
    ]
    for first, second in shapes:
        x, y = normal(rng, *first), normal(rng, *second)
        shape = np.broadcast_shapes(first, second)
        (found,) = run(isa, chain, [x, y], shape, workers=workers)
        wanted = x + y if chain is ADD else long(x, y)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-6 * (chain is LONG))


@each_isa
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int8, np.int64])
def test_strides(isa: Isa, dtype: Any) -> None:
    rng = np.random.default_rng(2)
    element = {4: "f32", 2: "f16", 1: "i8", 8: "i64"}[np.dtype(dtype).itemsize]
    chain = Chain((element,) * 2, (), (Step("Add", (0, 1), element),), (2,))

    def numbers(*shape: int) -> Any:
        return rng.integers(-50, 50, shape).astype(dtype)

    x, y, z = numbers(40, 70), numbers(70, 40), numbers(80, 220)
    seen: list[tuple[Any, Any, Any]] = [
        (y, lambda v: v.transpose((1, 0)), y.T),
        (z, lambda v: v.slice((1, 3), (40, 70), (2, 3)), z[1::2, 3:213:3]),
        (z, lambda v: v.slice((79, 219), (40, 70), (-1, -1)), z[:-41:-1, :-71:-1]),
        (z, lambda v: v.slice((0, 5), (40, 1)).broadcast_to((40, 70)), z[:40, 5:6]),
    ]
    for array, view, wanted in seen:
        (found,) = run(isa, chain, [x, (array, view)], (40, 70), [dtype])
        np.testing.assert_array_equal(found, x + wanted)
        (found,) = run(isa, chain, [(array, view), (array, view)], (40, 70), [dtype])
        np.testing.assert_array_equal(found, np.broadcast_to(wanted + wanted, x.shape))


@each_isa
@pytest.mark.parametrize("element", ["f16", "bf16", "f32"])
def test_strides_in_a_chain_that_takes_long(isa: Isa, element: str) -> None:
    dtype = np.dtype({"f16": "float16", "bf16": "bfloat16", "f32": "float32"}[element])
    chain = Chain((element,), (), (Step("Sigmoid", (0,), element),), (1,))
    x = normal(np.random.default_rng(2), 2000, 4).astype(dtype)
    harness = Interpreter(isa)
    source, target = harness.input(x), harness.output(dtype, (2000, 3))
    columns = [view.slice((0, 2), (2000, 1)) for view in (source, target)]
    record_chain(harness.recorder, chain, columns[:1], columns[1:])
    harness.run()
    found = harness.read(columns[1]).astype(np.float64)
    wanted = 1 / (1 + np.exp(-x[:, 2:3].astype(np.float64)))
    assert np.abs(found - wanted).max() < 4e-3


@each_isa
@pytest.mark.parametrize("workers", [1, 2])
def test_large_transposed_inputs(isa: Isa, workers: int) -> None:
    rng = np.random.default_rng(3)
    x, y = normal(rng, 3, 130, 150), normal(rng, 150, 3, 130)
    moved = (y, lambda view: view.transpose((1, 2, 0)))
    (found,) = run(isa, ADD, [x, moved], x.shape, workers=workers)
    np.testing.assert_array_equal(found, x + y.transpose(1, 2, 0))
    flat = normal(rng, 150, 130)
    repeated = (flat, lambda v: v.transpose((1, 0)).broadcast_to((3, 130, 150)))
    (found,) = run(isa, ADD, [x, repeated], x.shape, workers=workers)
    np.testing.assert_array_equal(found, x + flat.T)


@each_isa
def test_strided_outputs(isa: Isa) -> None:
    rng = np.random.default_rng(4)
    x, y = normal(rng, 30, 50), normal(rng, 30, 50)
    for dtype, element in ((np.float32, "f32"), (np.float16, "f16")):
        chain = Chain(
            ("f32", "f32"),
            (),
            (Step("Add", (0, 1), "f32"), Step("Cast", (2,), element)),
            (3,),
        )
        interpreter = Interpreter(isa)
        whole = interpreter.output(dtype, (50, 90))
        target = whole.slice((0, 4), (50, 30), (1, 2)).transpose((1, 0))
        views = [interpreter.input(x), interpreter.input(y)]
        record_chain(interpreter.recorder, chain, views, [target])
        interpreter.run()
        np.testing.assert_array_equal(interpreter.read(target), (x + y).astype(dtype))
        rest = interpreter.read(whole).view(np.uint8).reshape(50, 90, -1)
        assert (rest[:, :4] == 0xA5).all() and (rest[:, 5:64:2] == 0xA5).all()


@each_isa
def test_output_in_place_of_an_input(isa: Isa) -> None:
    rng = np.random.default_rng(5)
    x, y = normal(rng, 9, 53), normal(rng, 53)
    interpreter = Interpreter(isa)
    place = interpreter.recorder.temporary(F32, (9, 53))
    views = [interpreter.input(x), interpreter.input(y)]
    record_chain(interpreter.recorder, ADD, views, [place])
    record_chain(interpreter.recorder, LONG, [place, views[1]], [place])
    interpreter.run()
    np.testing.assert_allclose(interpreter.read(place), long(x + y, y), atol=2e-6)


@each_isa
def test_several_outputs_and_types(isa: Isa) -> None:
    rng = np.random.default_rng(6)
    x = normal(rng, 11, 23)
    builder = ChainBuilder()
    number = builder.input("f32")
    positive = builder.step("Greater", [number, builder.constant("f32", 0)], "i1")
    whole = builder.step("Cast", [number], "i64")
    narrow = builder.step("Cast", [number], "bf16")
    both = builder.step("Mul", [narrow, narrow], "bf16")
    chain = builder.build([positive, whole, both, number])
    dtypes = [np.bool_, np.int64, ml_dtypes.bfloat16, np.float32]
    found = run(isa, chain, [x], x.shape, dtypes)
    rounded = x.astype(ml_dtypes.bfloat16)
    for array, wanted in zip(
        found, [x > 0, x.astype(np.int64), rounded * rounded, x], strict=True
    ):
        np.testing.assert_array_equal(array, wanted)


def test_nothing_is_recorded_for_empty_arrays() -> None:
    interpreter = Interpreter(ISAS[0])
    empty = interpreter.input(np.zeros((0, 4), np.float32))
    row = interpreter.input(np.zeros(4, np.float32))
    output = interpreter.output(F32, (0, 4))
    record_chain(interpreter.recorder, ADD, [empty, row], [output])
    assert not interpreter.recorder.commands


def test_wrong_views_are_refused() -> None:
    interpreter = Interpreter(ISAS[0])
    view = interpreter.input(np.zeros((2, 4), np.float32))
    recorder = interpreter.recorder
    with pytest.raises(ValueError, match="2 inputs and 1 outputs; got 1 and 1"):
        record_chain(recorder, ADD, [view], [interpreter.output(F32, (2, 4))])
    two = Chain(ADD.inputs, (), ADD.steps, (2, 2))
    outputs = [interpreter.output(F32, (2, 4)), interpreter.output(F32, (4,))]
    with pytest.raises(ValueError, match="one shape"):
        record_chain(recorder, two, [view, view], outputs)


def test_shapes_share_kernels() -> None:
    def kernels(first: tuple[int, ...], second: tuple[int, ...]) -> set[Any]:
        interpreter = Interpreter(ISAS[0])
        views = [interpreter.input(np.zeros(s, np.float32)) for s in (first, second)]
        shape = np.broadcast_shapes(first, second)
        record_chain(interpreter.recorder, ADD, views, [interpreter.output(F32, shape)])
        return {command.kernel for command in interpreter.recorder.commands}

    assert (
        kernels((1,), (1,)) == kernels((8, 9), (8, 9)) == kernels((2, 3, 4), (2, 3, 4))
    )
    assert kernels((8, 9), (9,)) == kernels((2, 3, 5, 7), (7,))
    assert kernels((8, 9), (9,)) != kernels((8, 9), (8, 1))


def test_work_is_divided_among_workers() -> None:
    interpreter = Interpreter(ISAS[0], workers=4)
    for shape, least, most in (
        ((64,), 1, 1),
        ((1000, 1000), 8, 32),
        ((1, 10**6), 8, 32),
    ):
        views = [interpreter.input(np.zeros(shape, np.float32)) for _ in range(2)]
        output = interpreter.output(F32, shape)
        record_chain(interpreter.recorder, ADD, views, [output])
        assert least <= interpreter.recorder.commands[-1].chunks <= most


def test_kernels_call_nothing_and_do_not_spill() -> None:
    steps = (Step("Gelu", (0,), "f32"), Step("Mul", (2, 1), "f32"))
    chain = Chain(("f32", "f32"), (), steps, (3,))
    for isa in (AVX512, AVX2):
        interpreter = Interpreter(isa)
        views = [interpreter.input(np.zeros((8, 64), np.float32)) for _ in range(2)]
        output = interpreter.output(F32, (8, 64))
        record_chain(interpreter.recorder, chain, views, [output])
        text = assembly(interpreter.recorder.commands[0].kernel, isa)
        assert not re.search(r"^\s+call", text, re.MULTILINE)
        if isa is AVX512:
            assert not re.search(r"zmm\d+, -?\d*\(%rsp\)|\(%rsp\), %zmm", text)


# epilogues


def tiles(rows: int, columns: int, width: int) -> list[tuple[int, int, int, int]]:
    """(row, rows, column, columns) of tiles of 14 x *width*, cut at the borders."""
    return [
        (row, min(14, rows - row), column, min(width, columns - column))
        for row in range(0, rows, 14)
        for column in range(0, columns, width)
    ]


def finish(
    isa: Isa,
    interpreter: Interpreter,
    chain: Chain,
    product: Any,
    operands: Sequence[View],
    outputs: Sequence[View],
    in_place: bool = False,
    width: int = 32,
) -> None:
    """Call the epilogue for every tile of *product*, which has five axes and elements
    of four bytes."""
    kernel, arguments = epilogue_call(epilogue(chain, operands, outputs))
    code = ctypes.CFUNCTYPE(
        None,
        ctypes.c_void_p,
        *[ctypes.c_int64] * 7,
        ctypes.c_void_p,
        ctypes.c_int64,
    )(address(kernel.kernel, isa))
    words = interpreter.word(arguments)
    *lead, rows, columns = product.shape
    if in_place:
        memory = interpreter.memory(outputs[0].buffer).view(np.float32)
        memory[:] = product.reshape(-1)
    for line in np.ndindex(*lead):
        for row, height, column, count in tiles(rows, columns, width):
            if in_place:
                place = np.ravel_multi_index((*line, row, column), product.shape)
                start = memory.ctypes.data + 4 * int(place)
                distance = columns
            else:
                distance = width + 16
                tile = np.full((height, distance), np.nan, np.float32)
                tile = tile.view(product.dtype)
                tile[:, :count] = product[line][row:, column:][:height, :count]
                start = tile.ctypes.data
            code(words, *line, row, height, column, count, start, distance)
    interpreter.run()


@each_isa
@pytest.mark.parametrize("in_place", [False, True])
def test_epilogue(isa: Isa, in_place: bool) -> None:
    rng = np.random.default_rng(7)
    builder = ChainBuilder()
    tile = builder.input("f32")
    operands = [builder.input("f32") for _ in range(4)]
    biased = builder.step("Add", [tile, operands[0]], "f32")
    active = builder.step("Tanh", [biased], "f32")
    scaled = builder.step("Mul", [active, operands[1]], "f32")
    summed = builder.step("Add", [scaled, operands[2]], "f32")
    chain = builder.build([builder.step("Sub", [summed, operands[3]], "f32")])
    for shape in (
        (1, 1, 1, 1, 1),
        (1, 1, 1, 15, 33),
        (2, 3, 1, 14, 64),
        (2, 1, 4, 29, 100),
    ):
        product = normal(rng, *shape)
        bias, scale = normal(rng, shape[4]), normal(rng, *shape[2:4], 1)
        other, single = normal(rng, *shape), normal(rng, shape[0], 1, 1, 1, 1)
        interpreter = Interpreter(isa)
        views = [
            interpreter.input(array).broadcast_to(shape)
            for array in (bias, scale, other, single)
        ]
        output = interpreter.output(F32, shape)
        finish(isa, interpreter, chain, product, views, [output], in_place)
        wanted = np.tanh(np.float64(product) + bias) * scale + other - single
        np.testing.assert_allclose(interpreter.read(output), wanted, atol=2e-6)


@each_isa
def test_epilogue_with_strides_types_and_outputs(isa: Isa) -> None:
    rng = np.random.default_rng(8)
    shape = (2, 2, 3, 17, 40)
    product = normal(rng, *shape)
    mask = rng.integers(0, 2, (2, 3, 40, 17)).astype(np.bool_)
    moved = normal(rng, 2, 40, 3, 2, 17)
    chain = Chain(
        ("f32", "i1", "f32"),
        (Scalar("f32", -1e4),),
        (
            Step("Where", (1, 0, 3), "f32"),
            Step("Add", (4, 2), "f32"),
            Step("Cast", (5,), "f16"),
        ),
        (6, 5),
    )
    interpreter = Interpreter(isa)
    masks = interpreter.input(mask).transpose((0, 1, 3, 2))
    views = [
        View(
            masks.buffer,
            0,
            masks.dtype,
            shape,
            (masks.strides[0], 0, *masks.strides[1:]),
        ),
        interpreter.input(moved).transpose((0, 3, 2, 4, 1)),
    ]
    outputs = [
        interpreter.output(np.float16, (2, 17, 3, 2, 40)).transpose((0, 3, 2, 1, 4)),
        interpreter.output(np.float32, (2, 2, 40, 3, 17)).transpose((0, 1, 3, 4, 2)),
    ]
    finish(isa, interpreter, chain, product, views, outputs)
    seen = mask.transpose(0, 1, 3, 2)[:, None]
    added = moved.transpose(0, 3, 2, 4, 1)
    wanted = np.where(seen, product, np.float32(-1e4)) + added
    np.testing.assert_array_equal(interpreter.read(outputs[1]), wanted)
    np.testing.assert_array_equal(
        interpreter.read(outputs[0]), wanted.astype(np.float16)
    )


def test_epilogues_call_nothing_and_do_not_spill() -> None:
    gelu = (Step("Add", (0, 1), "f32"), Step("Gelu", (3,), "f32"))
    chain = Chain(("f32",) * 3, (), (*gelu, Step("Add", (4, 2), "f32")), (5,))
    for isa in (AVX512, AVX2):
        interpreter = Interpreter(isa)
        shape = (1, 1, 1, 8, 64)
        views = [interpreter.input(np.zeros(shape, np.float32)) for _ in range(2)]
        outputs = [interpreter.output(F32, shape)]
        code, _ = epilogue_call(epilogue(chain, views, outputs))
        text = assembly(code.kernel, isa)
        assert not re.search(r"^\s+call", text, re.MULTILINE)
        if isa is AVX512:
            assert not re.search(r"zmm\d+, -?\d*\(%rsp\)|\(%rsp\), %zmm", text)


def test_epilogue_refuses_wrong_views() -> None:
    interpreter = Interpreter(ISAS[0])
    view = interpreter.input(np.zeros((1, 1, 2, 4), np.float32))
    output = interpreter.output(F32, (1, 1, 2, 4))
    with pytest.raises(ValueError, match="1 inputs beside the tile"):
        epilogue(ADD, [], [output])
    with pytest.raises(ValueError, match="one shape"):
        epilogue(ADD, [view.slice((0,) * 4, (1, 1, 1, 4))], [output])
    with pytest.raises(ValueError, match="lines"):
        epilogue_call(epilogue(ADD, [view], [output]))
    line = interpreter.output(F32, (1, 1, 1, 2, 4))
    half = Chain(("f16", "f16"), (), (Step("Add", (0, 1), "f16"),), (2,))
    with pytest.raises(ValueError, match="f32"):
        epilogue_call(epilogue(half, [line], [line]))


# chains


def test_builder() -> None:
    builder = ChainBuilder()
    x, y = builder.input("f32"), builder.input("f32")
    two = builder.constant("f32", 2.0)
    dead = builder.step("Exp", [x], "f32")
    double = builder.step("Mul", [x, two], "f32")
    same = builder.step("Identity", [double], "f32")
    again = builder.step("Mul", [x, builder.constant("f32", 2.0)], "f32")
    late = builder.input("f32")
    result = builder.step("Clip", [same, None, late], "f32", {"b": 1, "a": 2})
    assert again == double == same != dead
    assert builder.element(result) == "f32"
    chain = builder.build([result, y])
    assert chain == Chain(
        ("f32", "f32", "f32"),
        (Scalar("f32", 2.0),),
        (
            Step("Mul", (0, 3), "f32"),
            Step("Clip", (4, -1, 2), "f32", (("a", 2), ("b", 1))),
        ),
        (5, 1),
    )


def test_builder_keeps_constants_of_other_types_and_signs_apart() -> None:
    builder = ChainBuilder()
    numbers = [
        builder.constant(element, value)
        for element, value in (
            ("f32", 0.0),
            ("f32", -0.0),
            ("f64", 0.0),
            ("i32", 0),
            ("i1", False),
        )
    ]
    assert len(set(numbers)) == 5


def test_builder_appends_chains() -> None:
    builder = ChainBuilder()
    x = builder.input("f32")
    root = builder.step("Sqrt", [x], "f32")
    (total,) = builder.append(ADD, [root, x])
    (result,) = builder.append(LONG, [total, root])
    chain = builder.build([result])
    assert [step.operator for step in chain.steps] == [
        "Sqrt",
        "Add",
        "Sigmoid",
        "Mul",
        "Add",
    ]
    x_ = np.abs(normal(np.random.default_rng(9), 30))
    (found,) = run(ISAS[0], chain, [x_], (30,))
    np.testing.assert_allclose(found, long(np.sqrt(x_) + x_, np.sqrt(x_)), rtol=1e-6)
