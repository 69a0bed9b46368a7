"""Counts the ONNX backend suite's cases through the DirectML EP, on the stand-in.

    python tools/run_suite.py [--level 6.4] [--device npu] [--jobs N] [--every N]
                              [--json FILE] [--table FILE] [CASE …]

All of the EP runs, on the tests' stand-in for Windows, which looks at what it is given
as DirectML's documentation demands, and computes it with numpy.  --level says which
feature level the DirectML.dll has, --device npu that the adapter only computes.

The nine whole networks of the suite, with a billion multiplications each, are left out
without --networks, or their names.

It ends with 1 where the CPU EP passes a case that does not pass with the DirectML EP
before it, or that the DirectML EP takes wholly and does not pass, or where a rule of
Direct3D's or DirectML's is broken, or something that Windows handed out not released.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_directml.factory import DmlFactory
from onnxplug_directml.spaces import DmlSpaces
from onnxplug_testing.backend_suite import (
    SECONDS_PER_CASE,
    CountingBackend,
    Lineup,
    load_cases,
)
from onnxplug_testing.hardware import presented
from onnxplug_testing.suite_command import main

NETWORKS: Final = frozenset(
    f"test_{name}"
    for name in (
        "bvlc_alexnet densenet121 inception_v1 inception_v2 resnet50 shufflenet "
        "squeezenet vgg19 zfnet512"
    ).split()
)

HOUR: Final = 3600.0

sys.path.insert(0, str(Path(__file__).parents[3]))  # the repository

from plugins.directml.tests.conftest import CPU, hardware, install  # noqa: E402
from plugins.directml.tests.standin import GPU, NPU, Windows  # noqa: E402


class Telling(Windows):
    """Tells other processes of rules that are broken, too.

    Args:
        violations: a file for these.
    """

    def __init__(self, violations: Path, *arguments: Any, **settings: Any) -> None:
        self._violations = violations
        super().__init__(*arguments, **settings)

    def note(self, what: str) -> None:
        super().note(what)
        with self._violations.open("a", encoding="utf-8") as file:
            file.write(f"{what}\n")


class _Spaces(DmlSpaces):
    """Sees, whenever an adapter is used again, that all was released before."""

    def __init__(self, windows: Windows) -> None:
        super().__init__()
        self._windows = windows

    def create_context(self, location: ep.MemoryLocation) -> Any:
        for left in self._windows.alive:
            self._windows.note(f"{left} was not released")
        return super().create_context(location)


def run(words: Sequence[str] | None = None) -> int:
    """Register the EP, and count."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--level", default="6.4")
    parser.add_argument("--device", choices=["gpu", "npu"], default="gpu")
    parser.add_argument("--networks", action="store_true")
    given, rest = parser.parse_known_args(words)
    if not given.networks and not any(word.startswith("test_") for word in rest):
        rest += [name for name in load_cases(CountingBackend) if name not in NETWORKS]
    patience = HOUR if given.networks else SECONDS_PER_CASE
    major, minor = map(int, given.level.split("."))
    adapter = GPU if given.device == "gpu" else NPU
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        violations = Path(folder, "violations")
        windows = Telling(violations, directml_level=(major, minor), delay=0.0)
        install(windows, patch, Path(folder))
        patch.setattr(DmlFactory, "verification", None)
        if DmlFactory.name in [record.name for record in registry.records()]:
            registry.remove(DmlFactory.name)
        factory = DmlFactory()
        factory.memory_spaces = _Spaces(windows)
        onnxplug.register_ep_library("stand-in", factory)
        with presented(CPU, hardware(adapter, 0)):
            lineup = Lineup(DmlFactory.name, {}, patience)
            status = main(__doc__, lineup, rest)
        if violations.exists():
            print(violations.read_text("utf-8"), file=sys.stderr)
            return 1
        return status


if __name__ == "__main__":
    sys.exit(run())
