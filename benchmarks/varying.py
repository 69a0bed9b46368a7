"""What new shapes cost: a decoder whose cache grows, and BERT of any batch and length.

Each is timed with shapes that a session sees for the first time and with the same
shapes again, beside ONNX Runtime, run by run in turns.

    python benchmarks/varying.py [--threads N] [--tokens 48] [--pairs 60]
        [--layers 12] [--repeats 3] [--json FILE]
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
from machine import describe_machine
from models.varying import bert_feeds, decoder_feeds, growing_decoder, varying_bert

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
Session: TypeAlias = Callable[[Feeds], list[Any]]


def session_of(runtime: str, model: str, threads: int) -> Session:
    """A new session of a runtime with ONNX Runtime's interface, by its module."""
    module: Any = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: list(session.run(None, feeds))


def timed(session: Session, feeds: Feeds) -> float:
    """Seconds of one run."""
    started = time.perf_counter()
    session(feeds)
    return time.perf_counter() - started


def measure_decoder(
    model: str, tokens: int, layers: int, threads: int
) -> dict[str, float]:
    """Medians of seconds a token: of new lengths, of one length, of ONNX Runtime.

    The cache grows by a token with each step; one length is run in between, as often
    with numbers that no cache of the processor has.
    """
    first = session_of("onnxplug", model, threads)
    other = session_of("onnxruntime", model, threads)
    past = 64
    seen = decoder_feeds(1, past - 1, layers=layers)
    for session in (first, other):
        session(seen), session(seen)
    times: dict[str, list[float]] = {"new": [], "seen": [], "onnxruntime": []}
    for step in range(tokens):
        new = decoder_feeds(1, past + step, layers=layers)
        again = decoder_feeds(1, past - 1, layers=layers)
        turns = [
            lambda feeds=new: times["new"].append(timed(first, feeds)),
            lambda feeds=again: times["seen"].append(timed(first, feeds)),
            lambda feeds=new: times["onnxruntime"].append(timed(other, feeds)),
        ]
        for turn in turns[step % 3 :] + turns[: step % 3]:
            turn()
    return {name: statistics.median(each) for name, each in times.items()}


def measure_bert(model: str, pairs: int, threads: int) -> dict[str, float]:
    """Seconds of all pairs of batch and length: new, seen before, and of ONNX Runtime;
    and how many structures and plans that took."""
    import onnxplug

    choose = random.Random(0)
    shapes: dict[tuple[int, int], None] = {}
    while len(shapes) < pairs:
        shapes[choose.randint(1, 4), choose.randint(3, 64)] = None
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxplug.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    other = session_of("onnxruntime", model, threads)
    for run in (lambda feeds: session.run(None, feeds), other):
        run(bert_feeds(2, 70))
    totals = {"new": 0.0, "seen": 0.0, "onnxruntime": 0.0}
    for what in ("new", "seen"):
        for shape in shapes:
            feeds = bert_feeds(*shape)
            totals[what] += timed(lambda feeds: session.run(None, feeds), feeds)
            totals["onnxruntime"] += timed(other, feeds) / 2
    for partition in session.explain().partitions:
        totals |= partition.counts
    return totals


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    report: dict[str, Any] = {"machine": describe_machine(), "arguments": vars(given)}
    report["arguments"] = {k: str(v) for k, v in vars(given).items()}
    with tempfile.TemporaryDirectory() as folder:
        models = {"decoder": growing_decoder(layers=given.layers)}
        models["bert"] = varying_bert(layers=given.layers)
        paths = {name: str(Path(folder, f"{name}.onnx")) for name in models}
        for name, model in models.items():
            onnx.save(model, paths[name])
        del models
        for name in paths:
            report[name] = []
            for _ in range(given.repeats):
                if name == "decoder":
                    found = measure_decoder(
                        paths[name], given.tokens, given.layers, given.threads
                    )
                else:
                    found = measure_bert(paths[name], given.pairs, given.threads)
                report[name].append(found)
                print(
                    f"{name}: "
                    + ", ".join(
                        f"{v} {k}" if isinstance(v, int) else f"{k} {1e3 * v:.2f} ms"
                        for k, v in found.items()
                    )
                    + f"; new / seen {found['new'] / found['seen']:.3f}, new / "
                    f"onnxruntime {found['new'] / found['onnxruntime']:.3f}",
                    flush=True,
                )
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
