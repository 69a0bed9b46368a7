"""How many runs of a partition overlap, also when one of them is interrupted."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from onnxplug.run.concurrency_limit import ConcurrencyLimit
from onnxplug.run.events import OwnedEvent


class Work:
    """Stands for an event: it says how often it was waited for.

    Args:
        wait: called instead.
    """

    def __init__(self, wait: Callable[[], None] = lambda: None) -> None:
        self.waits = 0
        self._wait = wait

    def synchronize(self) -> None:
        self.waits += 1
        self._wait()

    def owned(self) -> OwnedEvent:
        event: Any = self
        return OwnedEvent(event, "AcmeExecutionProvider")


def go_on() -> None:
    return None


def streams(count: int) -> list[Any]:
    return [object() for _ in range(count)]


def run(limit: ConcurrencyLimit, turn: object, stream: Any, work: Work) -> None:
    """A run, from its begin to its end, that queues *work*."""
    try:
        limit.begin(turn, stream, go_on)
        limit.note(stream, work.owned())
    finally:
        limit.running.discard(turn)
        limit.wake()


def test_a_run_waits_for_the_work_of_the_one_before_unless_it_is_on_its_stream() -> (
    None
):
    limit, works, (one, two) = ConcurrencyLimit(1), [Work(), Work()], streams(2)
    run(limit, "first", one, works[0])
    run(limit, "second", two, works[1])
    run(limit, "third", two, Work())
    assert [work.waits for work in works] == [1, 0]


def test_work_that_a_run_was_interrupted_in_waiting_for_is_waited_for_by_the_next() -> (
    None
):
    def interrupted() -> None:
        if work.waits == 1:
            raise KeyboardInterrupt

    limit, (one, two), work = ConcurrencyLimit(1), streams(2), Work(interrupted)
    run(limit, "first", one, work)
    with pytest.raises(KeyboardInterrupt):
        run(limit, "second", two, Work())
    run(limit, "third", two, Work())
    assert work.waits == 2


def test_of_two_runs_at_once_each_waits_for_one_of_those_before() -> None:
    limit, made, works = ConcurrencyLimit(2), streams(4), [Work(), Work()]
    run(limit, "first", made[0], works[0])
    run(limit, "second", made[1], works[1])
    limit.begin("third", made[2], go_on)
    assert [work.waits for work in works] == [1, 0]
    limit.begin("fourth", made[3], go_on)
    assert [work.waits for work in works] == [1, 1]


def test_runs_wait_for_their_turn_and_may_give_up() -> None:
    limit = ConcurrencyLimit(1)
    limit.begin("first", None, go_on)
    asked = []

    def give_up() -> None:
        asked.append("again")
        if len(asked) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        limit.begin("second", None, give_up)
    began = threading.Event()

    def wait() -> None:
        limit.begin("third", None, go_on)
        began.set()

    thread = threading.Thread(target=wait)
    thread.start()
    assert not began.wait(0.05)
    limit.running.discard("first")
    limit.wake()
    assert began.wait(30)
    thread.join()
    assert limit.running == {"third"}
