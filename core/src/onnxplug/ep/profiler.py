"""What an EP records of the time that it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Profiler(Protocol):
    """Records what an EP does in a run, for the session's trace.

    It may be used from any thread, until the run ends.
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
