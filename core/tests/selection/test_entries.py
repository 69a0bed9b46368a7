"""Config entries of EPs are resolved, checked and typed by what the EPs declare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from onnxplug.ep import HardwareDevice, Option, OptionValue
from onnxplug.errors import OptionError
from onnxplug.plugins import FoundPlugin, PluginRegistry, PluginState
from onnxplug.selection import ProviderRequest, SessionContext, provider
from onnxplug.selection.choose import choose
from onnxplug_testing import Knobs, SimulatedFactory

NAME = "AcmeExecutionProvider"


class Acme(SimulatedFactory):
    """A simulated EP with config entries; notes what sessions tell it."""

    config_entries: Mapping[str, Option] = {  # type: ignore[misc]
        "mode": Option(default="fast", choices=("fast", "exact"), aliases=("how",)),
        "depth": Option(default=3, minimum=0, maximum=9),
        "tracing": Option(default=False),
        "luid": Option(default="", refused="devices are chosen by ordinal"),
    }

    def __init__(self, name: str = NAME) -> None:
        super().__init__(Knobs(name=name))
        self.sessions: list[Any] = []

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        self.sessions.append(session)
        return super().create(devices, options, session)


@pytest.fixture
def acme(registry: PluginRegistry) -> Acme:
    factory = Acme()
    registry.add(factory)
    return factory


class Session:
    """Chooses EPs as a session with config entries does."""

    def __init__(self, registry: PluginRegistry, hardware: Any) -> None:
        self.registry = registry
        self.hardware = hardware

    def __call__(
        self, config: Mapping[str, str], *requests: str | ProviderRequest
    ) -> list[Any]:
        chosen, _ = choose(
            [r if isinstance(r, ProviderRequest) else provider(r) for r in requests],
            self.registry,
            self.hardware,
            SessionContext(None, 0, config, self.registry),
            cpu_fallback=False,
        )
        return chosen


@pytest.fixture
def session(registry: PluginRegistry, hardware: list[HardwareDevice]) -> Session:
    return Session(registry, hardware)


DEFAULTS: dict[str, OptionValue] = {
    "mode": "fast", "depth": 3, "tracing": False, "luid": ""
}  # fmt: skip


@pytest.mark.parametrize(
    "name", ["acme", "ACME", "acmeexecutionprovider", "AcmeExecutionProvider"]
)
def test_entries_are_typed_and_defaults_filled(acme, session, name: str) -> None:
    config = {f"ep.{name}.depth": "7", f"ep.{name}.how": "exact"}
    session(config, "acme")
    (seen,) = acme.sessions
    assert seen.entries == DEFAULTS | {"depth": 7, "mode": "exact"}
    assert type(seen.entries["depth"]) is int
    assert seen.config == config


def test_every_ep_is_told_its_own(acme, session, registry) -> None:
    other = Acme("OtherExecutionProvider")
    registry.add(other)
    session({"ep.acme.depth": "1", "ep.other.tracing": "1"}, "acme", "other")
    assert acme.sessions[0].entries == DEFAULTS | {"depth": 1}
    assert other.sessions[0].entries == DEFAULTS | {"tracing": True}


def test_an_entry_that_names_an_option_sets_it_unless_the_user_did(
    acme, session
) -> None:
    config = {"ep.acme.level": "2", "ep.acme.depth": "1"}
    (chosen,) = session(config, "acme")
    assert chosen.options["level"] == 2
    assert "level" not in acme.sessions[0].entries
    (chosen,) = session(config, provider("acme", options={"optimization_level": 0}))
    assert chosen.options["level"] == 0


@pytest.mark.parametrize(
    ("entry", "value", "message"),
    [
        ("dept", "1", "Acme.* has no option or config entry 'dept'; .* 'depth'?"),
        ("bogus", "1", r"no option or config entry 'bogus'\.  It has depth"),
        ("levle", "1", "no option or config entry 'levle'; did you mean 'level'?"),
        ("depth", "ten", "config entry 'depth' of Acme.* is 'ten'; expected int"),
        ("depth", "10", "expected a number from 0 up to 9"),
        ("mode", "exac", "expected one of 'fast', 'exact'; did you mean 'exact'?"),
        ("luid", "1", "config entry 'luid' .* cannot be set: devices are chosen"),
        ("level", "3", "option 'level' of Acme.* is '3'; expected one of 0, 1, 2"),
    ],
)
@pytest.mark.parametrize("used", [True, False], ids=["used", "only loaded"])
def test_what_a_loaded_ep_does_not_have_is_an_error(
    acme, session, cpu, used: bool, entry: str, value: str, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        session({f"ep.acme.{entry}": value}, "acme" if used else "cpu")
    assert acme.created == cpu.created == []


def test_a_session_without_an_ep_passes_over_its_entries(acme, session, cpu) -> None:
    session({"ep.acme.depth": "1"}, "cpu")
    assert len(cpu.created) == 1
    assert acme.created == []


class MadeUpDistribution:
    def read_text(self, name: str) -> str:
        return "Name: onnxplug-costly\nVersion: 1.2\n"


def test_an_ep_is_not_loaded_for_its_entries(session, installed, registry) -> None:
    module = "no_such_module"  # to import it would fail
    costly = FoundPlugin("CostlyExecutionProvider", module, MadeUpDistribution())
    installed.append(costly)
    registry.refresh()
    registry.add(Acme())
    session({"ep.costly.speed": "11"}, "acme")
    assert registry.resolve("costly").state is PluginState.FOUND


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("ep.acmee.depth", r"'ep.acmee.depth' is for no EP: no .* named 'acmee'; .*"
         r"`onnxplug eps` .*Did you mean 'acme'\?"),
        ("ep.openvino.depth", "supplies OpenVINOExecutionProvider; install the dist"),
        ("ep.context.enable", "no installed plugin supplies an EP named 'context'"),
    ],
)  # fmt: skip
def test_an_entry_for_no_ep_is_an_error(acme, session, entry, message) -> None:
    with pytest.raises(OptionError, match=message):
        session({entry: "1"}, "acme")


def test_an_entry_by_two_names_of_its_ep_is_an_error(acme, session) -> None:
    config = {"ep.acme.depth": "1", "ep.acmeexecutionprovider.depth": "2"}
    with pytest.raises(OptionError, match=r"'ep.acme.depth' and .*\.depth' are one"):
        session(config, "acme")
    config = {"ep.acme.mode": "fast", "ep.acme.how": "exact"}
    with pytest.raises(OptionError, match=r"config entry 'mode' .* given twice, as"):
        session(config, "acme")


def test_a_name_that_fits_two_eps_is_an_error(acme, session, registry) -> None:
    other = Acme("ACMEExecutionProvider")
    other.memory_spaces = None  # it works in the one's memory
    registry.add(other)
    with pytest.raises(OptionError, match=r"'acme' fits several EPs: .*whole name"):
        session({"ep.acme.depth": "1"}, NAME)
    session({f"ep.{NAME}.depth": "1"}, NAME)
    assert acme.sessions[0].entries["depth"] == 1


def test_the_hosts_own_entries_are_no_eps(acme, session) -> None:
    session({"ep.share_ep_contexts": "1", "session.x.y": "1"}, "acme")
    assert acme.sessions[0].entries == DEFAULTS
