"""Plans for other shapes: what they share, and that they are as fresh ones are."""

from __future__ import annotations

import gc
import random as numbers
import statistics
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest

import onnxplug
from onnxplug.partition.partition import GraphPartition
from onnxplug_compiler.schedule import plan
from onnxplug_cpu.compiler import parametric_plans, segment
from onnxplug_cpu.compiler.kernels.normalization import commands as rows

from ..lowered import Lowered, graph, lowered, random
from ..rarely import first
from ..replanning import compared_with_fresh_plans
from .decoders import decoder, feeds


@pytest.fixture(autouse=True)
def plans_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """No plan comes of another that was traced."""
    monkeypatch.setattr(parametric_plans, "FEWEST", 1 << 30)


def counts(found: Lowered) -> dict[str, int]:
    (partition,) = found.session.explain().partitions
    return {name: partition.counts[name] for name in ("structures", "plans")}


def test_a_cache_that_grows_needs_one_structure() -> None:
    found = lowered(decoder())
    with compared_with_fresh_plans() as compared:
        for past in range(3, 24):
            found.check(*feeds(1, 1, past))
    assert len(compared) == 21
    assert set(compared) == {compared[0]}
    assert counts(found) == {"structures": 1, "plans": 21}


@pytest.mark.parametrize("tries", first(1, [25, 70]))
def test_random_shapes_need_few_structures(tries: int) -> None:
    found = lowered(decoder(1))
    choose = numbers.Random(0)
    shapes = {
        (choose.randint(1, 9), choose.randint(1, 40), choose.randint(0, 40))
        for _ in range(tries)
    }
    with compared_with_fresh_plans():
        for batch, length, past in shapes:
            found.check(*feeds(batch, length, past, 1))
    assert counts(found)["plans"] == len(shapes)
    assert counts(found)["structures"] <= 8


def test_explanations_say_what_was_made_for_shapes() -> None:
    found = lowered(decoder(1))
    assert counts(found) == {"structures": 0, "plans": 0}
    found.check(*feeds(1, 2, 3, 1))
    found.check(*feeds(1, 2, 4, 1))
    found.check(*feeds(1, 2, 3, 1))
    text = str(found.session.explain())
    assert "made for shapes: 1 structures, 2 plans" in text


@contextmanager
def noted_recordings(act: Callable[[], object] = lambda: None) -> Iterator[list[Any]]:
    """A context in which recordings of softmax are noted, and something is done."""
    record = rows.record_softmax
    seen: list[Any] = []

    def noting(recorder: Any, x: Any, *rest: Any, **named: Any) -> None:
        act()
        seen.append(x.shape)
        record(recorder, x, *rest, **named)

    with mock.patch.object(rows, "record_softmax", noting):
        yield seen


CHAIN = graph(
    "float[N, 8] x, float[M, 8] z",
    "float[N, 8] y, float[M, 8] u",
    "a = Softmax (x) b = Softmax (a) c = Softmax (b) y = Softmax (c) "
    "s = Softmax (z) t = Softmax (s) u = Softmax (t)",
)


def test_equal_groups_are_recorded_once() -> None:
    found = lowered(CHAIN)
    with noted_recordings() as seen:
        found.check(*random((3, 8), (5, 8)))
        # from an input, between temporary values, and to an output
        assert sorted(seen) == [(3, 8)] * 3 + [(5, 8)] * 3
        seen.clear()
        found.check(*random((5, 8), (3, 8)))
        assert seen == []
        seen.clear()
        found.check(*random((5, 8), (4, 8)))
        assert set(seen) == {(4, 8)}


def test_runs_of_the_same_new_shapes_wait_for_one_plan() -> None:
    found = lowered(CHAIN)
    new = random((7, 8), (5, 8))
    planning, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        planning.set()
        assert go_on.wait(30)

    with noted_recordings(wait) as seen:
        threads = [threading.Thread(target=found.check, args=new) for _ in range(3)]
        for thread in threads:
            thread.start()
        assert planning.wait(30)
        threads[-1].join(0.2)
        assert all(thread.is_alive() for thread in threads)
        assert counts(found)["plans"] == 0
        go_on.set()
        for thread in threads:
            thread.join(30)
    assert counts(found)["plans"] == 1
    assert sorted(seen) == [(5, 8)] * 3 + [(7, 8)] * 3


def test_who_waits_for_a_plan_that_fails_makes_it() -> None:
    found = lowered(CHAIN)
    new = random((7, 8), (5, 8))
    planning, go_on = threading.Event(), threading.Event()
    failures = [RuntimeError("of the first who plans")]

    def fail() -> None:
        planning.set()
        assert go_on.wait(30)
        if failures:
            raise failures.pop()

    raised: list[BaseException] = []

    def first() -> None:
        try:
            found.check(*new)
        except onnxplug.errors.OnnxplugError as failure:
            raised.append(failure)

    with noted_recordings(fail):
        one = threading.Thread(target=first)
        one.start()
        assert planning.wait(30)
        other = threading.Thread(target=found.check, args=new)
        other.start()
        other.join(0.2)
        assert other.is_alive()
        go_on.set()
        one.join(30)
        other.join(30)
    assert len(raised) == 1
    assert counts(found)["plans"] == 1


def test_who_waits_for_a_plan_may_be_cancelled() -> None:
    found = lowered(CHAIN)
    new = random((7, 8), (5, 8))
    planning, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        planning.set()
        assert go_on.wait(30)

    options = onnxplug.RunOptions()
    cancelled: list[BaseException] = []

    def run() -> None:
        try:
            found.session.run(None, dict(zip("xz", new, strict=True)), options)
        except onnxplug.errors.RunCancelled as error:
            cancelled.append(error)

    with noted_recordings(wait):
        one = threading.Thread(target=found.check, args=new)
        one.start()
        assert planning.wait(30)
        other = threading.Thread(target=run)
        other.start()
        other.join(0.2)
        assert other.is_alive()
        options.terminate = True
        other.join(10)
        assert not other.is_alive() and one.is_alive()
        go_on.set()
        one.join(30)
    assert len(cancelled) == 1


def test_other_runs_do_not_wait_for_a_plan() -> None:
    found = lowered(CHAIN)
    known, new = random((3, 8), (5, 8)), random((7, 8), (5, 8))
    found.check(*known)
    planning, done = threading.Event(), threading.Event()

    def wait() -> None:
        planning.set()
        assert done.wait(30)

    with noted_recordings(wait):
        other = threading.Thread(target=found.check, args=new)
        other.start()
        assert planning.wait(30)
        found.check(*known)
        done.set()
        other.join()


def test_what_is_kept_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MOST_TOKENS", 60)
    monkeypatch.setattr(segment, "MAX_COMMANDS", 0)
    found = lowered(decoder(1))

    def kept(first: int) -> int:
        """Bytes that were taken while there were twenty more tokens."""
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        for past in range(first, first + 20):
            found.session.run(None, dict(zip(names, feeds(1, 2, past, 1), strict=True)))
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return after - before

    names = [value.name for value in found.session.get_inputs()]
    tracemalloc.start()
    try:
        kept(3)
        growth = [kept(first) for first in range(23, 83, 20)]
    finally:
        tracemalloc.stop()
    # a plan of this decoder takes 30 kB or more, and what it keeps for others as much;
    # once there may be something that is not of plans
    assert statistics.median(growth) < 200_000, growth
    assert counts(found) == {"structures": 1, "plans": 80}
    with compared_with_fresh_plans():
        for past in (90, 91, 40, 92):
            found.check(*feeds(1, 2, past, 1))


def test_what_the_latest_plan_is_made_of_is_not_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    infer = GraphPartition.infer
    followed: list[str] = []

    def noting(given: Any, node: Any, inputs: Any) -> Any:
        followed.append(node.op_type)
        return infer(given, node, inputs)

    monkeypatch.setattr(GraphPartition, "infer", noting)
    found = lowered(CHAIN)
    found.check(*random((3, 8), (5, 8)))
    found.check(*random((4, 8), (5, 8)))
    for most, count in ((0, 6), (1 << 14, 7)):  # it is given up, and it is not
        monkeypatch.setattr(plan, "MOST_TOKENS", most)
        followed.clear()
        with noted_recordings() as seen:
            found.check(*random((count, 8), (5, 8)))
        assert set(seen) == {(count, 8)}
        assert followed == ["Softmax", "Softmax"]  # compiled, and by the oracle


def test_tables_are_given_up_while_threads_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(plan, "MOST_TOKENS", 30)
    found = lowered(decoder(1))
    found.check(*feeds(1, 1, 3, 1))
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        choose = numbers.Random(seed)
        try:
            for _ in range(25):
                batch, length = choose.randint(1, 3), choose.randint(1, 4)
                found.check(*feeds(batch, length, choose.randint(0, 20), 1))
        except (AssertionError, onnxplug.errors.OnnxplugError) as failure:
            failures.append(failure)

    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with compared_with_fresh_plans() as compared:
            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(switch)
    assert not failures, failures[0]
    assert len(compared) > 50


def test_shapes_that_cannot_be_say_nothing_of_others() -> None:
    found = lowered(
        graph(
            "float[N, 4] x, float[M, 4] z",
            "float[K, 4] y",
            "s = Softmax (x) y = Add (s, z)",
        )
    )
    found.check(*random((2, 4), (2, 4)))
    with pytest.raises(onnxplug.errors.OnnxplugError):
        found.check(*random((2, 4), (3, 4)))
    found.check(*random((5, 4), (5, 4)))
    found.check(*random((5, 4), (1, 4)))
    assert found.tiers() == {"compiled": 2}


def test_known_contents_that_kernels_read_are_those_of_the_shapes() -> None:
    text = graph(
        "float[N, 8] x",
        "float[N, 8] y, int64[2] z",
        "z = Shape (x) n = Gather <axis = 0> (z, zero) f = Cast <to = 1> (n) "
        "p = Range (zero, n, one) c = Cast <to = 1> (p) r = Unsqueeze (c, ones) "
        "a = Mul (x, r) y = Div (a, f)",
        "int64 zero = {0}, int64 one = {1}, int64[1] ones = {1}",
    )
    found = lowered(text)
    with compared_with_fresh_plans() as compared:
        for n in (3, 4, 80, 3, 5, 81, 0, 1, 4):
            _, z = found.check(*random((n, 8)))
            np.testing.assert_array_equal(z, [n, 8])
    assert len(compared) == 7


def test_threads_plan_at_the_same_time() -> None:
    found = lowered(decoder())
    failures: list[BaseException] = []

    def run(first: int) -> None:
        try:
            for past in range(first, first + 12):
                found.check(*feeds(1, 1, past))
        except BaseException as failure:
            failures.append(failure)
            raise

    threads = [threading.Thread(target=run, args=(first,)) for first in (3, 5, 7, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
