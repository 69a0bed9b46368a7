"""How soon a session gives its first result, from a model and from it compiled ahead.

A model is compiled ahead for OpenVINO once; then fresh processes alternate, one of them
with the model and one with what was compiled.  The time is that from before the session
is made to the end of its first run: the engine's import counts, the runtime's does not.
All modules are compiled to bytecode once, as installed ones are.  Prints medians and
ratios, and writes them as JSON.

    python benchmarks/compiled_models.py [--models NAME …] [--starts N] [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from machine import describe_machine
from models import MODELS

MODES = ("model", "compiled ahead, beside it", "compiled ahead, within it")


def build(name: str, folder: Path) -> dict[str, Path]:
    """The files of a model in each of the modes."""
    case = MODELS[name]()
    path = folder / f"{name}.onnx"
    onnx.save(case.model, path)
    np.savez(folder / "feeds.npz", **case.feeds)
    found = {MODES[0]: path}
    for mode, embed in ((MODES[1], "0"), (MODES[2], "1")):
        found[mode] = folder / f"{name}-{embed}_ctx.onnx"
        command = [sys.executable, __file__, "--compile", path, found[mode], embed]
        subprocess.run(command, check=True)
    return found


def compile_ahead(source: str, target: str, embed: str) -> None:
    """Compile a model for OpenVINO."""
    import onnxplug

    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", target)
    options.add_session_config_entry("ep.context_embed_mode", embed)
    onnxplug.InferenceSession(source, options, ["OpenVINOExecutionProvider"]).close()


def start(path: str) -> None:
    """Print the seconds to a session, and to its first result, and that."""
    import onnxplug

    feeds = dict(np.load(Path(path).parent / "feeds.npz"))
    before = time.perf_counter()
    session = onnxplug.InferenceSession(path, None, ["OpenVINOExecutionProvider"])
    made = time.perf_counter()
    results = session.run(None, feeds)
    done = time.perf_counter()
    total = float(np.abs(np.asarray(results[0], np.float64)).sum())
    print(json.dumps([made - before, done - before, total]))


def measure(name: str, starts: int) -> dict[str, Any]:
    """Seconds by mode, each the median of *starts* processes."""
    with tempfile.TemporaryDirectory() as folder:
        files = build(name, Path(folder))
        sizes = {mode: path.stat().st_size for mode, path in files.items()}
        found: dict[str, list[list[float]]] = {mode: [] for mode in files}
        environment = _with_bytecode(Path(folder))
        for number in range(starts + 1):
            for mode, path in files.items():
                command = [sys.executable, __file__, "--start", path]
                run = subprocess.run(
                    command, check=True, capture_output=True, env=environment
                )
                if number:  # the first ones read files that the others find in memory
                    found[mode].append(json.loads(run.stdout))
    summary: dict[str, Any] = {}
    for mode, rows in found.items():
        sessions, firsts, totals = zip(*rows, strict=True)
        np.testing.assert_allclose(totals, found[MODES[0]][0][2], rtol=1e-4)
        summary[mode] = {
            "session_s": statistics.median(sessions),
            "first_result_s": statistics.median(firsts),
            "quickest_first_result_s": min(firsts),
            "model_file_bytes": sizes[mode],
        }
    base = summary[MODES[0]]
    for row in summary.values():
        row["times_sooner"] = base["first_result_s"] / row["first_result_s"]
    return summary


def _with_bytecode(folder: Path) -> Mapping[str, str]:
    """The environment, in which bytecode is kept in *folder*."""
    variables = dict(os.environ)
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}


def main() -> None:
    """Measure, print, and write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=["bert-base-torchscript"])
    parser.add_argument("--starts", type=int, default=9)
    parser.add_argument("--output", type=Path, default=Path("compiled_models.json"))
    parser.add_argument("--start", metavar="PATH")
    parser.add_argument("--compile", nargs=3, metavar=("SOURCE", "TARGET", "EMBED"))
    arguments = parser.parse_args()
    if arguments.start:
        start(arguments.start)
        return
    if arguments.compile:
        compile_ahead(*arguments.compile)
        return
    result: dict[str, Any] = {"machine": describe_machine(), "models": {}}
    for name in arguments.models:
        result["models"][name] = measure(name, arguments.starts)
        for mode, row in result["models"][name].items():
            print(
                f"{name}, {mode}: session {row['session_s']:.3f} s, first result "
                f"{row['first_result_s']:.3f} s, {row['times_sooner']:.2f} times sooner"
            )
    text = json.dumps(result, indent=2)
    arguments.output.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
