"""What the processes of checks inherit, and in which order checks are carried out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from onnxplug_testing.conformance import Check, Settings, examine, forked

INHERITS = """
import sys, threading
import numpy as np, onnx
from onnxplug_testing.conformance import Case, chosen_checks, opinions, preparation

(check,) = chosen_checks(["options/values"])
preparation.prepare(check, forks=True)
print("threads", threading.active_count())
model = onnx.parser.parse_model('''
    <ir_version: 10, opset_import: ["": 21]>
    g (float[1, 2, 5, 5] x) => (y) <float[2, 2, 1, 1] w = {1, 2, 3, 4}>
    { c = Conv (x, w) s = Softmax (c) y = Add (s, x) }
''')
x = np.ones((1, 2, 5, 5), np.float32)
case = Case(model.SerializeToString(), {"x": x})
before = set(sys.modules)
opinions.by_cpu(case), opinions.by_reference(case)
print("imported", sorted(set(sys.modules) - before))
"""


@pytest.mark.skipif(not forked.CAN_FORK, reason="checks have no processes here")
def test_checks_inherit_what_they_compare_with_and_no_ep_is_started() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INHERITS], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["threads 1", "imported []"]


@pytest.mark.exhaustive
def test_what_is_left_of_the_time_is_for_checks_of_many_cases(simulated) -> None:
    simulated()
    carried_out: list[Check] = []
    only = ["claims/groups", "claims/reasons", "options/declarations", "costs"]
    report = examine(
        "simulated",
        only=only,
        settings=Settings(budget=4.0),
        progress=carried_out.append,
    )
    names = [each.full_name for each in carried_out]
    of_cases = ["claims/reasons", "claims/groups"]
    assert names == [
        "options/declarations", "costs/of-pairs", "costs/estimates", *of_cases,
    ]  # fmt: skip
    assert [each.full_name for each in report.checks] == [*of_cases, *names[:3]]
    assert all(0 < each.used < each.seconds + 1 for each in report.checks)
