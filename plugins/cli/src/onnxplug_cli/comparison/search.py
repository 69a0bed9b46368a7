"""Finds where two choices of EPs part, in a handful of runs.

A run taps the frontiers at some positions: all values that are alive there.  Where one
frontier agrees and the next does not, the cause is between them; seven frontiers a run
make eight parts of a model, so 4 runs do for 4096 nodes.  A difference that no tapped
run shows comes of what taps part, such as nodes that an EP fuses: positions are then
tapped one at a time, and the narrowest part that still shows it is what is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, Final

import onnx

from onnxplug.authoring.record import Record
from onnxplug_cli.comparison.sides import Sides
from onnxplug_cli.comparison.steps import Steps

FRONTIERS: Final = 7
"""How many are tapped in one run."""


class Part(Record):
    """The part of a model in which two choices of EPs begin to differ.

    Attributes:
        nodes: one; several if the difference vanishes when a value between them is
            tapped.
        outputs: values of theirs that differ beyond tolerance, if *confirmed*.
        values: what both sides had at either end, by name.
        confirmed: a run that tapped both ends at once showed the difference.
    """

    nodes: Sequence[onnx.NodeProto]
    outputs: Sequence[str]
    values: tuple[Mapping[str, Any], Mapping[str, Any]]
    confirmed: bool


class NotFound(ValueError):
    """There is nowhere that the two part; the text says why."""


class _Seen(Enum):
    """What a run shows of the frontier that it taps."""

    BEFORE = auto()  # it differs already
    AFTER = auto()  # it agrees, and the targets differ
    NOWHERE = auto()  # not even the targets differ any more


class Search:
    """Looks for where *sides* part.

    Args:
        graph: the model's.
        targets: outputs that differ.
    """

    def __init__(
        self,
        sides: Sides,
        graph: onnx.GraphProto,
        targets: Sequence[str],
        inputs: Mapping[str, Any],
    ) -> None:
        self._sides = sides
        self._steps = Steps(graph, targets)
        self._targets = list(targets)
        self._inputs = inputs

    def find(self) -> Part:
        """The first node whose inputs agree and whose outputs do not, or several.

        Of the values on the way to the targets.

        Raises:
            NotFound: no node makes the targets, or they differ no more.
        """
        start, stop = 0, len(self._steps.nodes)
        if not stop:
            raise NotFound("no node makes what differs")
        found = self._between(start, stop)
        if found is not None:
            part = self._confirm(*found)
            if part.confirmed:
                return part
        if not self._sides.disagree(self._targets, self._tap(())):
            raise NotFound("in another run nothing differed: it varies from run to run")
        return self._confirm(*self._narrow(start, stop))

    def _between(self, start: int, stop: int) -> tuple[int, int] | None:
        """Adjacent positions between which the sides part; ``None`` if a run shows no
        difference.

        Invariant: they agree at *start*, and differ at *stop*.
        """
        while stop - start > 1:
            positions = self._positions(start, stop)
            frontiers = [self._steps.frontier(each) for each in positions]
            values = self._tap(name for each in frontiers for name in each)
            for position, frontier in zip(positions, frontiers, strict=True):
                if self._sides.disagree(frontier, values):
                    stop = position
                    break
                start = position
            else:
                if not self._sides.disagree(self._targets, values):
                    return None
        return start, stop

    def _positions(self, start: int, stop: int) -> list[int]:
        """Where to tap between two positions: evenly, where few values are alive."""
        parts = min(FRONTIERS + 1, stop - start)
        step = (stop - start) / parts
        slack = int(step / 4)
        found = set()
        for part in range(1, parts):
            middle = start + round(part * step)
            near = range(max(start + 1, middle - slack), min(stop, middle + slack + 1))
            found.add(min(near, key=lambda at: (self._steps.widths[at], at)))
        return sorted(found)

    def _narrow(self, start: int, stop: int) -> tuple[int, int]:
        """The narrowest part that shows the difference, one tapped at a time."""
        while stop - start > 1:
            hidden = (start + stop) // 2
            seen = self._look(hidden)
            if seen is _Seen.BEFORE:
                stop = hidden
            elif seen is _Seen.AFTER:
                start = hidden
            else:
                narrower = self._around(start, hidden, stop)
                if isinstance(narrower, _Around):
                    return narrower.start, narrower.stop
                start, stop = narrower
        return start, stop

    def _around(self, start: int, hidden: int, stop: int) -> _Around | tuple[int, int]:
        """The narrowest part around *hidden*; another where to look if it is not there.

        Args:
            hidden: a position that must not be tapped for the difference to show.
        """
        lowest = highest = hidden
        while lowest - start > 1:
            middle = (start + lowest) // 2
            seen = self._look(middle)
            if seen is _Seen.BEFORE:
                return start, middle
            if seen is _Seen.AFTER:
                start = middle
            else:
                lowest = middle
        while stop - highest > 1:
            middle = (highest + stop) // 2
            seen = self._look(middle)
            if seen is _Seen.BEFORE:
                stop = middle
            elif seen is _Seen.AFTER:
                return middle, stop
            else:
                highest = middle
        return _Around(start, stop)

    def _look(self, position: int) -> _Seen:
        frontier = self._steps.frontier(position)
        values = self._tap(frontier)
        if self._sides.disagree(frontier, values):
            return _Seen.BEFORE
        if self._sides.disagree(self._targets, values):
            return _Seen.AFTER
        return _Seen.NOWHERE

    def _confirm(self, start: int, stop: int) -> Part:
        """Tap both ends at once."""
        before, after = self._steps.frontier(start), self._steps.frontier(stop)
        values = self._tap([*before, *after])
        outputs = self._sides.disagree(after, values)
        confirmed = bool(outputs) and not self._sides.disagree(before, values)
        if not confirmed:
            outputs = after
        nodes = self._steps.leading_to(start, stop, outputs)
        made = {name for node in nodes for name in node.output}
        outputs = [name for name in outputs if name in made]
        return Part(nodes, outputs, values, confirmed)

    def _tap(self, names: Iterable[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        return self._sides.run(
            list(dict.fromkeys([*self._targets, *names])), self._inputs
        )


class _Around(Record):
    """A part whose inside cannot be tapped without the difference vanishing."""

    start: int
    stop: int
