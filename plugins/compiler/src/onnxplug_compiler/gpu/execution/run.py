"""A run of a partition: its values, on the device and on the host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.gpu.execution.array import DeviceArray, new_array
from onnxplug_compiler.gpu.execution.device import (
    Copies,
    Device,
    DeviceLost,
    DeviceStream,
    named,
)


class RunnableSegment(Protocol):
    """What is queued at once: a segment that was compiled here, or elsewhere."""

    @property
    def inputs(self) -> Sequence[str]: ...
    @property
    def outputs(self) -> Sequence[str]: ...
    @property
    def nodes(self) -> Sequence[ep.Node]: ...
    @property
    def read_by_host(self) -> Collection[int]:
        """Positions of inputs that are wanted on the host."""

    def run(
        self,
        arrays: Sequence[DeviceArray | np.ndarray[Any, Any]],
        bound: Sequence[DeviceArray | None],
        stream: DeviceStream,
        profiler: ep.Profiler | None = None,
    ) -> list[Any]:
        """See :meth:`~.segment.Segment.run`."""


class Refused(Exception):
    """A segment is not computed for the shapes of a run.

    Attributes:
        why: with the call, where it is one call's fault.
        segment: of which.
    """

    def __init__(self, why: NotCompiled, segment: Any) -> None:
        super().__init__(str(why))
        self.why = why
        self.segment = segment


class Run:
    """The values of one run.

    Args:
        nodes: the graph's, by index.
        constants: names of those of the partition.
        inputs: values by name.
        context: the host's word on the run; without a stream there, this waits for
            what kernels find.
    """

    def __init__(
        self,
        device: Device,
        partition: ep.Partition,
        nodes: Mapping[int, ep.Node],
        constants: Collection[str],
        inputs: Mapping[str, Any],
        context: ep.RunContext | None,
    ) -> None:
        self._device = device
        self._partition = partition
        self._nodes = nodes
        self._constants = constants
        self._values = dict(inputs)
        self._context = context
        given = None if context is None else context.stream
        assert given is None or isinstance(given, DeviceStream)
        self._is_own = given is None
        self._stream = given or device.new_stream()

    def end(self) -> None:
        """Wait for what nobody else waits for.

        Raises:
            NodeError: a kernel found an error.
        """
        if self._is_own:
            self._stream.synchronize()
            self._stream.close()

    def check_cancelled(self) -> None:
        """Raise :class:`onnxplug.ep.RunCancelled` if the run should go no further."""
        if self._context is not None and self._context.cancelled:
            raise ep.RunCancelled("the run was cancelled")

    def run_segment(self, segment: RunnableSegment, bound: Mapping[str, Any]) -> None:
        """Queue what *segment* does.

        Args:
            bound: arrays to fill by the name of the output.

        Raises:
            Refused: it is not computed for these shapes.
            OutOfMemory, DeviceLost, RuntimeError: with the nodes.
        """
        try:
            arrays = [
                self._on_host(name, keeps=False)
                if position in segment.read_by_host
                else self._on_device(name)
                for position, name in enumerate(segment.inputs)
            ]
            rooms = [bound.get(name) for name in segment.outputs]
            rooms = [r if isinstance(r, DeviceArray) else None for r in rooms]
            profiler = self._context.profiler if self._context else None
            results = segment.run(arrays, rooms, self._stream, profiler)
        except NotCompiled as refusal:
            raise Refused(refusal, segment) from refusal
        except DeviceLost as error:
            raise error.of_nodes(segment.nodes) from error
        except MemoryError as error:
            node = describe(segment.nodes[0])
            raise ep.OutOfMemory.of(error, node, node=node) from error
        except RuntimeError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError) or self._stream.is_capturing:
                raise
            raise RuntimeError(
                f"{named(segment.nodes)}: {error}; list another EP before this one "
                "for it to take them"
            ) from error
        self._values.update(zip(segment.outputs, results, strict=True))

    def run_on_host(self, call: Call) -> None:
        """Compute *call* by its function of arrays.

        Raises:
            NodeError: that raised.
            OutOfMemory: there is none for its results.
            RuntimeError: the run is captured, and the function reads what is on the
                device.
        """
        assert call.function is not None
        arguments = self._arguments(call)
        try:
            with np.errstate(all="ignore"):
                results = call.function(*arguments)
        except Exception as error:
            ep.raise_interruption(error)
            node = self._nodes[call.nodes[0]]
            if isinstance(error, MemoryError):
                what = describe(node)
                raise ep.OutOfMemory.of(error, what, node=node.name or what) from error
            raise ep.NodeError(
                f"{describe(node)} failed: {type(error).__name__}: {error}",
                node=node.name or describe(node),
            ) from error
        if not isinstance(results, tuple):
            results = (results,)
        for name, result in zip(call.outputs, results, strict=False):
            if name is not None:
                self._values[name] = result

    def _arguments(self, call: Call) -> list[Any]:
        arguments: list[Any] = []
        for name in call.inputs:
            if name is None:
                arguments.append(None)
            elif name in self._constants:
                arguments.append(self._partition.constant(name))
            elif call.traits.of_shapes:
                # of the array itself nothing is read
                value = self._values[name]
                dtype = np.dtype(value.dtype)
                arguments.append(np.broadcast_to(np.zeros((), dtype), value.shape))
            else:
                arguments.append(self._on_host(name))
        return arguments

    def _on_device(self, name: str) -> DeviceArray:
        value = self._values[name]
        if isinstance(value, DeviceArray):
            value.check()
            return value
        stream = self._stream
        array = new_array(self._device, tuple(value.shape), value.dtype, stream)
        # also where work is noted: the array is read by it, and written by nobody
        self._device.upload(array.memory, value, stream)
        self._values[name] = array
        return array

    def _on_host(self, name: str, *, keeps: bool = True) -> np.ndarray[Any, Any]:
        """A value on the host, from now on if it *keeps* it there."""
        value = self._values[name]
        if isinstance(value, DeviceArray):
            value.check()
            array = np.empty(value.shape, value.dtype)
            self._stream.fetch(value.memory, array)
            if keeps:
                self._values[name] = array
            return array
        return np.asarray(value)

    def given(
        self, names: Sequence[str], on_host: Collection[str], rooms: Sequence[Any]
    ) -> list[Any]:
        """Outputs where they were said to be, in what is bound to them."""
        return [
            self._given(name, name in on_host, room)
            for name, room in zip(names, rooms, strict=True)
        ]

    def _given(self, name: str, on_host: bool, room: Any | None) -> Any:
        found = self._on_host(name) if on_host else self._on_device(name)
        if room is None or found is room:
            return found
        if tuple(room.shape) != tuple(found.shape) or room.dtype != found.dtype:
            raise ep.OutputMismatch(
                f"output {name!r} is {found.dtype}{list(found.shape)}, but the array "
                f"bound to it is {room.dtype}{list(room.shape)}; bind an array of the "
                "same dtype and shape"
            )
        if isinstance(found, DeviceArray):
            room.check()
            self._stream.queue(Copies(((found.memory, room.memory, found.nbytes),)))
        else:
            np.copyto(room, found)
        return room
