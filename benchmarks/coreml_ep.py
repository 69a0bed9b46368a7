"""Compares the CoreML EP, on Core AI's runtime for processors, with the CPU EP.

    python benchmarks/coreml_ep.py [--models NAME …] [--rounds N] [--output FILE]

Both run in this process and take turns, a run each.  Core AI has threads of its own,
whose number nobody can set; so besides the time that passes, the time is told that all
threads of the process compute.  Prints the least of each, how many nodes the EP has,
and the largest difference between results; and writes them as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from machine import describe_machine

EPS = {"coreml": "CoreMLExecutionProvider", "cpu": "CPUExecutionProvider"}
NAMES = ("resnet50", "mobilenetv2", "bert-base", "unet", "whisper-encoder")


def load(name: str) -> tuple[Any, Mapping[str, Any]]:
    """A model and what it is fed."""
    if name == "bert-base":
        from models import MODELS

        case = MODELS[name]()
        return case.model, case.feeds
    from zoo import ZOO, exported

    files = exported(ZOO[name], name)
    with np.load(files.feeds) as feeds:
        return files.model, dict(feeds)


def measure(name: str, rounds: int) -> dict[str, Any]:
    """The least times of both, in seconds."""
    import onnxplug

    model, feeds = load(name)
    sessions, found, best = {}, {}, {}
    for short in EPS:
        options = onnxplug.SessionOptions()
        options.intra_op_num_threads = len(os.sched_getaffinity(0))
        started = time.process_time()
        sessions[short] = onnxplug.InferenceSession(model, options, providers=[short])
        loading = time.process_time() - started
        found[short] = sessions[short].run(None, feeds)
        best[short] = {"loading, CPU s": loading, "s": 1e9, "CPU s": 1e9}
    for _ in range(rounds):
        for short, session in sessions.items():
            passed, computed = time.perf_counter(), time.process_time()
            session.run(None, feeds)
            computed, passed = (
                time.process_time() - computed,
                time.perf_counter() - passed,
            )
            best[short]["s"] = min(best[short]["s"], passed)
            best[short]["CPU s"] = min(best[short]["CPU s"], computed)
    nodes = sessions["coreml"].explain().nodes
    return {
        **best,
        "nodes": len(nodes),
        "nodes on the EP": sum(node.ep == EPS["coreml"] for node in nodes),
        "largest difference": max(
            float(abs(ours - theirs).max())
            for ours, theirs in zip(found["coreml"], found["cpu"], strict=True)
        ),
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    if find_spec("coreai") is None:
        sys.exit("coreml_ep.py needs Core AI: make .venv/coreml.stamp")
    report = {"machine": describe_machine(), "models": {}}
    for name in arguments.models:
        row = report["models"][name] = measure(name, arguments.rounds)
        print(
            f"{name:16} {row['nodes on the EP']}/{row['nodes']} nodes, "
            + ", ".join(
                f"{short} {row[short]['s'] * 1e3:.1f} ms "
                f"({row[short]['CPU s'] * 1e3:.1f} ms of CPU)"
                for short in EPS
            )
            + f", off by {row['largest difference']:.1e}",
            flush=True,
        )
    if arguments.output:
        text = json.dumps(report, indent=1) + "\n"
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
