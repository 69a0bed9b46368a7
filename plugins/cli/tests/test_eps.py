"""``onnxplug eps NAME``: all of one EP."""

from __future__ import annotations

import pytest

from onnxplug.ep import EpFactory, Finding, Level, Option
from onnxplug_testing import SimulatedFactory, ToyFactory


class Factory(ToyFactory):
    """An EP with an option of every kind."""

    spi_version = (0, 4)
    name = "ManyExecutionProvider"
    vendor = "Makers"
    vendor_id = 0x1234
    version = "7.1"
    options = {  # noqa: RUF012 - a constant
        "threads": Option(
            default=0,
            doc="How many threads a run may use, which is said at some more length, "
            "so that it takes two lines.",
            minimum=0,
            maximum=64,
            aliases=("num_threads", "n"),
        ),
        "mode": Option(default="fast", choices=("fast", "exact")),
        "limit": Option(default=float("inf"), minimum=0.5),
        "cache": Option(default="", refused="there is nothing to cache"),
    }
    config_entries = {"depth": Option(default=3, doc="How deep.")}  # noqa: RUF012
    run_options = {  # noqa: RUF012
        "many.rank": Option(default=1.5, choices=(1.5, 2.0))
    }


def one_line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture
def many(register) -> str:
    return register(Factory())


def test_an_ep_tells_its_options_devices_and_maker(cli, many) -> None:
    outcome = cli("eps", "many")
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "ManyExecutionProvider, or many"
    facts = dict(line.split(None, 1) for line in lines[1 : lines.index("")])
    assert facts["state"] == "ready"
    assert facts["distribution"] == "registered 7.1"
    assert (facts["vendor"], facts["version"], facts["SPI"]) == ("Makers", "7.1", "0.4")
    assert facts["device"].startswith("cpu")
    assert max(map(len, lines)) <= 80
    text = outcome.out[outcome.out.index("options:") :]
    doc = Factory.options["threads"].doc
    assert one_line(text) == (
        "options: "
        "threads: int, default 0; from 0 up to 64; also written num_threads, n "
        f"{doc} "
        "mode: str, default fast; one of fast, exact "
        "limit: float, default inf; from 0.5 "
        "cache: str, default empty It cannot be set: there is nothing to cache "
        "session config entries: ep.many.depth: int, default 3 How deep. "
        "run config entries: many.rank: float, default 1.5; one of 1.5, 2.0"
    )


def test_an_ep_as_json(cli, many) -> None:
    (found,) = cli("eps", "ManyExecutionProvider", "--json").json["eps"]
    assert list(found) == [
        "name", "distribution", "version", "state", "reason", "short_name", "library",
        "vendor", "vendor_id", "ep_version", "spi", "devices", "no_device",
        "refused_devices", "options", "config_entries", "run_options",
    ]  # fmt: skip
    assert (found["short_name"], found["vendor_id"], found["spi"]) == (
        "many",
        0x1234,
        "0.4",
    )
    assert [pair["device"]["type"] for pair in found["devices"]] == ["cpu"]
    assert found["options"][0] == {
        "name": "threads",
        "type": "int",
        "default": 0,
        "choices": [],
        "substitutes": {},
        "minimum": 0,
        "maximum": 64,
        "aliases": ["num_threads", "n"],
        "doc": Factory.options["threads"].doc,
        "refused": "",
    }
    assert found["options"][2]["default"] == "inf"
    (entry,), (option,) = found["config_entries"], found["run_options"]
    assert (entry["name"], entry["type"], entry["doc"]) == ("depth", "int", "How deep.")
    assert (option["name"], option["choices"]) == ("many.rank", [1.5, 2.0])


def test_an_ep_that_cannot_be_loaded_tells_why(cli, site) -> None:
    name = site.install("XExecutionProvider", code="import no_such_module")
    outcome = cli("eps", "x")
    assert outcome.code == 0
    assert outcome.out.startswith(f"{name}, or x\n  state         failed\n")
    assert "ModuleNotFoundError: No module named 'no_such_module'" in one_line(
        outcome.out
    )
    err = cli("eps", "x", "--debug").err
    assert err.count("\nModuleNotFoundError: No module named") == 1
    (found,) = cli("eps", "x", "--json").json["eps"]
    assert (found["state"], found["options"], found["spi"]) == ("failed", [], "")
    assert found["config_entries"] == found["run_options"] == []


def test_an_ep_without_a_device_says_why(cli, register, monkeypatch) -> None:
    class Lacking(ToyFactory):
        name = "LackingExecutionProvider"

        def supported_devices(self, devices):
            return []

        def diagnose(self):
            yield Finding(
                level=Level.ERROR,
                message="torch is not installed",
                remedy="pip install torch",
            )

    register(Lacking())
    expected = (
        "LackingExecutionProvider cannot be used: torch is not installed; "
        "pip install torch"
    )
    (found,) = cli("eps", "lacking", "--json").json["eps"]
    assert (found["devices"], found["no_device"]) == ([], expected)
    assert expected in one_line(cli("eps", "lacking").out)
    outcome = cli("doctor", "--json")
    (plugin,) = (
        p for p in outcome.json["plugins"] if p["ep"] == "LackingExecutionProvider"
    )
    (finding,) = plugin["findings"]
    assert finding["message"] == "torch is not installed"


def test_what_an_ep_says_of_itself_has_no_control_characters(cli, register) -> None:
    class Rude(ToyFactory):
        name = "RudeExecutionProvider"
        vendor = "\x1b[31mred\nline"
        options = {  # noqa: RUF012 - a constant
            "a\nb\x1b": Option(
                default="\x1b[2J", doc="\x1b[1mbold\r", aliases=("\x07",)
            )
        }

    register(Rude())
    out = cli("eps", "rude").out
    assert "  a\\nb\\x1b: str, default \\x1b[2J; also written \\x07\n" in out
    assert not set(out) & set("\x1b\x07\r")


def test_an_unknown_ep_is_an_error_with_the_nearest_name(cli, many) -> None:
    outcome = cli("eps", "manny")
    assert (outcome.code, outcome.out) == (1, "")
    assert "no installed plugin supplies an EP named 'manny'" in outcome.err
    assert "Did you mean 'many'" in outcome.err


class Twin(EpFactory):
    """What two EPs whose names differ by the suffix only share."""

    spi_version = (0, 1)
    supported_devices = SimulatedFactory.supported_devices
    create = SimulatedFactory.create


def test_a_short_name_that_fits_two_eps_is_not_used(cli, register) -> None:
    for name in ("TwinExecutionProvider", "TWINExecutionProvider"):
        register(type("Named", (Twin,), {"name": name})())
    names = [line.split()[0] for line in cli("eps").out.splitlines() if line]
    assert {"TwinExecutionProvider", "TWINExecutionProvider"} <= set(names)


def test_tables_fit_80_columns(cli, site, monkeypatch) -> None:
    site.install(
        "SomethingLongExecutionProvider",
        "@ep.hookimpl\n"
        "def onnxplug_probe_hardware(host):\n"
        "    words = {'Description': 'a card of many words ' * 8}\n"
        "    kind = ep.DeviceType.GPU\n"
        "    return [ep.HardwareDevice(type=kind, vendor='Makers', metadata=words)]",
        distribution="onnxplug-something",
    )
    for argv in (["devices"], ["eps"]):
        out = cli(*argv).out
        assert max(map(len, out.splitlines())) <= 80
        assert "somethinglong" in out
