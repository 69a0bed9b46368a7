"""Damaged models, odd feeds and wrong operators: only clear errors and right results.

``ONNXPLUG_ROBUSTNESS=1000:2000`` in the environment tries the cases of these numbers
instead of the usual ones; for long runs see ``campaign.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from .cases import KINDS, random_case
from .children import Case, Child
from .findings import Findings, try_case
from .seeds import Seed, node_seeds
from .structures import structures

pytestmark = pytest.mark.skipif("sys.platform != 'linux'")

USUAL = {"bytes": 100, "structure": 160, "feeds": 80, "operators": 120, "both": 80}
"""How many cases of each kind."""

BATCH = 20

MODULES = """
    argmax batch_normalization compress conv cumsum einsum gru if_ loop matmul maxpool
    maxunpool onehot pad rangeop reshape resize scan scatternd sequenceinsert slice
    split string_split topk tfidfvectorizer unique where
""".split()
"""Of :mod:`onnx.backend.test.case.node`, those whose cases begin the mutations."""


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    # more than models take even where many tests run at a time
    with Child(patience=30) as child:
        yield child


@pytest.fixture(scope="module")
def seeds() -> list[Seed]:
    return structures() + node_seeds(MODULES)


def batches() -> Iterator[tuple[str, int, int]]:
    given = os.environ.get("ONNXPLUG_ROBUSTNESS")
    for kind in KINDS:
        first, last = map(int, given.split(":")) if given else (0, USUAL[kind])
        for start in range(first, last, BATCH):
            yield kind, start, min(last, start + BATCH)


@pytest.mark.parametrize(("kind", "first", "last"), list(batches()))
def test_damage_makes_clear_errors_or_right_results(
    kind: str, first: int, last: int, seeds: list[Seed], child: Child
) -> None:
    findings = Findings()
    for number in range(first, last):
        case = random_case(kind, number, seeds)
        try_case(case, ("compiled", "arrays"), child, findings)
    assert not findings.found, str(findings)


@pytest.mark.parametrize("seed", structures(), ids=lambda seed: seed.name)
def test_sessions_leave_nothing_behind(seed: Seed, child: Child) -> None:
    content = seed.model.SerializeToString()
    case = Case(seed.name, content, [seed.feeds], seed.files, repeat=16)
    assert child.run(case, "compiled").kind == "results"
