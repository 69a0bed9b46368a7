"""The store of weights: once for all who ask, and gone with the last of them."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from onnxplug.ep import WeightSource
from onnxplug.weights import SharedWeights

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


class Made:
    """What weak references can be made to."""

    def __init__(self, what: object = None) -> None:
        self.what = what


def source(key: object = "a") -> WeightSource:
    return WeightSource(key, None, 0, 100)  # type: ignore[arg-type]


def forbidden() -> Made:
    raise AssertionError("it is there already")


def on_thread(work: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """A thread that does *work*, and where its result, or what it raised, will be."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:  # noqa: BLE001
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


def ended(thread: threading.Thread) -> None:
    thread.join(30)
    assert not thread.is_alive(), "it hangs"


def test_the_first_makes_what_all_get() -> None:
    store = SharedWeights()
    first = store.get(source(), "tiles", Made)
    assert store.get(source(), "tiles", forbidden) is first
    # told by the key, not by where the bytes are
    assert store.get(WeightSource("a", None, 8, 100), "tiles", forbidden) is first
    assert store.get(source("b"), "tiles", Made) is not first
    assert store.get(source(), "rows", Made) is not first


def test_an_entry_goes_with_its_last_holder() -> None:
    store = SharedWeights()
    one = store.get(source(), "tiles", lambda: np.ones(5))
    other = store.get(source(), "tiles", lambda: np.zeros(5))
    assert one is other and store.count() == 1
    gone = weakref.ref(one)
    del one
    gc.collect()
    assert gone() is other and store.count() == 1
    del other
    gc.collect()
    assert gone() is None and store.count() == 0
    # and is made anew then
    again = store.get(source(), "tiles", lambda: np.zeros(5))
    assert not again.any() and store.count() == 1


def test_the_store_keeps_no_key_for_long() -> None:
    class Key:
        pass

    store = SharedWeights()
    key = Key()
    known = weakref.ref(key)
    made = store.get(source(key), "tiles", Made)
    del key, made
    store.get(source("another"), "tiles", Made)
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("nothing", [None, 5, (1, 2), b"bytes"])
def test_what_weak_references_cannot_be_made_to_is_refused(nothing: object) -> None:
    store = SharedWeights()
    for _ in range(2):
        with pytest.raises(TypeError, match=f"'tiles' is {type(nothing).__name__}, to"):
            store.get(source(), "tiles", lambda: nothing)
    assert store.count() == 0


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_what_make_raises_is_raised_and_nothing_is_kept(
    error: type[BaseException],
) -> None:
    store = SharedWeights()

    def fail() -> Made:
        raise error("no")

    for _ in range(2):
        with pytest.raises(error, match="no"):
            store.get(source(), "tiles", fail)
    assert store.count() == 0
    assert isinstance(store.get(source(), "tiles", Made), Made)


# threads


def test_many_threads_that_ask_at_once_have_it_made_once() -> None:
    store = SharedWeights()
    together = threading.Barrier(8)
    calls: list[int] = []

    def make() -> Made:
        calls.append(threading.get_ident())
        time.sleep(0.1)  # in which the others ask
        return Made()

    def ask() -> Made:
        together.wait(30)
        return store.get(source(), "tiles", make)

    threads = [on_thread(ask) for _ in range(8)]
    for thread, _ in threads:
        ended(thread)
    assert len(calls) == 1
    assert len({id(results[0]) for _, results in threads}) == 1
    assert isinstance(threads[0][1][0], Made)


def test_who_wants_something_else_does_not_wait() -> None:
    store, elsewhere = SharedWeights(), SharedWeights()
    started, goes_on = threading.Event(), threading.Event()

    def slowly() -> Made:
        started.set()
        assert goes_on.wait(30)
        return Made("slow")

    maker, made = on_thread(lambda: store.get(source(), "tiles", slowly))
    assert started.wait(30)
    waiter, waited = on_thread(lambda: store.get(source(), "tiles", forbidden))
    # while both are at it
    for there, key, layout in (
        (store, "b", "tiles"),
        (store, "a", "rows"),
        (elsewhere, "a", "tiles"),
    ):
        other = on_thread(lambda a=there, k=key, n=layout: a.get(source(k), n, Made))
        ended(other[0])
        assert isinstance(other[1][0], Made)
    waiter.join(0.05)
    assert waiter.is_alive() and maker.is_alive()
    goes_on.set()
    ended(maker)
    ended(waiter)
    assert made[0].what == "slow" and waited[0] is made[0]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_those_that_waited_for_a_failure_try_themselves(
    error: type[BaseException],
) -> None:
    store = SharedWeights()
    started, goes_on = threading.Event(), threading.Event()
    attempts: list[str] = []

    def fail() -> Made:
        started.set()
        assert goes_on.wait(30)
        raise error("mine")

    def make() -> Made:
        attempts.append("made")
        return Made()

    first, failed = on_thread(lambda: store.get(source(), "tiles", fail))
    assert started.wait(30)
    others = [on_thread(lambda: store.get(source(), "tiles", make)) for _ in range(4)]
    goes_on.set()
    for thread, _ in [(first, failed), *others]:
        ended(thread)
    assert isinstance(failed[0], error)
    assert attempts == ["made"]
    assert len({id(results[0]) for _, results in others}) == 1


def test_many_that_come_and_go() -> None:
    """Values that are given up while others ask for them are never given out dead."""
    store = SharedWeights()
    together = threading.Barrier(4)

    def work() -> None:
        together.wait(30)
        for turn in range(3000):
            key = turn % 3
            if store.get(source(key), "x", lambda k=key: Made(k)).what != key:
                raise AssertionError(key)

    threads = [on_thread(work) for _ in range(4)]
    for thread, results in threads:
        ended(thread)
        assert results == [None]
    gc.collect()
    assert store.count() == 0


# make that asks


def test_make_may_ask_for_others() -> None:
    store, device = SharedWeights(), SharedWeights()

    def make() -> Made:
        lower = store.get(source(), "rows", Made)
        return Made((lower, device.get(source(), "tiles", Made)))

    made = store.get(source(), "tiles", make)
    assert store.get(source(), "rows", forbidden) is made.what[0]
    assert device.get(source(), "tiles", forbidden) is made.what[1]


def test_make_that_asks_for_what_it_makes_is_an_error() -> None:
    store = SharedWeights()

    def again() -> Made:
        return store.get(source(), "tiles", forbidden)

    def deeper() -> Made:
        return store.get(source("b"), "tiles", again)

    for make in (again, deeper):
        with pytest.raises(RuntimeError, match="'tiles' is asked for by what makes it"):
            store.get(source(), "tiles", make)
    assert store.count() == 0
    store.get(source(), "tiles", Made)


def test_two_threads_that_wait_for_each_other_are_an_error() -> None:
    one, other = SharedWeights(), SharedWeights()
    both = threading.Barrier(2)

    def asks(there: SharedWeights, key: str) -> Callable[[], Made]:
        def make() -> Made:
            both.wait(30)
            return there.get(source(key), "tiles", Made)

        return make

    threads = [
        on_thread(lambda: one.get(source("a"), "tiles", asks(other, "b"))),
        on_thread(lambda: other.get(source("b"), "tiles", asks(one, "a"))),
    ]
    for thread, _ in threads:
        ended(thread)
    results = [results[0] for _, results in threads]
    # the one that would have closed the circle is refused; the other then goes on
    assert sum(isinstance(result, RuntimeError) for result in results) == 1
    assert sum(isinstance(result, Made) for result in results) == 1


# interrupts


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no setitimer")
def test_interrupts_leave_nothing_that_hangs() -> None:
    """Wherever they come: in make, around it, or while an entry is forgotten."""
    store = SharedWeights()
    interrupts = 0

    class Interrupted(BaseException):
        pass

    def interrupt(*_: object) -> None:
        raise Interrupted

    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        for turn in range(2000):
            try:
                # it comes again if what frees other garbage of the process swallows it
                signal.setitimer(signal.ITIMER_REAL, 5e-6 + turn % 50 * 2e-6, 5)
                while True:
                    store.get(source(turn % 2), "tiles", Made)
            except Interrupted:
                interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert interrupts == 2000
    for key in range(2):
        kept = store.get(source(key), "tiles", Made)
        thread, results = on_thread(
            lambda k=key: store.get(source(k), "tiles", forbidden)
        )
        ended(thread)
        assert results[0] is kept


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no pthread_kill")
def test_who_waits_can_be_interrupted() -> None:
    store = SharedWeights()
    started, goes_on = threading.Event(), threading.Event()

    def slowly() -> Made:
        started.set()
        goes_on.wait(30)
        return Made()

    maker, made = on_thread(lambda: store.get(source(), "tiles", slowly))
    assert started.wait(30)
    # a process that a shell put into the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt = threading.Timer(
        0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT)
    )
    interrupt.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            store.get(source(), "tiles", forbidden)
    finally:
        interrupt.join()
        signal.signal(signal.SIGINT, before)
    goes_on.set()
    ended(maker)
    assert store.get(source(), "tiles", forbidden) is made[0]


# forks


def in_child(work: Callable[[], bool]) -> None:
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(30)
            code = 0 if work() else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_makes_what_another_thread_was_making() -> None:
    store = SharedWeights()
    kept = store.get(source("kept"), "tiles", Made)
    started, goes_on = threading.Event(), threading.Event()

    def slowly() -> Made:
        started.set()
        goes_on.wait(30)
        return Made("parent")

    maker, made = on_thread(lambda: store.get(source(), "tiles", slowly))
    waiter, _ = on_thread(lambda: store.get(source(), "tiles", forbidden))
    assert started.wait(30)

    def work() -> bool:
        mine = store.get(source(), "tiles", lambda: Made("child"))
        thread, results = on_thread(lambda: store.get(source(), "tiles", forbidden))
        ended(thread)
        return (
            mine.what == "child"
            and results[0] is mine
            and store.get(source("kept"), "tiles", forbidden) is kept
        )

    in_child(work)
    goes_on.set()
    ended(maker)
    ended(waiter)
    assert store.get(source(), "tiles", forbidden) is made[0]


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_make_may_fork() -> None:
    store = SharedWeights()

    def make() -> Made:
        child = os.fork()
        if child == 0:
            return Made("child")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return Made("parent")

    parent = os.getpid()
    code = 1
    try:
        made = store.get(source(), "tiles", make)
        if os.getpid() != parent:
            again = store.get(source(), "tiles", forbidden)
            code = 0 if again is made and made.what == "child" else 2
    finally:
        if os.getpid() != parent:
            os._exit(code)
    assert made.what == "parent"
