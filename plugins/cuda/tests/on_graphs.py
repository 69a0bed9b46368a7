"""Commands for cuDNN in host memory, with what runs them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug_compiler.gpu.command import EngineCall, Launch
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.ir.buffers import Buffer, Constant, Input, Packed
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines.cudnn import Cudnn
from onnxplug_cuda.engines.graphs import Attention, Convolution, Tensor

from .library_of_graphs import Frontend, contiguous

RNG = np.random.default_rng(0)
Array = np.ndarray[Any, Any]
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
BF16 = np.dtype(ml_dtypes.bfloat16)
TOLERANCES = {F32: 1e-6, F16: 2e-3, BF16: 1.6e-2}


class Memory:
    """Buffers in host memory, with what runs commands there."""

    def __init__(self) -> None:
        self.frontend = Frontend()
        self.cudnn = Cudnn(self.frontend)
        self.recorder = Recorder[Any](GpuTarget())
        self.arrays: dict[Buffer, Array] = {}

    def new(self, array: Array, axes: Sequence[int] | None = None) -> View:
        """An array that lies as the order of *axes* says."""
        order = list(axes or range(array.ndim))
        there = np.ascontiguousarray(array.transpose(order))
        buffer = Input(len(self.arrays), there.nbytes)
        self.of(buffer)[:] = np.frombuffer(there.tobytes(), np.uint8)
        view = View.contiguous(buffer, array.dtype, there.shape)
        return view.transpose([order.index(axis) for axis in range(array.ndim)])

    def random(
        self, dtype: np.dtype[Any], *shape: int, axes: Sequence[int] | None = None
    ) -> View:
        return self.new(RNG.standard_normal(shape).astype(dtype), axes)

    def of(self, buffer: Buffer) -> Array:
        if buffer not in self.arrays:
            self.arrays[buffer] = np.full(buffer.nbytes, 0xFF, np.uint8)
            self.frontend.memory.append(self.arrays[buffer])
            if isinstance(buffer, Packed):
                assert isinstance(buffer.source, Constant)
                content = buffer.source.array
                self.of(buffer.source)[:] = content.reshape(-1).view(np.uint8)
                for command in buffer.fill:
                    self.copy(command)
        return self.arrays[buffer]

    def array(self, view: View) -> Array:
        size = view.dtype.itemsize
        strides = [stride * size for stride in view.strides]
        whole = self.of(view.buffer)
        return np.ndarray(view.shape, view.dtype, whole.data, view.offset, strides)

    def copy(self, command: Any) -> None:
        source, target = command.views
        self.array(target)[...] = self.array(source)

    def run(self) -> list[str]:
        return [self._run(command) for command in self.recorder.commands]

    def _run(self, command: Any) -> str:
        if isinstance(command, Launch):
            kernel: Any = command.kernel
            if not hasattr(kernel, "chain"):
                self.copy(command)
                return "copy"
            count = len(kernel.chain.inputs)
            values: list[Any] = [self.array(each) for each in command.views[:count]]
            for step in kernel.chain.steps:
                read = [np.asarray(values[n], np.float64) for n in step.operands]
                operators: dict[str, Callable[..., Any]] = {
                    "Add": np.add,
                    "Relu": lambda x: np.maximum(x, 0),
                }
                values.append(operators[step.operator](*read))
            for view, n in zip(
                command.views[count:], kernel.chain.outputs, strict=True
            ):
                self.array(view)[...] = values[n]
            return "kernel"
        assert isinstance(command, EngineCall)
        command.call.check([view.buffer.nbytes - view.offset for view in command.views])
        workspace = np.zeros(command.workspace, np.uint8)
        self.frontend.memory.append(workspace)
        addresses = [
            int(self.of(view.buffer).ctypes.data) + view.offset
            for view in command.views
        ]
        begins = [view.offset for view in command.views]
        prepared = self.cudnn.prepare(command.call, begins, workspace.nbytes)
        prepared.bind(addresses, workspace.ctypes.data).queue(77)
        assert self.frontend.ran[-1][1] == 77
        return "library"


def assert_close(found: Array, expected: Array) -> None:
    most = TOLERANCES[found.dtype] * float(np.abs(expected).max())
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=most)


SHAPES = (1, 2, 4, 4), (2, 2, 3, 3), (1, 2, 2, 2)
CALL = Convolution(
    "f32",
    *(Tensor(*contiguous(*shape)) for shape in SHAPES),
    (0, 0), (0, 0), (1, 1), (1, 1),
)  # fmt: skip
ATTENTION = Attention(
    "f16",
    *(Tensor(*contiguous(1, heads, 8, 16)) for heads in (4, 2, 2)),
    None,
    Tensor(*contiguous(1, 4, 8, 16)),
    0.25,
)
