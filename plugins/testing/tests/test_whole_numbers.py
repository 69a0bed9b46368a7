"""Whole numbers by which engines show that they compute in floats, or saturate."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxplug_testing.measuring.learning import Subject, narrow_table, write_table
from onnxplug_testing.measuring.trials import cpu_answer, describe, try_out
from onnxplug_testing.measuring.variations import Variation
from onnxplug_testing.measuring.whole_numbers import whole_numbers


def case(
    operator: str, *inputs: Any, since: int = 14, makes: Any = None, **attributes: Any
) -> Variation:
    names = [f"i{position}" for position in range(len(inputs))]
    arrays = tuple(map(np.asarray, inputs))
    made = np.dtype(makes or arrays[0].dtype)
    return Variation(
        case=operator, kind="suite", since=since, opset=since, inputs=arrays,
        node=helper.make_node(operator, names, ["o"], **attributes),
        output_types=(helper.np_dtype_to_tensor_dtype(made),),
    )  # fmt: skip


ADD = case("Add", np.ones((4, 9), np.float32), np.ones((4, 9), np.float32))
EQUAL = case(
    "Equal", np.ones(64, np.int32), np.ones(64, np.int32), since=13, makes=bool
)
CAST = case("Cast", np.ones(64, np.int32), since=13, makes=np.float32, to=1)


def in_float32(tried: Variation) -> list[Any]:
    """What an engine gives that computes whole numbers as floats."""
    total = sum(array.astype(np.float32) for array in tried.inputs)
    return [total.astype(tried.inputs[0].dtype)]


def saturating(tried: Variation) -> list[Any]:
    """What an engine gives that stays within a type."""
    info = np.iinfo(tried.inputs[0].dtype)
    total = sum(array.astype(object) for array in tried.inputs)
    return [np.clip(total, info.min, info.max).astype(info.dtype)]


def in_32_bits(tried: Variation) -> list[Any]:
    """What an engine gives that has no more for int64."""
    dtype = tried.inputs[0].dtype
    narrow = [a.astype(np.int32) if dtype == np.int64 else a for a in tried.inputs]
    return [sum(narrow[1:], narrow[0]).astype(dtype)]


def outcome(answer: Any, tried: Variation, **known: Any) -> dict[str, Any]:
    """How what *answer* gives compares."""
    return try_out(partial(partial, answer), tried, **known)


def results(answer: Any, given: Variation, **known: Any) -> set[tuple[str, str, str]]:
    with np.errstate(all="ignore"):
        return {
            (str(tried.inputs[0].dtype), tried.kind.removeprefix("whole "), result)
            for tried in whole_numbers(given, 0, **known)
            if (result := outcome(answer, tried, **known)["result"]) != "right"
        }


@pytest.mark.parametrize(
    ("answer", "dtype", "kinds"),
    [
        (in_float32, "int32", {"digits", "near", "ends"}),
        (in_float32, "uint8", set()),  # which has all of them
        (saturating, "int32", {"ends"}),
        (saturating, "int16", {"ends"}),
        (in_32_bits, "int64", {"digits", "near", "ends"}),
        (in_32_bits, "int32", set()),
    ],
)
def test_an_engine_that_has_other_numbers_is_seen_to(answer, dtype, kinds) -> None:
    found = results(answer, ADD)
    assert {kind for name, kind, _ in found if name == dtype} == kinds


def test_an_engine_of_32_bits_is_asked_for_what_they_hold() -> None:
    found = results(in_32_bits, ADD, int64_bits=32)
    beyond = [each for each in found if each[0] == "int64"]
    assert beyond == [("int64", "ends", "no answer")]


def test_what_is_right_is_right() -> None:
    for given in (ADD, EQUAL, CAST):
        assert results(cpu_answer, given) == set()


def test_comparing_asks_for_the_last_digits() -> None:
    (near,) = (
        tried
        for tried in whole_numbers(EQUAL, 0)
        if (tried.kind, tried.inputs[0].dtype.name) == ("whole near", "int32")
        and not tried.dynamic
        and not tried.constants
    )
    first, second = near.inputs
    wide = first.astype(np.float32) == second.astype(np.float32)
    assert np.any(wide != (first == second))


def test_casts_are_tried_to_every_whole_number() -> None:
    targets = Counter(tried.output_types[0] for tried in whole_numbers(CAST, 0))
    assert len(targets) == 9  # eight, and float32


@pytest.fixture
def narrowed(tmp_path: Path) -> Callable[..., Any]:
    """Add's entry, which allowed all types, after trials with *answer*."""

    def write(answer: Any, version: str = "1.0") -> Any:
        table = tmp_path / "table.json"
        types = ["int32", "int16", "float32"]
        small = [case("Add", *np.ones((2, 4, 9), dtype)) for dtype in types]
        record(small, cpu_answer, tmp_path / "small.jsonl")
        subject = Subject(about={"engine": "1.0"})
        write_table(tmp_path / "small.jsonl", subject, table)
        whole = list(whole_numbers(ADD, 0))
        record(whole, answer, tmp_path / "whole.jsonl")
        about = {"engine": version}
        narrow_table(tmp_path / "whole.jsonl", Subject(about=about), table)
        return json.loads(table.read_text())

    return write


def record(tried: list[Variation], answer: Any, file: Path) -> None:
    with np.errstate(all="ignore"):
        lines = [
            describe(each)
            | try_out(partial(partial, answer), each)
            | {"number": number}
            for number, each in enumerate(tried)
        ]
    file.write_text("\n".join(map(json.dumps, lines)))


def test_types_that_were_wrong_are_taken_from_a_list(narrowed) -> None:
    table = narrowed(in_float32)
    assert table["operators"]["Add"]["types"] == ["int16", "float32"]
    assert table["measured with"]["trials of whole numbers"] > 20


def wrong_of_unknown_sizes(tried: Variation) -> list[Any]:
    return in_float32(tried) if tried.dynamic else list(cpu_answer(tried))


def test_what_is_wrong_of_unknown_sizes_only_is_refused_of_those(narrowed) -> None:
    entry = narrowed(wrong_of_unknown_sizes)["operators"]["Add"]
    assert set(entry["types"]) == {"int32", "int16", "float32"}
    assert ["dynamic", "types=int32"] in entry["refused"]


def test_what_is_right_narrows_nothing(narrowed) -> None:
    entry = narrowed(cpu_answer)["operators"]["Add"]
    assert set(entry["types"]) == {"int32", "int16", "float32"}
    assert "refused" not in entry


def test_a_list_of_another_version_is_not_narrowed(narrowed) -> None:
    with pytest.raises(ValueError, match=r"is of .*1\.0.*, and this is .*2\.0"):
        narrowed(cpu_answer, version="2.0")
