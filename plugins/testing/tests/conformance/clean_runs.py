"""Lets the conformance kit examine EPs that are to have no mistakes, again and again.

    python plugins/testing/tests/conformance/clean_runs.py [--runs N] [--quick] [EP …]

examines the CPU EP, the simulated device and both EPs that mistakes are planted in, or
those that are named, each N times, every time with another seed and in a process of its
own.  It says of each run what was tried, what was found, and how long it took by the
clock and of the processor; it fails if anything was found.

    python plugins/testing/tests/conformance/clean_runs.py --one EP SEED [--quick]

prints one run as JSON.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent

EPS: Final = ("cpu", "simulated", "device", "compile")


def registered(ep: str) -> str:
    """The name of the EP, which is known afterwards."""
    if ep == "cpu":
        return ep
    from onnxplug.plugins import registry
    from onnxplug_testing import Knobs, SimulatedFactory

    sys.path.insert(0, str(HERE))
    factories: dict[str, Any] = {
        "simulated": lambda: SimulatedFactory(Knobs()),
        "device": lambda: importlib.import_module("planted.device_ep").DeviceFactory(),
        "compile": lambda: importlib.import_module(
            "planted.compile_ep"
        ).GeneratedFactory(),
    }
    factory = factories[ep]()
    registry.add(factory)
    return str(factory.name)


def one_run(ep: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """What came of a run in this process, which has started no EP."""
    from onnxplug_testing.conformance import Settings, examine

    report = examine(registered(ep), settings=Settings(seed=seed, quick=quick))
    used = [
        resource.getrusage(who)
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]
    return {
        "ep": ep,
        "seed": seed,
        "tried": report.tried,
        "untried": report.untried,
        "seconds": round(report.seconds, 1),
        "processor": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
        "findings": [
            f"{each.group}/{each.check}: {each.node} {each.what} ({each.case})"
            for each in report.findings
        ],
    }


def run_apart(ep: str, seed: int, *, quick: bool) -> dict[str, Any]:
    """What came of a run in a process of its own."""
    words = ["--one", ep, str(seed), *["--quick"] * quick]
    done = subprocess.run(
        [sys.executable, __file__, *words],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    )
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return outcome


def main(words: Sequence[str]) -> int:
    """Examine, and say what came of it; 1 if anything was found."""
    parser = argparse.ArgumentParser(description="Examine EPs without mistakes.")
    parser.add_argument("eps", nargs="*", metavar="EP", default=list(EPS))
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--first", type=int, default=0, help="seed of the first run")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("EP", "SEED"))
    chosen = parser.parse_args(words)
    if chosen.one:
        ep, seed = chosen.one
        print(json.dumps(one_run(ep, int(seed), quick=chosen.quick)))
        return 0
    found = 0
    for seed in range(chosen.first, chosen.first + chosen.runs):
        for ep in chosen.eps:
            outcome = run_apart(ep, seed, quick=chosen.quick)
            findings = outcome.pop("findings")
            found += len(findings)
            print(json.dumps(outcome), *findings, sep="\n    ", flush=True)
    print(f"{chosen.runs} runs of {', '.join(chosen.eps)}: {found} findings")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
