"""What the comparison on cards measures of sessions that share one, on the stand-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .standin import Machine

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


def test_sessions_that_share_a_card_are_measured(
    factory: Any, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import sharing

    side = 128
    weights = 8 * 4 * side * side
    found = sharing.sharing(
        lambda: machine.capacity - machine.used,
        side=side,
        rows=8,
        seconds=0.1,
        lengths=2,
    )
    runs = found["runs a second of so many sessions"]
    assert set(runs) == {"1", "2", "4"} and all(rate > 0 for rate in runs.values())
    taken = found["MiB of the device"]
    assert taken["weights"] == weights / 2**20
    for name, size in taken.items():
        if name.endswith("closed"):
            assert size <= 0, taken
    limited = taken["a limit of four times the weights"]
    assert taken["weights"] < limited <= 4 * taken["weights"] + 1  # and what is fed
    assert "gpu_mem_limit allows" in taken["a limit of half the weights"]
    assert all(seconds > 0 for seconds in found["first runs"].values())
