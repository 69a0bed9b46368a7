"""Streams defer work, and break every order that was not asked for."""

from __future__ import annotations

import itertools

import pytest

from onnxplug import ep
from onnxplug_testing.simulated import Schedule, SimulatedStream

HERE = ep.MemoryLocation("simulated", 0)


class Lab:
    """Streams of one device, and the order in which their work was done."""

    def __init__(self, seed: int | None = None) -> None:
        self.schedule = Schedule(seed)
        self.done: list[str] = []

    def stream(self) -> SimulatedStream:
        return SimulatedStream(self.schedule, HERE)

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
    second.wait(first)
    lab.queue(first, "later")
    lab.queue(second, "read")
    second.synchronize()
    assert lab.done.index("written") < lab.done.index("read")
    assert lab.done.index("before") < lab.done.index("read")


def test_waiting_is_for_present_work_only() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    second.wait(first)
    lab.queue(first, "later")
    lab.queue(second, "read")
    second.synchronize()
    assert lab.done == ["read"]


def test_waiting_goes_through_a_third_stream() -> None:
    lab = Lab()
    one, two, three = lab.stream(), lab.stream(), lab.stream()
    lab.queue(one, "one")
    two.wait(one)
    lab.queue(two, "two")
    three.wait(two)
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


def test_an_error_is_raised_by_the_next_synchronize_once() -> None:
    lab = Lab()
    stream = lab.stream()
    lab.queue(stream, "a")
    stream.enqueue(fail)
    lab.queue(stream, "dropped")
    with pytest.raises(ArithmeticError, match="broken work"):
        stream.synchronize()
    assert lab.done == ["a"]
    lab.queue(stream, "b")
    stream.synchronize()
    assert lab.done == ["a", "b"]


def test_an_error_goes_to_streams_that_wait_for_the_work() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    first.enqueue(fail)
    second.wait(first)
    lab.queue(second, "dropped")
    with pytest.raises(ArithmeticError):
        second.synchronize()
    assert lab.done == []


def test_an_error_of_later_work_does_not() -> None:
    lab = Lab()
    first, second = lab.stream(), lab.stream()
    lab.queue(first, "a")
    second.wait(first)
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
    stream.synchronize()
    stream.close()
    assert lab.schedule.open_streams == []


@pytest.mark.parametrize("use", ["synchronize", "close"])
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


def test_streams_of_two_factories_do_not_wait_for_each_other() -> None:
    with pytest.raises(TypeError, match="which another factory made"):
        Lab().stream().wait(Lab().stream())
