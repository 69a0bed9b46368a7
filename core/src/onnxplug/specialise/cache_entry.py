"""What was compiled for one set of input shapes, used and closed by any thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from onnxplug.ep import CompiledPartition
from onnxplug.errors import RunCancelled, RunError
from onnxplug.guard import ignoring_failures
from onnxplug.run.concurrency_limit import ConcurrencyLimit
from onnxplug.run.events import OwnedEvent, record

if TYPE_CHECKING:
    from onnxplug.ep import RunContext, Stream


class CacheEntry:
    """What was compiled for one set of shapes, and who uses it.

    Args:
        ep: the name of the EP that compiled it.

    Attributes:
        last_use: a number that grows with each use of any.
        stays: it is part of captured work, and is not evicted.
        is_retired: it is to be closed once no run is in it.
        runs: as many elements as runs are in it.
    """

    __slots__ = (
        "_closers",
        "_concurrency_limit",
        "_ends",
        "_ep",
        "compiled",
        "is_retired",
        "last_use",
        "runs",
        "stays",
    )

    def __init__(self, compiled: CompiledPartition, ep: str) -> None:
        self.compiled = compiled
        self._ep = ep
        limit = compiled.max_concurrent_runs
        self._concurrency_limit = None if limit is None else ConcurrencyLimit(limit)
        self._ends: dict[int, tuple[Stream, OwnedEvent]] = {}
        self._closers: list[Callable[[], None]] = [self._close]
        self.last_use = 0
        self.stays = self.is_retired = False
        self.runs: list[None] = []

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        if context is None or context.stream is None:
            if self._concurrency_limit is None:
                return self.compiled.run(inputs, outputs, context)
            return self._run_in_turn(
                self._concurrency_limit, inputs, outputs, context, None
            )
        return self._run_queued(inputs, outputs, context, context.stream)

    def _run_queued(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext,
        stream: Stream,
    ) -> Sequence[Any]:
        is_captured = context.capture is not None
        if is_captured:
            self.stays = True
            if self._concurrency_limit is not None:
                raise RunError(
                    "a partition that is compiled by input shapes, and whose runs may "
                    "not overlap, cannot be captured; turn capturing off"
                )
        if self._concurrency_limit is None:
            results = self.compiled.run(inputs, outputs, context)
        else:
            results = self._run_in_turn(
                self._concurrency_limit, inputs, outputs, context, stream
            )
        if not is_captured:
            # what is queued uses it when the run has ended, too
            self._ends[id(stream)] = stream, record(stream, self._ep)
        return results

    def _run_in_turn(
        self,
        limit: ConcurrencyLimit,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
        stream: Stream | None,
    ) -> Sequence[Any]:
        turn = object()
        try:
            limit.begin(turn, stream, lambda: check(context))
            try:
                results = self.compiled.run(inputs, outputs, context)
                if stream is not None:
                    limit.note(stream, record(stream, self._ep))
            except BaseException:
                if stream is not None:
                    with ignoring_failures():  # the caller gets the first
                        stream.synchronize()
                raise
            return results
        finally:
            limit.running.discard(turn)
            limit.wake()

    def close_once(self) -> None:
        """Close it, unless another thread has; what it queued is done then."""
        try:
            close = self._closers.pop()
        except IndexError:
            return
        close()

    def _close(self) -> None:
        for _, event in self._ends.values():
            with ignoring_failures():  # what failed is its run's failure
                event.synchronize()
        self._ends.clear()
        self.compiled.close()


class Cancellable(Protocol):
    """Who wants something: a run, as far as it can be cancelled."""

    @property
    def cancelled(self) -> bool:
        """It is not wanted any more."""


def check(context: Cancellable | None) -> None:
    """Raise ``RunCancelled`` if the run of *context* should go no further."""
    if context is not None and context.cancelled:
        raise RunCancelled("the run was cancelled before it finished")


class Compilation:
    """One set of shapes that a thread compiles.

    Attributes:
        contexts: of the runs that want it.
        process: where the thread is.
        is_done: it ended.
        error: how it failed, for all who wait; ``None`` also when it was given up.
    """

    def __init__(self, context: Cancellable | None) -> None:
        self.contexts: list[Cancellable | None] = [context]
        self.process = os.getpid()
        self.is_done = False
        self.error: Exception | None = None

    @property
    def is_unwanted(self) -> bool:
        """Whether all runs that want it are cancelled."""
        return all(
            context is not None and context.cancelled for context in self.contexts
        )

    def end(self) -> None:
        """Let it be done, and keep nothing of the runs that wanted it."""
        self.contexts = [None]  # what was compiled is not cancelled with its runs
        self.is_done = True
