"""Wheels of this repository, and fresh environments to install them into."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = {
    "onnxplug": ROOT / "core",
    "onnxplug-cli": ROOT / "plugins" / "cli",
    "onnxplug-kernels": ROOT / "plugins" / "kernels",
    "onnxplug-compiler": ROOT / "plugins" / "compiler",
    "onnxplug-microsoft": ROOT / "plugins" / "microsoft",
    "onnxplug-cpu": ROOT / "plugins" / "cpu",
}

Call: TypeAlias = Callable[..., str]
BuildWheel: TypeAlias = Callable[[Path], Path]


@pytest.fixture(scope="session")
def call() -> Call:
    """Runs a command outside the environment of the tests: ``call(*words)``.

    It returns what the command prints; when the command fails, its errors are shown.
    """
    # nothing of the environment that runs the tests but the cache, which keeps the
    # user's clean, and no warning of a new pip
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
        and (key == "ONNXPLUG_CACHE_DIR" or not key.startswith("ONNXPLUG_"))
    }

    def run(*words: object, folder: Path | None = None) -> str:
        done = subprocess.run(
            [str(word) for word in words],
            cwd=folder,
            env=clean | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def build_wheel(call: Call, tmp_path_factory: pytest.TempPathFactory) -> BuildWheel:
    """Builds the wheel of the distribution in a folder, by the tests' own hatchling: to
    install another for each takes long."""

    def build(folder: Path) -> Path:
        out = tmp_path_factory.mktemp("wheel")
        words = ("-m", "build", "--wheel", "--no-isolation", "--outdir")
        call(sys.executable, *words, out, folder)
        (wheel,) = out.glob("*.whl")
        return wheel

    return build


@pytest.fixture(scope="session")
def wheels(build_wheel: BuildWheel) -> Mapping[str, Path]:
    """The wheel of each distribution that a session on the CPU needs."""
    return {name: build_wheel(folder) for name, folder in FOLDERS.items()}


@pytest.fixture(scope="session")
def installed(
    call: Call, wheels: Mapping[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The commands of an environment that has the wheels.

    It is one for all tests: who installs something uninstalls it.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    commands = folder / ("Scripts" if sys.platform == "win32" else "bin")
    core, *plugins = wheels.values()
    # by path, so that no index can supply a distribution of the same name
    call(commands / "python", "-m", "pip", "install", f"{core}[cli]", *plugins)
    return commands
