"""Counts the ONNX backend suite's cases through the OpenVINO EP.

    python tools/run_suite.py [--json FILE] [CASE …]

Prints what passes on the CPU EP alone, what passes on [OpenVINO, CPU], and what passes
wholly on OpenVINO, with the CPU EP switched off; then the cases in which the first two
differ, of which there must be none.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import unittest
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import onnxplug
from onnxplug.backend import OnnxplugBackend, OnnxplugBackendRep

OPENVINO: Final = "OpenVINOExecutionProvider"
CPU: Final = "CPUExecutionProvider"

_SUITE: Final = Path(__file__).parents[3] / "tests" / "onnx_backend" / "suite.py"


class Both(OnnxplugBackend):
    """OpenVINO first, the CPU EP for what it refuses."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session on both EPs."""
        kwargs["providers"] = [OPENVINO, CPU]
        return super().prepare(model, device, **kwargs)


class Alone(OnnxplugBackend):
    """OpenVINO for every node, or an error."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session on OpenVINO, with nothing to fall back to."""
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        kwargs["providers"] = [OPENVINO]
        kwargs["sess_options"] = options
        return super().prepare(model, device, **kwargs)


class Reference(OnnxplugBackend):
    """The CPU EP."""


def load_suite() -> ModuleType:
    """``tests/onnx_backend/suite.py``, which is in no package."""
    specification = importlib.util.spec_from_file_location("onnx_suite", _SUITE)
    if specification is None or specification.loader is None:
        raise FileNotFoundError(_SUITE)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def outcomes(
    cases: dict[str, Callable[[], None]], names: Sequence[str] = ()
) -> dict[str, str]:
    """What each case raised; empty for one that passed."""
    found = {}
    for name, run in cases.items():
        if names and name not in names:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run()
        except unittest.SkipTest as skipped:
            found[name] = f"skipped: {skipped}"
        except Exception as error:  # noqa: BLE001 (whatever a case raises)
            found[name] = f"{type(error).__name__}: {str(error).strip()[:400]}"
        else:
            found[name] = ""
    return found


def measure(names: Sequence[str] = ()) -> dict[str, Any]:
    """The counts, and the cases in which OpenVINO makes a difference."""
    suite = load_suite()
    passed: dict[str, set[str]] = {}
    reasons: dict[str, dict[str, str]] = {}
    for backend in (Reference, Both, Alone):
        print("running", backend.__name__, file=sys.stderr, flush=True)
        reasons[backend.__name__] = found = outcomes(suite.load_cases(backend), names)
        passed[backend.__name__] = {
            name for name, reason in found.items() if not reason
        }
    lost = sorted(passed["Reference"] - passed["Both"])
    return {
        "cases": len(reasons["Reference"]),
        "pass on the CPU EP": len(passed["Reference"]),
        "pass on OpenVINO and the CPU EP": len(passed["Both"]),
        "pass wholly on OpenVINO": len(passed["Alone"]),
        "pass on the CPU EP only": {name: reasons["Both"][name] for name in lost},
        "pass with OpenVINO only": sorted(passed["Both"] - passed["Reference"]),
        "run wholly on OpenVINO and fail": {
            name: reason
            for name, reason in reasons["Alone"].items()
            if reason and not reason.startswith(("UnassignedNode", "skipped"))
        },
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_intermixed_args()
    text = json.dumps(measure(arguments.cases), indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
