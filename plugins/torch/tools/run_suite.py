"""Counts the ONNX backend suite's cases through the torch EP.

    python tools/run_suite.py [--jobs N] [--every N] [--json FILE] [CASE …]

Each case is run with the torch EP alone, and, where that fails, with the CPU EP after
it, and with the CPU EP alone.  It ends with 1 where the last passes a case that does
not pass with torch before it.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import onnxplug
from onnxplug.backend import OnnxplugBackend, OnnxplugBackendRep

TORCH: Final = "TorchExecutionProvider"
CPU: Final = "CPUExecutionProvider"
RANDOM: Final = "test_bernoulli"
"""Cases that compare with random draws, which are the same only by chance."""

_SUITE: Final = Path(__file__).parents[3] / "tests" / "onnx_backend" / "suite.py"


class Both(OnnxplugBackend):
    """torch first, the CPU EP for what it refuses."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session on both EPs."""
        kwargs["providers"] = [TORCH, CPU]
        return super().prepare(model, device, **kwargs)


class Alone(OnnxplugBackend):
    """torch for every node, or an error."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session on torch, with nothing to fall back to."""
        options = onnxplug.SessionOptions()
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        options.add_session_config_entry("session.check_results", "1")
        kwargs["providers"] = [TORCH]
        kwargs["sess_options"] = options
        return super().prepare(model, device, **kwargs)


def load_suite() -> ModuleType:
    """``tests/onnx_backend/suite.py``, which is in no package."""
    specification = importlib.util.spec_from_file_location("onnx_suite", _SUITE)
    if specification is None or specification.loader is None:
        raise FileNotFoundError(_SUITE)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def failures(backend: Any, names: Collection[str]) -> dict[str, str]:
    """Those of the cases *names* that fail, with what they raised."""
    cases = load_suite().load_cases(backend)
    found = {}
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cases[name]()
        except unittest.SkipTest as skipped:
            found[name] = f"skipped: {skipped}"
        except Exception as error:  # noqa: BLE001 (whatever a case raises)
            found[name] = f"{type(error).__name__}: {str(error).strip()[:400]}"
    return found


def measure(names: Collection[str]) -> dict[str, Any]:
    """The counts for these cases."""
    alone = failures(Alone, names)
    both = failures(Both, list(alone))
    reference = failures(OnnxplugBackend, list(both))
    return {
        "cases": len(names),
        "pass wholly on torch": len(names) - len(alone),
        "pass on torch and the CPU EP": len(names) - len(both),
        "pass on the CPU EP only": {
            name: reason
            for name, reason in both.items()
            if name not in reference and not name.startswith(RANDOM)
        },
        "run wholly on torch and fail": {
            name: reason
            for name, reason in alone.items()
            if not reason.startswith(("UnassignedNode", "skipped"))
        },
        "need the CPU EP": {
            name: reason
            for name, reason in alone.items()
            if reason.startswith("UnassignedNode")
        },
    }


def measure_in_parts(count: int, every: int) -> dict[str, Any]:
    """:func:`measure` in so many processes, each for its share of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{part}.json" for part in range(count)]
        workers = [
            subprocess.Popen(
                [
                    sys.executable, __file__, "--every", str(every),
                    "--part", str(part), str(count), "--json", str(file),
                ],
                stdout=subprocess.DEVNULL,
            )
            for part, file in enumerate(files)
        ]  # fmt: skip
        ends = [worker.wait() for worker in workers]
        if any(end not in (0, 1) for end in ends):
            raise RuntimeError(f"the processes ended with {ends}; expected 0 or 1")
        found = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {
        key: sum(part[key] for part in found)
        if isinstance(value, int)
        else {name: text for part in found for name, text in part[key].items()}
        for key, value in found[0].items()
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write what is printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run in")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="run every Nth case only"
    )
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    given = parser.parse_intermixed_args(arguments)
    if given.jobs > 1:
        found = measure_in_parts(given.jobs, given.every)
    else:
        names = given.cases or list(load_suite().load_cases(OnnxplugBackend))
        names = names[:: given.every]
        if given.part:
            first, step = given.part
            names = names[first::step]
        found = measure(names)
    text = json.dumps(found, indent=2)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    return 1 if found["pass on the CPU EP only"] else 0


if __name__ == "__main__":
    sys.exit(main())
