"""Runs requests of one model: in the order in which they came, joined where they can
be, in so many threads as there are instances.

A request waits in a queue of bounded length, and leaves it when a thread takes it, its
time is over, or nobody waits for it any more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from onnxplug.errors import OnnxplugError, RunCancelled
from onnxplug_serve.batching import BatchPlan
from onnxplug_serve.devices import DeviceRuns
from onnxplug_serve.errors import (
    Abandoned,
    BadRequest,
    NotReady,
    Overloaded,
    RequestError,
    RunFailed,
    TooLate,
)
from onnxplug_serve.requests import InferRequest
from onnxplug_serve.settings import Batching

if TYPE_CHECKING:
    from onnxplug import InferenceSession


_logger = logging.getLogger("onnxplug.serve")


class Job:
    """A request that waits or runs.

    Attributes:
        done: of its results by output, and how many requests ran together.
        end: when it has to be done, by ``time.monotonic``; infinite if whenever.
    """

    def __init__(
        self, request: InferRequest, plan: BatchPlan | None, timeout: float
    ) -> None:
        self.request = request
        self.done: Future[tuple[Mapping[str, Any], int]] = Future()
        self.came = time.monotonic()
        self.end = self.came + timeout if timeout else float("inf")
        self.key = None if plan is None else plan.key(request.feeds)
        self.size = 0
        if plan is not None and self.key is not None:
            size = plan.size(request.feeds)
            self.key = None if not size else self.key
            self.size = size or 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody still waits for it."""
        return not self.done.cancelled() and time.monotonic() < self.end

    def give(self, results: Mapping[str, Any], joined: int) -> None:
        """Answer it, unless nobody waits."""
        with suppress(InvalidStateError):
            self.done.set_result((results, joined))

    def fail(self, error: BaseException) -> None:
        """Have it fail, unless nobody waits."""
        with suppress(InvalidStateError):
            self.done.set_exception(error)


class Scheduler:
    """Threads that run a model's requests.

    Args:
        plan: how requests are joined; ``None``: they are not.
        queued: how many may wait.
        timeout: of requests that do not say, in s; 0: none.
        devices: gives runs their turns on devices of *kinds*.
        observe: is told of each run: how many requests, seconds that the first one
            waited, and seconds that it took.
    """

    def __init__(
        self,
        session: InferenceSession,
        plan: BatchPlan | None,
        batching: Batching,
        *,
        instances: int = 1,
        queued: int = 256,
        timeout: float = 0.0,
        name: str = "",
        devices: DeviceRuns | None = None,
        kinds: Collection[str] = (),
        observe: Callable[[int, float, float], object] = lambda *_: None,
    ) -> None:
        self._session = session
        self._plan = plan
        self._batching = batching
        self._most = queued
        self._timeout = timeout
        self._observe = observe
        self._devices = devices or DeviceRuns()
        self._kinds = kinds
        self._outputs = [output.name for output in session.get_outputs()]
        self._waiting: deque[Job] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self._threads = [
            threading.Thread(
                target=self._work, name=f"onnxplug-serve {name} {number}", daemon=True
            )
            for number in range(instances)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def submit(self, request: InferRequest) -> Future[tuple[Mapping[str, Any], int]]:
        """The results of *request* to be, and how many requests ran together.

        Raises:
            Overloaded: too many wait already.
            NotReady: the model is being closed.
        """
        job = Job(request, self._plan, request.timeout or self._timeout)
        with self._changed:
            if self._is_closing:
                raise NotReady("the model is being unloaded")
            if len(self._waiting) >= self._most:
                raise Overloaded(
                    f"{len(self._waiting)} requests of the model wait already; "
                    "ask again later"
                )
            self._waiting.append(job)
            self._changed.notify()
        return job.done

    def close(self, timeout: float) -> bool:
        """Finish what waits, for *timeout* seconds at most, and let the rest fail.

        Returns:
            Whether all threads have ended.
        """
        end = time.monotonic() + timeout
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(max(end - time.monotonic(), 0.0))
        with self._changed:
            left = list(self._waiting)
            self._waiting.clear()
        for job in left:
            job.fail(NotReady("the model was unloaded before the request was run"))
        for thread in self._threads:
            thread.join(1.0 if left else 0.0)
        return not any(thread.is_alive() for thread in self._threads)

    def _work(self) -> None:
        while True:
            jobs = self._take()
            if not jobs:
                return
            try:
                with self._devices.turn(self._kinds) as waited:
                    if waited:
                        jobs = self._taken_anew(jobs)
                    if jobs:
                        self._run(jobs)
            except Exception as error:
                # no request's fault: clients are told that much, and the log the rest
                _logger.exception("a run failed in the server itself")
                for job in jobs:
                    job.fail(RunFailed(f"the server failed: {type(error).__name__}"))

    def _take(self) -> list[Job]:
        """What is to be run next, together; nothing when all is done and closed."""
        with self._changed:
            while True:
                first = self._next()
                if first is not None:
                    break
                if self._is_closing:
                    return []
                self._changed.wait()
            jobs = [first]
            if first.key is None or self._batching.size == 1:
                return jobs
            end = time.monotonic() + self._batching.delay
            while True:
                size = self._gather(jobs)
                left = min(end, first.end) - time.monotonic()
                if size >= self._batching.size or left <= 0 or self._is_closing:
                    return jobs
                self._changed.wait(left)

    def _taken_anew(self, jobs: list[Job]) -> list[Job]:
        """Those of *jobs* that are still wanted, and what came and fits since."""
        kept = []
        for job in jobs:
            if job.is_wanted:
                kept.append(job)
            else:
                _say_late(job)
        if kept and kept[0].key is not None:
            with self._changed:
                self._gather(kept)
        return kept

    def _next(self) -> Job | None:
        """The first that somebody waits for."""
        while self._waiting:
            job = self._waiting.popleft()
            if job.is_wanted:
                return job
            _say_late(job)
        return None

    def _gather(self, jobs: list[Job]) -> int:
        """Add to *jobs* what waits and fits, and tell how many positions they have."""
        size = sum(job.size for job in jobs)
        kept: deque[Job] = deque()
        while self._waiting:
            job = self._waiting.popleft()
            if not job.is_wanted:
                _say_late(job)
            elif job.key == jobs[0].key and size + job.size <= self._batching.size:
                jobs.append(job)
                size += job.size
            else:
                kept.append(job)
        self._waiting = kept
        return size

    def _run(self, jobs: Sequence[Job]) -> None:
        started = time.monotonic()
        try:
            if len(jobs) == 1:
                jobs[0].give(self._results(jobs[0].request.feeds, jobs), 1)
            else:
                self._run_together(jobs)
        except RequestError as error:
            for job in jobs:
                job.fail(error)
        now = time.monotonic()
        self._observe(len(jobs), started - jobs[0].came, now - started)

    def _run_together(self, jobs: Sequence[Job]) -> None:
        plan = self._plan
        assert plan is not None
        feeds = [job.request.feeds for job in jobs]
        sizes = [job.size for job in jobs]
        try:
            results = self._results(plan.joined(feeds), jobs)
        except (BadRequest, RunFailed):
            # one of them is at fault, and the others are not to suffer for it
            for job in jobs:
                self._run([job])
            return
        for job, part in zip(jobs, plan.divided(results, sizes), strict=True):
            job.give(part, len(jobs))

    def _results(self, feeds: Mapping[str, Any], jobs: Sequence[Job]) -> dict[str, Any]:
        """What the model gives for *feeds*, as long as one of *jobs* is wanted."""
        from onnxplug import RunOptions

        names = self._names(jobs)
        options = RunOptions()
        watch = _Watch(jobs, options)
        try:
            with watch:
                values = self._session.run(names, dict(feeds), options)
        except RunCancelled as error:
            if any(job.done.cancelled() for job in jobs):
                raise Abandoned("nobody waits for the run any more") from error
            raise TooLate(
                "the run took longer than the request had; it was cancelled"
            ) from error
        except (ValueError, TypeError) as error:
            # feeds are wrong; that is said in words that are for the user
            raise BadRequest(str(error)) from error
        except OnnxplugError as error:
            raise RunFailed(str(error)) from error
        except MemoryError as error:
            raise RunFailed("there is not enough memory for the run") from error
        return dict(zip(names, values, strict=True))

    def _names(self, jobs: Sequence[Job]) -> list[str]:
        """The outputs that one of *jobs* asks for, in the model's order."""
        if any(not job.request.outputs for job in jobs):
            return self._outputs
        wanted = {name for job in jobs for name in job.request.outputs}
        return [name for name in self._outputs if name in wanted]


def _say_late(job: Job) -> None:
    job.fail(TooLate("the request waited longer than it had"))


class _Watch:
    """Cancels a run when none of its requests is wanted any more."""

    def __init__(self, jobs: Sequence[Job], options: Any) -> None:
        self._jobs = jobs
        self._options = options
        end = max(job.end for job in jobs)
        if end != float("inf"):
            options.timeout = max(end - time.monotonic(), 0.001)

    def __enter__(self) -> None:
        self._left = len(self._jobs)
        self._lock = threading.Lock()
        for job in self._jobs:
            job.done.add_done_callback(self._gone)

    def __exit__(self, *_: object) -> None:
        self._left = -1

    def _gone(self, _: Future[Any]) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                self._options.terminate = True
