"""The command line itself: exit codes, where text goes, how light it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import onnxplug


def python(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], capture_output=True, text=True, timeout=60, check=False
    )


def test_version_is_that_of_the_package(cli) -> None:
    assert cli("--version") == (0, f"onnxplug {onnxplug.__version__}\n", "")


def test_help_and_version_import_nothing_heavy() -> None:
    script = """if True:
        import sys
        from onnxplug_cli.main import main
        for words in ("--version", "--help", "run --help", "bench --help",
                      "explain --help", "doctor --help"):
            code = main(words.split())
            heavy = {"numpy", "onnx", "PIL", "rich", "pluggy", "ml_dtypes"}
            found = heavy & set(sys.modules)
            if code or found:
                sys.exit(f"{words}: {code}, {found}")
    """
    found = python("-c", script)
    assert (found.returncode, found.stderr) == (0, "")


def test_the_package_can_be_run_as_a_module() -> None:
    found = python("-m", "onnxplug", "--version")
    assert found.stdout.startswith("onnxplug ")
    assert found.returncode == 0


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["dance"],
        ["run"],
        ["run", "m.onnx", "--repeat", "often"],
        ["run", "m.onnx", "--input", "x"],
        ["run", "m.onnx", "--scale", "1/0"],
        ["explain", "m.onnx", "--nodes", "--why", "x"],
    ],
)
def test_a_command_line_that_does_not_fit_exits_with_2(cli, argv: list[str]) -> None:
    outcome = cli(*argv)
    assert outcome.code == 2
    assert outcome.out == ""
    assert "usage: onnxplug" in outcome.err


def test_an_error_is_one_message_without_traceback(cli) -> None:
    outcome = cli("run", "missing.onnx", "random")
    assert outcome.code == 1
    assert outcome.out == ""
    assert outcome.err.startswith("onnxplug run: ")
    assert "missing.onnx" in outcome.err
    assert "Traceback" not in outcome.err


def test_debug_shows_the_traceback(cli) -> None:
    outcome = cli("run", "missing.onnx", "random", "--debug")
    assert outcome.code == 1
    assert "Traceback" in outcome.err


@pytest.mark.parametrize(
    ("flag", "shown"),
    [
        ([], []),
        (["-v"], ["loud"]),
        (["--verbose"], ["loud"]),
        (["-vv"], ["loud", "louder"]),
        (["--debug"], ["loud", "louder"]),
    ],
)
def test_the_log_is_shown_on_demand(cli, site, flag, shown) -> None:
    site.install(
        "XExecutionProvider",
        "import logging\n"
        "logging.getLogger('onnxplug.x').info('loud')\n"
        "logging.getLogger('onnxplug.x').debug('louder')",
    )
    outcome = cli("eps", "--load", "--json", *flag)
    assert outcome.json["eps"]
    lines = outcome.err.splitlines()
    assert [line for line in lines if "loud" in line] == [
        f"onnxplug: {word}" for word in shown
    ]


def test_broken_plugins_under_strict_are_messages_without_traceback(
    cli, site, monkeypatch
) -> None:
    for name in ("XExecutionProvider", "YExecutionProvider"):
        site.install(name, code="import no_such_module")
    monkeypatch.setenv("ONNXPLUG_STRICT", "1")
    outcome = cli("devices")
    assert (outcome.code, outcome.out) == (1, "")
    assert "onnxplug devices: plugin XExecutionProvider" in outcome.err
    assert "onnxplug devices: plugin YExecutionProvider" in outcome.err
    assert "Traceback" not in outcome.err
    assert "Traceback" in cli("devices", "--debug").err


@pytest.mark.filterwarnings("default::onnxplug.errors.EpWarning")
def test_warnings_are_a_line_on_stderr(cli, save_model, toy) -> None:
    outcome = cli("run", save_model(), "random", "--ep", f"missing,{toy}", "--json")
    assert outcome.code == 0
    assert outcome.json["partitions"][0]["ep"] == "ToyExecutionProvider"
    assert outcome.err.startswith("onnxplug: missing was asked for and is not used")


def test_a_reader_that_stops_reading_causes_no_traceback() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "onnxplug", "devices"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout and process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 1


def test_no_command_leaves_handlers_behind(cli, tmp_path: Path) -> None:
    import logging

    logger = logging.getLogger("onnxplug")
    before = (logger.level, list(logger.handlers))
    cli("run", tmp_path / "missing.onnx", "random", "--debug")
    assert (logger.level, list(logger.handlers)) == before
