"""A run of calls that are compiled together, and its plans by input shapes."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug_cpu.compiler.arena import Arenas
from onnxplug_cpu.compiler.call import Abstract, Call
from onnxplug_cpu.compiler.cores import default_workers
from onnxplug_cpu.compiler.jit import Library
from onnxplug_cpu.compiler.link import ArraySpec
from onnxplug_cpu.compiler.operations.elementwise import StepForm
from onnxplug_cpu.compiler.plan import Result, make_plan
from onnxplug_cpu.compiler.program import Program
from onnxplug_cpu.compiler.record import PackedConstants, Recorder

Array: TypeAlias = "np.ndarray[Any, Any]"

MAX_PLANS: Final = 16
"""How many sets of input shapes a segment keeps plans for, least recently used out
first."""


class Compiler(NamedTuple):
    """What the segments of one session share.

    Attributes:
        library: turns kernels into code.
        workers: threads of a run.
        packed: constants in layouts of kernels.
        arenas: memory of runs.
    """

    library: Library
    workers: int
    packed: PackedConstants
    arenas: Arenas

    @classmethod
    def for_threads(cls, threads: int) -> Compiler:
        """A compiler of one session; 0 threads are as many as there are cores."""
        return cls(Library.host(), threads or default_workers(), {}, Arenas())


class LinkedPlan(NamedTuple):
    """A plan that can run.

    Attributes:
        program: ``None`` when nothing has to be computed.
        results: what is returned.
        computed: positions of the results that the program writes.
    """

    program: Program | None
    results: tuple[Result, ...]
    computed: tuple[int, ...]


class Segment:
    """Calls that are compiled together.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise.
        constants: values that never change.
        inputs, outputs: names, in the order of the arrays of :meth:`run`.
        dtypes: of the inputs.
    """

    def __init__(
        self,
        compiler: Compiler,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        constants: Mapping[str, Array],
        inputs: Sequence[str],
        outputs: Sequence[str],
        dtypes: Sequence[np.dtype[Any]],
    ) -> None:
        self.calls = tuple(calls)
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self._compiler = compiler
        self._forms = forms
        self._constants = constants
        self._dtypes = tuple(dtypes)
        self._plans: OrderedDict[tuple[tuple[int, ...], ...], LinkedPlan] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def plan(self, shapes: tuple[tuple[int, ...], ...]) -> LinkedPlan:
        """The plan for inputs of these shapes.

        Raises:
            NotCompiled: the array tier has to compute some call.
            KernelUnavailable: a kernel cannot be compiled here.
        """
        with self._lock:
            plan = self._plans.get(shapes)
            if plan is not None:
                self._plans.move_to_end(shapes)
                return plan
            plan = self._make(shapes)
            self._plans[shapes] = plan
            if len(self._plans) > MAX_PLANS:
                self._plans.popitem(last=False)
            return plan

    def _make(self, shapes: tuple[tuple[int, ...], ...]) -> LinkedPlan:
        compiler = self._compiler
        recorder = Recorder(compiler.library.isa, compiler.workers, compiler.packed)
        inputs = {
            name: Abstract(dtype, shape)
            for name, dtype, shape in zip(
                self.inputs, self._dtypes, shapes, strict=True
            )
        }
        planned = make_plan(
            self.calls, self._forms, self._constants, inputs, self.outputs, recorder
        )
        computed = tuple(
            position
            for position, result in enumerate(planned.results)
            if result.content is None
        )
        program = None
        if planned.recorder.commands:
            program = Program(
                planned.recorder.commands,
                compiler.library,
                compiler.workers,
                n_inputs=len(self.inputs),
                n_outputs=len(self.outputs),
                specs=[
                    *(ArraySpec(value.dtype, value.shape) for value in inputs.values()),
                    *(ArraySpec(result.dtype, result.shape) for result in planned.results),
                ],
                arenas=compiler.arenas,
                checks=planned.recorder.checks,
            )
        return LinkedPlan(program, planned.results, computed)

    def run(
        self, arrays: Sequence[Array], bound: Sequence[Array | None]
    ) -> Sequence[Array]:
        """The outputs.

        Args:
            arrays: the inputs, in C order.
            bound: for each output an array to fill, which is then the result, or
                ``None``.

        Raises:
            OutputMismatch: a bound array has not the output's shape or dtype; nothing
                was written.
        """
        shapes = tuple([array.shape for array in arrays])
        plan = self._plans.get(shapes) or self.plan(shapes)
        outputs = [
            array
            if array is not None and _fits(array, result)
            else np.empty(result.shape, result.dtype)
            for array, result in zip(bound, plan.results, strict=True)
        ]
        if plan.program is not None:
            plan.program.run(arrays, outputs)
        if len(plan.computed) != len(outputs):
            for array, result in zip(outputs, plan.results, strict=True):
                if result.content is not None:
                    array[...] = result.content
        return ep.fill_bound(outputs, bound)


def _fits(array: Array, result: Result) -> bool:
    """Whether a program can write to *array*."""
    return (
        array.flags.c_contiguous
        and array.shape == result.shape
        and array.dtype == result.dtype
    )
