"""What an EP records of the time that it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol


class Profiler(Protocol):
    """Records what an EP does in a run, for the session's trace.

    It may be used from any thread, until the run ends and in what :meth:`when_done`
    calls.  May gain attributes.
    """

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        details: Mapping[str, object],
    ) -> None:
        """Record one event; the host adds the EP's name and the thread.

        Args:
            name: what was done, as it is to be shown.
            category: ``Node`` for what computes a node, or several at once; for all
                else any other word.
            start_ns: when it began, by :func:`time.perf_counter_ns`.
            duration_ns: how long it took, in ns.
            details: facts that JSON can hold, never changed afterwards.  What the
                command line looks for: ``op_name``, the operator; ``tier``, which of
                the EP's tiers computed it; ``note``, why not a faster one; ``flops``
                and ``bytes``, the work; ``share_of_peak``, the least time that this
                machine needs for the work, of the time it took.
        """

    def when_done(self, report: Callable[[], None]) -> None:
        """Have *report* called once what was queued on the run's stream is done.

        For what only a device knows, such as when it began a kernel: *report* reads
        that, and calls :meth:`record`, whose events the trace has in a row of the
        stream's own.  So nothing waits in the run.  It is called once,
        from any thread, at the end of this run or of a later one, or as the trace ends,
        which waits for the work; at once where the run has no stream.  It is not called
        if the work failed, nor for work that a stream notes while it captures.  What it
        raises is the EP's failure, which ``end_profiling`` raises.
        """
