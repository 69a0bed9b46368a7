"""The runtime, engines and execution contexts."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from plugins.cuda.tests.standin.machine import CudaError, Work, merge

import onnxplug
from onnxplug.ep import DataType

from . import enums
from .building import IHostMemory, fits, read_plan
from .parsing import READ_AS_SHAPES, shape_of

NAMES = {
    DataType.FLOAT32: "FLOAT",
    DataType.FLOAT16: "HALF",
    DataType.BFLOAT16: "BF16",
    DataType.INT8: "INT8",
    DataType.INT32: "INT32",
    DataType.INT64: "INT64",
    DataType.BOOL: "BOOL",
    DataType.UINT8: "UINT8",
    DataType.FLOAT8_E4M3FN: "FP8",
}

ACTIVATIONS = 512
"""Bytes that a context computes in, of whatever engine."""


class Runtime:
    world: Any

    def __init__(self, logger: Any) -> None:
        assert getattr(logger, "_is_begun", True)
        self._logger = logger

    def deserialize_cuda_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        world = self.world
        world.check_context("deserialize_cuda_engine")
        world.counts["deserialised"] += 1
        try:
            facts, model = read_plan(serialized_engine)
        except ValueError as error:
            return self._fail(str(error))
        if facts["version"] != world.__version__:
            return self._fail(f"built by TensorRT {facts['version']}")
        here = [world.cuda.name, *world.cuda.capability]
        if facts["device"] != here and not facts["portable"]:
            return self._fail(f"built for {facts['device']}")
        engine: ICudaEngine = world.ICudaEngine(facts, model, self._logger)
        engine._plan = bytes(serialized_engine)
        return engine

    def _fail(self, what: str) -> None:
        self._logger.log(enums.Severity.ERROR, what)


class ICudaEngine:
    world: Any

    def __init__(
        self, facts: Mapping[str, Any], model: onnx.ModelProto, logger: Any
    ) -> None:
        self._logger = logger
        self._plan = b""
        self.facts = facts
        self.model = model
        graph = model.graph
        self._values = {value.name: value for value in (*graph.input, *graph.output)}
        self._names = [value.name for value in (*graph.input, *graph.output)]
        self._inputs = {value.name for value in graph.input}
        self.host = {
            node.input[index]
            for node in graph.node
            for index in READ_AS_SHAPES.get(node.op_type, ())
            if index < len(node.input) and node.input[index] in self._inputs
        }
        self._lock = threading.Lock()
        self._session: onnxplug.InferenceSession | None = None
        self.world.engines.add(self)

    def fail(self, what: str) -> bool:
        self._logger.log(enums.Severity.ERROR, what)
        return False

    def fill(self, weights: Mapping[str, onnx.TensorProto]) -> None:
        for tensor in self.model.graph.initializer:
            tensor.CopyFrom(weights[tensor.name])

    def compute(self, feeds: Mapping[str, Any]) -> list[Any]:
        with self._lock:
            if self._session is None:
                self._session = onnxplug.InferenceSession(
                    self.model, providers=["CPUExecutionProvider"]
                )
        return list(self._session.run(None, dict(feeds)))

    def size(self, name: str, shape: tuple[int, ...]) -> int:
        count = int(np.prod(shape, dtype=int))
        return count * int(self.dtype(name).numpy.itemsize)

    def read(self, feeds: Mapping[str, tuple[int, tuple[int, ...]]]) -> dict[str, Any]:
        found = {}
        for name, (address, shape) in feeds.items():
            nbytes = self.size(name, shape)
            room = self.world.machine.bytes(address, nbytes, f"TensorRT, of {name},")
            dtype = self.dtype(name).numpy
            found[name] = np.frombuffer(room.tobytes(), dtype).reshape(shape)
        return found

    @property
    def num_io_tensors(self) -> int:
        return len(self._names)

    @property
    def device_memory_size_v2(self) -> int:
        return ACTIVATIONS

    def get_tensor_name(self, index: int) -> str:
        return self._names[index]

    def get_tensor_mode(self, name: str) -> enums.TensorIOMode:
        modes = enums.TensorIOMode
        return modes.INPUT if name in self._inputs else modes.OUTPUT

    def get_tensor_dtype(self, name: str) -> enums.DataType:
        return enums.DataType[NAMES[self.dtype(name)]]

    def dtype(self, name: str) -> DataType:
        return DataType.from_onnx(self._values[name].type.tensor_type.elem_type)

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return shape_of(self._values[name])

    def get_tensor_location(self, name: str) -> enums.TensorLocation:
        places = enums.TensorLocation
        return places.HOST if name in self.host else places.DEVICE

    def serialize(self) -> IHostMemory:
        return IHostMemory(self._plan)

    def get_tensor_format(self, name: str, profile_index: int) -> enums.TensorFormat:
        return enums.TensorFormat.LINEAR

    def is_shape_inference_io(self, name: str) -> bool:
        return name in self.host

    def get_aliased_input_tensor(self, name: str) -> str | None:
        found: str | None = self.world.aliases.get(name)
        return found

    def create_execution_context(
        self,
        strategy: enums.ExecutionContextAllocationStrategy = (
            enums.ExecutionContextAllocationStrategy.STATIC
        ),
    ) -> IExecutionContext:
        self.world.check_context("create_execution_context")
        self.world.counts["contexts"] += 1
        context: IExecutionContext = self.world.IExecutionContext(self, strategy)
        return context


class IExecutionContext:
    world: Any

    def __init__(self, engine: ICudaEngine, strategy: int) -> None:
        self.engine = engine
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}
        self._allocators: dict[str, Any] = {}
        self._user: int | None = None
        strategies = enums.ExecutionContextAllocationStrategy
        self._is_own = strategy == strategies.STATIC
        machine = self.world.machine
        self._memory = (
            machine.allocate(ACTIVATIONS, on_host=False) if self._is_own else 0
        )
        for index in range(engine.num_io_tensors):
            name = engine.get_tensor_name(index)
            shape = engine.get_tensor_shape(name)
            is_input = engine.get_tensor_mode(name) == enums.TensorIOMode.INPUT
            if is_input and -1 not in shape:
                self._shapes[name] = shape

    def __del__(self) -> None:
        machine = self.world.machine
        if self._is_own and machine.region(self._memory) and not machine.fault:
            if not self.world.cuda.pushed:
                machine.violate("a context is destroyed without CUDA's context")
            machine.free(self._memory)

    @property
    def active_optimization_profile(self) -> int:
        return 0

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        stated = self.engine.get_tensor_shape(name)
        low, _, high = self.engine.facts["profile"].get(name, (shape, shape, shape))
        within = all(a <= b <= c for a, b, c in zip(low, shape, high, strict=False))
        if not fits(tuple(shape), stated) or not within:
            return False
        self._shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, memory: int) -> bool:
        self._addresses[name] = memory
        return True

    def get_tensor_address(self, name: str) -> int:
        return self._addresses.get(name, 0)

    def set_output_allocator(self, name: str, output_allocator: Any) -> bool:
        if output_allocator is None:
            self._allocators.pop(name, None)
        else:
            assert output_allocator._is_begun
            self._allocators[name] = output_allocator
        return True

    def set_device_memory(self, memory: int, size: int) -> None:
        assert not self._is_own
        assert memory % 256 == 0 and size >= ACTIVATIONS
        self._memory = memory

    def update_device_memory_size_for_shapes(self) -> int:
        assert not self.infer_shapes()
        return ACTIVATIONS

    def infer_shapes(self) -> list[str]:
        names = map(self.engine.get_tensor_name, range(self.engine.num_io_tensors))
        return [
            name
            for name in names
            if self.engine.get_tensor_mode(name) == enums.TensorIOMode.INPUT
            and (
                name not in self._shapes
                or (name in self.engine.host and name not in self._addresses)
            )
        ]

    def _host_values(self) -> dict[str, Any]:
        """What is in inputs that are shapes, as it is now."""
        found = {}
        for name in self.engine.host:
            dtype = self.engine.dtype(name).numpy
            count = int(np.prod(self._shapes[name], dtype=int))
            kind = np.ctypeslib.as_ctypes_type(dtype)
            room = (kind * count).from_address(self._addresses[name])
            found[name] = np.array(room, dtype).reshape(self._shapes[name])
        return found

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        if self.engine.get_tensor_mode(name) == enums.TensorIOMode.INPUT:
            return self._shapes.get(name, self.engine.get_tensor_shape(name))
        model = onnx.ModelProto()
        model.CopyFrom(self.engine.model)
        for value in model.graph.input:
            known = self._shapes.get(value.name)
            if known is not None:
                for dim, size in zip(
                    value.type.tensor_type.shape.dim, known, strict=True
                ):
                    dim.dim_value = size
        for value in model.graph.output:
            value.type.tensor_type.ClearField("shape")
        for host, content in self._host_values().items():
            model.graph.initializer.append(onnx.numpy_helper.from_array(content, host))
        found = onnx.shape_inference.infer_shapes(model, data_prop=True)
        (value,) = [each for each in found.graph.output if each.name == name]
        rank = len(self.engine.get_tensor_shape(name))
        return (
            shape_of(value)
            if value.type.tensor_type.HasField("shape")
            else ((-1,) * rank)
        )

    def execute_async_v3(self, stream_handle: int) -> bool:
        world, engine = self.world, self.engine
        machine = world.machine
        world.check_context("execute_async_v3")
        try:
            machine.called("execute_async_v3")
        except CudaError as error:
            return engine.fail(str(error))
        if self._user not in (None, threading.get_ident()):
            machine.violate("two threads use an execution context at once")
        self._user = threading.get_ident()
        try:
            if self.infer_shapes() or not self._memory:
                return engine.fail("shapes or memory are not set")
            names = map(engine.get_tensor_name, range(engine.num_io_tensors))
            outputs = [
                name
                for name in names
                if engine.get_tensor_mode(name) == enums.TensorIOMode.OUTPUT
            ]
            unknown = [name for name in outputs if -1 in self.get_tensor_shape(name)]
            if unknown:
                return self._run_and_wait(outputs, stream_handle)
            for name in outputs:
                shape = self.get_tensor_shape(name)
                if not self._place(name, shape, 0, stream_handle):
                    return engine.fail(f"there is no memory for {name}")
            self._queue(outputs, stream_handle)
            return True
        finally:
            self._user = None

    def _place(self, name: str, shape: tuple[int, ...], more: int, stream: int) -> bool:
        """Ask an output's allocator, if it has one; whether there is memory."""
        allocator = self._allocators.get(name)
        if allocator is not None:
            size = self.engine.size(name, shape) + more
            found = allocator.reallocate_output_async(name, 0, size, 256, stream)
            if not found:
                return False
            self._addresses[name] = found
            allocator.notify_shape(name, shape)
        return bool(self._addresses.get(name))

    def _feeds(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """The addresses and shapes of inputs on the device."""
        return {
            name: (self._addresses[name], shape)
            for name, shape in self._shapes.items()
            if name not in self.engine.host
        }

    def _ranges(
        self, feeds: Mapping[str, tuple[int, tuple[int, ...]]], outputs: list[str],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> list[tuple[int, int, bool]]:  # fmt: skip
        found = [(self._memory, self._memory + ACTIVATIONS, True)]
        for name, (address, shape) in feeds.items():
            found.append((address, address + self.engine.size(name, shape), False))
        for name in outputs:
            begin = self._addresses[name]
            found.append((begin, begin + self.engine.size(name, shapes[name]), True))
        return found

    def _queue(self, outputs: list[str], stream_handle: int) -> None:
        # what is queued keeps no context, as whatever thread does it last would end it
        machine, engine = self.world.machine, self.engine
        feeds, hosts = self._feeds(), self._host_values()
        places = {name: self._addresses[name] for name in outputs}
        shapes = {name: self.get_tensor_shape(name) for name in outputs}

        def do() -> None:
            results = engine.compute(engine.read(feeds) | hosts)
            for name, result in zip(outputs, results, strict=True):
                assert result.shape == shapes[name], (name, result.shape, shapes)
                write(machine, places[name], result)

        work = Work("TensorRT", do, self._ranges(feeds, outputs, shapes))
        machine.queue(machine.stream(stream_handle), work)

    def _run_and_wait(self, outputs: list[str], stream_handle: int) -> bool:
        machine = self.world.machine
        stream = machine.stream(stream_handle)
        if stream.capture is not None:
            stream.is_invalid = True
            raise CudaError(900)
        feeds, hosts = self._feeds(), self._host_values()
        clock = dict(stream.clock)
        machine.wait_until(lambda: stream.is_idle)
        merge(machine.host, clock)
        results = self.engine.compute(self.engine.read(feeds) | hosts)
        shapes = {}
        for name, result in zip(outputs, results, strict=True):
            shapes[name] = result.shape
            if not self._place(name, result.shape, 1000, stream_handle):
                return False
        places = {name: self._addresses[name] for name in outputs}

        def do() -> None:
            for name, result in zip(outputs, results, strict=True):
                write(machine, places[name], result)

        work = Work("TensorRT", do, self._ranges(feeds, outputs, shapes))
        machine.queue(stream, work)
        return True


def write(machine: Any, address: int, result: Any) -> None:
    content = np.frombuffer(np.ascontiguousarray(result).tobytes(), np.uint8)
    if content.size:
        machine.bytes(address, content.size, "TensorRT")[:] = content


CLASSES = (Runtime, ICudaEngine, IExecutionContext)
