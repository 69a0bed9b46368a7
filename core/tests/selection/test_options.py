"""Options as users write them become the typed values an EP declares."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.ep import Option
from onnxplug.errors import EpWarning, OptionError
from onnxplug.selection import ProviderRequest, normalise, parse_options, provider

DECLARED = {
    "device_id": Option(default=0, minimum=0, maximum=7, aliases=("device",)),
    "enable_graph": Option(default=False),
    "search": Option(default="EXHAUSTIVE", choices=("EXHAUSTIVE", "HEURISTIC")),
    "fraction": Option(default=0.5, minimum=0.0),
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
        "context": "",
    }


@pytest.mark.parametrize("value", ["1", 1, True, "true", "True", "on"])
def test_truth_in_every_spelling(value: Any) -> None:
    assert parse(enable_graph=value)["enable_graph"] is True


@pytest.mark.parametrize("value", ["0", 0, False, "False", "off"])
def test_untruth_in_every_spelling(value: Any) -> None:
    assert parse(enable_graph=value)["enable_graph"] is False


def test_numbers_come_as_text_too_and_by_alias() -> None:
    assert parse(device="3")["device_id"] == 3
    assert parse(fraction="0.25")["fraction"] == 0.25


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"devise_id": 1}, r"no option 'devise_id'; did you mean 'device_id'\?"),
        ({"device_id": 8}, r"is 8; expected a number from 0 up to 7"),
        ({"device_id": "one"}, r"is 'one'; expected int"),
        ({"device_id": 1.5}, r"is 1.5; expected int"),
        ({"enable_graph": "maybe"}, r"is 'maybe'; expected bool"),
        ({"search": "HEURISTC"}, r"did you mean 'HEURISTIC'\?"),
        ({"fraction": -1}, r"expected a number from 0"),
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
