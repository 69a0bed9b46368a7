"""Lays out a compiled graph as steps over numbered slots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from onnxplug.authoring.liveness import last_uses
from onnxplug.compile.placement import Placements
from onnxplug.ep import HOST, MemoryLocation
from onnxplug.graph.size import value_nbytes
from onnxplug.guard import RunFunction, guarded
from onnxplug.partition.placements import CopyPlacement
from onnxplug.partition.report import Explanation
from onnxplug.run.compiled import CompiledGraph, CompiledUnit
from onnxplug.run.memory import Memory
from onnxplug.run.plan import CopyValue, Plan, RunBodies, RunPartition, Step
from onnxplug.run.results import Place, ResultCheck

if TYPE_CHECKING:
    from onnxplug.run.device import Device


Places: TypeAlias = Mapping[str, MemoryLocation]
"""Names of values to where they are; the host for those left out."""


def make_plan(
    compiled: CompiledGraph,
    memory: Memory,
    explanation: Explanation,
    *,
    inputs_at: Places = MappingProxyType({}),
    outputs_at: Sequence[MemoryLocation] | None = None,
    checks_always: bool = False,
    placements: Placements | None = None,
) -> Plan:
    """The plan of *compiled*; copies between locations go into *explanation*.

    *inputs_at* and *outputs_at* say where the graph's inputs and outputs are, the
    former by name, the latter in order and by default on the host;
    *checks_always*, that what EPs return is looked at closely in each run;
    *placements*, what was decided of control flow so far.
    """
    planner = _Planner(
        compiled, memory, explanation, checks_always, placements or Placements(memory)
    )
    return planner.make(inputs_at, outputs_at)


class _Planner:
    def __init__(
        self,
        compiled: CompiledGraph,
        memory: Memory,
        explanation: Explanation,
        checks_always: bool,
        placements: Placements,
    ) -> None:
        self.placements = placements
        self.checks_always = checks_always
        self.compiled = compiled
        self.memory = memory
        self.explanation = explanation
        self.template: list[Any] = [None]
        self.slots: dict[tuple[str, MemoryLocation], int] = {}
        self.places: dict[str, list[MemoryLocation]] = {}
        self.steps: list[Step] = []
        graph = compiled.graph
        outer = graph.captures() if graph.parent is not None else ()
        self.outer = {name for name in outer if graph.weight(name) is None}
        self.captured: dict[tuple[str, MemoryLocation], int] = {}

    def make(
        self, inputs_at: Places, outputs_at: Sequence[MemoryLocation] | None
    ) -> Plan:
        graph = self.compiled.graph
        inputs = tuple(dict.fromkeys([*graph.inputs, *graph.defaults]))
        for name in inputs:
            slot = self._new_slot(name, inputs_at.get(name, HOST))
            if name in graph.defaults:  # a node need not feed them to its body
                self.template[slot] = graph.defaults[name].array
        for unit in self.compiled.units:
            if unit.compiled is None:
                self._add_control_flow(unit)
            else:
                self._add_partition(unit)
        outputs = tuple(
            self._at(name, location)
            for name, location in zip(
                graph.outputs, outputs_at or [HOST] * len(graph.outputs), strict=True
            )
        )
        self._mark_results(outputs)
        return Plan(
            graph,
            inputs,
            tuple(self.captured),
            tuple(self.captured.values()),
            self.template,
            self._with_frees(outputs),
            outputs,
        )

    def _mark_results(self, outputs: Sequence[int]) -> None:
        """Mark the copies that are given to the caller of the session."""
        if self.compiled.graph.parent is not None:
            return  # what a body makes goes to its node
        for number, step in enumerate(self.steps):
            if isinstance(step, CopyValue) and step.target in outputs:
                self.steps[number] = step._replace(is_result=True)

    def _with_frees(self, outputs: Sequence[int]) -> list[Step]:
        """The steps, each clearing the slots that no later one uses."""
        kept = {
            number for number, value in enumerate(self.template) if value is not None
        }
        ends = last_uses([_slots_of(step) for step in self.steps], {0, *outputs} | kept)
        return [
            step._replace(frees=frees)
            for step, frees in zip(self.steps, ends, strict=True)
        ]

    def _new_slot(self, name: str, location: MemoryLocation) -> int:
        slot = len(self.template)
        self.template.append(None)
        self.slots[name, location] = slot
        self.places.setdefault(name, []).append(location)
        return slot

    def _at(self, name: str | None, location: MemoryLocation) -> int:
        """The slot of *name* at *location*, copied there if need be."""
        if name is None:
            return 0
        if name not in self.places and name not in self.outer:
            # a constant that a step needs as a value: it lives on the host
            slot = self._new_slot(name, HOST)
            self.template[slot] = self.compiled.graph.constant(name)
        for place in self.places.get(name, ()):
            if not self.memory.needs_copy(place, location):
                return self.slots[name, place]
        if name in self.outer:
            # copied once, around the body, and not each time that it runs
            slot = self.captured[name, location] = self._new_slot(name, location)
            return slot
        source = self.places[name][0]
        for hop in self.memory.route(source, location):
            if (name, hop.target) in self.slots:  # it was wanted half way before
                continue
            slot = self.slots[name, hop.source]
            target = self._new_slot(name, hop.target)
            self.steps.append(CopyValue(name, hop, slot, target))
            self.explanation.copies.append(
                CopyPlacement(
                    graph=self.compiled.where,
                    value=name,
                    source=str(hop.source),
                    target=str(hop.target),
                    nbytes=value_nbytes(self.compiled.graph.value(name)),
                )
            )
        return self.slots[name, location]

    def _add_partition(self, unit: CompiledUnit) -> None:
        compiled, candidate = unit.compiled, unit.candidate
        assert compiled is not None and candidate is not None
        home = candidate.provider.location
        partition = unit.partition
        wanted = compiled.input_locations or [home] * len(partition.inputs)
        left = compiled.output_locations or [home] * len(partition.outputs)
        inputs = [
            self._at(name, location)
            for name, location in zip(partition.inputs, wanted, strict=True)
        ]
        outputs = [
            self._new_slot(name, location)
            for name, location in zip(partition.outputs, left, strict=True)
        ]
        place = Place(candidate.name, unit.number, partition)
        left_on = self._devices_at(left)
        check = ResultCheck(place, left_on, always=self.checks_always)
        run: RunFunction = compiled.run
        if self.checks_always:
            from onnxplug.run.watching import Watch  # which few sessions need

            watch = Watch(
                place, self._devices_at(wanted), left_on, self.memory.device(home)
            )
            run = watch.over(run, check.check_closely)
        self.steps.append(
            RunPartition(
                candidate.name,
                unit.number,
                guarded(candidate.name, run, len(outputs), check.quickest(), place),
                tuple(inputs),
                tuple(outputs),
                home,
                unit.concurrency_limit,
                check.doubts,
                bool(compiled.in_place),
            )
        )

    def _devices_at(self, locations: Sequence[MemoryLocation]) -> list[Device | None]:
        """What is at *locations*; ``None`` where numpy reads what is there."""
        return [
            None if location.host_accessible else self.memory.device(location)
            for location in locations
        ]

    def _add_control_flow(self, unit: CompiledUnit) -> None:
        node = unit.partition.nodes[0]
        placement = self.placements.of(unit)
        bodies = {
            attribute: make_plan(
                body,
                self.memory,
                self.explanation,
                inputs_at=placement.bodies_take[attribute],
                outputs_at=placement.bodies_leave[attribute],
                checks_always=self.checks_always,
                placements=self.placements,
            )
            for attribute, body in unit.bodies.items()
        }
        inputs = tuple(
            self._at(name, location)
            for name, location in zip(node.inputs, placement.inputs, strict=True)
        )
        captured = {
            attribute: tuple(self._at(name, at) for name, at in plan.captured)
            for attribute, plan in bodies.items()
        }
        outputs = tuple(
            self._new_slot(name, location) if name else 0
            for name, location in zip(node.outputs, placement.outputs, strict=True)
        )
        self.steps.append(RunBodies(node, bodies, inputs, captured, outputs, placement))


def _slots_of(step: Step) -> set[int]:
    """The slots that *step* reads or writes."""
    match step:
        case RunPartition():
            return {*step.inputs, *step.outputs}
        case CopyValue():
            return {step.source, step.target}
        case RunBodies():
            return {*step.inputs, *step.outputs}.union(*step.captured.values())
