"""Counts the ONNX backend suite's cases through the OpenVINO EP.

    python tools/run_suite.py [--jobs N] [--quick] [--every N] [--json FILE] [CASE …]

Prints what passes on the CPU EP alone, what passes on [OpenVINO, CPU], what passes
wholly on OpenVINO, with the CPU EP switched off, and how many nodes OpenVINO ran; then
the cases in which the first two differ, of which there must be none.  It ends with 1
where the CPU EP alone passes a case that does not pass with OpenVINO before it.
"""

from __future__ import annotations

import argparse
import functools
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
from typing import Any, ClassVar, Final, NamedTuple

import onnxplug
from onnxplug.backend import OnnxplugBackend, OnnxplugBackendRep

OPENVINO: Final = "OpenVINOExecutionProvider"
CPU: Final = "CPUExecutionProvider"

RANDOM: Final = "test_bernoulli"
"""Cases that compare with random draws, which are the same only by chance."""

_SUITE: Final = Path(__file__).parents[3] / "tests" / "onnx_backend" / "suite.py"


class Counting(OnnxplugBackend):
    """Tells how many nodes of the model prepared last OpenVINO runs."""

    nodes: ClassVar[int] = 0

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session, whose nodes on OpenVINO are counted."""
        cls.nodes = 0
        prepared = super().prepare(model, device, **kwargs)
        placed = prepared.session.explain().nodes
        cls.nodes = sum(node.ep == OPENVINO for node in placed)
        return prepared


class Both(Counting):
    """OpenVINO first, the CPU EP for what it refuses."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session on both EPs."""
        kwargs["providers"] = [OPENVINO, CPU]
        return super().prepare(model, device, **kwargs)


class Alone(Counting):
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


class Reference(Counting):
    """The CPU EP."""


class Outcome(NamedTuple):
    """What came of a case.

    Attributes:
        reason: what it raised; empty if it passed.
        nodes: how many nodes OpenVINO ran.
    """

    reason: str
    nodes: int


@functools.cache
def load_suite() -> ModuleType:
    """``tests/onnx_backend/suite.py``, which is in no package."""
    specification = importlib.util.spec_from_file_location("onnx_suite", _SUITE)
    if specification is None or specification.loader is None:
        raise FileNotFoundError(_SUITE)
    module = importlib.util.module_from_spec(specification)
    sys.modules[specification.name] = module
    specification.loader.exec_module(module)
    return module


def outcomes(backend: type[Counting], names: Collection[str]) -> dict[str, Outcome]:
    """What came of each of the cases named."""
    found = {}
    for name, run in load_suite().load_cases(backend).items():
        if name not in names:
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run()
        except unittest.SkipTest as skipped:
            found[name] = Outcome(f"skipped: {skipped}", 0)
        except Exception as error:  # noqa: BLE001 (whatever a case raises)
            reason = f"{type(error).__name__}: {str(error).strip()[:400]}"
            found[name] = Outcome(reason, 0)
        else:
            found[name] = Outcome("", backend.nodes)
    return found


def measure(names: Collection[str], *, quick: bool) -> dict[str, Any]:
    """The counts for these cases, and those in which OpenVINO makes a difference.

    Args:
        quick: run the CPU EP alone on nothing but what fails with OpenVINO: what
            passes with OpenVINO only is then not found.
    """
    alone = outcomes(Alone, names)
    # what passed wholly on OpenVINO has no node for the CPU EP
    rest = {name for name, outcome in alone.items() if outcome.reason}
    both = outcomes(Both, rest)
    failed = {name for name, outcome in both.items() if outcome.reason}
    reference = outcomes(Reference, failed if quick else names)
    passed = {name for name, outcome in reference.items() if not outcome.reason}
    found: dict[str, Any] = {
        "cases": len(alone),
        "pass on OpenVINO and the CPU EP": len(alone) - len(failed),
        "pass wholly on OpenVINO": len(alone) - len(rest),
        "nodes that OpenVINO ran": sum(
            outcome.nodes for outcome in (*alone.values(), *both.values())
        ),
        "pass on the CPU EP only": {
            name: both[name].reason
            for name in sorted(failed & passed)
            if not name.startswith(RANDOM)
        },
        "fail on both": {name: both[name].reason for name in sorted(failed - passed)},
        "run wholly on OpenVINO and fail": {
            name: alone[name].reason
            for name in sorted(rest)
            if not alone[name].reason.startswith(("UnassignedNode", "skipped"))
        },
    }
    if not quick:
        found["pass on the CPU EP"] = len(passed)
        found["pass with OpenVINO only"] = {
            name: reference[name].reason
            for name in sorted(set(names) - failed - passed)
        }
    return found


def measure_in_parts(count: int, arguments: Sequence[str]) -> dict[str, Any]:
    """:func:`measure` in so many processes, each for its share of the cases."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{part}.json" for part in range(count)]
        workers = [
            subprocess.Popen(
                [
                    sys.executable, __file__, *arguments,
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


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write what is printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run in")
    parser.add_argument(
        "--quick", action="store_true", help="do not count what the CPU EP passes"
    )
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="run every Nth case only"
    )
    parser.add_argument("--part", type=int, nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.jobs > 1:
        given = [*arguments.cases, *(["--quick"] if arguments.quick else [])]
        given += ["--every", str(arguments.every)]
        found = measure_in_parts(arguments.jobs, given)
    else:
        names = arguments.cases or list(load_suite().load_cases(Reference))
        names = names[:: arguments.every]
        if arguments.part:
            first, step = arguments.part
            names = names[first::step]
        found = measure(names, quick=arguments.quick)
    text = json.dumps(found, indent=2)
    if arguments.json:
        arguments.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    differ = (
        found["pass on the CPU EP only"] or found["run wholly on OpenVINO and fail"]
    )
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
