"""``onnxplug doctor --isolate``: plugins that crash, end the process, or hang."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest

from onnxplug.ep import DeviceType, Finding, HardwareDevice, Level
from onnxplug.plugins import PluginState
from onnxplug_cli.doctor.checkup import Checkup, DrivenDevice, Family
from onnxplug_cli.doctor.compute import Check, Verdict

X = "XExecutionProvider"


def verdicts(plugin: dict[str, Any]) -> dict[str, str]:
    """What came of each computation on the plugin's only device."""
    (driven,) = plugin["devices"]
    return {check["op"]: check["verdict"] for check in driven["checks"]}


@pytest.fixture
def isolated(doctor, site, monkeypatch):
    """Installs X and checks it in a process of its own."""
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")

    def run(extra: str, *argv: object) -> tuple[int, dict[str, Any]]:
        site.install(X, f"import atexit, ctypes, os, time\n{extra}")
        return doctor(X, "--isolate", *argv)

    return run


def test_a_plugin_that_works_does_so_alone(cli, isolated) -> None:
    code, plugin = isolated("")
    assert code == 0
    assert plugin["load_ms"] > 0
    assert plugin["works"]
    assert verdicts(plugin) == {"Add": "ok", "MatMul": "ok"}


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_plugin_that_crashes_harms_no_other(cli, site, monkeypatch) -> None:
    site.install(X, "import ctypes\nctypes.string_at(0)")
    site.install("YExecutionProvider")
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x,y")
    outcome = cli("doctor", "--json", "--isolate")
    assert (outcome.code, outcome.err) == (1, "")
    assert outcome.json["isolated"]
    assert outcome.json["problems"] == [f"{X}: crashed"]
    plugins = {plugin["ep"]: plugin for plugin in outcome.json["plugins"]}
    assert plugins["YExecutionProvider"]["works"]
    plugin = plugins[X]
    assert plugin["state"] == "crashed"
    reason, place = plugin["reason"].splitlines()
    assert reason == "it was killed by SIGSEGV while being loaded"
    assert "ctypes" in place
    assert plugin["remedy"] == (
        "tell the makers of onnxplug-xexecutionprovider; ONNXPLUG_BLOCK=x leaves it out"
    )
    assert plugin["devices"] == []


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_a_crash_in_a_computation_tells_what_was_known_before(isolated) -> None:
    code, plugin = isolated(
        "Provider.kernels['MatMul'] = lambda a, b: ctypes.string_at(0)"
    )
    assert code == 1
    assert plugin["state"] == "crashed"
    assert "SIGSEGV while computing MatMul on cpu" in plugin["reason"]
    assert verdicts(plugin) == {"Add": "ok"}


def test_a_plugin_that_ends_the_process_is_told(isolated) -> None:
    code, plugin = isolated("os._exit(3)")
    assert code == 1
    assert plugin["state"] == "crashed"
    assert plugin["reason"] == (
        "it ended the process with exit code 3 while being loaded"
    )


def test_a_plugin_that_ends_the_process_as_if_all_were_well_is_told(isolated) -> None:
    code, plugin = isolated("os._exit(0)")
    assert code == 1
    assert plugin["state"] == "crashed"
    assert "exit code 0 while being loaded" in plugin["reason"]


def test_a_plugin_that_hangs_is_ended(isolated) -> None:
    # its child would keep a pipe open
    code, plugin = isolated(
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "time.sleep(60)",
        *("--timeout", 2),
    )
    assert code == 1
    assert plugin["state"] == "timed out"
    # on a machine that is very busy it may not have got beyond starting
    assert plugin["reason"].startswith("it took more than 2 s while ")


def test_a_crash_after_all_is_done_is_a_warning(isolated) -> None:
    code, plugin = isolated("atexit.register(os._exit, 7)")
    assert code == 0
    assert plugin["works"]
    (finding,) = plugin["findings"]
    assert finding["level"] == Level.WARNING
    assert finding["message"] == (
        "it ended the process with exit code 7 when the process ended, all checks done"
    )


def test_what_a_plugin_prints_alone_is_in_the_log_only(cli, site, monkeypatch) -> None:
    site.install(X, "import os\nprint('to stdout')\nos.write(1, b'{to fd 1\\n')")
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    quiet = cli("doctor", "--isolate", "--json")
    assert (quiet.code, quiet.err) == (0, "")
    assert quiet.json["problems"] == []
    loud = cli("doctor", "--isolate", "--json", "-v")
    assert loud.json["problems"] == []
    assert "to stdout" in loud.err
    assert "{to fd 1" in loud.err


def test_what_is_not_loaded_needs_no_process(cli, site, monkeypatch) -> None:
    site.install(X, distribution="first")
    site.install(X, distribution="second")
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    outcome = cli("doctor", "--isolate", "--json")
    assert outcome.code == 1
    states = {p["ep"]: p["state"] for p in outcome.json["plugins"]}
    assert states[X] == PluginState.CONFLICT


def test_no_plugin_comes_from_the_current_directory(
    cli, site, monkeypatch, tmp_path
) -> None:
    site.install(X)
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "x")
    (tmp_path / "json.py").write_text("raise SystemExit('from the current directory')")
    monkeypatch.chdir(tmp_path)
    assert cli("doctor", "--isolate").code == 0


def test_a_checkup_survives_the_way_between_processes() -> None:
    device = HardwareDevice(type=DeviceType.NPU, device_id=3, metadata={"a": "b"})
    check = Check(op="Add", verdict=Verdict.WRONG, detail="d")
    checkup = Checkup(
        ep=X,
        state=str(PluginState.READY),
        distribution="x",
        version="1",
        load_ms=0.5,
        devices=(DrivenDevice(device=device, checks=(check,)),),
        findings=(Finding(level=Level.OK, message="m"),),
        probed=(device,),
        doing="nothing",
    )
    data = json.loads(json.dumps(checkup.to_json()))
    assert Checkup.from_json(data) == checkup


def test_so_does_what_the_check_on_the_device_found() -> None:
    checkup = Checkup(
        ep=X,
        state="ready",
        distribution="d",
        version="1",
        devices=(
            DrivenDevice(
                device=HardwareDevice(type=DeviceType.NPU),
                tried_on="",
                families=(Family(family="add", verdict="failed", detail="off"),),
            ),
        ),
    )
    assert Checkup.from_json(checkup.to_json()) == checkup
