"""Arrays in the form that native code expects, and what tells that they are not."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from onnxplug.authoring.arrays import (
    as_text,
    as_texts,
    has_element_twice,
    is_masked,
    usual_form,
)

FLOAT = np.dtype(np.float32)
X = np.arange(12, dtype=FLOAT).reshape(3, 4)


def at_odd_address(x: Any) -> Any:
    memory = np.empty(x.nbytes + 1, np.uint8)[1:]
    moved = memory.view(x.dtype).reshape(x.shape)
    moved[...] = x
    return moved


def test_an_array_in_the_usual_form_is_itself() -> None:
    assert usual_form(X, FLOAT) is X


@pytest.mark.parametrize(
    "array",
    [
        pickle.loads(pickle.dumps(X)),
        X.view(np.dtype(FLOAT, metadata={"of": "a test"})),
        X.view(np.matrix),
        np.lib.stride_tricks.as_strided(X, (1, 4), (999, 4)),
    ],
    ids=["unpickled", "metadata", "subclass", "stride of one"],
)
def test_nothing_is_copied_for_the_dtype_or_the_class(array: Any) -> None:
    usual = usual_form(array, FLOAT)
    assert type(usual) is np.ndarray and usual.dtype is FLOAT
    assert np.shares_memory(usual, array)
    np.testing.assert_array_equal(usual, array)


@pytest.mark.parametrize(
    "array",
    [
        X.T,
        X[:, ::-1],
        np.broadcast_to(X[:1], (3, 4)),
        X.astype(">f4"),
        X.astype(">f4").T,
        at_odd_address(X),
        at_odd_address(pickle.loads(pickle.dumps(X))),
    ],
    ids=["F", "reversed", "broadcast", "swapped", "swapped F", "odd", "odd unpickled"],
)
def test_the_rest_is_copied(array: Any) -> None:
    usual = usual_form(array, FLOAT)
    assert type(usual) is np.ndarray and usual.dtype is FLOAT
    assert usual.flags.carray and not np.shares_memory(usual, array)
    np.testing.assert_array_equal(usual, array)


@pytest.mark.parametrize(
    ("array", "twice"),
    [
        (X, False),
        (X.T[::-1, ::2], False),
        (X[:, :1], False),
        (X[:0], False),
        (np.broadcast_to(X[0], (2, 4)), True),
        (np.broadcast_to(X[0], (1, 4)), False),
        (np.broadcast_to(X[0], (0, 4)), False),
        (np.lib.stride_tricks.sliding_window_view(X[0], 2), True),
        (np.lib.stride_tricks.as_strided(X, (2, 4), (8, -4)), True),
        (np.float32(1) + np.zeros((), FLOAT), False),
    ],
)
def test_elements_in_one_place_are_found(array: Any, twice: bool) -> None:
    assert has_element_twice(np.asarray(array)) is twice


def test_a_mask_that_hides_nothing_is_no_mask() -> None:
    assert not is_masked(X)
    assert not is_masked(np.ma.MaskedArray(X))
    assert is_masked(np.ma.masked_less(X, 1))
    assert is_masked(np.ma.masked)


class Spelled(str):
    """A text that shows itself as another one, as an enum's does."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


def test_texts_become_plain_ones() -> None:
    given = np.array([[Spelled("red"), np.str_("b")], [b"\xc3\xbc", "d"]], object)
    texts = as_texts(given)
    assert texts.tolist() == [["red", "b"], ["ü", "d"]]
    assert {type(text) for text in texts.flat} == {str}
    assert as_texts(np.array("a", object)).shape == ()
    assert as_texts(np.array([], "U3")).dtype == object


@pytest.mark.parametrize("item", [1, None, np.nan, ["a"], b"\xff"])
def test_what_is_no_text_is_refused(item: Any) -> None:
    with pytest.raises(TypeError, match="has an element"):
        as_text(item)
