"""The EPs of the whole process affect sessions that are created later."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from onnxplug.errors import OptionError
from onnxplug.selection import (
    Origin,
    ProviderRequest,
    get_default_providers,
    provider,
    set_default_providers,
)
from onnxplug.selection.defaults import DefaultProviders


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = get_default_providers()
    yield
    set_default_providers(before)


def test_none_are_set_at_first() -> None:
    assert get_default_providers() == []


def test_all_forms_of_a_session_are_accepted() -> None:
    strict = provider("coreml", error_on_failure=True)
    set_default_providers(["cuda", ("dml", {"device_id": 1}), strict])
    assert get_default_providers() == [
        ProviderRequest("cuda", origin=Origin.GLOBAL),
        ProviderRequest("dml", {"device_id": 1}, origin=Origin.GLOBAL),
        ProviderRequest("coreml", {}, True, origin=Origin.GLOBAL),
    ]
    set_default_providers(["cuda"], [{"device_id": 1}])
    assert get_default_providers()[0].options == {"device_id": 1}
    set_default_providers("cuda")
    assert [request.name for request in get_default_providers()] == ["cuda"]


@pytest.mark.parametrize("nothing", [None, []])
def test_nothing_takes_them_back(nothing: list[str] | None) -> None:
    set_default_providers("cuda")
    set_default_providers(nothing)
    assert get_default_providers() == []


def test_form_and_shape_are_checked_at_once_and_names_later() -> None:
    set_default_providers("no-such-ep")
    with pytest.raises(OptionError, match="a provider is given as 1"):
        set_default_providers([1])  # type: ignore[list-item]
    with pytest.raises(OptionError, match="1 providers and 2 provider_options"):
        set_default_providers(["cuda"], [{}, {}])
    assert [request.name for request in get_default_providers()] == ["no-such-ep"]


def test_what_is_got_is_a_copy() -> None:
    set_default_providers("cuda")
    get_default_providers().clear()
    assert len(get_default_providers()) == 1


def test_a_change_after_a_session_was_created_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "onnxplug.selection")
    defaults = DefaultProviders()
    defaults.set([provider("cuda")])
    assert caplog.records == []
    taken = defaults.take()
    defaults.set([provider("dml")])
    assert [request.name for request in taken] == ["cuda"]
    (record,) = caplog.records
    assert record.levelname == "INFO"
    assert record.name == "onnxplug.selection"
    assert record.getMessage() == (
        "the default providers are now dml; sessions created before keep theirs"
    )


def test_threads_see_one_setting_or_the_other_whole() -> None:
    defaults = DefaultProviders()
    settings = [
        tuple(provider(f"{letter}{number}") for number in range(20)) for letter in "abc"
    ]
    torn: list[object] = []

    def write(number: int) -> None:
        for _ in range(500):
            defaults.set(settings[number])

    def read() -> None:
        for _ in range(500):
            found = defaults.take()
            if found and found not in settings:
                torn.append(found)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert torn == []
    assert defaults.get() in settings
