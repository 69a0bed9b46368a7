"""An installation is upgraded, in part and whole, by wheels alone.

There is no release yet to upgrade from: the old wheels are those of this state, with
older numbers, and a module that the new ones do not have.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
OLD, NEW = "0.0.9", "0.1.0"

RUN = """
import json, numpy as np, onnxplug
session = onnxplug.InferenceSession("digits.onnx")
(image,) = session.get_inputs()
(y,) = session.run(None, {image.name: np.zeros((1, 1, 8, 8), np.float32)})
print(json.dumps({"version": onnxplug.__version__, "eps": session.get_providers(),
                  "y": y.ravel().tolist()}))
"""


def older(folder: Path, place: Path) -> Path:
    """A copy of a distribution as an older one, which has a module that is gone."""
    copy = place / folder.name
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    about = copy / "pyproject.toml"
    text = about.read_text("utf-8")
    text = text.replace(f'version = "{NEW}"', f'version = "{OLD}"')
    text = text.replace(">=0.1,<0.2", ">=0.0.9,<0.1").replace(f"=={NEW}", f"=={OLD}")
    about.write_text(text, "utf-8")
    (package,) = (copy / "src").iterdir()
    start = package / "__init__.py"
    start.write_text(start.read_text("utf-8").replace(f'"{NEW}"', f'"{OLD}"'), "utf-8")
    (package / "gone.py").write_text("")
    return copy


@pytest.fixture(scope="module")
def shelf(wheels, build_wheel, tmp_path_factory) -> Path:
    """A folder with the wheels of both versions, as an index would have them."""
    folder = tmp_path_factory.mktemp("shelf")
    place = tmp_path_factory.mktemp("older")
    for name, wheel in wheels.items():
        source = ROOT / ("core" if name == "onnxplug" else f"plugins/{name[9:]}")
        for each in (wheel, build_wheel(older(source, place))):
            shutil.copy(each, folder)
    assert len(list(folder.iterdir())) == 2 * len(wheels)
    return folder


class Installation:
    """An environment, and what is asked of it."""

    def __init__(self, folder: Path, shelf: Path, call) -> None:
        venv.create(folder, with_pip=True)
        self.folder = folder
        self.commands = folder / ("Scripts" if sys.platform == "win32" else "bin")
        self.call = call
        self.shelf = shelf
        shutil.copy(ROOT / "demo" / "digits.onnx", folder)

    def pip(self, *words: str) -> str:
        return self.call(self.commands / "python", "-m", "pip", *words)

    def install(self, *words: str) -> str:
        # what is not of this repository is had from where pip has it otherwise
        return self.pip("install", "--find-links", str(self.shelf), *words)

    def run(self) -> dict:
        return json.loads(
            self.call(self.commands / "python", "-c", RUN, folder=self.folder)
        )

    def failing(self, *words: str) -> str:
        """What Python says, which has to fail."""
        done = subprocess.run(
            [self.commands / "python", *words],
            cwd=self.folder,
            env={k: v for k, v in os.environ.items() if k != "PYTHONPATH"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 1, done.stdout
        return done.stdout + done.stderr

    def versions(self) -> dict[str, str]:
        found = json.loads(self.pip("list", "--format", "json"))
        return {
            each["name"]: each["version"]
            for each in found
            if each["name"].startswith("onnxplug")
        }

    def modules_that_are_gone(self) -> list[Path]:
        return list(self.folder.rglob("onnxplug*/gone.py"))


@pytest.fixture(scope="module")
def environment(shelf: Path, call, tmp_path_factory) -> Installation:
    return Installation(tmp_path_factory.mktemp("environment"), shelf, call)


@pytest.fixture
def installation(environment: Installation) -> Installation:
    """One with the older versions, untouched."""
    if environment.versions():
        environment.pip("uninstall", "--yes", *environment.versions())
    environment.install(f"onnxplug[cli,cpu]=={OLD}")
    return environment


def test_all_is_upgraded_at_once(installation: Installation) -> None:
    before = installation.run()
    assert before["version"] == OLD
    assert set(installation.versions().values()) == {OLD}
    assert len(installation.modules_that_are_gone()) == 6

    installation.install("--upgrade", "onnxplug", "onnxplug-cli", "onnxplug-cpu")
    assert installation.versions() == dict.fromkeys(installation.versions(), NEW)
    assert installation.modules_that_are_gone() == []
    installation.pip("check")
    after = installation.run()
    assert after == {**before, "version": NEW}

    installation.install(f"onnxplug[cli,cpu]=={OLD}")  # and back
    assert set(installation.versions().values()) == {OLD}
    assert installation.run() == before


def test_a_core_alone_refuses_eps_that_do_not_fit(installation: Installation) -> None:
    installation.install("--upgrade", "onnxplug")
    assert installation.versions()["onnxplug"] == NEW
    assert installation.versions()["onnxplug-cpu"] == OLD
    told = installation.failing("-m", "pip", "check")
    assert re.search(r"onnxplug-cpu 0\.0\.9 has requirement onnxplug<0\.1", told)
    assert (
        "CPUExecutionProvider (onnxplug-cpu 0.0.9) is incompatible: onnxplug-cpu needs "
        "'onnxplug<0.1,>=0.0.9', and this is onnxplug 0.1.0; install versions of the "
        "two that fit"
    ) in installation.failing("-c", RUN)


def test_an_ep_for_a_newer_interface_is_refused_in_words(
    installation: Installation,
) -> None:
    (factory,) = installation.folder.rglob("onnxplug_cpu/factory.py")
    text = factory.read_text("utf-8")
    newer = re.sub(r"spi_version = \((\d+), \d+\)", r"spi_version = (\1, 99)", text)
    assert newer != text
    factory.write_text(newer, "utf-8")
    assert re.search(
        r"CPUExecutionProvider \(onnxplug-cpu 0\.0\.9\) is incompatible: written for "
        r"SPI (\d+)\.99, and this onnxplug speaks \1\.\d+; upgrade onnxplug",
        installation.failing("-c", RUN),
    )
