"""A glance at a feed says the same as the check, or leaves it to the check."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    TensorType,
    ValueType,
)
from onnxplug.errors import InputError
from onnxplug.session.inputs import InputChecker
from onnxplug.shapes.symbols import BeliedSymbols

FLOAT = DataType.FLOAT32
NAMED: dict[str, ValueType | None] = {
    "x": TensorType(FLOAT, ("n", 3)),
    "y": TensorType(FLOAT, ("n", None)),
}


def zeros(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


FIT = {"x": zeros(2, 3), "y": zeros(2, 5)}

LIKE_FIT: list[Any] = [
    FIT,
    dict(reversed(FIT.items())),
    {"x": zeros(4, 3), "y": zeros(4, 1)},
    {"x": zeros(0, 3), "y": zeros(0, 0)},
    {"x": FIT["x"], "y": FIT["x"]},
    {"x": zeros(2, 3)[:1], "y": zeros(1, 1)},
    {"x": np.broadcast_to(zeros(1, 3), (1, 3)), "y": zeros(1, 1)},  # is read-only
]
NO_DICTS: list[Any] = [
    OrderedDict(FIT),
    defaultdict(None, FIT),
    MappingProxyType(FIT),
]
CONVERTED: list[Any] = [
    np.arange(6, dtype=">f4").reshape(2, 3),
    [[1, 2, 3], [4, 5, 6]],
    np.ma.masked_array(zeros(2, 3)),
    np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
    np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
    np.arange(6, dtype=np.float32).reshape(2, 3)[::-1],
    np.frombuffer(b"-" + bytes(24), np.float32, 6, 1).reshape(2, 3),
]
REFUSED: list[Any] = [
    {**FIT, "x": zeros(2, 3, dtype=np.float64)},
    {**FIT, "x": zeros(2, 3, dtype=ml_dtypes.bfloat16)},
    {**FIT, "x": zeros(2, 3, dtype=object)},
    {**FIT, "x": None},
    {**FIT, "x": zeros(6)},
    {**FIT, "x": zeros(2, 4)},
    {"x": zeros(9, 4), "y": zeros(2, 2, dtype=np.int8)},
    {},
    {"x": FIT["x"]},
    {"x": FIT["x"], "z": FIT["y"]},
    {**FIT, "z": FIT["y"]},
    {"x": FIT["x"], 1: FIT["y"]},
    [],
    None,
]


def told(check: Any, feed: Any) -> Any:
    """What *check* gives for *feed*, or the error that it raises."""
    try:
        return check(feed)
    except InputError as error:
        return type(error), str(error), error.input


@pytest.mark.parametrize("before", [None, *LIKE_FIT[:3]])
@pytest.mark.parametrize("feed", LIKE_FIT)
def test_what_fits_is_passed_on_whatever_was_before(before: Any, feed: Any) -> None:
    checker = InputChecker(NAMED, {})
    if before is not None:
        assert checker.pass_on(before) is not None
    for _ in range(2):
        passed = checker.pass_on(feed)
        assert passed is not None
        assert [id(value) for value in passed] == [id(feed["x"]), id(feed["y"])]


@pytest.mark.parametrize("feed", NO_DICTS)
def test_what_is_no_dict_is_left_to_the_check(feed: Any) -> None:
    checker = InputChecker(NAMED, {})
    for _ in range(2):
        assert checker.pass_on(feed) is None
        assert len(checker.check(feed)) == 2
        assert checker.pass_on(FIT) is not None


@pytest.mark.parametrize("array", CONVERTED)
def test_what_must_be_converted_is_so(array: Any) -> None:
    passed = InputChecker(NAMED, {}).pass_on({**FIT, "x": array})
    assert passed is not None
    copied, other = passed
    assert other is FIT["y"]
    assert type(copied) is np.ndarray and copied.dtype is np.dtype(np.float32)
    assert copied.flags.c_contiguous and copied.flags.aligned
    np.testing.assert_array_equal(copied, array)


@pytest.mark.parametrize("feed", REFUSED)
def test_what_is_refused_is_so_in_the_same_words(feed: Any) -> None:
    checker = InputChecker(NAMED, {})
    expected = told(InputChecker(NAMED, {}).check, feed)
    assert issubclass(expected[0], InputError)
    for _ in range(3):
        assert told(checker.pass_on, feed) in (None, expected)
        assert told(checker.check, feed) == expected
        assert checker.pass_on(FIT) is not None  # a refusal leaves nothing behind


def test_sizes_that_agreed_with_others_are_compared_anew() -> None:
    checker = InputChecker(NAMED, {})
    for size in (2, 4):
        checker.pass_on({"x": zeros(size, 3), "y": zeros(size, 1)})
    mixed = {"x": zeros(2, 3), "y": zeros(4, 1)}
    for check in (checker.pass_on, checker.check, checker.pass_on):
        with pytest.raises(BeliedSymbols) as raised:
            check(mixed)
        assert raised.value.symbols == {("y", "n")}


def test_an_array_is_looked_at_in_each_run() -> None:
    checker = InputChecker({"x": TensorType(FLOAT, (2, 3))}, {})
    array = zeros(2, 3)
    feed = {"x": array}
    assert checker.pass_on(feed) is not None
    feed["x"] = array.view(np.int32)
    assert checker.pass_on(feed) is None
    feed["x"] = array.reshape(3, 2)
    with pytest.raises(InputError, match="invalid dimensions"):
        checker.pass_on(feed)


def test_a_dtype_like_the_one_expected_is_replaced_by_that() -> None:
    other = np.dtype(np.float32, metadata={"unit": "m"})
    checker = InputChecker({"x": TensorType(FLOAT, (2,))}, {})
    feed = {"x": np.zeros(2, other)}
    for given in (checker.pass_on(feed), checker.check(feed)):
        assert given is not None
        assert given[0].dtype is np.dtype(np.float32)
        assert np.shares_memory(given[0], feed["x"])


def test_defaults_stand_where_nothing_is_fed_and_after_what_is() -> None:
    default, fed = np.ones(3, np.float32), zeros(3)
    vector = TensorType(FLOAT, (3,))
    checker = InputChecker({"x": vector, "w": vector}, {"w": default})
    assert [id(v) for v in checker.pass_on({"x": fed}) or ()] == [id(fed), id(default)]
    for feed in ({"x": fed, "w": fed}, {"w": fed}, {}):
        assert checker.pass_on(feed) is None
    assert checker.check({"x": fed, "w": fed})[1] is fed
    assert checker.pass_on({"x": fed}) is not None
    only_defaults = InputChecker({"w": vector}, {"w": default})
    assert [id(v) for v in only_defaults.pass_on({}) or ()] == [id(default)]
    assert only_defaults.pass_on({"w": fed}) is None


@pytest.mark.parametrize("texts", [["a", "é"], [b"a", "\xe9"], [["a"], ["b\0"]], []])
@pytest.mark.parametrize("dtype", [None, object])
def test_texts_are_passed_on_as_the_check_does(texts: Any, dtype: Any) -> None:
    checker = InputChecker({"x": TensorType(DataType.STRING)}, {})
    feed = {"x": np.array(texts, dtype or str)}
    (expected,) = checker.check(feed)
    passed = checker.pass_on(feed)
    assert passed is not None
    assert passed[0].dtype == object and passed[0] is not feed["x"]
    assert passed[0].tolist() == expected.tolist()


@pytest.mark.parametrize("item", [1, None, b"\xff", ["a"]])
def test_what_is_no_text_is_refused_in_the_same_words(item: Any) -> None:
    checker = InputChecker({"x": TensorType(DataType.STRING, (2,))}, {})
    feed = {"x": np.empty(2, object)}
    feed["x"][:] = "a"
    feed["x"][1] = item
    assert told(checker.pass_on, feed) is None
    assert issubclass(told(checker.check, feed)[0], InputError)
    assert told(checker.pass_on, {"x": zeros(2)}) is None


SEQUENCE = SequenceType(TensorType(FLOAT))


@pytest.mark.parametrize(
    ("value_type", "value"),
    [
        (None, {"any": "thing"}),
        (TensorType(), zeros(1)),
        (SEQUENCE, [zeros(2), zeros(1)]),
        (MapType(DataType.STRING, TensorType(FLOAT, ())), {"a": 1.0}),
        (OptionalType(SEQUENCE), None),
    ],
)
def test_containers_are_passed_on_as_checked(value_type: Any, value: Any) -> None:
    types = {"x": TensorType(FLOAT, ("n",)), "y": value_type}
    checker = InputChecker(types, {})
    for size in (1, 2):
        feed = {"x": zeros(size), "y": value}
        assert checker.pass_on(feed) == checker.check(feed)


@pytest.mark.parametrize("value", [None, [], {1: 1.0}, {"a": "b"}, zeros(1)])
def test_wrong_containers_are_refused_in_the_same_words(value: Any) -> None:
    types = {"y": MapType(DataType.STRING, TensorType(FLOAT, ()))}
    checker = InputChecker(types, {})
    expected = told(checker.check, {"y": value})
    assert issubclass(expected[0], InputError)
    assert told(checker.pass_on, {"y": value}) in (None, expected)


def test_a_model_without_inputs_takes_an_empty_feed() -> None:
    checker = InputChecker({}, {})
    assert checker.pass_on({}) == checker.check({}) == []
    assert checker.pass_on({"x": zeros(1)}) is None
