"""Tables of what was measured, as text."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from .processes import OURS, Runtime

TINY = 1e-3
"""Seconds of the fastest runtime below which a model measures the fixed cost."""


def header(runtimes: Sequence[Runtime]) -> str:
    """The table's first line."""
    text = f"{'model':24}"
    for runtime in runtimes:
        text += f"{runtime.name:>18}"
        if runtime.name != OURS:
            text += f"  {'ratio':>7}"
        text += f"  {'error':>6}"
    return text


def row(name: str, result: Mapping[str, Any], runtimes: Sequence[Runtime]) -> str:
    """A line of the table: times, onnxplug's ratio to each, errors."""
    text = f"{name:24}"
    ratios = result["ratio"].get(OURS, {})
    differences = result.get("largest difference", {})
    for runtime in runtimes:
        text += f"{_milliseconds(result['seconds'].get(runtime.name)):>18}"
        if runtime.name != OURS:
            ratio = ratios.get(runtime.name)
            text += f"  {'–' if ratio is None else f'{ratio:.2f}×':>7}"
        error = result.get("error", {}).get(runtime.name, {}).get("largest")
        if error is None:
            error = differences.get(runtime.name)
        text += f"  {'–' if error is None else f'{error:.0e}':>6}"
    for runtime_, error in result["failed"].items():
        text += f"\n  {runtime_} failed: {error}"
    return text


def starts(name: str, result: Mapping[str, Any]) -> str:
    """Lines for what it takes from a process's start to its first result."""
    return "\n".join(
        f"{name:24}{runtime:22}{found['start']:8.3f} s (load {found['load']:.3f} s, "
        f"first run {found['first run']:.3f} s)"
        f"{found['peak memory'] / 2**20:8.0f} MiB at most"
        for runtime, found in result.get("start", {}).items()
    )


def summary(
    results: Sequence[Mapping[str, Any]], peers: Sequence[str]
) -> dict[str, dict[str, dict[str, float]]]:
    """The geometric means of ratios by kind of model, onnxplug's runtime and other.

    Tiny models are apart.  The *better one* is the better of *peers*, model by model.
    """
    logs: dict[str, dict[str, dict[str, list[float]]]] = {}
    for result in results:
        tiny = min(result["seconds"].values(), default=math.inf) < TINY
        kind = logs.setdefault("tiny models" if tiny else "models of 1 ms and more", {})
        for runtime, ratios in result["ratio"].items():
            means = kind.setdefault(runtime, {})
            for other, ratio in ratios.items():
                means.setdefault(other, []).append(math.log(ratio))
            best = min((ratios[name] for name in peers if name in ratios), default=None)
            if best is not None:
                means.setdefault("the better one", []).append(math.log(best))
    return {
        kind: {
            runtime: {
                name: math.exp(statistics.fmean(values))
                for name, values in means.items()
            }
            for runtime, means in runtimes.items()
        }
        for kind, runtimes in logs.items()
        if any(runtimes.values())
    }


def means(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Lines for what :func:`summary` gave."""
    return "\n".join(
        f"geometric mean, {kind}, {runtime}: "
        + ", ".join(f"{name} {ratio:.3f}×" for name, ratio in ratios.items())
        for kind, runtimes in found.items()
        for runtime, ratios in runtimes.items()
    )


def _milliseconds(seconds: float | None) -> str:
    return "–" if seconds is None else f"{seconds * 1e3:.4g} ms"
