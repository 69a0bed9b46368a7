"""Distributions made up in a folder of ``sys.path``: found, but never installed."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from onnxplug.plugins import PluginRegistry

HOOK = """
from onnxplug import ep

class Factory(ep.EpFactory):
    spi_version = {version}
    version = "1.0"
    def supported_devices(self, devices):
        return []
    def create(self, devices, options, session):
        raise NotImplementedError

{classes}

made = []

@ep.hookimpl
def onnxplug_ep_factories(host):
    made.append(host)
    return [{instances}]
"""


class Site:
    """A folder of ``sys.path`` with distributions that supply EPs."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch

    @staticmethod
    def code(*eps: str, version: tuple[int, ...] = (0, 1), extra: str = "") -> str:
        """The code of a plugin module that supplies *eps*."""
        classes = "\n".join(
            f"class F{number}(Factory):\n    name = {ep!r}"
            for number, ep in enumerate(eps)
        )
        instances = ", ".join(f"F{number}()" for number in range(len(eps)))
        hook = HOOK.format(version=version, classes=classes, instances=instances)
        return f"{hook}\n{extra}"

    def install(
        self,
        eps: str | Sequence[str],
        code: str | None = None,
        *,
        distribution: str = "",
        requires: Sequence[str] = (),
        entry_points: str | None = None,
        metadata: str | None = None,
        module: str = "",
    ) -> str:
        """Put a distribution in the folder; the name of its module.

        Without *code* it supplies *eps* as it says.
        """
        eps = [eps] if isinstance(eps, str) else list(eps)
        distribution = distribution or f"onnxplug-{eps[0].lower()}"
        own_module = distribution.replace("-", "_").replace(".", "_")
        module = module or own_module
        source = self.code(*eps) if code is None else code
        (self.folder / f"{own_module}.py").write_text(source)
        info = self.folder / f"{own_module}-1.2.dist-info"
        info.mkdir()
        if metadata is None:
            metadata = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n"
            metadata += "".join(f"Requires-Dist: {line}\n" for line in requires)
            metadata += "\nRequires-Dist: not-in-the-header\n"
        if metadata:
            (info / "METADATA").write_text(metadata)
        if entry_points is None:
            entry_points = "[onnxplug.execution_providers]\n"
            entry_points += "".join(f"{ep} = {module}\n" for ep in eps)
        (info / "entry_points.txt").write_text(entry_points)
        self._patch.delitem(sys.modules, module, raising=False)
        return module


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A folder on ``sys.path`` to put made-up distributions in."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    return Site(folder, monkeypatch)


@pytest.fixture
def registry() -> PluginRegistry:
    """A registry without settings."""
    return PluginRegistry({})


@pytest.fixture
def states():
    """The states of the EPs in a registry, but for those really installed."""

    def of(registry: PluginRegistry) -> Mapping[str, str]:
        return {
            record.name: str(record.state)
            for record in registry.records()
            if record.name.startswith("X")
        }

    return of
