"""Wheels of native EPs made for ONNX Runtime are found without importing them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from onnxplug.plugins import hosted
from onnxplug.plugins.find import GROUP, find_plugins

EP = "ToyExecutionProvider"

MODULE = f"""
NAME = {EP!r}
def get_library_path():
    return __file__ + ".so"
def get_ep_names():
    return [NAME]
"""

HOST = """
from onnxplug.ep import hookimpl

loaded = []

class Hosted:
    def __init__(self, handle, path):
        self.said = [handle, path.name]
        loaded.append(self.said)
    @hookimpl
    def onnxplug_ep_factories(self):
        return []
    def close(self):
        self.said.append("closed")
"""


def add(folder: Path, name: str, entry_points: str = "") -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    add(folder, "onnxruntime-ep-toy")
    package = folder / "onnxruntime_ep_toy"
    package.mkdir()
    (package / "__init__.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name in ("onnxruntime_ep_toy", "toy_host"):
        sys.modules.pop(name, None)


def add_host(site: Path) -> None:
    add(site, "toy-host", f"[{hosted.GROUP}]\n{hosted.ORT_SYMBOL} = toy_host:Hosted\n")
    (site / "toy_host.py").write_text(HOST)


def test_its_eps_are_found_and_its_library_is_hosted(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # of those that are installed, whatever they are, none may host the toy
    real = hosted.find_advertised
    monkeypatch.setattr(
        hosted,
        "find_advertised",
        lambda *given: [each for each in real(*given) if each.module.startswith("toy")],
    )
    assert EP not in [each.name for each in find_plugins(GROUP)]
    add_host(site)
    (found,) = [each for each in find_plugins(GROUP) if each.name == EP]
    assert (found.distribution, found.version) == ("onnxruntime-ep-toy", "1.0")
    assert "onnxruntime_ep_toy" not in sys.modules
    library = found.library()
    assert library.load() == {}
    library.discard()
    assert sys.modules["toy_host"].loaded == [
        ["ToyExecutionProvider", "__init__.py.so", "closed"]
    ]


def test_finding_them_imports_nothing_heavy(site: Path) -> None:
    add_host(site)
    program = (
        "import sys; from onnxplug.plugins.find import GROUP, find_plugins\n"
        f"assert {EP!r} in [each.name for each in find_plugins(GROUP)]\n"
        "print(*{'pathlib', 'logging', 'importlib_metadata'} & {*sys.modules})"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.stdout.split() == []
