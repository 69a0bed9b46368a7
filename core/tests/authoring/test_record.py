from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

from onnxplug.authoring.record import Record


class Place(Record):
    row: int
    column: int = 0
    name: str = "here"

    @property
    def sum(self) -> int:
        return self.row + self.column


@pytest.mark.parametrize(
    ("place", "values"),
    [
        (Place(1, 2, "x"), (1, 2, "x")),
        (Place(1), (1, 0, "here")),
        (Place(1, name="x"), (1, 0, "x")),
        (Place(name="x", column=2, row=1), (1, 2, "x")),
    ],
)
def test_fields_are_given_by_position_or_by_name(
    place: Place, values: tuple[Any, ...]
) -> None:
    assert place == values
    assert hash(place) == hash(values)
    assert (place.row, place.column, place.name) == values
    assert place.sum == values[0] + values[1]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ((), {}),
        ((), {"column": 1}),
        ((1, 2, "x", 4), {}),
        ((1, 2, "x"), {"name": "y"}),
        ((1,), {"row": 2}),
        ((1,), {"other": 2}),
    ],
)
def test_other_fields_are_an_error(
    values: tuple[Any, ...], named: dict[str, Any]
) -> None:
    with pytest.raises(TypeError, match="Place has the fields row, column, name; got"):
        Place(*values, **named)


class Named(Place):
    title: str = ""


def test_fields_follow_those_of_the_base() -> None:
    assert Named(1, title="x") == (1, 0, "here", "x")
    assert Named(1).sum == 1


def test_help_has_the_fields() -> None:
    names = "row: 'int', column: 'int' = 0, name: 'str' = 'here'"
    assert str(inspect.signature(Place)) == f"({names})"
    assert str(inspect.signature(Named)) == f"({names}, title: 'str' = '')"


def test_it_cannot_be_changed() -> None:
    place = Place(1)
    for name in ("row", "other"):
        with pytest.raises(AttributeError):
            setattr(place, name, 2)


def test_another_is_made_with_some_fields_changed() -> None:
    assert Place(1, 2)._replace(row=3) == (3, 2, "here")
    assert type(Place(1)._replace(row=3)) is Place
    with pytest.raises(TypeError, match="other by name"):
        Place(1)._replace(other=3)


def test_it_is_told_by_its_fields() -> None:
    assert repr(Place(1)) == "Place(row=1, column=0, name='here')"
    assert Place(1)._asdict() == {"row": 1, "column": 0, "name": "here"}
    match Place(1, 2):
        case Place(row, column=column):
            assert (row, column) == (1, 2)


@pytest.mark.parametrize("through", [copy.copy, copy.deepcopy])
def test_copies_are_equal(through: Any) -> None:
    assert through(Place(1)) == Place(1)


def test_it_can_be_pickled() -> None:
    found = pickle.loads(pickle.dumps(Place(1, 2)))
    assert type(found) is Place
    assert found == Place(1, 2)
