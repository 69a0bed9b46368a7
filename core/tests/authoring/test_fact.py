"""Facts are as dataclasses are, but for the time that their classes take to make."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from onnxplug import ep
from onnxplug.authoring.fact import fact, ordered_fact


@fact()
class Place:
    """A fact."""

    name: str
    size: int = 3
    seen: Mapping[str, int] = field(default_factory=dict)
    note: str = field(default="", compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """The same as a dataclass."""

    name: str
    size: int = 3
    seen: Mapping[str, int] = field(default_factory=dict)
    note: str = field(default="", compare=False, repr=False)


@ordered_fact()
class Pair:
    """Fields by position."""

    first: int
    second: str | None = None


@fact(eq=False)
class Unique:
    """Equal to itself alone."""

    size: int = 0


@fact()
class Labelled:
    """With methods of its own."""

    seen: Mapping[str, int]

    def __hash__(self) -> int:
        return 7

    def __str__(self) -> str:
        return "labelled"


GIVEN: list[dict[str, Any]] = [
    {"name": "a"},
    {"name": "a", "size": 7, "note": "told"},
    {"name": "b", "seen": {"x": 1}},
]


@pytest.mark.parametrize("given", GIVEN)
def test_a_fact_is_as_a_dataclass(given: dict[str, Any]) -> None:
    made, expected = Place(**given), Reference(**given)
    assert repr(made) == repr(expected).replace("Reference", "Place")
    assert dataclasses.asdict(made) == dataclasses.asdict(expected)
    assert dataclasses.replace(made, size=9).size == 9
    assert made == Place(**given) == dataclasses.replace(made, note="other")
    assert made != expected
    for copied in (copy.copy(made), copy.deepcopy(made)):
        assert copied == made
        assert copied is not made
    assert not hasattr(made, "__dict__")
    match made:
        case Place(name=name):
            assert name == given["name"]


def test_facts_of_the_interface_can_be_pickled() -> None:
    for each in (ep.TensorType(None, (1, "n")), ep.Option(default=3, doc="some")):
        assert pickle.loads(pickle.dumps(each)) == each


def test_signatures_and_parameters_are_those_of_dataclasses() -> None:
    found, expected = map(inspect.signature, (Place, Reference))
    assert list(found.parameters.values()) == list(expected.parameters.values())
    for name in ("init", "repr", "eq", "frozen"):
        parameters = [each.__dataclass_params__ for each in (Place, Reference)]
        assert len({getattr(each, name) for each in parameters}) == 1
    assert Pair.__match_args__ == ("first", "second")


def test_fields_are_given_once_and_all() -> None:
    assert Pair(1) == Pair(first=1, second=None)
    assert hash(Pair(1, "a")) == hash((1, "a"))
    for wrong in (
        lambda: Place(),
        lambda: Place("a"),
        lambda: Place(name="a", other=1),
        lambda: Pair(1, "a", 2),
        lambda: Pair(1, first=1),
    ):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="negative"):
        Place(name="a", size=-1)


def test_facts_are_frozen() -> None:
    made = Pair(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="first"):
        made.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="first"):
        del made.first
    assert made.first == 1


def test_one_that_equals_itself_alone() -> None:
    one, other = Unique(), Unique()
    assert one != other
    assert len({one, other}) == 2


def test_what_a_class_has_itself_stays() -> None:
    one, other = Labelled(seen={"a": 1}), Labelled(seen={"a": 1})
    assert one == other
    assert hash(one) == hash(other) == 7
    assert str(one) == "labelled"
    assert repr(one) == "Labelled(seen={'a': 1})"


def test_dataclasses_can_be_made_of_facts() -> None:
    @dataclass(frozen=True, kw_only=True)
    class More(Place):
        more: int = 1

    assert More(name="a", more=2) == More(name="a", more=2)
    assert More(name="a") != Place(name="a")
    assert dataclasses.astuple(More(name="a"))[-1] == 1
