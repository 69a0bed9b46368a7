"""Which arrays of inputs steps may fill."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxplug.ep import HOST
from onnxplug.run.plan import CopyValue, Plan, RunPartition, fillable


def partition(
    inputs: tuple[int, ...], outputs: tuple[int, ...], in_place: bool = True
) -> RunPartition:
    run: Any = None
    return RunPartition("Ep", 0, run, inputs, outputs, HOST, None, None, in_place)


def plan(outputs: tuple[int, ...], *steps: Any) -> Plan:
    graph: Any = SimpleNamespace()
    return Plan(graph, ("x", "y"), (), (), [None] * 6, list(steps), outputs)


HOP: Any = None
ALONE = partition((1, 2), (3,))


@pytest.mark.parametrize(
    ("expected", "outputs", "steps"),
    [
        (True, (3,), [ALONE]),
        (False, (3,), [partition((1, 2), (3,), in_place=False)]),
        (False, (3, 1), [ALONE]),
        (False, (3,), [ALONE, partition((1,), (4,))]),
        (False, (3,), [CopyValue("x", HOP, 1, 4), ALONE]),
        (False, (3,), [partition((1,), (4,)), partition((4,), (3,))]),
    ],
    ids="alone refuses given read copied elsewhere".split(),
)
def test_only_what_one_step_reads_is_filled_in_place(
    expected: bool, outputs: tuple[int, ...], steps: list[Any]
) -> None:
    x, y = np.zeros(4), np.zeros(4)
    made = plan(outputs, *steps)
    others = [(3, x), (3, np.zeros(4)), (3, x[1:])]
    assert fillable(made, others, [x, y]) == [expected, True, False]
    assert fillable(made, [(3, x)], [x, x]) == [False]
