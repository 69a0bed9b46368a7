"""A partition as an earlier process ran it, without anything that plans."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.memory_limit import check_left
from onnxplug_compiler.schedule.planned import Result
from onnxplug_cpu.compiler.bound_in_place import run_apart
from onnxplug_cpu.compiler.kept_plans import (
    KeptPlans,
    KeptUnit,
    KeptUnits,
    Shapes,
    stated_shapes,
)
from onnxplug_cpu.compiler.linked_plan import Array, LinkedPlan, run_bound
from onnxplug_cpu.compiler.runtime.instrumented import WatchedProgram
from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable, Library
from onnxplug_cpu.compiler.runtime.kept import KeptConstants, NothingKept, restored

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.steps import FindFunction, Step, StepSequence


class KeptSegment:
    """The plans that were kept of a segment.

    Args:
        unit: the segment.
        plans: what is kept of the partition.
        constants: of the session.
    """

    def __init__(
        self, unit: KeptUnit, plans: KeptPlans, constants: KeptConstants
    ) -> None:
        self._unit = unit
        self._kept = plans
        self._constants = constants
        self._plans: dict[Shapes, LinkedPlan] = {}
        self._lock = new_rlock()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of its results."""
        return tuple([name for name in self._unit.outputs if name is not None])

    @property
    def plans(self) -> int:
        """How many plans it has."""
        return len(self._plans)

    def plan(self, shapes: Shapes) -> LinkedPlan:
        """The plan for inputs of these shapes.

        Raises:
            NothingKept: there is none.
        """
        with self._lock:
            plan = self._plans.get(shapes)
            if plan is None:
                plan = self._plans[shapes] = self._restored(shapes)
            return plan

    def _restored(self, shapes: Shapes) -> LinkedPlan:
        constants = self._constants
        unit = self._unit
        kept = self._kept.plan((unit.inputs, unit.outputs), shapes)
        if kept is None or not constants.are_as_kept(kept.program):
            raise NothingKept
        kernels = kept.program.all_kernels
        if not _are_trusted(kernels, constants.library):
            raise NothingKept
        results = [Result(ep.DataType(d).numpy, shape) for d, shape in kept.results]
        try:
            check_left(sum(result.nbytes for result in results))
            # together, so that their code shares pages
            if constants.library.kept_addresses(kernels) is None:
                raise NothingKept
            program = restored(
                kept.program, constants, constants.of(kept.program.constants)
            )
        except (KernelUnavailable, MemoryError):
            raise NothingKept from None  # who plans says what is wrong
        watched = WatchedProgram(program, constants.library, constants.workers, {})
        return LinkedPlan(program, tuple(results), watched)

    def run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[Array | None],
        context: ep.RunContext | None = None,
    ) -> Sequence[Array]:
        """The outputs, as of :meth:`~.segment.Segment.run`.

        Raises:
            NothingKept: there is no plan for *arrays*, or no memory for what it needs.
        """
        shapes = tuple([array.shape for array in arrays])
        plan = self._plans.get(shapes) or self.plan(shapes)
        try:
            if context is None or not (plan.is_long or context.cancelled):
                outputs = plan.try_run(arrays, bound)
                if outputs is not None:
                    return outputs
            return run_bound(plan, arrays, bound, context)
        except MemoryError:
            raise NothingKept from None

    def close(self) -> None:
        """Give up all plans."""
        self._plans = {}


class KeptPartition(ep.CompiledPartition, ep.Prewarmer):
    """A partition that is run as it was kept, and planned when that does not do.

    Args:
        partition: what to run.
        units: how it is split.
        plans: what is kept of it.
        constants: of the session.
        find_function: the array tier's function of a node.
        threads: of what runs on arrays; 0 for no limit.
        make_whole: gives the partition with all that plans.
        make_restorable: says how it is restored without its graph, if it is.

    Raises:
        NothingKept: a plan is missing that the model states the shapes for.
    """

    in_place = True

    def __init__(
        self,
        partition: ep.Partition,
        units: KeptUnits,
        plans: KeptPlans,
        constants: KeptConstants,
        find_function: FindFunction,
        threads: int,
        make_whole: Callable[[], ep.CompiledPartition],
        make_restorable: Callable[[], ep.Restorable | None],
    ) -> None:
        self._plans = plans
        self._make_restorable = make_restorable
        self._nodes = len(partition.nodes)
        self._notes = dict(units.notes)
        self._places = {node.index: n for n, node in enumerate(partition.nodes)}
        self._units = units.units
        self._on_arrays = units.on_arrays
        self._constants = constants
        self._make_whole = make_whole
        self._whole: ep.CompiledPartition | None = None
        self._lock = new_rlock()
        self._segments: list[KeptSegment] = []
        self._numbers = dict(units.numbers)
        self._runner: KeptSegment | StepSequence
        if len(units.units) == 1 and units.units[0].node is None:
            self._runner = self._segment(*units.units)
            return
        # of what is one program nothing of this is needed
        from onnxplug_cpu.compiler.steps import StepSequence

        steps = [self._step(partition, unit, find_function) for unit in units.units]
        notes = {
            id(step.node): self._notes[self._places[unit.node]]
            for step, unit in zip(steps, units.units, strict=True)
            if unit.node is not None and self._places[unit.node] in self._notes
        }
        self._runner = StepSequence(
            partition,
            partition.inputs,
            partition.outputs,
            steps,
            self._numbers,
            notes,
            threads,
        )

    def _segment(self, unit: KeptUnit) -> KeptSegment:
        segment = KeptSegment(unit, self._plans, self._constants)
        if unit.shapes is not None:
            segment.plan(unit.shapes)
        self._segments.append(segment)
        return segment

    def _step(
        self,
        partition: ep.Partition,
        unit: KeptUnit,
        find_function: FindFunction,
    ) -> Step:
        from onnxplug_cpu.compiler.steps import SegmentFunction, Step, step_of

        if unit.node is None:
            run = SegmentFunction(self._segment(unit))
            return step_of(run, unit.inputs, unit.outputs)
        node = partition.nodes[self._places[unit.node]]
        if unit.texts is not None:
            from onnxplug_kernels.ml import encode

            look_up = getattr(encode, unit.look_up)(unit.texts)
            return step_of(look_up, unit.inputs, unit.outputs, node)
        found = find_function(partition.graph, node)
        if isinstance(found, ep.Reason):
            raise NothingKept
        return Step(node, found, computes=True)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Run the units in order."""
        whole = self._whole
        if whole is not None:
            return whole.run(inputs, outputs, context)
        # what is taken down needs commands
        if context is None or context.profiler is None:
            try:
                return self._run(inputs, outputs, context)
            except NothingKept:
                pass
            except ep.NodeError as error:
                if not isinstance(error.__cause__, NothingKept):
                    raise
        return self.whole().run(inputs, outputs, context)

    def _run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        def run(bound: Sequence[Any | None]) -> Sequence[Any]:
            return self._runner.run(inputs, bound, context)

        # of several units others may read what one writes
        pairs = self._units[0].in_place if len(self._units) == 1 else ()
        return run_apart(run, inputs, outputs, dict(pairs))

    def whole(self) -> ep.CompiledPartition:
        """The partition with all that plans, which runs everything from now on."""
        with self._lock:
            if self._whole is None:
                self._whole = self._make_whole()
                self._give_up()
            return self._whole

    def _give_up(self) -> None:
        for segment in self._segments:
            segment.close()
        self._constants.clear()

    @property
    def restorable(self) -> ep.Restorable | None:  # type: ignore[override]
        """How it is restored without its graph, if it was made from one."""
        return self._make_restorable()

    @property
    def prewarmer(self) -> ep.Prewarmer:  # type: ignore[override]
        """Itself."""
        return self

    def prewarm(self, partition: ep.Partition) -> bool:
        """Find the plans for the shapes that *partition* states, or make them."""
        if self._whole is None:
            try:
                for unit, segment in zip(
                    (u for u in self._units if u.node is None),
                    self._segments,
                    strict=True,
                ):
                    shapes = stated_shapes(
                        partition,
                        [self._numbers.get(n, n) for n in unit.inputs if n is not None],
                    )
                    if shapes is None:
                        return False
                    segment.plan(shapes)
                return True
            except NothingKept:
                pass
        prewarmer = self.whole().prewarmer
        return prewarmer is not None and prewarmer.prewarm(partition)

    @property
    def report(self) -> ep.PartitionReport | None:  # type: ignore[override]
        """Which tier each node is in, as it was when the plans were kept."""
        if self._whole is not None:
            return self._whole.report
        tiers = dict.fromkeys(range(self._nodes), "compiled")
        tiers |= dict.fromkeys(self._on_arrays, "array")
        counts = {"plans kept": sum(segment.plans for segment in self._segments)}
        nbytes = self._constants.nbytes
        if nbytes:
            counts["bytes of packed weights"] = nbytes
        notes = {**self._plans.notes(), **self._notes}
        return ep.PartitionReport(tiers=tiers, notes=notes, counts=counts)

    def close(self) -> None:
        """Give up what runs need."""
        with self._lock:
            self._give_up()
            if self._whole is not None:
                self._whole.close()


def _are_trusted(kernels: Collection[str], library: Library) -> bool:
    """Whether products by tiles are right here, if there are any."""
    if not library.isa.tiles:
        return True
    if any("bf16_tiles" in kernel for kernel in kernels):
        from onnxplug_cpu.compiler.trial_of_tiles import splits_well

        if not splits_well(library):
            return False
    if any("byte_tile" in kernel for kernel in kernels):
        from onnxplug_cpu.compiler.trial_of_bytes import multiplies_bytes_well

        return multiplies_bytes_well(library)
    return True
