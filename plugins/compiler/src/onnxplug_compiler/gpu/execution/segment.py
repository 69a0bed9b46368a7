"""Calls that are compiled together, and their programs by the shapes of inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.gpu.execution.array import DeviceArray, new_array
from onnxplug_compiler.gpu.execution.artefact import KeptSegment
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.device import Copies, Device, DeviceStream, Memory
from onnxplug_compiler.gpu.execution.linking import RefusedLaunch, link
from onnxplug_compiler.gpu.execution.program import Program, Weights
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.schedule.checks import of_node
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.floors import Floors
from onnxplug_compiler.schedule.plan import Plans
from onnxplug_compiler.schedule.planned import Result
from onnxplug_compiler.segmentation import Analysis, Unit

Shapes: TypeAlias = tuple[tuple[int, ...], ...]
Array: TypeAlias = DeviceArray | np.ndarray[Any, Any]
Contents: TypeAlias = Mapping[int, np.ndarray[Any, Any]]
"""Those of inputs on the host, by position."""

_OF_ANY_TYPE: Final = np.dtype(np.uint8)

FEWEST_PLANS: Final = 64
"""Sets of input shapes, and of contents, for which a segment keeps programs
whatever they take."""

MOST_PLANS: Final = 512
"""Those for which it keeps small ones."""

MOST_STEPS: Final = 1 << 16
"""Steps of all of those, of which each takes about a kilobyte: 400 plans of a decoder
of twelve layers."""

_ROOM: Final = 1 << 12
"""Bytes that are kept with a result in vain at most, unless it is half of them."""


class Plan(Record):
    """What runs for some shapes.

    Attributes:
        program: ``None`` where nothing has to be computed.
        results: what it gives.
    """

    program: Program | None
    results: tuple[Result, ...]

    @property
    def steps(self) -> int:
        """How many it has."""
        return 0 if self.program is None else len(self.program.linked.steps)


class Segment:
    """A unit that is compiled.

    Args:
        device, weights: where it runs.
        unit: its calls.
        dtypes: of the inputs; ``None`` for one of which nothing but the shape is read.
        nodes: the graph's, by index.
        read_by_host: names of values whose contents plans are made for.

    Attributes:
        inputs, outputs: names of values.
        nodes: what it computes.
        read_by_host: positions of inputs that are on the host.
    """

    def __init__(
        self,
        device: Device,
        backend: Backend,
        weights: Weights,
        unit: Unit,
        analysis: Analysis,
        constants: Constants,
        dtypes: Sequence[np.dtype[Any] | None],
        nodes: Mapping[int, ep.Node],
        read_by_host: Collection[str],
    ) -> None:
        self.unit = unit
        self.read_by_host = tuple(
            number for number, name in enumerate(unit.inputs) if name in read_by_host
        )
        self.inputs = tuple(unit.inputs)
        self.outputs = tuple(unit.outputs)
        self.nodes = [nodes[index] for call in unit.calls for index in call.nodes]
        self._device = device
        self._mode = backend.mode
        self._weights = weights
        self._dtypes = dtypes
        self._nodes = nodes
        self._target = backend.target
        counts = tuple({each.number: None for each in unit.counted.values()})
        self._counted = tuple(
            (position, len(unit.outputs) + counts.index(found.number), found.axis)
            for position, name in enumerate(unit.outputs)
            if (found := unit.counted.get(name)) is not None
        )
        self._floors = Floors(unit.calls, unit.inputs)
        outputs = (*unit.outputs, *counts)
        self._common = Plans(
            unit.calls, analysis.forms, constants, unit.inputs, outputs
        )
        self._plans: OrderedDict[Hashable, Plan] = OrderedDict()
        self._steps = 0
        self._generation = device.generation
        self._lock = new_rlock()

    @property
    def notes(self) -> dict[int, str]:
        """What is to be said of nodes, by their index."""
        return self._common.notes

    @property
    def plans(self) -> int:
        """How many are kept."""
        return len(self._plans)

    def plan(
        self,
        shapes: Shapes,
        contents: Contents,
        look: Callable[[], None] = lambda: None,
    ) -> Plan:
        """The plan for inputs of these shapes.

        Args:
            contents: of the inputs that are on the host.
            look: called now and then while one is made; it may raise.

        Raises:
            NotCompiled: some call is not computed for them.
            MemoryError: there is no memory for a constant.
        """
        self._device.ensure()
        contents = {
            position: self._floors.raised(position, array, shapes)
            for position, array in contents.items()
        }
        key = shapes, tuple(array.tobytes() for array in contents.values())
        with self._lock:
            if self._generation != self._device.generation:
                # programs are of a device that was lost
                self._plans.clear()
                self._steps = 0
                self._generation = self._device.generation
            plan = self._plans.get(key)
            if plan is None:
                plan = self._plans[key] = self._made(shapes, contents, look)
                self._steps += plan.steps
                self._forget()
            else:
                self._plans.move_to_end(key)
            return plan

    def _forget(self) -> None:
        """Give up the plans that were not asked for longest, if there are too many."""
        while len(self._plans) > FEWEST_PLANS and (
            len(self._plans) > MOST_PLANS or self._steps > MOST_STEPS
        ):
            _, plan = self._plans.popitem(last=False)
            self._steps -= plan.steps

    def _made(
        self, shapes: Shapes, contents: Contents, look: Callable[[], None]
    ) -> Plan:
        inputs = [
            Abstract(dtype or _OF_ANY_TYPE, shape)
            for dtype, shape in zip(self._dtypes, shapes, strict=True)
        ]
        for position, array in contents.items():
            inputs[position] = Abstract.known(array.copy(), varies=True)
        recorder = Recorder(self._target, self._weights.packed)
        planned = self._common.make(inputs, recorder, {}, look)
        if not planned.work:
            return Plan(None, planned.results)
        checks = [of_node(check, self._nodes) for check in planned.work.checks]
        try:
            linked = link(planned.work, checks, look, self._device)
            program = Program(linked, self._device, self._weights, look, self._mode)
        except RefusedLaunch as error:
            raise NotCompiled(str(error), self._call_of(error.nodes)) from error
        except ValueError as error:
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
        arrays: Sequence[Array],
        bound: Sequence[DeviceArray | None],
        stream: DeviceStream,
        profiler: ep.Profiler | None = None,
    ) -> list[Array]:
        """Queue the work on *arrays*; the results, those that follow from shapes on the
        host.  Sizes that depend on elements are waited for.

        Args:
            arrays: on the host those that are read there, and only these.
            bound: for each output an array to fill, or ``None``; left as it is one
                whose size depends on elements, or that is an input, too, and is not
                updated in place.
            stream: whoever waits for it is told what kernels found.
            profiler: records each launch.

        Raises:
            NotCompiled: some call is not computed for these shapes.
            MemoryError: there is no memory for a constant, or between nodes.
            DeviceLost: the device is, or the one was that *arrays* are in.
            OutputMismatch: a bound array is of another shape or dtype.
            RuntimeError: the stream captures, and sizes depend on elements.
        """
        contents = {
            position: array
            for position in self.read_by_host
            if isinstance(array := arrays[position], np.ndarray)
        }
        plan = self.plan(tuple(tuple(array.shape) for array in arrays), contents)
        rooms = list(bound)
        for position, *_ in self._counted:
            rooms[position] = None
        rooms += [None] * (len(plan.results) - len(rooms))
        made = run_plan(self._device, plan, arrays, rooms, stream, self._mode, profiler)
        for position, count, axis in self._counted:
            made[position] = self._filled(made[position], made[count], axis, stream)
        return made[: len(self.outputs)]

    def _filled(
        self, whole: Array, number: Array, axis: int, stream: DeviceStream
    ) -> DeviceArray:
        """The part of an output that is filled: so many places along an axis, one after
        another."""
        assert isinstance(whole, DeviceArray) and isinstance(number, DeviceArray)
        found = np.empty(number.shape, number.dtype)
        stream.fetch(number.memory, found)
        shape = list(whole.shape)
        shape[axis] = int(found.reshape(-1)[0])
        kept: DeviceArray = self._device.array_type(
            self._device, whole.memory, tuple(shape), whole.dtype
        )
        if whole.nbytes - kept.nbytes <= max(_ROOM, kept.nbytes):
            return kept
        # or the rest would stay in memory
        part = new_array(self._device, kept.shape, kept.dtype, stream, self._mode)
        stream.queue(Copies(((whole.memory, part.memory, kept.nbytes),)))
        return part

    def kept(self, shapes: Shapes) -> KeptSegment:
        """The segment with its plan for inputs of these shapes, as plain data.

        Raises:
            ValueError: nothing is known of the elements of an input, or the content of
                one, or an output's size, is known in runs only.
        """
        if self.read_by_host or self._counted:
            raise ValueError("sizes or contents of values are known in runs only")
        if None in self._dtypes:
            raise ValueError("of an input nothing but the shape is read")
        plan = self.plan(shapes, {})
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
            self._steps = 0


def _check(bound: Sequence[DeviceArray | None], results: Sequence[Result]) -> None:
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
    arrays: Sequence[Array],
    bound: Sequence[DeviceArray | None],
    stream: DeviceStream,
    mode: str,
    profiler: ep.Profiler | None = None,
) -> list[Array]:
    """Queue *plan*; see :meth:`Segment.run`."""
    _check(bound, plan.results)
    inputs = [_memory(device, plan, n, each, stream) for n, each in enumerate(arrays)]
    made: list[Array] = []
    for position, (array, result) in enumerate(zip(bound, plan.results, strict=True)):
        if result.content is not None:
            made.append(np.array(result.content))
        elif array is None or not _may_fill(plan, position, array.memory, inputs):
            made.append(new_array(device, result.shape, result.dtype, stream, mode))
        else:
            made.append(array)
    if plan.program is not None:
        memories = [
            each.memory if isinstance(each, DeviceArray) else None for each in made
        ]
        plan.program.run(inputs, memories, stream, profiler)
    return made


def _may_fill(
    plan: Plan, output: int, memory: Memory, inputs: Sequence[Memory | None]
) -> bool:
    """Whether an output may be in *memory*: that of no input, or in place of one."""
    shared = [
        position
        for position, each in enumerate(inputs)
        if each is not None and each.serial == memory.serial
    ]
    if not shared:
        return True
    program = plan.program
    return (
        len(shared) == 1
        and program is not None
        and (output, shared[0]) in program.in_place
        and memory is inputs[shared[0]]
    )


def _memory(
    device: Device, plan: Plan, position: int, array: Array, stream: DeviceStream
) -> Memory | None:
    """Where an input is; ``None`` of one on the host that no kernel reads."""
    if isinstance(array, DeviceArray):
        return array.memory
    if plan.program is None or position not in plan.program.linked.inputs:
        return None
    placed = new_array(device, array.shape, array.dtype, stream)
    device.upload(placed.memory, array, stream)
    return placed.memory
