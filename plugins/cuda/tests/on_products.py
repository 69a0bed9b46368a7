"""Commands for cuBLASLt in host memory, with what runs them there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug_compiler.gpu.command import EngineCall, Launch
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.ir.buffers import Buffer, Input
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines.cublaslt import CublasLt
from onnxplug_cuda.engines.product import Product, product_of

from . import library_of_products

RNG = np.random.default_rng(0)
F32, F16 = np.dtype(np.float32), np.dtype(np.float16)
BF16, F64 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.float64)
TOLERANCES = {F32: 1e-6, F16: 1e-3, BF16: 8e-3, F64: 1e-14}
"""Of the largest result, for its last bit."""


class Memory:
    """Buffers in host memory, with what runs commands there."""

    def __init__(self) -> None:
        self.library = library_of_products.CublasLt()
        self.engine = CublasLt(self.library)
        self.arrays: dict[Buffer, np.ndarray[Any, Any]] = {}
        self.recorder = Recorder[Any](GpuTarget())

    def new(self, array: np.ndarray[Any, Any], offset: int = 0) -> View:
        """A contiguous array that begins at a byte of a buffer."""
        buffer = Input(len(self.arrays), offset + array.nbytes)
        self.of(buffer)[offset:] = np.frombuffer(array.tobytes(), np.uint8)
        return View.contiguous(buffer, array.dtype, array.shape, offset)

    def random(self, dtype: np.dtype[Any], *shape: int, offset: int = 0) -> View:
        return self.new(RNG.standard_normal(shape).astype(dtype), offset)

    def of(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        if buffer not in self.arrays:
            # filled with what no result may be from, and aligned as on a GPU
            whole = np.full(buffer.nbytes + 256, 0xFF, np.uint8)
            begin = -whole.ctypes.data % 256
            self.arrays[buffer] = whole[begin : begin + buffer.nbytes]
            self.library.memory.append(self.arrays[buffer])
        return self.arrays[buffer]

    def array(self, view: View) -> np.ndarray[Any, Any]:
        size = view.dtype.itemsize
        whole = self.of(view.buffer)
        strides = [stride * size for stride in view.strides]
        return np.ndarray(view.shape, view.dtype, whole.data, view.offset, strides)

    def address(self, view: View) -> int:
        return int(self.of(view.buffer).ctypes.data) + view.offset

    def run(self) -> list[str]:
        """Run what was recorded; of each command, who ran it."""
        return [self._run(command) for command in self.recorder.commands]

    def _run(self, command: Any) -> str:
        if isinstance(command, Launch):
            kernel: Any = command.kernel
            assert hasattr(kernel, "chain"), "only chains are computed here"
            count = len(kernel.chain.inputs)
            read = [self.array(view) for view in command.views[:count]]
            results = evaluate(kernel.chain, read)
            for view, result in zip(command.views[count:], results, strict=True):
                self.array(view)[...] = result
            return "kernel"
        assert isinstance(command, EngineCall)
        command.call.check([view.buffer.nbytes - view.offset for view in command.views])
        workspace = np.zeros(command.workspace, np.uint8)
        self.library.memory.append(workspace)
        begins = [view.offset for view in command.views]
        prepared = self.engine.prepare(command.call, begins, workspace.nbytes)
        addresses = [self.address(view) for view in command.views]
        prepared.bind(addresses, workspace.ctypes.data).queue(77)
        assert not self.library.wrong
        return "library"


def evaluate(
    chain: Chain, arrays: Sequence[np.ndarray[Any, Any]]
) -> list[np.ndarray[Any, Any]]:
    """A chain of the few steps that are tested here, in numpy."""
    dtypes = {"f32": F32, "f16": F16, "bf16": BF16, "f64": F64}
    values = [*arrays, *(np.asarray(scalar.value) for scalar in chain.constants)]
    computed: dict[str, Callable[..., Any]] = {
        "Add": np.add,
        "Mul": np.multiply,
        "Relu": lambda x: np.maximum(x, 0),
        "Gelu": library_of_products.gelu,
        "Cast": lambda x: x,
    }
    for step in chain.steps:
        read = [np.asarray(values[n], np.float64) for n in step.operands]
        values.append(computed[step.operator](*read).astype(dtypes[step.element]))
    return [values[n] for n in chain.outputs]


def assert_close(found: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> None:
    most = TOLERANCES[found.dtype] * float(np.abs(expected).max())
    np.testing.assert_allclose(found.astype(np.float64), expected, rtol=0, atol=most)


def product(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(a.astype(np.float64) @ b.astype(np.float64))


def in_batches(view: View) -> View:
    shape, strides = (1, 1, *view.shape), (0, 0, *view.strides)
    return View(view.buffer, view.offset, view.dtype, shape, strides)


def bound_product(memory: Memory) -> tuple[Product, list[int], np.ndarray[Any, Any]]:
    a, b = memory.random(F32, 32, 32), memory.random(F32, 32, 32)
    out = memory.new(np.zeros((32, 32), np.float32))
    views = [in_batches(view) for view in (a, b, out)]
    found = product_of(*views, tf32=False)
    assert found is not None
    addresses = [memory.address(view) for view in (b, a, out)]
    return found, addresses, memory.array(out)
