"""What ends a command: JSON for programs, tracebacks of plugins on demand."""

from __future__ import annotations

import pytest

from onnxplug_testing import Knobs, SimulatedFactory, Stage

CAUSE = "SimulatedFailure: SimulatedExecutionProvider was told to fail at create"
HINT = "--debug shows the traceback of what the plugin raised"


@pytest.fixture
def broken(register) -> str:
    """An EP that cannot be created."""
    return register(SimulatedFactory(Knobs(fail_at=Stage.CREATE)))


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "missing.onnx", "random"],
        ["bench", "missing.onnx"],
        ["explain", "missing.onnx"],
        ["eps", "no-such-ep"],
        ["ops", "--ep", "no-such-ep"],
        ["devices", "--library", "missing.py"],
        ["doctor", "--library", "missing.py"],
        ["cache", "clear", "no-such-distribution"],
    ],
    ids=lambda argv: argv[0],
)
def test_every_command_fails_in_json_where_json_was_asked_for(
    cli, tmp_path, monkeypatch, argv
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    outcome = cli(*argv, "--json")
    assert outcome.code == 1
    assert outcome.err == ""
    error = outcome.json["error"]
    assert list(error)[:2] == ["type", "message"]
    assert error["message"] in cli(*argv).err


@pytest.mark.parametrize(
    "argv",
    [
        ["dance", "--json"],
        ["run", "--json"],
        ["--json", "bench", "m.onnx", "--repeat", "often"],
        ["ops", "--domain", "no.such.domain", "--json"],
    ],
)
def test_a_command_line_that_does_not_fit_is_json_too(cli, argv) -> None:
    outcome = cli(*argv)
    assert (outcome.code, outcome.err) == (2, "")
    assert outcome.json["error"]["type"] in ("BadCommandLine", "UsageError")
    assert outcome.json["error"]["message"]


def test_json_has_what_the_error_knows_and_what_caused_it(
    cli, save_model, broken
) -> None:
    outcome = cli("run", save_model(["Mul"]), "random", "--ep", broken, "--json")
    assert outcome.code == 1
    error = outcome.json["error"]
    assert (error["type"], error["ep"], error["stage"]) == ("EpError", broken, "create")
    assert [cause["type"] for cause in error["causes"]] == ["SimulatedFailure"]
    assert HINT in outcome.err


def test_several_errors_are_one_json_document(cli, site, monkeypatch) -> None:
    for name in ("XExecutionProvider", "YExecutionProvider"):
        site.install(name, code="import no_such_module")
    monkeypatch.setenv("ONNXPLUG_STRICT", "1")
    error = cli("devices", "--json").json["error"]
    assert error["plugin"] == "XExecutionProvider"
    assert [each["plugin"] for each in error["others"]] == ["YExecutionProvider"]


# Tracebacks...


@pytest.mark.parametrize("where", ["before", "after"])
def test_debug_shows_a_plugins_traceback_once(cli, save_model, broken, where) -> None:
    argv = ["run", save_model(["Mul"]), "random", "--ep", broken]
    outcome = cli(*(["--debug", *argv] if where == "before" else [*argv, "--debug"]))
    assert outcome.code == 1
    assert outcome.err.count("Traceback (most recent call last)") == 2  # and its cause
    assert outcome.err.count(f"\nonnxplug_testing.simulated.knobs.{CAUSE}") == 1
    assert "The above exception was the direct cause" in outcome.err
    assert HINT not in outcome.err


def test_without_debug_one_line_says_that_there_is_a_traceback(
    cli, save_model, broken
) -> None:
    outcome = cli("run", save_model(["Mul"]), "random", "--ep", broken)
    assert "Traceback" not in outcome.err
    assert outcome.err.count(HINT) == 1
    assert outcome.err.splitlines()[-1] == f"onnxplug run: {HINT}"


@pytest.mark.filterwarnings("default::onnxplug.errors.EpWarning")
def test_a_plugin_that_is_done_without_has_a_traceback_too(
    cli, save_model, broken, toy
) -> None:
    model = save_model(["Mul"], {"a": [4], "b": [4]})
    argv = ["run", model, "random", "--ep", f"{broken},{toy}"]
    outcome = cli(*argv)
    assert outcome.code == 0
    assert outcome.err.splitlines()[-1] == f"onnxplug run: {HINT}"
    assert cli(*argv, "--debug").err.count(f"knobs.{CAUSE}") == 1


def test_a_plugin_that_cannot_be_loaded_has_a_traceback_too(cli, site) -> None:
    site.install("XExecutionProvider", code="import no_such_module")
    assert HINT in cli("eps", "--load").err


def test_a_plugin_that_is_told_of_twice_has_one_traceback(
    cli, site, monkeypatch
) -> None:
    site.install("XExecutionProvider", code="import no_such_module")
    monkeypatch.setenv("ONNXPLUG_STRICT", "1")
    # told in the log when it is loaded, and by the error at the end
    err = cli("devices", "--debug").err
    assert err.count("\nModuleNotFoundError: No module named") == 1


def test_the_doctor_shows_tracebacks_of_what_it_caught(cli, site) -> None:
    site.install("XExecutionProvider", code="import no_such_module")
    site.install("YExecutionProvider", "Provider.kernels['Add'] = lambda a, b: 1 / 0")
    err = cli("doctor", "--debug").err
    assert err.count("\nModuleNotFoundError: No module named") == 1
    assert err.count("\nZeroDivisionError: division by zero") == 1


def test_errors_without_a_plugin_behind_have_no_hint(cli, save_model, toy) -> None:
    for argv in (
        ["run", "missing.onnx", "random"],
        ["run", save_model(), "--ep", toy],
        ["eps", "no-such-ep"],
        ["run", save_model(), "random", "--ep", toy, "--ep-option", f"{toy}.x=1"],
    ):
        outcome = cli(*argv)
        assert outcome.code
        assert "--debug" not in outcome.err


def test_notes_of_an_error_are_told(cli, save_model, broken) -> None:
    model = save_model(["Mul"])
    outcome = cli("run", model, "random", "--ep", f"{broken},no-such-ep")
    assert "Nor can no-such-ep: no installed plugin" in outcome.err
