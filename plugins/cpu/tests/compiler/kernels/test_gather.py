"""Reading and writing at indices, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.reference.ops.op_gathernd import _gather_nd_impl

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.movement import gather
from onnxplug_cpu.compiler.kernels.movement.gather import (
    record_gather,
    record_gather_elements,
    record_gather_nd,
    record_scatter_elements,
    record_scatter_nd,
)
from onnxplug_cpu.compiler.machine.isa import Isa

from ..interpreter import ISAS, Interpreter

isas = pytest.mark.parametrize("isa", ISAS, ids=lambda isa: isa.name)


def permuted(
    run: Interpreter, generator: np.random.Generator, array: np.ndarray[Any, Any]
) -> View:
    """An input whose axes lie in memory in a random order."""
    order = generator.permutation(array.ndim)
    moved = run.input(array.transpose(order))
    return moved.transpose(np.argsort(order).tolist())


@isas
@pytest.mark.parametrize("workers", [1, 3])
def test_gather_of_random_shapes(isa: Isa, workers: int) -> None:
    generator = np.random.default_rng(workers)
    for _ in range(40):
        run = Interpreter(isa, workers)
        rank = generator.integers(1, 5)
        shape = generator.integers(1, 9, rank).tolist()
        if generator.random() < 0.3:
            shape[-1] = int(generator.integers(60, 140))
        axis = int(generator.integers(-rank, rank))
        dtype = generator.choice(["i1", "f2", "f4", "f8"])
        data = generator.integers(0, 100, shape).astype(dtype)
        size = data.shape[axis]
        index_shape = generator.integers(0, 6, generator.integers(0, 4))
        kind = generator.choice(["i4", "i8"])
        indices = generator.integers(-size, size, index_shape).astype(kind)
        expected = np.take(data, indices, axis)
        out = run.output(dtype, expected.shape)
        record_gather(
            run.recorder,
            permuted(run, generator, data),
            permuted(run, generator, indices),
            out,
            axis,
        )
        run.run()
        assert (run.read(out) == expected).all()


@isas
def test_rows_of_an_embedding(isa: Isa) -> None:
    generator = np.random.default_rng(0)
    table = generator.standard_normal((1000, 768), np.float32)
    indices = generator.integers(0, 1000, (2, 64))
    run = Interpreter(isa, 2)
    out = run.output(np.float32, (2, 64, 768))
    record_gather(run.recorder, run.input(table), run.input(indices), out, 0)
    assert run.recorder.commands[0].chunks > 1
    run.run()
    assert (run.read(out) == table[indices]).all()


@isas
@pytest.mark.parametrize("kind", ["int32", "int64"])
@pytest.mark.parametrize("bad", [-6, 5, 2**31 - 1, -(2**31)])
def test_an_index_out_of_range_fails_the_run(isa: Isa, kind: str, bad: int) -> None:
    run = Interpreter(isa)
    data = run.input(np.zeros((3, 5, 2), np.float32))
    indices = run.input(np.array([0, 4, bad, -5], kind))
    record_gather(run.recorder, data, indices, run.output("f4", (3, 4, 2)), 1)
    message = f"index {bad} is out of range for axis 1 of size 5; expected -5 to 4"
    with pytest.raises(IndexError, match=message):
        run.run()


def test_extreme_indices_do_not_wrap_into_range() -> None:
    for bad in (2**63 - 1, -(2**63)):
        run = Interpreter()
        data = run.input(np.zeros((5,), np.float32))
        indices = run.input(np.array([bad], np.int64))
        record_gather(run.recorder, data, indices, run.output("f4", (1,)), 0)
        with pytest.raises(IndexError, match=f"index {bad} is"):
            run.run()


def test_an_empty_axis_has_no_index() -> None:
    run = Interpreter()
    data = run.input(np.zeros((2, 0), np.float32))
    none = run.input(np.zeros(0, np.int64))
    record_gather(run.recorder, data, none, run.output("f4", (2, 0)), 1)
    one = run.input(np.zeros(1, np.int64))
    with pytest.raises(OutOfBounds, match="buffer of 0 bytes"):
        record_gather(run.recorder, data, one, run.output("f4", (2, 1)), 1)


@isas
def test_elements(isa: Isa) -> None:
    generator = np.random.default_rng(3)
    for _ in range(40):
        run = Interpreter(isa, 2)
        rank = int(generator.integers(1, 5))
        axis = int(generator.integers(0, rank))
        shape = generator.integers(1, 9, rank)
        data = generator.standard_normal(shape).astype("f4")
        counts = [int(generator.integers(1, n + 1)) for n in shape]
        counts[axis] = int(generator.integers(0, 2 * shape[axis]))
        size = int(shape[axis])
        indices = generator.integers(-size, size, counts)
        part = data[tuple(slice(n) if a != axis else slice(None)
                          for a, n in enumerate(counts))]  # fmt: skip
        expected = np.take_along_axis(part, indices, axis)
        out = run.output("f4", expected.shape)
        viewed = permuted(run, generator, data), permuted(run, generator, indices)
        record_gather_elements(run.recorder, *viewed, out, axis - rank)

        each = generator.integers(0, size, counts)
        updates = generator.standard_normal(counts).astype("f4")
        scattered = data.copy()
        for place in np.ndindex(*counts):
            to = list(place)
            to[axis] = each[place]
            scattered[tuple(to)] = updates[place]
        into = run.output("f4", data.shape)
        record_scatter_elements(
            run.recorder,
            permuted(run, generator, data),
            permuted(run, generator, each),
            run.input(updates),
            into,
            axis,
        )
        run.run()
        assert (run.read(out) == expected).all()
        assert (run.read(into) == scattered).all()


@isas
def test_tuples_of_indices(isa: Isa) -> None:
    generator = np.random.default_rng(4)
    for _ in range(40):
        run = Interpreter(isa, 2)
        rank = int(generator.integers(1, 5))
        shape = generator.integers(1, 7, rank).tolist()
        count = int(generator.integers(1, rank + 1))
        batch = int(generator.integers(0, rank - count + 1))
        outer = generator.integers(1, 5, generator.integers(0, 3)).tolist()
        data = generator.standard_normal(shape).astype("f4")
        limits = np.array(shape[batch : batch + count])
        indices = generator.integers(-limits, limits, (*shape[:batch], *outer, count))
        expected = _gather_nd_impl(data, indices, batch)[0]
        out = run.output("f4", expected.shape)
        viewed = permuted(run, generator, data), permuted(run, generator, indices)
        record_gather_nd(run.recorder, *viewed, out, batch)

        heads = np.array(shape[:count])
        each = generator.integers(-heads, heads, (*outer, count))
        updates = generator.standard_normal((*outer, *shape[count:])).astype("f4")
        scattered = data.copy()
        for place in np.ndindex(*outer):
            scattered[tuple(each[place])] = updates[place]
        into = run.output("f4", data.shape)
        record_scatter_nd(
            run.recorder,
            permuted(run, generator, data),
            permuted(run, generator, each),
            run.input(updates).reshape(updates.shape),  # a scalar's too
            into,
        )
        run.run()
        assert (run.read(out) == expected).all()
        assert (run.read(into) == scattered).all()


def test_each_component_of_a_tuple_is_checked() -> None:
    for bad, axis, size in (((2, 0), 0, 2), ((0, -4), 1, 3)):
        run = Interpreter()
        data = run.input(np.zeros((2, 3, 4), np.float32))
        indices = run.input(np.array([bad]))
        record_gather_nd(run.recorder, data, indices, run.output("f4", (1, 4)))
        with pytest.raises(IndexError, match=f"axis {axis} of size {size}"):
            run.run()


def test_scattering_in_place_copies_nothing() -> None:
    run = Interpreter()
    cache = run.recorder.temporary(np.dtype("f4"), (4, 2))
    indices = run.input(np.array([[1], [-1]]))
    updates = run.input(np.ones((2, 2), np.float32))
    record_scatter_nd(run.recorder, cache, indices, updates, cache)
    assert len(run.recorder.commands) == 1
    run.run()
    assert (run.read(cache)[[1, 3]] == 1).all()


def test_what_does_not_fit_is_refused() -> None:
    run = Interpreter()
    data = run.input(np.zeros((2, 3), np.float32))
    indices = run.input(np.zeros(4, np.int64))
    with pytest.raises(ValueError, match="expected"):
        record_gather(run.recorder, data, indices, run.output("f4", (4, 2)), 0)
    floats = run.input(np.zeros(4, np.float32))
    with pytest.raises(ValueError, match="int32 or int64"):
        record_gather(run.recorder, data, floats, run.output("f4", (4, 3)), 0)


@pytest.mark.parametrize("per_chunk", [3, 40, 400])
def test_what_takes_long_is_moved_in_parts(
    per_chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        gather, "fewest_chunks", lambda s: max(1, int(s * 1e9 / per_chunk))
    )
    test_gather_of_random_shapes(ISAS[0], 1)
    test_elements(ISAS[0])
    test_tuples_of_indices(ISAS[0])
    test_an_index_out_of_range_fails_the_run(ISAS[0], "int64", 5)
    test_each_component_of_a_tuple_is_checked()
