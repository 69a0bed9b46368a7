"""A built model: its plans, and how it stays open while runs use it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.locks import new_lock
from onnxplug.compile.plan import make_plan
from onnxplug.ep import HOST, MemoryLocation
from onnxplug.errors import EpError
from onnxplug.guard import Closer, close_all
from onnxplug.partition.report import Explanation
from onnxplug.run.execute import direct_call
from onnxplug.run.plan import Plan
from onnxplug.run.streams import StreamPool

if TYPE_CHECKING:
    from onnxplug.graph import Graph
    from onnxplug.run.compiled import CompiledGraph
    from onnxplug.run.entries import RunEntries
    from onnxplug.run.memory import Memory
    from onnxplug.selection import ChosenEp


class BuiltModel:
    """A model compiled for its EPs, and the plans to execute it.

    Attributes:
        chosen: the EPs in use, best first.
        compiled: the prepared graph, compiled.
        memory: where values can be, and how they get there.
        streams: those of its runs.
        captures: the device whose work in bound runs is captured, if it is.
        plan: takes inputs from the host and leaves outputs there.
        direct_call: executes that plan, when it is one partition on the host.
        explanation: every decision on the way.
    """

    def __init__(
        self,
        chosen: Sequence[ChosenEp],
        compiled: CompiledGraph,
        memory: Memory,
        explanation: Explanation,
        *,
        checks_always: bool,
    ) -> None:
        self.chosen = chosen
        self.compiled = compiled
        self.memory = memory
        self.streams = StreamPool(memory)
        self.captures = None
        if any(ep.provider.capture is not None for ep in chosen):
            from onnxplug.run.capture import capturing_device

            self.captures = capturing_device(chosen, compiled, memory)
        self.explanation = explanation
        self._checks_always = checks_always
        self.plan = make_plan(
            compiled, memory, explanation, checks_always=checks_always
        )
        self.direct_call = direct_call(self.plan)
        self._plans: dict[object, Plan] = {}
        self._lock = new_lock()
        self._runs: list[None] = []
        self._closing = self._closed = False

    @property
    def graph(self) -> Graph:
        """The prepared graph."""
        return self.compiled.graph

    @functools.cached_property
    def run_entries(self) -> RunEntries:
        """The config entries that runs may have."""
        # the runs of many sessions have no options, and take the short way
        from onnxplug.run.entries import RunEntries

        return RunEntries(ep.factory for ep in self.chosen)

    def plan_for(
        self,
        inputs_at: Mapping[str, MemoryLocation],
        outputs_at: Mapping[str, MemoryLocation],
    ) -> Plan:
        """A plan that takes inputs, and leaves outputs, where they are wanted."""
        inputs_at = {name: at for name, at in inputs_at.items() if at != HOST}
        outputs_at = {name: at for name, at in outputs_at.items() if at != HOST}
        if not inputs_at and not outputs_at:
            return self.plan
        key = (frozenset(inputs_at.items()), frozenset(outputs_at.items()))
        with self._lock:
            if key not in self._plans:
                self._plans[key] = make_plan(
                    self.compiled,
                    self.memory,
                    Explanation(),
                    inputs_at=inputs_at,
                    outputs_at=[
                        outputs_at.get(name, HOST) for name in self.graph.outputs
                    ],
                    checks_always=self._checks_always,
                )
            return self._plans[key]

    def acquire(self) -> bool:
        """Keep everything open for a run, until :meth:`release`; false when closed."""
        # appending and popping are atomic, and cheaper than a lock; whoever comes
        # second of a run and of close() sees what the other has done
        self._runs.append(None)
        if not self._closing:
            return True
        self.release()
        return False

    def release(self) -> None:
        """End what :meth:`acquire` began."""
        self._runs.pop()
        if self._closing and not self._runs:
            self._close_late()

    def while_open(
        self, compute: Callable[[Sequence[Any]], Sequence[Any]]
    ) -> Callable[[Sequence[Any]], Sequence[Any] | None]:
        """*compute* between :meth:`acquire` and :meth:`release`; ``None`` when closed.

        They are not called but written out, for the runs that take no longer.
        """
        runs = self._runs
        begin, end = runs.append, runs.pop

        def compute_while_open(inputs: Sequence[Any]) -> Sequence[Any] | None:
            try:
                begin(None)  # in here, as an interrupt may come right after it
                return None if self._closing else compute(inputs)
            finally:
                end()
                if self._closing and not runs:
                    self._close_late()

        return compute_while_open

    def close(self) -> None:
        """Close the partitions, then the EPs, once no run uses them.

        Raises:
            EpError: closing one of them failed; all are closed nonetheless.
        """
        self._closing = True
        if not self._runs:
            self._close_all()

    def _close_late(self) -> None:
        """As :meth:`close`, at the end of a run, which is not to fail for that."""
        try:
            self._close_all()
        except EpError as error:
            import logging

            logging.getLogger("onnxplug.session").warning("%s", error)

    def _close_all(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            self.streams.close()
        finally:
            try:
                close_all(closers(self.chosen, self.compiled))
            finally:
                self.memory.close()


def closers(
    chosen: Sequence[ChosenEp], compiled: CompiledGraph | None
) -> Iterator[Closer]:
    """What closes compiled partitions, then the EPs."""
    if compiled is not None:
        yield from compiled.closers()
    for ep in chosen:
        yield ep.name, ep.close
