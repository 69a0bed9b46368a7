"""Sequence operators against lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onnxplug_kernels import find_kernel


def run(
    op_type: str,
    *inputs: Any,
    version: int = 28,
    output_count: int = 1,
    **attributes: Any,
) -> Any:
    kernel = find_kernel("", op_type, version)
    assert kernel is not None
    return kernel.bind(np, attributes, output_count=output_count)(*inputs)


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


SEQUENCE = [ints(0), ints(1, 1), ints(2, 2, 2)]


def test_construction() -> None:
    assert run("SequenceEmpty") == []
    assert run("SequenceEmpty", dtype=8) == []
    with pytest.raises(ValueError, match="element type 99"):
        run("SequenceEmpty", dtype=99)
    made = run("SequenceConstruct", *SEQUENCE)
    assert isinstance(made, list)
    assert all(a is b for a, b in zip(made, SEQUENCE, strict=True))


def test_length() -> None:
    for sequence in ([], SEQUENCE):
        length = run("SequenceLength", sequence)
        assert isinstance(length, np.ndarray)
        assert (length.shape, length.dtype) == ((), np.int64)
        assert length.item() == len(sequence)


@pytest.mark.parametrize("position", range(-3, 3))
def test_at_and_erase(position: int) -> None:
    where = np.array(position, np.int32)
    assert run("SequenceAt", SEQUENCE, where) is SEQUENCE[position]
    rest = list(SEQUENCE)
    del rest[position]
    erased = run("SequenceErase", SEQUENCE, where)
    assert [len(e) for e in erased] == [len(e) for e in rest]
    assert len(SEQUENCE) == 3


@pytest.mark.parametrize("position", range(-3, 4))
def test_insert(position: int) -> None:
    new = ints()
    inserted = run("SequenceInsert", SEQUENCE, new, np.array(position))
    expected = list(SEQUENCE)
    expected.insert(position, new)
    assert [len(e) for e in inserted] == [len(e) for e in expected]
    assert len(SEQUENCE) == 3


def test_the_back_is_the_default() -> None:
    assert [len(e) for e in run("SequenceInsert", SEQUENCE, ints())] == [1, 2, 3, 0]
    assert [len(e) for e in run("SequenceErase", SEQUENCE)] == [1, 2]
    with pytest.raises(IndexError, match="empty sequence"):
        run("SequenceErase", [])


@pytest.mark.parametrize(
    ("op_type", "position", "accepted"),
    [
        ("SequenceAt", 3, "-3 to 2"),
        ("SequenceAt", -4, "-3 to 2"),
        ("SequenceErase", 3, "-3 to 2"),
        ("SequenceInsert", 4, "-3 to 3"),
        ("SequenceInsert", -4, "-3 to 3"),
    ],
)
def test_positions_out_of_range(op_type: str, position: int, accepted: str) -> None:
    inputs = [SEQUENCE, np.array(position)]
    if op_type == "SequenceInsert":
        inputs.insert(1, ints())
    message = f"position {position} in a sequence of 3 elements; expected {accepted}"
    with pytest.raises(IndexError, match=message):
        run(op_type, *inputs)


@pytest.mark.parametrize("version", [11, 24])
def test_split(version: int) -> None:
    x = np.array([["a", "b", "c"], ["d", "e", "f"]], object)

    def split(*inputs: Any, **attributes: Any) -> list[Any]:
        parts = run("SplitToSequence", x, *inputs, version=version, **attributes)
        assert isinstance(parts, list)
        return [part.tolist() for part in parts]

    assert split() == [[["a", "b", "c"]], [["d", "e", "f"]]]
    assert split(keepdims=0) == [["a", "b", "c"], ["d", "e", "f"]]
    assert split(axis=-1, keepdims=0) == [["a", "d"], ["b", "e"], ["c", "f"]]
    halves = [[["a", "b"], ["d", "e"]], [["c"], ["f"]]]
    assert split(np.array(2), axis=1) == halves
    assert split(np.array(2), axis=1, keepdims=0) == halves
    assert split(np.array([2, 1], np.int32), axis=1) == halves
    assert split(ints(0, 2))[0] == []


def test_split_into_impossible_parts() -> None:
    with pytest.raises(ValueError, match="add up to its size, 3"):
        run("SplitToSequence", ints(1, 2, 3), ints(1, 1))
    with pytest.raises(ValueError, match="parts of 0"):
        run("SplitToSequence", ints(1, 2, 3), np.array(0))


def test_concat() -> None:
    rows = [ints(1, 2), ints(3, 4)]
    assert run("ConcatFromSequence", rows, axis=0).tolist() == [1, 2, 3, 4]
    stacked = run("ConcatFromSequence", rows, axis=0, new_axis=1)
    assert stacked.tolist() == [[1, 2], [3, 4]]
    stacked = run("ConcatFromSequence", rows, axis=-1, new_axis=1)
    assert stacked.tolist() == [[1, 3], [2, 4]]
