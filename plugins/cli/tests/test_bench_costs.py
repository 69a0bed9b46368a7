"""What ``onnxplug bench`` tells besides time, and its picture."""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxplug_cli.energy import Meter, Zone

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux has the counters")


# Energy...


@pytest.fixture
def zones(tmp_path: Path) -> Path:
    """Counters of two packages and of a part of one, as Linux has them."""
    for name, energy, whole in (
        ("intel-rapl:0", 900, 1000),
        ("intel-rapl:1", 5_000_000, 262_143_328_850),
        ("intel-rapl:0:0", 1, 1000),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "energy_uj").write_text(f"{energy}\n")
        (tmp_path / name / "max_energy_range_uj").write_text(f"{whole}\n")
    return tmp_path


@linux
def test_energy_is_that_of_all_packages_and_counters_begin_anew(zones: Path) -> None:
    meter = Meter.of_machine(zones)
    before = meter.read()
    assert (meter.missing, before) == ("", [900, 5_000_000])
    (zones / "intel-rapl:0" / "energy_uj").write_text("100\n")
    (zones / "intel-rapl:1" / "energy_uj").write_text("7500000\n")
    assert meter.joules(before, meter.read()) == pytest.approx(2.5002)


@linux
def test_why_energy_is_not_known_is_said(zones: Path, tmp_path: Path) -> None:
    assert "no counters (RAPL) in" in Meter.of_machine(tmp_path / "none").missing
    (zones / "intel-rapl:1" / "energy_uj").write_text("many")
    assert "cannot be read" in Meter.of_machine(zones).missing
    (zones / "intel-rapl:1" / "energy_uj").unlink()
    assert "cannot be read" in Meter.of_machine(zones).missing


@linux
def test_a_counter_that_may_not_be_read_says_how_it_may(
    zones: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(zone: Zone) -> int:
        raise PermissionError(13, "Permission denied", str(zone.counter))

    monkeypatch.setattr(Zone, "read", forbidden)
    assert "as root: chmod a+r" in Meter.of_machine(zones).missing


@linux
def test_a_counter_that_is_gone_leaves_energy_out(zones: Path) -> None:
    meter = Meter.of_machine(zones)
    before = meter.read()
    (zones / "intel-rapl:0" / "energy_uj").unlink()
    assert meter.joules(before, meter.read()) is None
    assert "cannot be read any more" in meter.missing


@linux
def test_bench_divides_energy_by_runs(
    cli, toy, save_model, zones, monkeypatch: pytest.MonkeyPatch
) -> None:
    meter = Meter.of_machine(zones)
    counter = iter(range(0, 100_000_000, 1_000_000))
    monkeypatch.setattr(Meter, "read", lambda self: [0, next(counter)])
    monkeypatch.setattr(Meter, "of_machine", lambda: meter)
    argv = ("bench", save_model(), "--ep", toy, "--repeat", 4, "--no-memory")
    outcome = cli(*argv)
    # four rounds of one run each
    assert "energy of toy: 1 J a run, of the whole machine\n" in outcome.out
    (result,) = cli(*argv, "--json").json["results"]
    assert result["joules"] == 1


# Memory...


def test_memory_is_that_of_a_process_with_one_session(cli, save_model) -> None:
    argv = ("bench", save_model(), "--ep", "cpu", "--repeat", 1)
    found = cli(*argv, "--json").json["results"][0]["memory"]
    assert found["missing"] == ""
    assert found["peak"] > found["rest"] > 1 << 20


def test_an_ep_of_this_process_alone_has_no_memory(cli, toy, save_model) -> None:
    outcome = cli("bench", save_model(), "--ep", toy, "--repeat", 1)
    assert outcome.code == 0
    assert "memory of toy: not known, as " in outcome.out


# The picture...


def test_a_picture_shows_each_choice(cli, toy, simulated, save_model, tmp_path) -> None:
    pytest.importorskip("matplotlib")
    model = save_model(["Mul"], {"a": [4], "b": [4]})
    argv = ("bench", model, "--no-memory", "--ep", toy, "--ep", simulated)
    for name in ("times.svg", "times.png"):
        path = tmp_path / name
        assert cli(*argv, "--repeat", 20, "--plot", path).code == 0
        content = path.read_bytes()
        if name.endswith("png"):
            assert content.startswith(b"\x89PNG\r\n")
        else:
            assert ElementTree.fromstring(content).tag.endswith("svg")
            text = content.decode()
            assert "<!-- toy -->" in text and "<!-- simulated -->" in text
    outcome = cli(*argv, "--repeat", 1, "--plot", tmp_path / "none" / "times.svg")
    assert outcome.code == 1
    assert "cannot write" in outcome.err


def test_a_picture_that_cannot_be_drawn_is_told_before_anything_runs(
    cli, save_model, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = cli("bench", save_model(), "--plot", tmp_path / "times.gif")
    assert outcome.code == 2
    assert "expected a file that ends in .png or .svg" in outcome.err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = cli("bench", save_model(), "--plot", tmp_path / "times.svg")
    assert outcome.code == 1
    assert 'pip install "onnxplug-cli[plot]"' in outcome.err
