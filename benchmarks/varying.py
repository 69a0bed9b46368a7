"""What new shapes cost: a decoder whose cache grows, BERT of any batch and length, and
a recogniser of text in lines of any width.

Each is timed with shapes that a session sees for the first time and with the same
shapes again, beside ONNX Runtime, run by run in turns.

    python benchmarks/varying.py [--threads N] [--tokens 48] [--pairs 200]
        [--widths 20] [--layers 12] [--repeats 3] [--exporters torchscript dynamo]
        [--cpu-time] [--json FILE]

The decoder is built by hand, and with --exporters also exported by PyTorch, with its
axes left open. --cpu-time takes the processor's time instead of the clock's, which
other processes disturb less; it is of all threads.
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
from models.varying import (
    bert_feeds,
    decoder_feeds,
    growing_decoder,
    line_of_text,
    text_recogniser,
    varying_bert,
)

Feeds: TypeAlias = Mapping[str, np.ndarray[Any, Any]]
Session: TypeAlias = Callable[[Feeds], list[Any]]
Clock: TypeAlias = Callable[[], float]


def session_of(runtime: str, model: str, threads: int) -> Session:
    """A new session of a runtime with ONNX Runtime's interface, by its module."""
    module: Any = importlib.import_module(runtime)
    options = module.SessionOptions()
    options.intra_op_num_threads = threads
    session = module.InferenceSession(
        model, options, providers=["CPUExecutionProvider"]
    )
    return lambda feeds: list(session.run(None, feeds))


def timed(session: Session, feeds: Feeds, clock: Clock = time.perf_counter) -> float:
    """Seconds of one run."""
    started = clock()
    session(feeds)
    return clock() - started


def measure_decoder(
    model: str, tokens: int, layers: int, threads: int, clock: Clock
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
            lambda feeds=new: times["new"].append(timed(first, feeds, clock)),
            lambda feeds=again: times["seen"].append(timed(first, feeds, clock)),
            lambda feeds=new: times["onnxruntime"].append(timed(other, feeds, clock)),
        ]
        for turn in turns[step % 3 :] + turns[: step % 3]:
            turn()
    return {name: statistics.median(each) for name, each in times.items()}


def measure_bert(
    model: str, pairs: int, threads: int, clock: Clock
) -> dict[str, float]:
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
            totals[what] += timed(lambda feeds: session.run(None, feeds), feeds, clock)
            totals["onnxruntime"] += timed(other, feeds, clock) / 2
    for partition in session.explain().partitions:
        totals |= partition.counts
    return totals


def measure_recogniser(
    model: str, widths: int, threads: int, clock: Clock
) -> dict[str, float]:
    """Medians of seconds of a line, from the fourth width on: of new widths, of the
    same again, and of ONNX Runtime, of new widths as well."""
    first = session_of("onnxplug", model, threads)
    other = session_of("onnxruntime", model, threads)
    choose = random.Random(0)
    times: dict[str, list[float]] = {"new": [], "seen": [], "onnxruntime": []}
    for width in choose.sample(range(100, 640), 3 + widths):
        feeds = line_of_text(width)
        times["new"].append(timed(first, feeds, clock))
        times["onnxruntime"].append(timed(other, feeds, clock))
        again = [timed(first, feeds, clock) for _ in range(5)]
        times["seen"].append(statistics.median(again))
    return {name: statistics.median(each[3:]) for name, each in times.items()}


def export_random_decoder(exporter: str, layers: int, path: str) -> None:
    """A decoder with random weights, as PyTorch exports it."""
    import torch
    from models.exported import Decoder, export_decoder

    torch.manual_seed(0)
    model = Decoder(layers=layers).eval().requires_grad_(False)
    export_decoder(model, exporter, Path(path))


def main() -> None:
    """Measure, print, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--widths", type=int, default=20)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--exporters", nargs="*", default=[])
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    report: dict[str, Any] = {"machine": describe_machine(), "arguments": vars(given)}
    report["arguments"] = {k: str(v) for k, v in vars(given).items()}
    with tempfile.TemporaryDirectory() as folder:
        models = {"decoder": growing_decoder(layers=given.layers)}
        models["bert"] = varying_bert(layers=given.layers)
        models["recogniser"] = text_recogniser()
        paths = {name: str(Path(folder, f"{name}.onnx")) for name in models}
        for name, model in models.items():
            onnx.save(model, paths[name])
        del models
        for exporter in given.exporters:
            name = f"decoder-{exporter}"
            paths[name] = str(Path(folder, f"{name}.onnx"))
            export_random_decoder(exporter, given.layers, paths[name])
        for name in paths:
            report[name] = []
            for _ in range(given.repeats):
                if name == "bert":
                    found = measure_bert(paths[name], given.pairs, given.threads, clock)
                elif name == "recogniser":
                    found = measure_recogniser(
                        paths[name], given.widths, given.threads, clock
                    )
                else:
                    found = measure_decoder(
                        paths[name], given.tokens, given.layers, given.threads, clock
                    )
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
