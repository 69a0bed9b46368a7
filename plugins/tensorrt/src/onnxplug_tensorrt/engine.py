"""TensorRT's engines, and the execution contexts that runs take turns in."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug_tensorrt.arrays import DeviceArrays
from onnxplug_tensorrt.callbacks import OutputMemory, new_output_memory
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.plans import Plan
from onnxplug_tensorrt.profiles import Profile


class Port(Record):
    """An input or output of an engine.

    Attributes:
        dtype: ``None``: one that onnxplug has not.
        shape: -1 for sizes that are open.
        on_host: TensorRT reads or writes it on the host.
        shared_with: the input whose memory it is in; empty for memory of its own.
    """

    name: str
    dtype: ep.DataType | None
    shape: tuple[int, ...]
    on_host: bool
    shared_with: str = ""


class EngineSource(Protocol):
    """What has an engine for each run."""

    def open(self) -> Engine:
        """The engine, for whoever asks, who closes it."""

    def close(self) -> None:
        """Nobody asks any more."""


class Engine(EngineSource):
    """An engine in memory of the GPU, which each that uses it opens, and closes.

    Args:
        library: TensorRT, on that GPU.
        plan: what it is restored from.
        shares_memory: contexts compute in memory that runs bring.

    Attributes:
        plan: what is known of it.
        native: TensorRT's.
        inputs, outputs: by name.

    Raises:
        ValueError: TensorRT does not take it.
    """

    def __init__(self, library: Library, plan: Plan, *, shares_memory: bool) -> None:
        self.library = library
        # without TensorRT's bytes, which have all weights
        self.plan = plan._replace(content=b"")
        self.native = library.deserialise(plan.content)
        self.inputs: dict[str, Port] = {}
        self.outputs: dict[str, Port] = {}
        self._shares_memory = shares_memory
        self._idle: deque[Execution] = deque()
        self._lock = new_lock()
        self._users = 0
        self._made = 0
        self._read_ports()

    def _read_ports(self) -> None:
        native, modes = self.native, self.library.tensorrt.TensorIOMode
        host = self.library.tensorrt.TensorLocation.HOST
        shared_with = getattr(native, "get_aliased_input_tensor", None)  # from 11 on
        for index in range(native.num_io_tensors):
            name = native.get_tensor_name(index)
            is_input = native.get_tensor_mode(name) == modes.INPUT
            ports = self.inputs if is_input else self.outputs
            ports[name] = Port(
                name,
                self.library.dtype_of(native.get_tensor_dtype(name)),
                tuple(native.get_tensor_shape(name)),
                native.get_tensor_location(name) == host,
                "" if is_input or shared_with is None else shared_with(name) or "",
            )

    @property
    def profile(self) -> Profile:
        """The shapes that it takes."""
        return self.plan.profile

    def serialised(self) -> Plan:
        """It as a plan, with its weights."""
        with self.library.current:
            return self.plan._replace(content=self.native.serialize())

    @property
    def contexts(self) -> int:
        """How many execution contexts were made."""
        return self._made

    def open(self) -> Engine:
        """It, for one more that uses it."""
        with self._lock:
            self._users += 1
        return self

    def close(self) -> None:
        """Release it, when the last that uses it does; what was queued is done then."""
        with self._lock:
            self._users -= 1
            if self._users:
                return
        with self.library.current:
            while self._idle:
                self._idle.pop().finish()
            self.native = None

    def take(self, stream: ep.Stream, arrays: DeviceArrays) -> Execution:
        """A context that no other run uses, for work on *stream*.

        Raises:
            RuntimeError: TensorRT makes none.
        """
        try:
            found = self._idle.pop()
        except IndexError:
            found = self._new_execution(arrays)
        found.begin(stream)
        return found

    def give_back(self, execution: Execution) -> None:
        """Let other runs use *execution*."""
        self._idle.append(execution)

    def _new_execution(self, arrays: DeviceArrays) -> Execution:
        library = self.library
        strategies = library.tensorrt.ExecutionContextAllocationStrategy
        native = self.native.create_execution_context(
            strategies.USER_MANAGED if self._shares_memory else strategies.STATIC
        )
        if native is None:
            raise RuntimeError(
                f"TensorRT makes no execution context: {library.log.taken()}"
            )
        with self._lock:
            self._made += 1
        return Execution(self, native, arrays, brings_memory=self._shares_memory)


class Execution:
    """One execution context, used by one run at a time.

    Within the library's context.

    Args:
        engine: whose it is.
        native: TensorRT's.
        arrays: makes memory.
        brings_memory: it computes in memory that is taken for each run.
    """

    def __init__(
        self, engine: Engine, native: Any, arrays: DeviceArrays, *, brings_memory: bool
    ) -> None:
        self._engine = engine
        self._native = native
        self._arrays = arrays
        self._brings_memory = brings_memory
        self._stream: ep.Stream | None = None
        self._end: ep.Event | None = None
        self._kept: list[Any] = []
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._growing: dict[str, tuple[OutputMemory, list[Any]]] = {}

    def begin(self, stream: ep.Stream) -> None:
        """Have what is queued on *stream* come after the run before."""
        end, before = self._end, self._stream
        # of which one context has memory for one at a time
        if end is not None and before is not stream and not stream.wait(end):
            end.synchronize()
        self._stream = stream
        self._kept = []

    def ended(self) -> None:
        """Note where the work of this run ends, for which arrays are kept as long as
        their stream needs them."""
        assert self._stream is not None
        self._end = self._stream.record()
        self._kept = []

    def abandon(self) -> None:
        """Release it after a failure, when what it may have queued is done."""
        assert self._stream is not None
        self._release_after(self._stream)

    def finish(self) -> None:
        """Release it, when what it has queued is done."""
        self._release_after(self._end)

    def _release_after(self, work: ep.Stream | ep.Event | None) -> None:
        try:
            if work is not None:
                work.synchronize()
        except Exception as error:  # noqa: BLE001 it is its run's
            ep.raise_interruption(error)
        finally:
            self.close()

    def close(self) -> None:
        """Release it, now and in this thread, whoever else refers to it."""
        self._kept = []
        self._growing.clear()
        self._native = None

    def set_input(self, port: Port, array: Any) -> None:
        """Have TensorRT read *array*, which is on the host if the port is.

        Raises:
            ValueError: TensorRT does not take its shape.
        """
        # no frame of an error keeps TensorRT's context
        shape = tuple(array.shape)
        if self._shapes.get(port.name) != shape:
            if not self._native.set_input_shape(port.name, shape):
                self._shapes.clear()
                raise ValueError(
                    f"TensorRT does not take input {port.name!r} of shape "
                    f"{list(shape)}: {self._engine.library.log.taken()}"
                )
            self._shapes[port.name] = shape
        self._kept.append(array)
        if port.on_host:
            self._native.set_tensor_address(port.name, array.ctypes.data)
        else:
            self._native.set_tensor_address(port.name, self._address(array))

    def output_shape(self, port: Port) -> tuple[int, ...]:
        """The shape that *port* has for the inputs; -1 for sizes that depend on their
        elements."""
        return tuple(self._native.get_tensor_shape(port.name))

    def set_output(self, port: Port, array: Any) -> None:
        """Have TensorRT write *array*, of the port's shape."""
        if self._growing.pop(port.name, None) is not None:
            self._native.set_output_allocator(port.name, None)
        self._kept.append(array)
        if port.on_host:
            self._native.set_tensor_address(port.name, array.ctypes.data)
        else:
            self._native.set_tensor_address(port.name, self._address(array))

    def grow_output(self, port: Port) -> None:
        """Have TensorRT ask for memory, when it knows how much *port* takes."""
        if port.name not in self._growing:
            dtype, rank = port.dtype, len(port.shape)
            assert dtype is not None
            found: list[Any] = []

            def allocate(nbytes: int) -> int:
                count = max(-(-nbytes * 8 // dtype.bits), 1)
                assert self._stream is not None
                shape = (count, *(1,) * (rank - 1))
                found[:] = [self._arrays.new(shape, dtype, self._stream)]
                return self._arrays.address(found[0], self._stream)

            memory = new_output_memory(self._engine.library.tensorrt, allocate)
            self._native.set_output_allocator(port.name, memory)
            self._growing[port.name] = memory, found
        memory, found = self._growing[port.name]
        found.clear()
        memory.begin()

    def grown_output(self, port: Port) -> Any:
        """The array that *port* was written to.

        Raises:
            ValueError: TensorRT asked for less memory than that takes, or none.
        """
        memory, found = self._growing[port.name]
        if memory.shape is None or not found:
            raise ValueError(f"TensorRT did not say the shape of output {port.name!r}")
        array = found.pop()
        assert self._stream is not None
        return self._arrays.first(array, memory.shape, self._stream)

    def queue(self) -> None:
        """Queue the run's work.

        Raises:
            RuntimeError: TensorRT does not.
        """
        stream = self._stream
        assert stream is not None
        lacking = self._native.infer_shapes()
        if lacking:
            raise RuntimeError(f"TensorRT does not know the shapes of {lacking}")
        if self._brings_memory:
            nbytes = max(self._native.update_device_memory_size_for_shapes(), 1)
            memory = self._arrays.new((nbytes,), ep.DataType.UINT8, stream)
            self._native.set_device_memory(self._arrays.address(memory, stream), nbytes)
            self._kept.append(memory)
        if not self._native.execute_async_v3(stream.native_handle):
            for memory, _ in self._growing.values():
                if memory.failure is not None:
                    raise memory.failure
            raise RuntimeError(
                f"TensorRT does not run: {self._engine.library.log.taken()}"
            )

    def _address(self, array: Any) -> int:
        """Where *array* is, or of what stands for one without elements."""
        assert self._stream is not None
        if 0 in array.shape:
            # each tensor of TensorRT's is somewhere, and nowhere that another one is
            array = self._arrays.new((1,), ep.DataType.UINT8, self._stream)
            self._kept.append(array)
        return self._arrays.address(array, self._stream)
