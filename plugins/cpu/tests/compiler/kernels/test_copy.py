"""Copies between strided arrays, against numpy's."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_concat, record_fill
from onnxplug_cpu.compiler.kernels.movement import copy
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import AVX512, NEON, Isa

from ..interpreter import ISAS, Interpreter, assembly, source, target_machine

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)
_NAMES = ("bool", "int8", "float16", "float32", "int64", "complex128")
DTYPES = [np.dtype(name) for name in _NAMES]
DTYPES.append(np.dtype(ml_dtypes.bfloat16))


def some_bits(random_: random.Random, dtype: np.dtype[Any], count: int) -> Any:
    """Any bits at all, NaNs of every kind included."""
    return np.frombuffer(random_.randbytes(count * dtype.itemsize), dtype)


def as_bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    unsigned = f"u{min(array.dtype.itemsize, 8)}"
    return np.atleast_1d(np.ascontiguousarray(array)).view(unsigned)


def strided(random_: random.Random, shape: Sequence[int], repeat: bool) -> Any:
    """The size of a buffer, an offset and strides of a view of *shape* in it."""
    order = list(range(len(shape)))
    if random_.random() < 0.6:
        random_.shuffle(order)
    strides, offset, distance = [0] * len(shape), random_.choice((0, 0, 3)), 1
    for axis in reversed(order):
        if repeat and random_.random() < 0.15:
            continue
        stride = distance * random_.choice((1, 1, 1, 1, 2, 3))
        distance = stride * shape[axis] + random_.choice((0, 0, 0, 1, 5))
        strides[axis] = stride
        if random_.random() < 0.15 and shape[axis]:
            strides[axis] = -stride
            offset += stride * (shape[axis] - 1)
    return offset + distance, offset, tuple(strides)


def in_numpy(array: np.ndarray[Any, Any], view: View) -> np.ndarray[Any, Any]:
    size = view.dtype.itemsize
    return np.lib.stride_tricks.as_strided(
        array[view.offset // size :], view.shape, [s * size for s in view.strides]
    )


@isas
@pytest.mark.parametrize("rows", [2, 3, 4])
def test_rows_whose_elements_lie_in_turn(isa: Isa, rows: int) -> None:
    """As the channels of photographs do, and the blocks of DepthToSpace."""
    seeded = random.Random(rows)
    for dtype, columns, lines in itertools.product(DTYPES, (16, 37), (1, 3)):
        for joins in (True, False):
            count = lines * rows * columns
            run = Interpreter(isa)
            values = some_bits(seeded, dtype, count)
            shape = (lines, rows, columns) if joins else (lines, columns, rows)
            view = View.contiguous(run.input(values).buffer, dtype, shape)
            turned = view.transpose((0, 2, 1))
            target = run.output(dtype, turned.shape)
            record_copy(run.recorder, turned, target)
            (command,) = run.recorder.commands
            is_moved_by_vectors = "InterleavedCopy" in command.kernel.key
            assert is_moved_by_vectors == (dtype.itemsize <= 8), command.kernel.key
            run.run()
            expected = values.reshape(shape).transpose(0, 2, 1)
            np.testing.assert_array_equal(
                as_bits(run.read(target)), as_bits(expected), f"{dtype} {shape}"
            )


@isas
@pytest.mark.parametrize("workers", [1, 3])
def test_copy_of_random_shapes_and_strides(isa: Isa, workers: int) -> None:
    seeded = random.Random(workers)
    for _ in range(100):
        rank = seeded.randint(0, 6)
        most = {0: 1, 1: 5000, 2: 70, 3: 24, 4: 9, 5: 6, 6: 4}[rank]
        shape = [seeded.choice((1, seeded.randint(0, most))) for _ in range(rank)]
        shape = [seeded.randint(1, most) if n == 1 else n for n in shape]
        dtype = seeded.choice(DTYPES)
        source_size, source_offset, source_strides = strided(seeded, shape, True)
        target_size, target_offset, target_strides = strided(seeded, shape, False)
        run = Interpreter(isa, workers)
        values = some_bits(seeded, dtype, source_size)
        given = run.input(values)
        width = dtype.itemsize
        from_ = View(
            given.buffer, source_offset * width, dtype, tuple(shape), source_strides
        )
        whole = run.output(dtype, (target_size,))
        to = View(
            whole.buffer, target_offset * width, dtype, tuple(shape), target_strides
        )
        record_copy(run.recorder, from_, to)
        if math.prod(shape) == 0:
            assert run.recorder.commands == []
            continue
        run.run()
        expected = np.full(target_size * width, 0xA5, np.uint8).view(dtype)
        in_numpy(expected, to)[...] = in_numpy(values, from_)
        got = run.read(whole)
        message = f"{dtype} {shape} {source_strides} {target_strides}"
        assert (as_bits(got) == as_bits(expected)).all(), message


@isas
@pytest.mark.parametrize("name", ["u1", "u2", "u4", "u8", "c16"])
def test_transposition_with_every_tail(isa: Isa, name: str) -> None:
    dtype = np.dtype(name)
    for rows, columns in itertools.product((3, 4, 7, 8, 15, 16, 17, 33, 64), repeat=2):
        run = Interpreter(isa)
        x = np.arange(2 * rows * columns).astype(dtype).reshape(2, columns, rows)
        out = run.output(dtype, (2, rows, columns))
        record_copy(run.recorder, run.input(x).transpose((0, 2, 1)), out)
        run.run()
        assert (run.read(out) == x.transpose(0, 2, 1)).all(), (rows, columns)


@isas
def test_rows_of_every_length(isa: Isa) -> None:
    for length in [*range(1, 140), 511, 512, 513, 640, 1000]:
        run = Interpreter(isa)
        x = np.random.default_rng(length).integers(0, 256, (3, 1100), np.uint8)
        out = run.output(np.uint8, (3, length))
        fill = run.output(np.uint8, (3, length))
        record_copy(run.recorder, run.input(x).slice((0, 5), (3, length)), out)
        record_fill(run.recorder, np.array(7, np.uint8), fill)
        run.run()
        assert (run.read(out) == x[:, 5 : 5 + length]).all(), length
        assert (run.read(fill) == 7).all(), length


def test_long_rows_are_cut_for_several_workers() -> None:
    run = Interpreter(workers=4)
    x = np.random.default_rng(0).standard_normal((1 << 20), np.float32)
    out, fill = run.output(np.float32, x.shape), run.output(np.float32, x.shape)
    record_copy(run.recorder, run.input(x), out)
    record_fill(run.recorder, np.array(2.5, np.float32), fill)
    assert all(command.chunks >= 8 for command in run.recorder.commands)
    run.run()
    assert (run.read(out) == x).all()
    assert (run.read(fill) == 2.5).all()


@isas
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("size", [3, 200])
def test_concat_along_every_axis(isa: Isa, workers: int, size: int) -> None:
    generator = np.random.default_rng(1)
    for axis in (0, 1, 2, -1):
        run = Interpreter(isa, workers)
        shapes = [[size, 5, 7] for _ in range(4)]
        for shape, length in zip(shapes, (3, 0, 1, 40), strict=True):
            shape[axis] = length
        parts = [generator.integers(0, 99, shape).astype(np.int32) for shape in shapes]
        expected = np.concatenate(parts, axis)
        out = run.output(np.int32, expected.shape)
        # one is transposed, one is reversed
        views = [run.input(part) for part in parts]
        views[0] = run.input(parts[0].transpose(2, 0, 1)).transpose((1, 2, 0))
        lead = parts[3].shape
        starts = [lead[0] - 1, 0, 0]
        views[3] = run.input(parts[3][::-1]).slice(starts, lead, (-1, 1, 1))
        record_concat(run.recorder, views, out, axis)
        assert len(run.recorder.commands) == 1
        run.run()
        assert (run.read(out) == expected).all()


def test_fill_of_any_rank() -> None:
    for shape in ((), (0, 3), (2, 3, 5), (1, 1, 1, 1, 1, 1)):
        run = Interpreter()
        out = run.output(np.float16, shape)
        record_fill(run.recorder, np.array(1.5, np.float16), out)
        run.run()
        assert (run.read(out) == np.full(shape, 1.5, np.float16)).all()


def test_what_does_not_fit_is_refused() -> None:
    run = Interpreter()
    x = run.input(np.zeros((2, 3), np.float32))
    with pytest.raises(ValueError, match="one shape and dtype"):
        record_copy(run.recorder, x, run.output(np.float32, (3, 2)))
    with pytest.raises(ValueError, match="one shape and dtype"):
        record_copy(run.recorder, x, run.output(np.int32, (2, 3)))
    one = run.output(np.float32, (1, 3))
    with pytest.raises(ValueError, match="repeats"):
        record_copy(run.recorder, x, one.broadcast_to((2, 3)))
    with pytest.raises(ValueError, match="do not fill"):
        record_concat(run.recorder, [x], run.output(np.float32, (3, 3)), 0)


def test_no_register_is_spilled_in_a_transposition() -> None:
    run = Interpreter(AVX512)
    x = run.input(np.zeros((64, 64), np.float32))
    out = run.output(np.float32, (64, 64))
    record_copy(run.recorder, x.transpose((1, 0)), out)
    text = assembly(run.recorder.commands[0].kernel, AVX512)
    spills = [line for line in text.splitlines() if "zmm" in line and "rsp)" in line]
    assert spills == []


def test_compiles_for_aarch64_without_calls() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    run = Interpreter(NEON)
    x = run.input(np.zeros((64, 64), np.float32))
    record_copy(run.recorder, x.transpose((1, 0)), run.output(np.float32, (64, 64)))
    record_copy(
        run.recorder, x.slice((0, 0), (64, 63)), run.output(np.float32, (64, 63))
    )
    record_fill(run.recorder, np.array(1, np.int8), run.output(np.int8, (99,)))
    for command in run.recorder.commands:
        module = llvm.parse_assembly(source(command.kernel, NEON))
        text = str(target_machine(NEON, jit=False).emit_assembly(module))
        assert "\tbl\t" not in text


def test_copies_that_take_long_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "fewest_chunks", lambda s: max(1, int(s * 1e9 / 3)))
    test_copy_of_random_shapes_and_strides(ISAS[0], 1)
    test_transposition_with_every_tail(ISAS[0], "u4")
    test_concat_along_every_axis(ISAS[0], 1, 200)
    # of a prime number of elements, next to each other, apart, and crosswise
    for turn in (1, -1):
        interpreter = Interpreter(ISAS[0])
        x = np.arange(10007, dtype=np.float32)
        start = 0 if turn > 0 else 10006
        source = interpreter.input(x).slice((start,), (10007,), (turn,))
        target = interpreter.output(x.dtype, x.shape)
        record_copy(interpreter.recorder, source, target)
        assert len(interpreter.recorder.commands) == 2
        interpreter.run()
        np.testing.assert_array_equal(interpreter.read(target), x[::turn])
