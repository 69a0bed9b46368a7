"""What the bench for robustness finds out, with models that misbehave on purpose."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from .children import Case, Child, Outcome
from .oracles import disagreement

pytestmark = pytest.mark.skipif("sys.platform != 'linux'")


@pytest.fixture(scope="module")
def child() -> Iterator[Child]:
    with Child(patience=2) as child:
        yield child


@pytest.mark.parametrize(
    ("word", "kind", "text"),
    [
        ("crash", "crash", "SIGSEGV"),
        ("hang", "hang", "in run"),
        ("raise", "raw error", "tuple index out of range"),
        ("take all", "raw error", "MemoryError"),
        ("print", "printed", "something"),
        ("warn", "stray warning", "divide by zero"),
        ("grow", "growth", "bytes"),
        ("nothing", "results", ""),
    ],
)
def test_the_bench_tells(child: Child, word: str, kind: str, text: str) -> None:
    repeat = 8 if word == "grow" else 0
    outcome = child.run(Case(word, word.encode(), [{}], repeat=repeat), "misbehaving")
    assert outcome.kind == kind
    assert text in outcome.text
    # and the next case is none the worse for it
    assert child.run(Case("", b"", [{}]), "misbehaving").kind == "results"


def test_a_crash_after_the_answer_is_told_of(child: Child) -> None:
    # the worker dies when the next case is under way, or before
    child.run(Case("", b"die later", [{}]), "misbehaving")
    kinds = [child.run(Case("", b"wait", [{}]), "misbehaving").kind for _ in range(3)]
    assert kinds == ["crash", "results", "results"]


def outcome(*results: object) -> Outcome:
    return Outcome("results", runs=[{"results": [x]} for x in results])


def refusal(stage: str) -> Outcome:
    error = {"error": ("InvalidModel", "why"), "ours": True, "causes": []}
    if stage == "create":
        return Outcome("clear error", create=error)
    return Outcome("clear error", runs=[error])


ONE = np.array([1, np.nan], np.float32)


@pytest.mark.parametrize(
    ("first", "second", "kind"),
    [
        (outcome(ONE), outcome(ONE.copy()), None),
        (outcome(ONE), outcome(ONE + 1), "other values"),
        (outcome(ONE), outcome(np.array([1, 1], np.float32)), "other values"),
        (outcome(ONE), outcome(ONE[None]), "other shapes"),
        (outcome(ONE), outcome(ONE.astype(float)), "other types"),
        (outcome([ONE]), outcome([ONE, ONE]), "other shapes"),
        (outcome(ONE), refusal("run"), "refused by one"),
        (refusal("create"), outcome(ONE), "refused by one"),
        (refusal("create"), refusal("run"), None),
    ],
)
def test_disagreements(first: Outcome, second: Outcome, kind: str | None) -> None:
    found = disagreement(first, second)
    assert (found and found.kind) == kind
