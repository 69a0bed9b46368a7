"""Runs sessions over and over, and times each run.

Sessions that are compared take turns, round by round and each second round in the
reverse order, so that what else the machine does falls on all of them.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug_cli.energy import Meter

if TYPE_CHECKING:
    from onnxplug import InferenceSession

_ROUND: Final = 0.05
"""Seconds that a round of one session is to take, where time is what is given."""

_ROUNDS: Final = 10
"""Rounds to divide a given number of runs into."""


class Latency(Record):
    """How long a run takes, in seconds.

    Attributes:
        spread: within which the middle half of the runs lies.
    """

    median: float
    spread: float
    min: float
    p90: float
    p99: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        """That of measured runs, at least one."""
        ordered = sorted(seconds)
        return cls(
            statistics.median(ordered),
            percentile(ordered, 0.75) - percentile(ordered, 0.25),
            ordered[0],
            percentile(ordered, 0.90),
            percentile(ordered, 0.99),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that *share* of the *ordered* ones do not exceed, interpolated."""
    position = (len(ordered) - 1) * share
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


class Runner:
    """One session with its inputs, and what was measured of it.

    Attributes:
        first: seconds that the first run took.
        seconds: those of each measured run, of all threads.
        busy: seconds from the start of each round to its end, summed.
        joules: what the machine spent in these; ``None`` where it does not tell.
    """

    def __init__(
        self,
        session: InferenceSession,
        inputs: Mapping[str, Any],
        meter: Meter | None = None,
    ) -> None:
        self._meter = meter or Meter()
        self.joules: float | None = 0.0
        self._session = session
        self._inputs = inputs
        self.first = 0.0
        self.seconds: list[float] = []
        self.busy = 0.0

    @property
    def count(self) -> int:
        """How many runs were measured."""
        return len(self.seconds)

    def warm_up(self, warmup: int) -> None:
        """Run once, and then *warmup* times more."""
        self.first, *_ = self._repeat(1)
        self._repeat(warmup)

    def measure(self, runs: int, threads: int) -> None:
        """Run *runs* times in each of *threads* threads at once.

        Raises:
            Exception: whatever a run raises, in any thread.
        """
        before = self._meter.read()
        self._measure(runs, threads)
        spent = self._meter.joules(before, self._meter.read())
        if spent is None or self.joules is None:
            self.joules = None
        else:
            self.joules += spent

    def _measure(self, runs: int, threads: int) -> None:
        if threads == 1:
            started = time.perf_counter()
            self.seconds += self._repeat(runs)
            self.busy += time.perf_counter() - started
            return
        from concurrent.futures import ThreadPoolExecutor

        # all begin when the last of them is ready
        ready = threading.Barrier(threads + 1)

        def work() -> list[float]:
            ready.wait()
            return self._repeat(runs)

        with ThreadPoolExecutor(threads) as pool:
            futures = [pool.submit(work) for _ in range(threads)]
            ready.wait()
            started = time.perf_counter()
            measured = [future.result() for future in futures]
            self.busy += time.perf_counter() - started
        for seconds in measured:
            self.seconds += seconds

    def _repeat(self, runs: int) -> list[float]:
        run, inputs, clock = self._session.run, self._inputs, time.perf_counter
        seconds = []
        for _ in range(runs):
            started = clock()
            run(None, inputs)
            seconds.append(clock() - started)
        return seconds


def measure(
    runners: Sequence[Runner],
    *,
    warmup: int,
    threads: int,
    repeat: int | None,
    seconds: float,
    report: Callable[[str, float], None],
) -> None:
    """Measure each of *runners*: *repeat* runs per thread, or for *seconds*.

    Args:
        report: called now and then with how far it is, in words and from 0 to 1.
    """
    for runner in runners:
        report("warming up …", 0.0)
        runner.warm_up(warmup)
    # where time is what is given, rounds grow from one run as its pace is known
    shares = dict.fromkeys(runners, max(1, (repeat or 1) // _ROUNDS))
    done = dict.fromkeys(runners, 0)
    number = 0
    while any(_is_open(r, done[r], repeat, seconds) for r in runners):
        order = runners if number % 2 == 0 else runners[::-1]
        for runner in order:
            if not _is_open(runner, done[runner], repeat, seconds):
                continue
            runs = shares[runner]
            if repeat is not None:
                runs = min(runs, repeat - done[runner])
            runner.measure(runs, threads)
            done[runner] += runs
            if repeat is None:
                pace = max(runner.busy / done[runner], 1e-6)
                shares[runner] = max(1, int(_ROUND / pace))
        number += 1
        report(*_far(runners, done, repeat, seconds))


def _is_open(runner: Runner, done: int, repeat: int | None, seconds: float) -> bool:
    return runner.busy < seconds if repeat is None else done < repeat


def _far(
    runners: Sequence[Runner],
    done: Mapping[Runner, int],
    repeat: int | None,
    seconds: float,
) -> tuple[str, float]:
    if repeat is not None:
        least = min(done.values())
        return f"measuring: {least} of {repeat} runs", least / repeat
    busy = min(runner.busy for runner in runners)
    return f"measuring: {busy:.0f} of {seconds:g} s", busy / seconds
