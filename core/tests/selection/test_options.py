"""Options as users write them become the typed values an EP declares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug.ep import Option
from onnxplug.errors import EpWarning, OptionError, OptionWarning
from onnxplug.selection import ProviderRequest, normalise, parse_options, provider

DECLARED = {
    "device_id": Option(default=0, minimum=0, maximum=7, aliases=("device",)),
    "enable_graph": Option(default=False),
    "search": Option(
        default="EXHAUSTIVE",
        choices=("EXHAUSTIVE", "HEURISTIC"),
        substitutes={"GUESS": "HEURISTIC"},
    ),
    "fraction": Option(default=0.5, minimum=0.0, maximum=1.0),
    "scale": Option(default=1.0),
    "stream": Option(default=0, aliases=("user_stream",)),
    "cache": Option(default=""),
    "context": Option(default="", refused="tensors are in host memory"),
}


def parse(**given: Any) -> dict[str, Any]:
    return parse_options("Test", DECLARED, given)


def test_every_option_has_a_value() -> None:
    assert parse() == {
        "device_id": 0,
        "enable_graph": False,
        "search": "EXHAUSTIVE",
        "fraction": 0.5,
        "scale": 1.0,
        "stream": 0,
        "cache": "",
        "context": "",
    }


def test_a_value_that_another_stands_for_warns() -> None:
    with pytest.warns(OptionWarning, match="is 'GUESS'; 'HEURISTIC' serves instead"):
        assert parse(search="GUESS")["search"] == "HEURISTIC"


@pytest.mark.parametrize("value", ["1", 1, True, "true", "True", "on"])
def test_truth_in_every_spelling(value: Any) -> None:
    assert parse(enable_graph=value)["enable_graph"] is True


@pytest.mark.parametrize("value", ["0", 0, False, "False", "off"])
def test_untruth_in_every_spelling(value: Any) -> None:
    assert parse(enable_graph=value)["enable_graph"] is False


def test_numbers_come_as_text_too_and_by_alias() -> None:
    assert parse(device="3")["device_id"] == 3
    assert parse(fraction="0.25")["fraction"] == 0.25
    assert parse(fraction=1)["fraction"] == 1.0
    assert parse(fraction=np.float32(0.25))["fraction"] == 0.25
    assert parse(device_id=np.int64(3))["device_id"] == 3
    assert parse(device_id=3.0)["device_id"] == 3
    assert parse(enable_graph=np.True_)["enable_graph"] is True
    assert parse(stream=2**64 - 1)["stream"] == 2**64 - 1
    assert parse(scale="inf")["scale"] == float("inf")


def test_text_comes_as_a_path_or_a_number_too() -> None:
    assert parse(cache=Path("a") / "b")["cache"] == str(Path("a") / "b")
    assert parse(cache=3)["cache"] == "3"


def test_an_option_by_two_of_its_names_is_refused() -> None:
    with pytest.raises(OptionError) as caught:
        parse(device_id=1, device=2)
    assert str(caught.value) == (
        "option 'device_id' of Test is given twice, as 'device_id' (1) and as "
        "'device' (2), which are one; leave one of them out"
    )


def test_what_is_given_beats_what_is_suggested_by_any_name() -> None:
    def parse_both(given: dict[str, Any], suggested: dict[str, Any]) -> Any:
        return parse_options("Test", DECLARED, given, suggested)["device_id"]

    assert parse_both({"device": 1}, {"device_id": 2}) == 1
    assert parse_both({"device_id": 1}, {"device": 2}) == 1
    assert parse_both({}, {"device": 2}) == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devise_id": 1}, r"no option 'devise_id'; did you mean 'device_id'\?"),
        ({"device_id": 8}, r"is 8; expected a number from 0 up to 7"),
        ({"device_id": "one"}, r"is 'one'; expected int"),
        ({"device_id": 1.5}, r"is 1.5; expected int"),
        ({"enable_graph": "maybe"}, r"is 'maybe'; expected bool"),
        ({"search": "HEURISTC"}, r"did you mean 'HEURISTIC'\?"),
        ({"fraction": -1}, r"expected a number from 0.0 up to 1.0"),
        ({"device_id": "inf"}, r"is 'inf'; expected int"),
        ({"device_id": float("inf")}, r"is inf; expected int"),
        ({"device_id": float("nan")}, r"is nan; expected int"),
        ({"device_id": True}, r"is True; expected int"),
        ({"device_id": None}, r"is None; expected int"),
        ({"device_id": 10**5000}, r"is a whole number of 16610 bits; expected int"),
        ({"device_id": "9" * 5000}, r"is '9+…; expected int"),
        ({"device_id": np.array([1, 2])}, r"expected int"),
        ({"stream": 2**64}, r"expected int"),
        ({"stream": -(2**63) - 1}, r"expected int"),
        ({"fraction": "nan"}, r"is 'nan'; expected float"),
        ({"fraction": float("nan")}, r"is nan; expected float"),
        ({"fraction": np.float32("nan")}, r"expected float"),
        ({"fraction": "inf"}, r"is 'inf'; expected a number from 0.0 up to 1.0"),
        ({"fraction": float("-inf")}, r"expected a number from 0.0"),
        ({"fraction": 10**400}, r"bits; expected float"),
        ({"fraction": 1j}, r"is 1j; expected float"),
        ({"scale": "nan"}, r"is 'nan'; expected float"),
        ({"enable_graph": 10**5000}, r"bits; expected bool"),
        ({"enable_graph": 1.0}, r"is 1.0; expected bool"),
        ({"enable_graph": [1]}, r"expected bool"),
        ({"search": 10**5000}, r"bits; expected str"),
        ({"cache": None}, r"'cache' of Test is None; expected str"),
        ({"cache": b"x"}, r"expected str"),
        ({"cache": {"a": 1}}, r"expected str"),
        ({"context": "1"}, r"'context' of Test cannot be set: tensors are in host"),
    ],
)
def test_what_an_option_does_not_accept(given: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        parse(**given)


def test_providers_in_every_form() -> None:
    assert normalise(None, None) == []
    assert normalise("cpu", None) == [ProviderRequest("cpu")]
    long = provider("b", options={"x": 1}, error_on_failure=True)
    assert normalise(["a", ("c", {"y": 2}), long], None) == [
        ProviderRequest("a"),
        ProviderRequest("c", {"y": 2}),
        ProviderRequest("b", {"x": 1}, True),
    ]
    assert normalise(["a", "b"], [{}, {"x": 1}])[1] == ProviderRequest("b", {"x": 1})


def test_the_first_of_a_name_counts_and_the_others_are_told() -> None:
    with pytest.warns(EpWarning, match="Duplicate provider 'a' encountered") as caught:
        found = normalise([("a", {"x": 1}), "a"], None)
    assert found == [ProviderRequest("a", {"x": 1})]
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    ("providers", "options", "message"),
    [
        ([1], None, "a provider is given as 1"),
        ([("a", 1)], None, "a provider is given as"),
        ([""], None, "expected the name of an EP"),
        (1, None, "providers is 1; expected a name, or a list"),
        ({"a": {}}, None, "providers is a dict; expected a list, best first"),
        ({"a", "b"}, None, "providers is a set; expected a list, best first"),
        (("a", {"x": 1}), None, r"a provider is given as \{'x': 1\}"),
        ([("a", {1: 2})], None, "a is given an option named 1; expected a string"),
        (["a"], [{}, {}], "1 providers and 2 provider_options"),
        (["a"], {"x": 1}, "expected a list with one mapping for each provider"),
        (["a"], [None], "the options of a are None; expected a mapping"),
        (None, [{}], "0 providers and 1 provider_options"),
        ([("a", {})], [{}], "both in providers and in provider_options"),
    ],
)
def test_what_is_no_provider(providers: Any, options: Any, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        normalise(providers, options)
