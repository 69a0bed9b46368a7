"""A run of calls that are compiled together, and its plans by input shapes."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock, new_rlock
from onnxplug.authoring.memory_limit import check_left
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.buffers import Check
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.recorder import PackedConstants, Recorder
from onnxplug_compiler.schedule.checks import of_node
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.in_place import outputs_in_place
from onnxplug_compiler.schedule.plan import Plans
from onnxplug_compiler.schedule.planned import Planned
from onnxplug_compiler.schedule.rowwise import row_axes
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.kept_plans import Keeper
from onnxplug_cpu.compiler.linked_plan import LinkedPlan, run_bound
from onnxplug_cpu.compiler.machine.cores import default_workers
from onnxplug_cpu.compiler.parametric_plans import ParametricPlans
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.instrumented import WatchedProgram
from onnxplug_cpu.compiler.runtime.jit import Library, warn_of_amx
from onnxplug_cpu.compiler.runtime.linked import ErrorFound, LinkedProgram
from onnxplug_cpu.compiler.runtime.out_of_memory import out_of_memory
from onnxplug_cpu.compiler.runtime.program import PackingRefused, Program
from onnxplug_cpu.compiler.runtime.template import ArraySpec, Described

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.tracing import TracedPlan

Array: TypeAlias = "np.ndarray[Any, Any]"
Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_OF_ANY_TYPE: Final = np.dtype(np.uint8)

_BETWEEN_LOOKS: Final = 0.05
"""Seconds after which who waits for another's plan looks whether it still should."""

MIN_PLANS: Final = 16
"""How many sets of input shapes a segment keeps plans for, however large they are."""

MAX_PLANS: Final = 512
"""How many it keeps plans for if these are small."""

MAX_COMMANDS: Final = 8192
"""How many commands the plans have that it keeps beside those; one takes about 3 KB."""


class Compiler(Record):
    """What the segments of one session share.

    Attributes:
        library: turns kernels into code.
        target: records commands.
        packed: constants in layouts of kernels.
        arenas: memory of runs.
        weights: where packed constants are shared with other sessions.
    """

    library: Library
    target: CpuTarget
    packed: PackedConstants
    arenas: Arenas
    weights: ep.WeightStore | None = None

    @property
    def workers(self) -> int:
        """Threads of a run."""
        return self.target.workers

    @property
    def packed_bytes(self) -> int:
        """Bytes of all packed forms of weights; one may have several."""
        found = {id(packed): packed for _, packed in list(self.packed.values())}
        return sum(each.nbytes for each in found.values() if each.memory is not None)

    def link(
        self,
        work: Work,
        specs: Sequence[Described],
        n_inputs: int,
        checks: Sequence[Check],
        look: Callable[[], None],
        *,
        keeps: bool = False,
    ) -> Program:
        """The program of *work*, as :meth:`Segment.link` has it.

        Args:
            specs: of the inputs, *n_inputs*, and the outputs.
            checks: what to look at after each run.
            keeps: whether it will be kept.
        """
        noted: dict[str, Any] = {}
        if keeps:
            from onnxplug_cpu.compiler.runtime.keeping import note_filling

            noted["note"] = functools.partial(
                note_filling, library=self.library, workers=self.workers
            )
        return Program(
            work,
            self.library,
            self.workers,
            n_inputs=n_inputs,
            n_outputs=len(specs) - n_inputs,
            specs=specs,
            arenas=self.arenas,
            checks=checks,
            look=look,
            weights=self.weights,
            **noted,
        )

    def close(self) -> None:
        """Give up the memory of runs, and what was packed, but for what is in use."""
        self.packed.clear()
        self.arenas.clear()

    @classmethod
    def for_threads(
        cls,
        threads: int,
        *,
        splits: bool = False,
        largest_tile: int = 0,
        rounds: tuple[tuple[str, int], ...] = (),
        arenas: Arenas | None = None,
        weights: ep.WeightStore | None = None,
    ) -> Compiler:
        """A compiler of one session.

        Args:
            threads: of a run; 0 for as many as there are cores.
            splits: compute products of float32 from bfloat16 terms where that is
                faster.
            largest_tile: of convolutions by transforms, used where faster; 0 for none.
            rounds: of how many terms of bfloat16 factors of products are at most, where
                that is faster, by the dtype of weights.
            arenas: memory of programs, if it is to be taken otherwise than usual.
            weights: where packed constants are shared with other sessions.
        """
        library = Library.host()
        allow_bf16x3: Callable[[], bool] = bool
        if splits and library.isa.tiles:
            allow_bf16x3 = functools.partial(_splits_well, library)
        elif splits:
            warn_of_amx()
        workers = threads or default_workers()
        arenas = Arenas() if arenas is None else arenas
        target = CpuTarget(library.isa, workers, allow_bf16x3, largest_tile, rounds)
        if library.isa.multiplies_byte_tiles:
            well = functools.partial(_multiplies_bytes_well, library)
            target = target._replace(allow_byte_tiles=well)
        return cls(library, target, {}, arenas, weights)


def _splits_well(library: Library) -> bool:
    from onnxplug_cpu.compiler.trial_of_tiles import splits_well

    return splits_well(library)


def _multiplies_bytes_well(library: Library) -> bool:
    from onnxplug_cpu.compiler.trial_of_bytes import multiplies_bytes_well

    return multiplies_bytes_well(library)


class Segment:
    """Calls that are compiled together.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise.
        constants: values that never change.
        inputs, outputs: names, in the order of the arrays of :meth:`run`.
        dtypes: of the inputs; ``None`` for one of unknown type, of which nothing but
            the shape is ever read.
        nodes: the graph's nodes, by index, for profiles.
        keeper: keeps its plans; ``None`` if they are not kept.

    Attributes:
        calls, inputs, outputs: those given.
        planned: the outputs of plans.
        read: positions of inputs whose contents plans are made for.
        in_place: positions of outputs that may be in the memory of an input, each with
            that of this.
    """

    read: tuple[int, ...] = ()

    def __init__(
        self,
        compiler: Compiler,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Constants,
        inputs: Sequence[str],
        outputs: Sequence[str],
        dtypes: Sequence[np.dtype[Any] | None],
        nodes: Mapping[int, ep.Node] = MappingProxyType({}),
        keeper: Keeper | None = None,
    ) -> None:
        self.calls = tuple(calls)
        self.inputs = tuple(inputs)
        self.outputs = self.planned = tuple(outputs)
        self.in_place = outputs_in_place(self.calls, self.inputs, self.outputs)
        self._compiler = compiler
        self._forms = forms
        self._constants = constants
        self._dtypes = tuple(dtypes)
        self._nodes = nodes
        self._keeper = keeper
        self._plans: dict[Shapes, LinkedPlan] = {}
        # that of the only shapes there were
        self._only: LinkedPlan | None = None
        # held by who makes a plan; others that come with the same shapes wait
        self._making: dict[Shapes, threading.RLock] = {}
        self._lock = new_lock()
        self._common: Plans | None = None
        self._parametric = ParametricPlans(
            compiler.library,
            compiler.target,
            compiler.packed,
            compiler.arenas,
            self._dtypes,
            self._tracing,
        )
        self._made = 0

    def plan(
        self, shapes: Shapes, look: Callable[[], None] = lambda: None
    ) -> LinkedPlan:
        """The plan for inputs of these shapes.

        Args:
            look: called now and then while one is made; it may raise.

        Raises:
            NotCompiled: the array tier has to compute some call.
            KernelUnavailable: a kernel cannot be compiled here.
        """
        with self._lock:
            plan = self._plans.get(shapes)
            if plan is not None:
                plan.was_run = True
                return plan
            making = self._making.get(shapes)
            if making is None:
                making = self._making[shapes] = new_rlock()
        # runs of other shapes do not wait
        while not making.acquire(timeout=_BETWEEN_LOOKS):
            look()
        try:
            return self._made_once(shapes, look)
        finally:
            with self._lock:
                self._making.pop(shapes, None)
            making.release()

    def _made_once(self, shapes: Shapes, look: Callable[[], None]) -> LinkedPlan:
        with self._lock:
            plan = self._plans.get(shapes)
        if plan is not None:
            return plan
        traced = None if self.read else self._parametric_plan(shapes)
        made = traced or self._make(shapes, look)
        self._keep(shapes, made)
        program = made.program
        if isinstance(program, Program) and not self.read:
            self._parametric.note(shapes, program, look)
        return made

    def _keep(self, shapes: Shapes, made: LinkedPlan) -> None:
        """Keep a plan that was made, in the place of others."""
        with self._lock:
            self._made += shapes not in self._plans
            self._plans[shapes] = made
            is_only = len(self._plans) == 1 and not self.read
            self._only = made if is_only else None
            while self._are_many():
                self._give_up_one()

    def _parametric_plan(self, shapes: Shapes) -> LinkedPlan | None:
        """The plan for inputs of these shapes, if one before was for all like them."""
        found = self._parametric.find(shapes)
        if found is None:
            return None
        program, results = found
        try:
            check_left(sum(result.nbytes for result in results))
        except MemoryError as error:
            raise out_of_memory((), self._nodes, error) from error
        return LinkedPlan(program, results, self._watched(program))

    def _watched(self, program: LinkedProgram) -> WatchedProgram:
        compiler = self._compiler
        return WatchedProgram(program, compiler.library, compiler.workers, self._nodes)

    def _plan_anew(self, shapes: Shapes) -> None:
        """Make the plan of these shapes of its calls, whatever plan there is."""
        self._keep(shapes, self._make(shapes, lambda: None))

    def _are_many(self) -> bool:
        plans = self._plans
        if len(plans) <= MIN_PLANS:
            return False
        commands = sum(plan.commands for plan in plans.values())
        return len(plans) > MAX_PLANS or commands > MAX_COMMANDS

    def _give_up_one(self) -> None:
        """Give up the oldest plan that was not run since this looked at it before; what
        was run is taken for new (the clock algorithm, Corbató 1968)."""
        *older, _ = self._plans.items()
        for shapes, plan in older:
            del self._plans[shapes]
            if not plan.was_run:
                return
            plan.was_run = False
            self._plans[shapes] = plan
        del self._plans[older[0][0]]

    def is_planned(self, shapes: Shapes) -> bool:
        """Whether there is a plan for inputs of these shapes."""
        return shapes in self._plans

    def row_axes(
        self, few: Shapes, many: Shapes, axes: Mapping[str, int]
    ) -> Mapping[str, int] | None:
        """Which axis of values has the places of *axes*, as
        :func:`~onnxplug_compiler.schedule.rowwise.row_axes` tells.

        Args:
            few, many: the shapes of inputs, for two sizes of these axes.
            axes: of inputs.
        """
        inference = self._common_plans().inference
        found = []
        for shapes in (few, many):
            try:
                inferred = inference.infer(self._abstract(shapes), lambda: None)
            except NotCompiled:
                return None
            values = [inferred.values[slot] for slot in inference.slots.values()]
            pairs = zip(inference.slots, values, strict=True)
            found.append({name: value for name, value in pairs if value is not None})
        return row_axes(self.calls, self._forms, axes, *found)

    def _shapes_of(self, arrays: Sequence[Array]) -> Shapes:
        """What plans are made for."""
        return tuple([array.shape for array in arrays])

    def _abstract(self, shapes: Shapes) -> list[Abstract]:
        """What is known of inputs of these shapes."""
        return [
            Abstract(dtype or _OF_ANY_TYPE, shape)
            for dtype, shape in zip(self._dtypes, shapes, strict=True)
        ]

    @property
    def structures(self) -> int:
        """How many structures its plans so far have."""
        return self._common.made if self._common else 0

    @property
    def notes(self) -> dict[int, str]:
        """What is to be said of nodes, by their index in the graph."""
        return self._common.notes if self._common else {}

    @property
    def plans(self) -> int:
        """How many plans it has made."""
        return self._made

    def close(self) -> None:
        """Give up all plans, and the constants that they read."""
        with self._lock:
            self._plans.clear()
            self._only = self._common = None
        self._parametric.close()

    def _tracing(self) -> TracedPlan:
        """What traces a plan."""
        from onnxplug_compiler.schedule.tracing import TracedPlan

        return TracedPlan(
            self.calls, self._forms, self._constants, self.inputs, self.planned
        )

    def _make(self, shapes: Shapes, look: Callable[[], None]) -> LinkedPlan:
        while True:
            try:
                return self._try_make(shapes, look)
            except PackingRefused:  # what was refused is not tried again
                if self._common is not None:
                    self._common.forget_latest()

    def _try_make(self, shapes: Shapes, look: Callable[[], None]) -> LinkedPlan:
        compiler = self._compiler
        recorder = Recorder(compiler.target, compiler.packed)
        inputs = self._abstract(shapes)
        planned = self._common_plans().make(inputs, recorder, compiler.packed, look)
        program = None
        try:
            check_left(sum(result.nbytes for result in planned.results))
            if planned.work:
                program = self.link(planned, inputs, look)
        except MemoryError as error:
            raise out_of_memory(planned.work.commands, self._nodes, error) from error
        watched = None
        if program is not None:
            if self._keeps:
                assert self._keeper is not None
                self._keeper.keep(shapes, program, planned.results, self.notes)
            watched = self._watched(program)
        return LinkedPlan(program, planned.results, watched)

    @property
    def _keeps(self) -> bool:
        """Whether the plan that is made is to be kept."""
        return self._keeper is not None and self._keeper.wants_more

    def _common_plans(self) -> Plans:
        """What plans have in common."""
        with self._lock:
            if self._common is None:
                self._common = Plans(
                    self.calls, self._forms, self._constants, self.inputs, self.planned
                )
            return self._common

    def link(
        self,
        planned: Planned,
        inputs: Sequence[Abstract],
        look: Callable[[], None],
    ) -> Program:
        """The program of a plan with work: its kernels are compiled, its constants
        packed.

        Args:
            inputs: of what dtypes and shapes they are.
            look: called now and then meanwhile; it may raise.

        Raises:
            KernelUnavailable: a kernel cannot be compiled here.
            PackingRefused: there is no memory for a packed constant.
        """
        specs = [
            *[
                ArraySpec(None, value.shape) if dtype is None else value
                for dtype, value in zip(self._dtypes, inputs, strict=True)
            ],
            *planned.results,
        ]
        checks = [of_node(check, self._nodes) for check in planned.work.checks]
        return self._compiler.link(
            planned.work, specs, len(self.inputs), checks, look, keeps=self._keeps
        )

    def run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[Array | None],
        context: ep.RunContext | None = None,
    ) -> Sequence[Array]:
        """The outputs.

        Args:
            arrays: the inputs, in C order.
            bound: for each output an array to fill, which is then the result, or
                ``None``.
            context: the run, if it can be cancelled, or is taken down.

        Raises:
            OutputMismatch: a bound array has not the output's shape or dtype; nothing
                was written.
            RunCancelled: the run was cancelled.
            OutOfMemory: there is no memory for what is computed.
        """
        try:
            return self._run(arrays, bound, context)
        except ErrorFound:  # which the plan of these shapes alone can tell
            self._plan_anew(self._shapes_of(arrays))
            return self._run(arrays, bound, context)

    def _run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[Array | None],
        context: ep.RunContext | None,
    ) -> Sequence[Array]:
        if context is None or context.profiler is None:
            outputs = self._try_run(arrays, bound, context)
            if outputs is not None:
                return outputs
        shapes = self._shapes_of(arrays)
        if context is None or shapes in self._plans:
            plan = self.plan(shapes)
        else:
            plan = self._plan_watched(shapes, context)
        if context is not None and context.profiler is not None and plan.is_bare:
            self._plan_anew(shapes)
            plan = self.plan(shapes)
        try:
            return run_bound(plan, arrays, bound, context)
        except MemoryError as error:
            commands = plan.program.commands if plan.program is not None else ()
            raise out_of_memory(commands, self._nodes, error) from error

    def _try_run(
        self,
        arrays: Sequence[Array],
        bound: Sequence[Array | None],
        context: ep.RunContext | None,
    ) -> Sequence[Array] | None:
        """As :meth:`LinkedPlan.try_run`, by the plan that there is for *arrays*, if
        nobody has to look at *context* on the way."""
        # a program finds out by itself whether the shapes are its own
        plan = self._only
        if plan is None:
            plan = self._plans.get(self._shapes_of(arrays))
            if plan is None:
                return None
        if context is not None and (plan.is_long or context.cancelled):
            return None
        try:
            return plan.try_run(arrays, bound)
        except MemoryError:  # the plan of other shapes may need more than these
            return None

    def _plan_watched(self, shapes: Shapes, context: ep.RunContext) -> LinkedPlan:
        def look() -> None:
            if context.cancelled:
                raise ep.RunCancelled("the run was cancelled while it was planned")

        started = time.perf_counter_ns()
        plan = self.plan(shapes, look)
        profiler = context.profiler
        if profiler is not None:
            profiler.record(
                "plan for new shapes",
                category="Plan",
                start_ns=started,
                duration_ns=time.perf_counter_ns() - started,
                details={"inputs": dict(zip(self.inputs, shapes, strict=True))},
            )
        return plan
