"""What preparing a model may cost, so that a small model cannot cost without end.

A model is not trusted: a few nodes can stand for any number of nodes, bytes or
operations.  What is beyond a limit is left for the model's runs, which can be timed
and cancelled, or refused where the model means nothing without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from onnxplug.authoring.record import Record
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import all_graphs
from onnxplug.prepare.report import Skipped


class Limits(Record):
    """The limits of one session.

    Attributes:
        nodes: that calls of the model's functions and operators with function bodies
            may become, and that rewrites may take; unrolled models have tens of
            thousands, and more is as easily written by two functions that call each
            other.
        depth: bodies of control flow within each other; a file has 32 at most, and
            calls within bodies make more.
        nbytes: of results of folding that are kept, beside as many as the model's own
            constants have: room for what is computed of shapes and masks.
        seconds: spent on computing constants, beside those for the bytes that the
            model has; see :data:`BYTES_PER_SECOND`.
        work: multiplications of one node: what has begun cannot be interrupted, and
            this many take less than a second.
        text: characters and elements of texts that one node reads, whose results have
            no size that is known before.
    """

    nodes: int = 250_000
    depth: int = 64
    nbytes: int = 64 << 20
    seconds: float = 10.0
    work: int = 1 << 31
    text: int = 1 << 12


BYTES_PER_SECOND: Final = 32 << 20
"""Bytes of a model's constants that earn it one more second for computing them: the
time is proportional to the model's size, and a few times what transposing takes."""


class Budget:
    """What is left to spend in one session, which several preparations share.

    Args:
        check: called again and again; raises when the session is not wanted any more.

    Attributes:
        skipped: what the latest folding left as it was, and why.
        failed: nodes that could not be computed, which are not tried again, and why.
    """

    def __init__(
        self, limits: Limits | None = None, check: Callable[[], None] = lambda: None
    ) -> None:
        self.limits = limits or Limits()
        self.check = check
        self.skipped: list[Skipped] = []
        self.failed: dict[Node, str] = {}
        self._nodes = 0
        self._seconds = 0.0
        self._kept = 0
        self._own: int | None = None

    def measure(self, graph: Graph) -> None:
        """Look, once, how large the constants of a model are."""
        if self._own is None:
            self._own = sum(
                weight.nbytes
                for each in all_graphs(graph)
                for weight in each.constants.values()
            )

    def has_time(self) -> bool:
        """Whether constants may still be computed."""
        return self._seconds < self.limits.seconds + (self._own or 0) / BYTES_PER_SECOND

    def has_room(self, nbytes: int) -> bool:
        """Whether results of *nbytes* may still be kept."""
        return self._kept + nbytes <= self.limits.nbytes + (self._own or 0)

    def keep(self, nbytes: int) -> None:
        """Note that results of *nbytes* are kept, or, below 0, that they went."""
        self._kept += nbytes

    def make_nodes(self, count: int) -> bool:
        """Note that nodes were made of a function or a rewrite; whether they may."""
        self._nodes += count
        return self._nodes <= self.limits.nodes

    def checkpoint(self) -> Callable[[], None]:
        """What takes back the nodes and bytes that are spent from now on."""
        nodes, kept = self._nodes, self._kept

        def restore() -> None:
            self._nodes, self._kept = nodes, kept

        return restore

    def timed(self) -> _Timed:
        """A context whose time is spent on computing constants."""
        return _Timed(self)


class _Timed:
    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *exception: object) -> None:
        self._budget._seconds += time.monotonic() - self._started
