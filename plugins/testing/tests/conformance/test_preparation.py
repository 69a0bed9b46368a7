"""What the processes of checks inherit, and in which order checks are carried out."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from onnxplug_testing.conformance import (
    Check,
    Settings,
    chosen_checks,
    examine,
    find_subject,
    forked,
    preparation,
)
from onnxplug_testing.conformance.cases import load_suite
from onnxplug_testing.conformance.survey import survey

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


@pytest.mark.skipif(not forked.CAN_FORK, reason="checks have no processes here")
def test_an_ep_is_asked_once_about_the_cases_of_several_checks(
    simulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated()
    subject = find_subject("simulated")
    checks = chosen_checks(["operators", "costs"])
    known = preparation.surveyed(subject, checks)
    assert known.answers is not None
    assert known.operators() == subject.operators()
    for of_each in (2, 12):
        said, again = (
            {
                name: [
                    (a.case.case, a.case.constants, a.reason and a.reason.code)
                    for a in answers
                ]
                for name, answers in survey(each, load_suite(), of_each=of_each).items()
            }
            for each in (subject, known)
        )
        assert said == again
    assert preparation.surveyed(subject, chosen_checks(["costs"])) is subject
    # an EP that ends the process is asked by each check
    monkeypatch.setattr(preparation, "survey", lambda *_: os._exit(3))
    assert preparation.surveyed(subject, checks) is subject


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
        "options/declarations", "costs/of-pairs", "costs/estimates",
        "costs/each-operator", *of_cases,
    ]  # fmt: skip
    assert [each.full_name for each in report.checks] == [*of_cases, *names[:4]]
    assert all(0 < each.used < each.seconds + 1 for each in report.checks)
