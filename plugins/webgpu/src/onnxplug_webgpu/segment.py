"""Calls that are compiled together, and their programs by the shapes of inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.schedule.checks import of_node
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.plan import Plans
from onnxplug_compiler.schedule.planned import Result
from onnxplug_compiler.segmentation import Analysis, Unit
from onnxplug_webgpu.artefact import KeptSegment
from onnxplug_webgpu.context import WebGpuArray, new_array
from onnxplug_webgpu.device import Device
from onnxplug_webgpu.linking import link
from onnxplug_webgpu.options import Settings
from onnxplug_webgpu.program import Program, RefusedLaunch, Weights
from onnxplug_webgpu.streams import WebGpuStream
from onnxplug_webgpu.target import WebGpuTarget

Shapes: TypeAlias = tuple[tuple[int, ...], ...]

_OF_ANY_TYPE: Final = np.dtype(np.uint8)

_MOST_PLANS: Final = 64
"""Sets of input shapes for which a segment keeps programs."""


class Plan(Record):
    """What runs for some shapes.

    Attributes:
        program: ``None`` where nothing has to be computed.
        results: what it gives.
    """

    program: Program | None
    results: tuple[Result, ...]


class Segment:
    """A unit that is compiled.

    Args:
        device, weights: where it runs.
        unit: its calls.
        dtypes: of the inputs; ``None`` for one of which nothing but the shape is read.
        nodes: the graph's, by index.

    Attributes:
        inputs, outputs: names of values.
        nodes: what it computes.
    """

    def __init__(
        self,
        device: Device,
        settings: Settings,
        weights: Weights,
        unit: Unit,
        analysis: Analysis,
        constants: Constants,
        dtypes: Sequence[np.dtype[Any] | None],
        nodes: Mapping[int, ep.Node],
    ) -> None:
        self.unit = unit
        self.inputs = tuple(unit.inputs)
        self.outputs = tuple(unit.outputs)
        self.nodes = [nodes[index] for call in unit.calls for index in call.nodes]
        self._device = device
        self._mode = settings.mode
        self._weights = weights
        self._dtypes = dtypes
        self._nodes = nodes
        self._target = WebGpuTarget(prefers_channels_last=settings.channels_last)
        self._common = Plans(
            unit.calls, analysis.forms, constants, unit.inputs, unit.outputs
        )
        self._plans: OrderedDict[Shapes, Plan] = OrderedDict()
        self._generation = device.generation
        self._lock = new_rlock()

    @property
    def plans(self) -> int:
        """How many are kept."""
        return len(self._plans)

    def plan(self, shapes: Shapes, look: Callable[[], None] = lambda: None) -> Plan:
        """The plan for inputs of these shapes.

        Args:
            look: called now and then while one is made; it may raise.

        Raises:
            NotCompiled: some call is not computed for them.
        """
        self._device.ensure()
        with self._lock:
            if self._generation != self._device.generation:
                # programs are of a device that was lost
                self._plans.clear()
                self._generation = self._device.generation
            plan = self._plans.get(shapes)
            if plan is None:
                plan = self._plans[shapes] = self._made(shapes, look)
                if len(self._plans) > _MOST_PLANS:
                    self._plans.popitem(last=False)
            else:
                self._plans.move_to_end(shapes)
            return plan

    def _made(self, shapes: Shapes, look: Callable[[], None]) -> Plan:
        inputs = [
            Abstract(dtype or _OF_ANY_TYPE, shape)
            for dtype, shape in zip(self._dtypes, shapes, strict=True)
        ]
        recorder = Recorder(self._target)
        planned = self._common.make(inputs, recorder, {}, look)
        if not planned.work:
            return Plan(None, planned.results)
        checks = [of_node(check, self._nodes) for check in planned.work.checks]
        try:
            linked = link(planned.work, checks, look)
            program = Program(linked, self._device, self._weights, look, self._mode)
        except RefusedLaunch as error:
            raise NotCompiled(str(error), self._call_of(error.nodes)) from error
        except (ValueError, MemoryError) as error:
            if isinstance(error, ep.OnnxplugError):
                raise
            raise NotCompiled(str(error)) from error
        return Plan(program, planned.results)

    def _call_of(self, nodes: Sequence[int]) -> Call | None:
        """The call that computes one of these nodes."""
        calls = self.unit.calls
        return next((call for call in calls if set(call.nodes) & set(nodes)), None)

    def run(
        self,
        arrays: Sequence[WebGpuArray],
        bound: Sequence[WebGpuArray | None],
        stream: WebGpuStream,
    ) -> list[WebGpuArray | np.ndarray[Any, Any]]:
        """Queue the work on *arrays*; the results, those that follow from shapes on the
        host.

        Args:
            bound: for each output an array to fill, or ``None``; one that is an input,
                too, is left as it is.
            stream: whoever waits for it is told what kernels found.

        Raises:
            NotCompiled: some call is not computed for these shapes.
            DeviceLost: the device is, or the one was that *arrays* are in.
            OutputMismatch: a bound array is of another shape or dtype.
        """
        plan = self.plan(tuple(tuple(array.shape) for array in arrays))
        return run_plan(self._device, plan, arrays, bound, stream, self._mode)

    def kept(self, shapes: Shapes) -> KeptSegment:
        """The segment with its plan for inputs of these shapes, as plain data.

        Raises:
            ValueError: nothing is known of the elements of an input.
        """
        if None in self._dtypes:
            raise ValueError("of an input nothing but the shape is read")
        plan = self.plan(shapes)
        given = tuple(
            Result(dtype, shape)
            for dtype, shape in zip(self._dtypes, shapes, strict=True)
            if dtype is not None
        )
        linked = None if plan.program is None else plan.program.linked
        return KeptSegment(self.inputs, self.outputs, given, plan.results, linked)

    def close(self) -> None:
        """Give up all programs."""
        with self._lock:
            self._plans.clear()


def _check(bound: Sequence[WebGpuArray | None], results: Sequence[Result]) -> None:
    for position, (array, result) in enumerate(zip(bound, results, strict=True)):
        if array is not None and (
            tuple(array.shape) != result.shape or array.dtype != result.dtype
        ):
            raise ep.OutputMismatch(
                f"output {position} is {result.dtype}{list(result.shape)}, but the "
                f"array bound to it is {array.dtype}{list(array.shape)}; bind an array "
                "of the same dtype and shape"
            )


def run_plan(
    device: Device,
    plan: Plan,
    arrays: Sequence[WebGpuArray],
    bound: Sequence[WebGpuArray | None],
    stream: WebGpuStream,
    mode: str,
) -> list[WebGpuArray | np.ndarray[Any, Any]]:
    """Queue *plan*; see :meth:`Segment.run`."""
    _check(bound, plan.results)
    read = {array.memory.serial for array in arrays}
    made: list[WebGpuArray | np.ndarray[Any, Any]] = []
    for array, result in zip(bound, plan.results, strict=True):
        if result.content is not None:
            made.append(np.array(result.content))
        elif array is None or array.memory.serial in read:
            made.append(new_array(device, result.shape, result.dtype, mode))
        else:
            made.append(array)
    if plan.program is not None:
        memories = [
            each.memory if isinstance(each, WebGpuArray) else None for each in made
        ]
        plan.program.run([array.memory for array in arrays], memories, stream)
    return made
