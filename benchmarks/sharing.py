"""Sessions that share a GPU: what they compute together, the memory that they take, and
plans that are made anew."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

import onnxplug

EP: Final = "CUDAExecutionProvider"

Session = onnxplug.InferenceSession
Free = Callable[[], int]
"""Bytes of the GPU's memory that nobody has."""

_LAYERS: Final = 8
_MIB: Final = 1 << 20
_COUNTS: Final = (1, 2, 4)
"""Numbers of sessions that run at once, each in a thread."""

_LENGTHS: Final = 96
"""Of batches, more than an EP keeps plans for."""


def perceptron(side: int) -> onnx.ModelProto:
    """Layers of *side* by *side* float32, for any number of rows."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(
            (rng.standard_normal((side, side)) / side**0.5).astype(np.float32), f"w{n}"
        )
        for n in range(_LAYERS)
    ]
    nodes, last = [], "x"
    for weight in weights:
        nodes += [
            helper.make_node("MatMul", [last, weight.name], [f"{weight.name}.sums"]),
            helper.make_node("Relu", [f"{weight.name}.sums"], [f"{weight.name}.rows"]),
        ]
        last = f"{weight.name}.rows"
    ends = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["rows", side])
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "perceptron", ends[:1], ends[1:], weights)
    opset = helper.make_opsetid("", 21)
    return helper.make_model(graph, opset_imports=[opset], ir_version=10)


def sharing(
    free: Free,
    *,
    side: int = 1024,
    rows: int = 256,
    seconds: float = 2.0,
    lengths: int = _LENGTHS,
) -> dict[str, Any]:
    """Measure all of it.

    Args:
        free: of the GPU.
        side: of the model's matrices.
        rows: that are fed where memory is measured.
        seconds: that sessions run together.
        lengths: how many there are of what is fed.
    """
    content = perceptron(side).SerializeToString()
    return {
        "runs a second of so many sessions": _together(content, side, seconds),
        "MiB of the device": _taken(content, side, rows, free),
        "first runs": _anew(content, side, lengths),
    }


def opened(content: bytes, **options: Any) -> Session:
    """A session on the EP alone."""
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return Session(content, settings, providers=[(EP, options)])


def _together(content: bytes, side: int, seconds: float) -> dict[str, float]:
    """Runs a second of all sessions, by how many there are."""
    x = np.ones((8, side), np.float32)
    found = {}
    for count in _COUNTS:
        sessions = [opened(content) for _ in range(count)]
        runs = [0] * count
        for session in sessions:
            session.run(None, {"x": x})
        end = time.perf_counter() + seconds

        threads = [
            threading.Thread(target=_run_until, args=(end, session, x, runs, number))
            for number, session in enumerate(sessions)
        ]
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        found[str(count)] = sum(runs) / (time.perf_counter() - started)
        for session in sessions:
            session.close()
    return found


def _run_until(
    end: float, session: Session, x: Any, runs: list[int], number: int
) -> None:
    """Run *session* until the clock says *end*, and count in *runs*."""
    while time.perf_counter() < end:
        session.run(None, {"x": x})
        runs[number] += 1


def _taken(content: bytes, side: int, rows: int, free: Free) -> Mapping[str, Any]:
    """MiB that a session takes once it has run, by its options, and those that are
    kept when it is closed; and what one is told whose limit is below its weights."""
    x = np.ones((rows, side), np.float32)
    weights = _LAYERS * 4 * side * side
    kept = opened(content)  # of what CUDA and its libraries take
    kept.run(None, {"x": x[:1]})
    kept.close()
    before = free()
    found: dict[str, Any] = {"weights": weights / _MIB}
    for name, options in (
        ("no limit", {}),
        ("kSameAsRequested", {"arena_extend_strategy": "kSameAsRequested"}),
        ("a limit of four times the weights", {"gpu_mem_limit": 4 * weights}),
    ):
        session = opened(content, **options)
        session.run(None, {"x": x})
        found[name] = (before - free()) / _MIB
        session.close()
        found[f"{name}, closed"] = (before - free()) / _MIB
    try:
        opened(content, gpu_mem_limit=weights // 2).run(None, {"x": x})
    except onnxplug.errors.OutOfMemory as error:
        found["a limit of half the weights"] = str(error)
    return found


def _anew(content: bytes, side: int, lengths: int) -> Mapping[str, float]:
    """Seconds of first runs of so many lengths, of second ones of the last few, whose
    plans are kept, and of second ones of the first few, which may be made anew."""
    session = opened(content)

    def timed(rows: int) -> float:
        x = np.ones((rows, side), np.float32)
        started = time.perf_counter()
        session.run(None, {"x": x})
        return time.perf_counter() - started

    first = [timed(rows) for rows in range(1, lengths + 1)]
    few = max(1, lengths // 12)
    last = [timed(rows) for rows in range(lengths - few + 1, lengths + 1)]
    again = [timed(rows) for rows in range(1, few + 1)]
    session.close()
    return {
        "of a length": statistics.median(first),
        "of the last lengths again": statistics.median(last),
        "of the first lengths again": statistics.median(again),
    }
