"""Streams defer work, and break every order that was not asked for."""

from __future__ import annotations

import functools
import itertools
import os
import random
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from onnxplug import ep
from onnxplug_testing import Knobs, SimulatedFactory, SimulatedStream

SPACE = "simulated"
HERE = ep.MemoryLocation(SPACE, 0)
F32 = ep.DataType.FLOAT32


class Lab:
    """Streams of one device, and the order in which their work was done."""

    def __init__(self, seed: int | None = None, **knobs: Any) -> None:
        self.factory = SimulatedFactory(Knobs(seed=seed, **knobs))
        self.context = self.factory.memory_spaces.create_context(HERE)
        self.done: list[str] = []

    def stream(self) -> SimulatedStream:
        stream = self.context.create_stream()
        assert stream is not None
        return stream

    def queue(self, stream: SimulatedStream, name: str) -> None:
        stream.enqueue(lambda: self.done.append(name))


def fail() -> None:
    raise ArithmeticError("broken work")


def test_work_is_done_only_when_someone_waits() -> None:
    lab = Lab()
    stream = lab.stream()
    lab.queue(stream, "a")
    lab.queue(stream, "b")
    assert lab.done == []
    stream.synchronize()
    assert lab.done == ["a", "b"]


def test_an_idle_stream_does_no_work_of_others() -> None:
    lab = Lab()
    busy, idle = lab.stream(), lab.stream()
    lab.queue(busy, "a")
    idle.synchronize()
    assert lab.done == []


def test_the_order_of_two_streams_is_broken() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "written")
    lab.queue(second, "read")
    first.synchronize()
    assert lab.done == ["read", "written"]


def test_work_not_waited_for_is_late() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "written")
    lab.queue(second, "read")
    second.synchronize()
    assert lab.done == ["read"]


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_waiting_keeps_the_order(seed: int | None) -> None:
    lab = Lab(seed)
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "written")
    lab.queue(second, "before")
    assert second.wait(first.record())
    lab.queue(first, "later")
    lab.queue(second, "read")
    second.synchronize()
    assert lab.done.index("written") < lab.done.index("read")
    assert lab.done.index("before") < lab.done.index("read")


def test_waiting_is_for_present_work_only() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    assert second.wait(first.record())
    lab.queue(first, "later")
    lab.queue(second, "read")
    second.synchronize()
    assert lab.done == ["read"]


def test_waiting_goes_through_a_third_stream() -> None:
    lab = Lab()
    one, two, three = lab.stream(), lab.stream(), lab.stream()
    lab.queue(one, "one")
    assert two.wait(one.record())
    lab.queue(two, "two")
    assert three.wait(two.record())
    lab.queue(three, "three")
    three.synchronize()
    assert lab.done == ["one", "two", "three"]


def interleaving(seed: int) -> tuple[str, ...]:
    lab = Lab(seed)
    streams = [lab.stream() for _ in range(3)]
    for index, stream in itertools.product(range(3), streams):
        lab.queue(stream, f"{streams.index(stream)}{index}")
    for stream in streams:
        stream.synchronize()
    return tuple(lab.done)


def test_a_seed_gives_one_interleaving_and_seeds_give_many() -> None:
    orders = [interleaving(seed) for seed in range(20)]
    assert orders == [interleaving(seed) for seed in range(20)]
    assert len(set(orders)) > 10
    for order in orders:
        assert sorted(order) == [f"{s}{i}" for s in range(3) for i in range(3)]
        for stream in "012":
            own = [name for name in order if name[0] == stream]
            assert own == sorted(own)  # a stream is a queue


# errors


def test_an_error_is_kept_for_all_who_ask() -> None:
    lab = Lab()
    stream = lab.stream()
    lab.queue(stream, "a")
    before = stream.record()
    stream.enqueue(fail)
    lab.queue(stream, "dropped")
    after = stream.record()
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="broken work"):
            stream.synchronize()
        with pytest.raises(ArithmeticError, match="broken work"):
            after.synchronize()
        before.synchronize()
    assert (before.done(), after.done()) == (True, True)
    assert lab.done == ["a"]


def test_work_queued_behind_a_failure_is_dropped() -> None:
    lab = Lab()
    stream = lab.stream()
    stream.enqueue(fail)
    with pytest.raises(ArithmeticError):
        stream.record().synchronize()
    lab.queue(stream, "dropped")
    assert stream.record().done()
    assert lab.done == []
    with pytest.raises(ArithmeticError):
        stream.synchronize()
    stream.close()


def test_nothing_is_queued_after_synchronize_raised() -> None:
    lab = Lab()
    stream = lab.stream()
    stream.enqueue(fail)
    with pytest.raises(ArithmeticError):
        stream.synchronize()
    with pytest.raises(RuntimeError, match=r"queued on a stream .* that has failed"):
        lab.queue(stream, "b")


def test_an_error_keeps_no_frames_and_what_is_in_them() -> None:
    class Large:
        pass

    def fail_with(kept: Large) -> None:
        raise ArithmeticError("broken work")

    lab, large = Lab(), Large()
    stream = lab.stream()
    stream.enqueue(functools.partial(fail_with, large))
    with pytest.raises(ArithmeticError):
        stream.synchronize()
    gone = weakref.ref(large)
    del large
    assert gone() is None


def test_an_error_goes_to_streams_that_wait_for_the_work() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    first.enqueue(fail)
    assert second.wait(first.record())
    lab.queue(second, "dropped")
    with pytest.raises(ArithmeticError):
        second.synchronize()
    assert lab.done == []


def test_an_error_of_later_work_does_not() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "a")
    assert second.wait(first.record())
    lab.queue(second, "b")
    first.enqueue(fail)
    lab.queue(first, "dropped")
    with pytest.raises(ArithmeticError):
        first.synchronize()
    second.synchronize()
    assert lab.done == ["a", "b"]


# misuse


def test_closing_a_stream_with_work_to_do_is_refused() -> None:
    lab = Lab()
    stream = lab.stream()
    lab.queue(stream, "a")
    with pytest.raises(RuntimeError, match="closed with 1 pieces of work to do"):
        stream.close()
    assert lab.factory.open_streams == [stream]
    stream.synchronize()
    stream.close()
    assert lab.factory.open_streams == []


@pytest.mark.parametrize("use", ["synchronize", "close", "record"])
def test_a_closed_stream_is_not_used(use: str) -> None:
    stream = Lab().stream()
    stream.close()
    with pytest.raises(RuntimeError, match=r"a closed stream of simulated:0 was"):
        getattr(stream, use)()


def test_nothing_is_queued_on_a_closed_stream() -> None:
    stream = Lab().stream()
    stream.close()
    with pytest.raises(RuntimeError, match="was used"):
        stream.enqueue(fail)


def test_events_stay_valid_when_their_stream_is_closed() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "a")
    event = first.record()
    event.synchronize()
    first.close()
    assert event.done()
    event.synchronize()
    assert second.wait(event)
    second.synchronize()


# events of other devices


@pytest.mark.parametrize(
    "schedules", list(itertools.product(["late", "threaded"], repeat=2))
)
def test_streams_wait_for_other_devices(schedules: tuple[str, str]) -> None:
    left, right = (Lab(schedule=schedule) for schedule in schedules)
    right.done = left.done
    first, second = left.stream(), right.stream()
    for number in range(5):
        left.queue(first, f"left {number}")
        assert second.wait(first.record())
        right.queue(second, f"right {number}")
        assert first.wait(second.record())
    first.synchronize()
    second.synchronize()
    assert left.done == [
        f"{side} {number}" for number in range(5) for side in ("left", "right")
    ]
    for stream in (first, second):
        stream.close()


@pytest.mark.parametrize("maker", ["another device", "another EP", "its own"])
def test_some_streams_wait_for_their_own_device_only(maker: str) -> None:
    lab = Lab(foreign_events=False, device_count=2)
    others = {
        "another device": lab.factory.memory_spaces.create_context(
            ep.MemoryLocation(SPACE, 1)
        ),
        "another EP": Lab().context,
        "its own": lab.context,
    }
    event = others[maker].create_stream().record()
    assert lab.stream().wait(event) is (maker == "its own")


def test_streams_do_not_wait_for_events_of_unknown_kinds() -> None:
    class Other(ep.Event):
        def done(self) -> bool:
            return True

        def synchronize(self) -> None:
            return None

    assert Lab().stream().wait(Other()) is False


# streams of users


def test_a_users_stream_is_adopted_and_left_open() -> None:
    lab = Lab()
    users = lab.stream()
    lab.queue(users, "before")
    adopted = lab.context.adopt_stream(users.native_handle)
    assert adopted.native_handle == users.native_handle
    lab.queue(adopted, "a")
    adopted.close()  # with work left, which is the user's to wait for
    with pytest.raises(RuntimeError, match="a closed stream of simulated:0 was used"):
        adopted.record()
    assert lab.factory.open_streams == [users]
    lab.queue(users, "after")
    users.synchronize()
    assert lab.done == ["before", "a", "after"]
    users.close()


def test_handles_are_unique_and_none_is_0() -> None:
    labs = [Lab(), Lab()]
    handles = {lab.stream().native_handle for lab in labs for _ in range(3)}
    assert len(handles) == 6
    assert 0 not in handles


def test_a_stream_that_is_adopted_is_not_closed_for_real() -> None:
    lab = Lab()
    users = lab.stream()
    adopted = lab.context.adopt_stream(users.native_handle)
    with pytest.raises(RuntimeError, match="closed that others have adopted"):
        users.close()
    adopted.close()
    users.close()


@pytest.mark.parametrize("handle", [0, 1])
def test_only_streams_that_are_open_are_adopted(handle: int) -> None:
    lab = Lab()
    if handle:
        closed = lab.stream()
        handle = closed.native_handle
        closed.close()
    with pytest.raises(LookupError, match="simulated:0 has no stream 0x"):
        lab.context.adopt_stream(handle)


# a stream in two threads


def in_a_thread(function: Callable[[], object]) -> BaseException | None:
    raised: list[BaseException] = []

    def call() -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001 - for the other thread
            raised.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    return raised[0] if raised else None


@pytest.mark.parametrize("use", ["record", "synchronize", "close", "begin_capture"])
@pytest.mark.parametrize("adopted", [False, True])
def test_a_stream_is_used_by_one_thread_at_a_time(use: str, adopted: bool) -> None:
    lab = Lab(schedule="threaded", captures=True)
    stream = lab.stream()
    other = lab.context.adopt_stream(stream.native_handle) if adopted else stream
    with stream.queue.used():
        error = in_a_thread(getattr(other, use))
    assert isinstance(error, RuntimeError)
    assert "used by two threads at once" in str(error)
    assert in_a_thread(stream.record) is None  # one after the other


def test_waiting_uses_the_stream() -> None:
    lab = Lab(schedule="threaded")
    stream = lab.stream()
    entered, leave = threading.Event(), threading.Event()

    def slow() -> None:
        entered.set()
        assert leave.wait(30)

    stream.enqueue(slow)
    event = stream.record()
    waiting = threading.Thread(target=stream.synchronize)
    waiting.start()
    assert entered.wait(30)
    while not stream.queue._uses:
        time.sleep(0.001)
    with pytest.raises(RuntimeError, match="two threads at once"):
        stream.record()
    assert event.done() is False  # an event is anyone's
    leave.set()
    waiting.join(30)
    stream.close()


# threads


def test_threads_work_without_anybody_waiting() -> None:
    lab = Lab(schedule="threaded")
    stream, done = lab.stream(), threading.Event()
    stream.enqueue(done.set)
    assert done.wait(30)
    stream.synchronize()
    stream.close()


def test_streams_work_at_once() -> None:
    lab = Lab(schedule="threaded")
    streams, meeting = [lab.stream(), lab.stream()], threading.Barrier(2)
    for stream in streams:
        stream.enqueue(lambda: meeting.wait(30))
    for stream in streams:
        stream.synchronize()
        stream.close()


def test_closing_a_stream_ends_its_thread() -> None:
    lab = Lab(schedule="threaded")
    stream = lab.stream()
    lab.queue(stream, "a")
    stream.synchronize()
    before = len(sys._current_frames())
    stream.close()
    assert len(sys._current_frames()) < before


def test_a_process_ends_with_work_that_nobody_waits_for() -> None:
    script = """
import threading
from onnxplug.ep import MemoryLocation
from onnxplug_testing import Knobs, SimulatedFactory
context = SimulatedFactory(Knobs(schedule="threaded")).memory_spaces.create_context(
    MemoryLocation("simulated", 0)
)
started = threading.Event()
stream = context.create_stream()
stream.enqueue(lambda: (started.set(), threading.Event().wait()))
idle = context.create_stream()
idle.enqueue(lambda: None)
assert started.wait(30)
print("ends")
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ends\n", "")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no forks")
def test_the_child_of_a_fork_has_streams_and_no_threads() -> None:
    script = """
import os, threading, time
from onnxplug.ep import MemoryLocation
from onnxplug_testing import Knobs, SimulatedFactory
from onnxplug_testing.simulated.monitor import MONITOR

def context(schedule):
    location = MemoryLocation("simulated", 0)
    factory = SimulatedFactory(Knobs(schedule=schedule))
    return factory.memory_spaces.create_context(location)

def hold():
    with MONITOR:
        held.set()
        time.sleep(1)

held, done = threading.Event(), []
late, old = context("late").create_stream(), context("threaded").create_stream()
old.enqueue(lambda: None)
old.synchronize()
late.enqueue(lambda: done.append("late"))
threading.Thread(target=hold, daemon=True).start()
assert held.wait(30)
pid = os.fork()
if not pid:
    late.synchronize()
    new = context("threaded").create_stream()
    new.enqueue(lambda: done.append("new"))
    new.synchronize()
    old.enqueue(lambda: done.append("old"))
    try:
        old.synchronize()
    except RuntimeError as error:
        done.append("as in the child of a fork" in str(error))
    print(done, flush=True)
    os._exit(0)
assert os.waitpid(pid, 0) == (pid, 0)
"""
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ended.stdout, ended.stderr) == ("['late', 'new', True]\n", "")


@pytest.mark.parametrize("schedule", ["late", "threaded"])
def test_many_streams_keep_every_order_that_is_asked_for(schedule: str) -> None:
    draw = random.Random(7)
    lab = Lab(seed=7, schedule=schedule)
    streams = [lab.stream() for _ in range(4)]
    orders: list[tuple[str, str]] = []
    last = dict.fromkeys(streams, "")
    for number in range(120):
        stream, other = draw.sample(streams, 2)
        if draw.random() < 0.4 and last[other]:
            assert stream.wait(other.record())
            orders.append((last[other], str(number)))
        lab.queue(stream, str(number))
        last[stream] = str(number)
    for stream in streams:
        stream.synchronize()
        stream.close()
    places = {name: place for place, name in enumerate(lab.done)}
    assert len(places) == 120
    assert len(orders) > 20
    assert all(places[before] < places[after] for before, after in orders)


# contexts


def test_a_context_is_closed_once_after_its_streams() -> None:
    lab = Lab()
    stream = lab.stream()
    with pytest.raises(RuntimeError, match="before 1 of its streams; close those"):
        lab.context.close()
    stream.close()
    lab.context.close()
    for use in (lab.context.close, lab.context.create_stream):
        with pytest.raises(RuntimeError, match="simulated:0 was used after it was clo"):
            use()


def test_streams_can_be_switched_off() -> None:
    assert Lab(streams=False).context.create_stream() is None


def test_a_stream_of_another_context_is_refused() -> None:
    lab, other = Lab(), Lab(device_count=2)
    stream = other.stream()
    for use in (lab.context.own, functools.partial(lab.context.device.empty, (), F32)):
        with pytest.raises(RuntimeError, match="simulated:0 was used for work of"):
            use(stream)
