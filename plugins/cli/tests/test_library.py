"""``--library``: EPs that are not installed, on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxplug.plugins import libraries, registry

from .conftest import PLUGIN

NAME = "MineExecutionProvider"


@pytest.fixture(autouse=True)
def no_module_stays() -> Iterator[None]:
    """Forgets the modules of libraries, as unregistering would."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("onnxplug_file_"):
            del sys.modules[name]


@pytest.fixture
def library(tmp_path: Path, monkeypatch) -> Path:
    """A file with an EP that adds and multiplies, known until the test ends."""
    known = {record.name: record for record in registry.records()}
    monkeypatch.setattr(registry.table, "_records", known)
    path = tmp_path / "my_ep.py"
    code = PLUGIN.replace("{name}", NAME).replace("{extra}", "print('hello')")
    path.write_text(code)
    return path


@pytest.fixture
def commands(save_model) -> dict[str, list[str]]:
    model = save_model(["Add"], {"a": [4], "b": [4]})
    return {
        "eps": ["mine"],
        "devices": [],
        "doctor": [],
        "run": [model, "random", "--ep", "mine"],
        "bench": [model, "--ep", "mine", "--repeat", "1"],
        "explain": [model, "--ep", "mine"],
        "ops": ["--ep", "mine"],
    }


@pytest.mark.parametrize(
    "name", ["eps", "devices", "doctor", "run", "bench", "explain", "ops"]
)
def test_every_command_that_uses_eps_takes_libraries(
    cli, library, commands, name: str
) -> None:
    outcome = cli(name, *commands[name], "--library", library, "--json")
    assert NAME in outcome.out, outcome
    assert "error" not in outcome.json  # what it prints is no result
    assert "hello" in outcome.err
    assert [(each.name, each.eps) for each in libraries()] == [("my_ep", (NAME,))]


def test_several_libraries_are_registered(cli, library, tmp_path) -> None:
    other = tmp_path / "other_ep.py"
    other.write_text(library.read_text().replace(NAME, "OtherExecutionProvider"))
    out = cli("eps", "--library", library, "--library", other).out
    assert "mine " in out
    assert "other " in out


def test_a_library_that_cannot_be_loaded_fails_the_command(cli, tmp_path) -> None:
    path = tmp_path / "bad_ep.py"
    path.write_text("1 / 0")
    outcome = cli("eps", "--library", path)
    assert (outcome.code, outcome.out) == (1, "")
    assert "library 'bad_ep'" in outcome.err
    assert "ZeroDivisionError" in outcome.err
    missing = cli("devices", "--library", tmp_path / "missing.py", "--json")
    assert missing.json["error"]["type"] == "PluginNotFound"


@pytest.mark.skipif(os.name != "posix", reason="signals")
def test_the_doctor_survives_a_library_that_ends_who_loads_it(
    cli, library, monkeypatch
) -> None:
    monkeypatch.setenv("ONNXPLUG_PLUGINS", "nothing")
    library.write_text("import os\nos.abort()")
    outcome = cli("doctor", "--json", "--isolate", "--library", library)
    assert outcome.code == 1
    (plugin,) = [p for p in outcome.json["plugins"] if p["state"] == "crashed"]
    assert (plugin["ep"], plugin["distribution"]) == (library.stem, str(library))
    reason = plugin["reason"].splitlines()[0]
    assert reason == "it was killed by SIGABRT while being loaded"


def test_the_doctor_checks_a_library_in_a_process_of_its_own(library) -> None:
    library.write_text(
        library.read_text()
        + "\nimport os\nProvider.kernels['MatMul'] = lambda a, b: os._exit(9)"
    )
    found = subprocess.run(
        [sys.executable, "-m", "onnxplug", "doctor", "--isolate", "--library", library],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "ONNXPLUG_PLUGINS": "nothing"},
    )
    assert found.returncode == 1
    assert "crashed: it ended the process with exit code 9 while computing MatMul" in (
        found.stdout
    )
