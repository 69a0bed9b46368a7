"""Where a run of several kernels has its tensors, and in which memory these lie.

What one kernel makes another reads in place: both have it by one address.  A frame
serves a run at a time, and keeps the memory between its kernels for the next one of the
same shapes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_native.functions.device_array import DeviceArray
from onnxplug_native.functions.environment import NOT_CAPTURED
from onnxplug_native.functions.kernel_context import (
    Allocate,
    KernelContext,
    Notes,
    takes,
)
from onnxplug_native.functions.tensor import (
    READY,
    TensorMemory,
    Value,
    new_array,
)

if TYPE_CHECKING:
    from onnxplug_native.device import NativeStream
    from onnxplug_native.kernel import NodeKernel
    from onnxplug_native.session_memory import SessionMemory

Place = tuple[str, bool]
"""A value by its name, and whether it is on the host though the EP has a memory."""


class Copy(Record):
    """A value that is in one memory, and wanted in another as well."""

    source: Place
    target: Place


class Step(Record):
    """A kernel in its partition.

    Attributes:
        kernel: it.
        inputs: where it finds its inputs; ``None`` for one that is left out.
        outputs: where it leaves its outputs; ``None`` for one that nobody wants.
        copies: what is copied when it is done.
        frees: what nothing reads any more when it is done.
    """

    kernel: NodeKernel
    inputs: Sequence[Place | None]
    outputs: Sequence[Place | None]
    copies: Sequence[Copy]
    frees: Sequence[Place]


class Wiring(Record):
    """How the kernels of a partition are connected.

    Attributes:
        steps: in the order in which they are computed.
        inputs: where the partition's inputs are.
        outputs: where its outputs are.
        copies: what is copied before the first step.
        weights: the constants.
        roots: for each output that has the content of another value, as by a Reshape,
            the first one that has it.
    """

    steps: Sequence[Step]
    inputs: Sequence[Place]
    outputs: Sequence[Place]
    copies: Sequence[Copy]
    weights: Mapping[Place, tuple[ep.DataType, Any]]
    roots: Mapping[Place, Place]


def wire(
    kernels: Sequence[NodeKernel],
    inputs: Sequence[str],
    outputs: Sequence[str],
    has_memory: bool,
) -> Wiring:
    """Connect *kernels*, in topological order.

    Args:
        inputs: the partition's; one that any kernel wants on the host is given there.
        outputs: the partition's, each where its kernel leaves it.
        has_memory: the EP has a memory that the host cannot use.
    """
    read: list[list[Place | None]] = []
    weights: dict[Place, tuple[ep.DataType, Any]] = {}
    for kernel in kernels:
        places: list[Place | None] = []
        for slot, name in enumerate(kernel.node.inputs):
            place = (name, slot in kernel.hosted_inputs) if name else None
            if slot in kernel.packed:  # and may be gone, for what the kernel knows
                place = None
            if place is not None and slot in kernel.weights:
                weights[place] = kernel.weights[slot]
            places.append(place)
        read.append(places)
    wanted = {each for places in read for each in places if each is not None}
    homes = {name: (name, has_memory and (name, True) in wanted) for name in inputs}
    given = list(homes.values())
    made: list[list[Place | None]] = []
    for kernel in kernels:
        places = [
            (name, slot in kernel.hosted_outputs) if name else None
            for slot, name in enumerate(kernel.node.outputs)
        ]
        made.append(places)
        homes.update({place[0]: place for place in places if place is not None})
    results = [homes[name] for name in outputs]
    kept = {*given, *results, *weights}
    last = {
        place: number
        for number, places in enumerate(zip(read, made, strict=True))
        for place in (*places[0], *places[1])
        if place is not None and place not in kept
    }

    def copies(places: Iterable[Place | None]) -> list[Copy]:
        others = [(each[0], not each[1]) for each in places if each is not None]
        return [
            Copy((name, not hosted), (name, hosted))
            for name, hosted in others
            if (name, hosted) in wanted and (name, hosted) not in weights
        ]

    steps = [
        Step(
            kernel,
            read[number],
            made[number],
            copies(made[number]),
            [place for place, end in last.items() if end == number],
        )
        for number, kernel in enumerate(kernels)
    ]
    roots = _roots(kernels, read, made)
    return Wiring(steps, given, results, copies(given), weights, roots)


def _roots(
    kernels: Sequence[NodeKernel],
    read: Sequence[Sequence[Place | None]],
    made: Sequence[Sequence[Place | None]],
) -> dict[Place, Place]:
    """See :attr:`Wiring.roots`."""
    roots: dict[Place, Place] = {}
    for kernel, inputs, outputs in zip(kernels, read, made, strict=True):
        for output, source in kernel.aliases.items():
            if 0 <= output < len(outputs) and 0 <= source < len(inputs):
                place, other = outputs[output], inputs[source]
                if place is not None and other is not None and place[1] == other[1]:
                    roots[place] = roots.get(other, other)
    return roots


class Frame:
    """The tensors of one run at a time.

    Attributes:
        values: the tensors, by where they are.
        fed: what a run gives, and its place among the inputs.
        contexts: one for each step.
        frees: for each step what nothing reads any more when it is done.
        results: the partition's outputs.
        is_planned: what is between kernels has its memory before they run.
        failed_at: the step that failed, if one did.
        run: which run it serves, if the host said.
        notes: what happened in it.
        calls: what is called for each step, for compiled code to read.
        graph: the number under which the library is to capture the run.
    """

    graph = NOT_CAPTURED
    calls: Any = None

    def __init__(
        self,
        wiring: Wiring,
        dtype_of: Callable[[str], ep.DataType],
        memory: SessionMemory | None,
        allocate: Allocate,
    ) -> None:
        self._wiring = wiring
        self._memory = memory
        self.values: dict[Place, Value] = {}
        for place, (dtype, array) in wiring.weights.items():
            self.values[place] = Value.of(array, dtype)

        def value(place: Place | None) -> Value | None:
            if place is None:
                return None
            if place not in self.values:
                self.values[place] = Value(dtype_of(place[0]))
            return self.values[place]

        self.notes = Notes()
        self.contexts = [
            KernelContext(
                [value(place) for place in step.inputs],
                [value(place) for place in step.outputs],
                allocate=allocate,
                notes=self.notes,
            )
            for step in wiring.steps
        ]
        for context, step in zip(self.contexts, wiring.steps, strict=True):
            context.hosted = step.kernel.hosted_outputs
            context.allocator = 0 if memory is None else memory.allocator_address
        self.fed = [
            (found, number)
            for number, place in enumerate(wiring.inputs)
            if (found := value(place)) is not None
        ]
        self.results = [self.values[place] for place in wiring.outputs]
        self._made = [
            each
            for context in self.contexts
            for each in context.outputs
            if each is not None
        ]
        self.frees = [
            [self.values[place] for place in step.frees] for step in wiring.steps
        ]
        self._bound_at = self._find_bound()
        self._between = [
            (place, self.values[place])
            for step in wiring.steps
            for place in step.outputs
            if place is not None and place not in wiring.outputs
        ]
        self._copied = [
            self.values[copy.target]
            for copies in (wiring.copies, *(step.copies for step in wiring.steps))
            for copy in copies
        ]
        self._kept: list[TensorMemory] = []
        self._followers: list[tuple[Value, Value, tuple[int, ...]]] = []
        self._followed: list[Value] = []
        self._planned: Any = None
        self._expected: Any = None
        self._result_shapes: list[tuple[int, ...]] = []
        self.is_planned = False
        self.failed_at: int | None = None
        self.run: ep.RunContext | None = None
        self._is_touched = False
        self._stream: NativeStream | None = None

    def _find_bound(self) -> list[tuple[KernelContext, int, int]]:
        """For each of the partition's outputs: the context that makes it, its place
        there, and its place here."""
        return [
            (context, step.outputs.index(place), number)
            for number, place in enumerate(self._wiring.outputs)
            for context, step in zip(self.contexts, self._wiring.steps, strict=True)
            if place in step.outputs
        ]

    def queue_on(self, stream: NativeStream, allocate: Allocate) -> None:
        """Let kernels queue their work on *stream*, for which *allocate* makes
        arrays."""
        self._is_touched, self._stream = True, stream
        for context in self.contexts:
            context.queue_on(stream, allocate)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Those of all that kernels made, in order."""
        return [value.shape for value in self._made]

    @property
    def is_kept(self) -> bool:
        """Whether what is between kernels has its memory until it is released."""
        return self._planned is not None

    @property
    def is_off_plan(self) -> bool:
        """Whether something had another shape than was expected."""
        return self.is_planned and self.notes.is_off_plan

    @property
    def failure(self) -> Exception | None:
        """What went wrong in an entry that a kernel called."""
        return self.notes.failure

    def bind(self, outputs: Sequence[Any | None]) -> None:
        """Let kernels write to the arrays that the caller bound."""
        self._is_touched = True
        for context, index, number in self._bound_at:
            if outputs[number] is not None:
                if not any(each is not None for each in context.bound):
                    context.bound = [None] * len(context.outputs)
                context.bound[index] = outputs[number]  # type: ignore[index]

    def expect(
        self,
        shapes: Sequence[tuple[int, ...]],
        bound: Sequence[Any | None] | None,
    ) -> None:
        """Make room for what kernels made the last time that inputs had their shapes.

        Args:
            shapes: as :attr:`shapes` was.
            bound: what the caller wants the partition's outputs in.
        """
        allocate = self.contexts[0].allocate
        # what is queued may not be done when the next run begins
        if self._stream is None:
            if self._planned is not shapes:
                self._plan(shapes)
            for memory in self._kept:
                memory.state = READY
            self.is_planned = True
        if self._expected is not shapes:
            known = dict(zip(map(id, self._made), shapes, strict=True))
            self._result_shapes = [known[id(value)] for value in self.results]
            self._expected = shapes
        for number, value in enumerate(self.results):
            shape, dtype = self._result_shapes[number], value.dtype
            assert dtype is not None
            array = None if bound is None else bound[number]
            if array is None:
                hosted = self._wiring.outputs[number][1]
                value.set(new_array(dtype, shape) if hosted else allocate(dtype, shape))
            elif tuple(array.shape) == shape and takes(array, dtype):
                value.set(array)
        for value, home, shape in self._followers if self.is_planned else ():
            if home.array is not None:
                value.set(_reshaped(home.array, shape))
                self._followed.append(value)

    def copy(self, copy: Copy, memory: SessionMemory) -> None:
        """Copy a value to where it is wanted as well; on the host it is there then."""
        source, target = self.values[copy.source], self.values[copy.target]
        dtype = source.dtype
        assert dtype is not None
        stream = self._stream
        if copy.target[1]:
            array = new_array(dtype, source.shape)
        else:
            array = self.contexts[0].allocate(dtype, source.shape)
        memory.transfer.copy([(source.result(), array)], stream)
        if stream is not None and copy.target[1]:
            stream.synchronize()
        target.set(array)

    def _plan(self, shapes: Sequence[tuple[int, ...]]) -> None:
        """Give what is between kernels memory, which later ones have again once nothing
        reads it any more; what has the content of another value has its memory."""
        self._forget()
        pools: dict[bool, _Pool] = {False: _Pool(self._new), True: _Pool(_new_on_host)}
        known = dict(zip(map(id, self._made), shapes, strict=True))
        homes = self._homes(known)
        fixed = {*self._wiring.inputs, *self._wiring.outputs, *self._wiring.weights}
        held: dict[Place, Any] = {}
        users: dict[Place, set[Place]] = {}
        for step in self._wiring.steps:
            for place in step.outputs:
                if place is None or place in self._wiring.outputs:
                    continue
                value = self.values[place]
                dtype, shape = value.dtype, known[id(value)]
                if dtype is None or dtype.bits < 8:
                    continue  # whatever makes it gets room when it asks
                home = homes.get(place, place)
                if home in fixed:
                    self._followers.append((value, self.values[home], shape))
                    value.is_planned = True
                    continue
                if home not in held:
                    nbytes = math.prod(shape) * dtype.numpy.itemsize
                    held[home], users[home] = pools[place[1]].take(nbytes), set()
                users[home].add(place)
                value.set(_viewed(held[home], shape, dtype))
                value.is_planned = True
                self._kept.append(value.memory)
            for place in step.frees:
                home = homes.get(place, place)
                if home in held:
                    users[home].discard(place)
                    if not users[home]:
                        pools[place[1]].give_back(held.pop(home))
        self._planned = shapes

    def _homes(self, known: Mapping[int, tuple[int, ...]]) -> dict[Place, Place]:
        """In whose memory values are that have the content of another one.

        That is the one whose content it is, or the output of the partition that has it.

        Args:
            known: the shapes of what kernels make.
        """

        def size(place: Place) -> tuple[ep.DataType | None, int]:
            value = self.values[place]
            return value.dtype, math.prod(known.get(id(value), value.shape))

        wiring = self._wiring
        homes = {
            place: root
            for place, root in wiring.roots.items()
            if size(place) == size(root)
        }
        taken = {*wiring.inputs, *wiring.weights, *wiring.outputs}
        for place in wiring.outputs:
            root = homes.pop(place, None)
            if root is not None and root not in taken:
                taken.add(root)
                homes = {
                    each: place if at == root else at for each, at in homes.items()
                }
                homes[root] = place
        return homes

    def _new(self, nbytes: int) -> Any:
        if self._memory is None:
            return _new_on_host(nbytes)
        return self._memory.allocate(ep.DataType.UINT8, (nbytes,))

    def unplan(self) -> None:
        """Keep nothing of the run before, if this one is not planned: what it left is
        not to be taken for what this one makes."""
        if not self.is_planned and self._planned is not None:
            self._forget()

    def _forget(self) -> None:
        self._planned = None
        self._kept, self._followers = [], []
        for _, value in self._between:
            value.clear()
            value.is_planned = False

    def clear(self, *, failed: bool = False) -> None:
        """Forget the arrays of a run; weights stay, and what is kept unless it
        failed."""
        for fed, _ in self.fed:
            fed.array = None
        is_off_plan, followed = self.is_off_plan, self._followed
        self._followed = []
        for value in (*self.results, *self._copied, *followed):
            value.clear()
        if self._is_touched or failed:
            for context in self.contexts:
                context.clear_run()
        self.notes.clear()
        if failed or not self.is_planned or is_off_plan:
            self._forget()
        self.failed_at = self.run = None
        self.is_planned = self._is_touched = False
        self._stream = None

    def release(self) -> None:
        """Release the tensors and the contexts."""
        self._forget()
        for context in self.contexts:
            context.release()
        for value in self.values.values():
            value.release()


class _Pool:
    """Memory that is handed out again."""

    def __init__(self, new: Callable[[int], Any]) -> None:
        self._new = new
        self._free: list[Any] = []

    def take(self, nbytes: int) -> Any:
        """The smallest that is free and has *nbytes*, or new."""
        fitting = [each for each in self._free if each.nbytes >= nbytes]
        if not fitting:
            return self._new(nbytes)
        best = min(fitting, key=lambda each: int(each.nbytes))
        self._free = [each for each in self._free if each is not best]
        return best

    def give_back(self, memory: Any) -> None:
        """Let it be free."""
        self._free.append(memory)


def _new_on_host(nbytes: int) -> Any:
    return new_array(ep.DataType.UINT8, (nbytes,))


def _reshaped(array: Any, shape: tuple[int, ...]) -> Any:
    """The elements of *array*, in their memory, in another shape."""
    if isinstance(array, DeviceArray):
        return array.viewed(shape, array.dtype)
    return array.reshape(shape)


def _viewed(memory: Any, shape: tuple[int, ...], dtype: ep.DataType) -> Any:
    """The first bytes of *memory* as an array."""
    if isinstance(memory, DeviceArray):
        return memory.viewed(shape, dtype.numpy)
    nbytes = math.prod(shape) * dtype.numpy.itemsize
    return np.ndarray(shape, dtype.numpy, memory[:nbytes])
