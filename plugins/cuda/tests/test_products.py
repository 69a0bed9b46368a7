"""Products by cuBLASLt: what is asked of it means what the model says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.gpu.command import EngineCall, Launch
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.ir.buffers import Buffer, Input
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import Chain, ChainBuilder, Step
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines import cublaslt
from onnxplug_cuda.engines.choices import Choices
from onnxplug_cuda.engines.cublaslt import CublasError, CublasLt
from onnxplug_cuda.engines.product import ACTIVATIONS, Matrix, Product, product_of
from onnxplug_cuda.families.fused import fused
from onnxplug_cuda.families.products import Products

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
        bound = self.engine.bind(
            command.call,
            [self.address(view) for view in command.views],
            (workspace.ctypes.data, workspace.nbytes),
        )
        bound.queue(77)
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


# layouts


@pytest.mark.parametrize("dtype", [F32, F16, BF16, F64])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("right", [False, True])
def test_factors_lie_in_rows_or_in_columns(
    dtype: np.dtype[Any], left: bool, right: bool
) -> None:
    memory = Memory()
    a = memory.random(dtype, *((64, 128) if left else (128, 64)), offset=32)
    b = memory.random(dtype, *((192, 64) if right else (64, 192)))
    a = a.transpose((1, 0)) if left else a
    b = b.transpose((1, 0)) if right else b
    out = memory.new(np.zeros((128, 192), dtype), offset=16)
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


def test_parts_of_arrays_are_factors_and_results() -> None:
    memory = Memory()
    a = memory.random(F32, 130, 100).slice([1, 3], [128, 64])
    b = memory.random(F32, 70, 200).slice([5, 7], [64, 130])
    whole = memory.new(np.zeros((140, 160), np.float32))
    out = whole.slice([2, 9], [128, 130])
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    expected = np.zeros((140, 160))
    expected[2:130, 9:139] = product(memory.array(a), memory.array(b))
    assert_close(memory.array(whole), expected)


def test_one_row_or_column_may_lie_in_any_way() -> None:
    memory = Memory()
    a = memory.random(F32, 1, 1024)
    b = memory.random(F32, 1024, 1024)
    out = memory.new(np.zeros((1, 1024), np.float32))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


@pytest.mark.parametrize("repeated", [(), (0,), (1,)])
def test_batches_are_one_axis_and_may_be_repeated(repeated: tuple[int, ...]) -> None:
    memory = Memory()
    a = memory.random(F16, *((1, 1) if 0 in repeated else (2, 3)), 64, 64)
    b = memory.random(F16, *((1, 1) if 1 in repeated else (2, 3)), 64, 128)
    out = memory.new(np.zeros((2, 3, 64, 128), np.float16))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert memory.run() == ["library"]
    assert_close(memory.array(out), product(memory.array(a), memory.array(b)))


def test_batches_that_lie_apart_are_several_calls() -> None:
    """As heads of attention do: [images, heads, rows, depth] of [images, rows, …]."""
    memory = Memory()
    heads = [memory.random(F32, 2, 64, 4, 32) for _ in range(2)]
    q, k = (view.transpose((0, 2, 1, 3)) for view in heads)
    out = memory.new(np.zeros((2, 4, 64, 64), np.float32))
    Products(tf32=False).record_matmul(
        memory.recorder, q, k.transpose((0, 1, 3, 2)), out
    )
    assert memory.run() == ["library", "library"]
    expected = product(memory.array(q), memory.array(k).swapaxes(-1, -2))
    assert_close(memory.array(out), expected)


def test_factors_may_be_rounded_to_tf32_where_that_is_allowed() -> None:
    results = []
    for tf32 in (False, True):
        memory = Memory()
        generator = np.random.default_rng(1)
        a, b = (
            memory.new(generator.standard_normal((128, 128)).astype(np.float32))
            for _ in range(2)
        )
        out = memory.new(np.zeros((128, 128), np.float32))
        Products(tf32=tf32).record_matmul(memory.recorder, a, b, out)
        memory.run()
        found = memory.array(out) - product(memory.array(a), memory.array(b))
        results.append(np.abs(found).max())
    assert results[0] < 1e-5 < 1e-3 < results[1]


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        ((8, 8), (8, 8), "small"),
        ((4096, 2), (2, 1024), "few products of a sum"),
        ((1 << 15, 64), (64, 8), "few columns"),
    ],
)
def test_small_products_are_kernels(
    a: tuple[int, int], b: tuple[int, int], reason: str
) -> None:
    memory = Memory()
    out = memory.new(np.zeros((a[0], b[1]), np.float32))
    views = memory.random(F32, *a), memory.random(F32, *b)
    Products(tf32=False).record_matmul(memory.recorder, *views, out)
    assert [type(each) for each in memory.recorder.commands] == [Launch], reason


def test_what_lies_otherwise_is_a_kernel() -> None:
    memory = Memory()
    a = memory.random(F32, 128, 256).slice([0, 0], [128, 128], [1, 2])
    b = memory.random(F32, 128, 128)
    out = memory.new(np.zeros((128, 128), np.float32))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out)
    assert [type(each) for each in memory.recorder.commands] == [Launch]
    integers = memory.new(np.ones((128, 128), np.int32))
    assert product_of(*[_axes(integers)] * 3, tf32=False) is None


def _axes(view: View) -> View:
    shape, strides = (1, 1, *view.shape), (0, 0, *view.strides)
    return View(view.buffer, view.offset, view.dtype, shape, strides)


# what follows


def chain_of(
    element: str, stored: str, *steps: str, operands: int = 0
) -> tuple[ChainBuilder, Any]:
    builder = ChainBuilder()
    value = builder.input(element)
    others = [builder.input(stored) for _ in range(operands)]
    if element != stored:
        value = builder.step("Cast", [value], stored)
    for step in steps:
        if step == "Add":
            value = builder.step("Add", [others.pop(0), value], stored)
        elif step == "Gelu":
            value = builder.step("Gelu", [value], stored, {"approximate": "tanh"})
        else:
            value = builder.step(step, [value], stored)
    return builder, value


FOLLOWING = [
    (F32, ("Add",), 1, ["library"]),
    (F32, ("Add", "Relu"), 1, ["library"]),
    (F16, ("Add", "Gelu"), 1, ["library"]),
    (F16, (), 0, ["library"]),
    (BF16, ("Relu",), 0, ["library"]),
    (F32, ("Add", "Add"), 2, ["library", "kernel"]),
    (F16, ("Add", "Add", "Relu"), 2, ["library", "kernel"]),
]


@pytest.mark.parametrize(("dtype", "steps", "count", "ran"), FOLLOWING)
def test_what_follows_is_the_librarys_as_far_as_it_goes(
    dtype: np.dtype[Any], steps: tuple[str, ...], count: int, ran: list[str]
) -> None:
    memory = Memory()
    a, b = memory.random(dtype, 96, 128), memory.random(dtype, 128, 112)
    element = element_of(dtype)
    assert element is not None
    builder, value = chain_of("f32", element, *steps, operands=count)
    chain = builder.build([value])
    bias = memory.random(dtype, 112).broadcast_to((96, 112))
    residual = memory.random(dtype, 96, 112)
    operands = (bias, residual)[:count]
    target = memory.new(np.zeros((96, 112), dtype))
    out = memory.recorder.temporary(F32, (96, 112))
    Products(tf32=False).record_matmul(
        memory.recorder, a, b, out, epilogue=Epilogue(chain, operands, (target,))
    )
    assert memory.run() == ran
    expected = product(memory.array(a), memory.array(b))
    for operand in operands:
        expected += memory.array(operand).astype(np.float64)
    if "Relu" in steps:
        expected = np.maximum(expected, 0)
    if "Gelu" in steps:
        expected = library_of_products.gelu(expected)
    assert_close(memory.array(target), expected)


def test_a_result_that_is_read_twice_stays_one() -> None:
    builder, value = chain_of("f32", "f32", "Add", operands=1)
    relu = builder.step("Relu", [value], "f32")
    chain = builder.build([value, relu])
    does = fused(chain, frozenset({"f32"}), lambda _: True, ACTIVATIONS)
    assert (does.bias, does.activation) == (0, "")
    assert does.rest == Chain(("f32",), (), (Step("Relu", (0,), "f32"),), (0, 1))
    builder, value = chain_of("f64", "f64", "Add", operands=1)
    does = fused(
        builder.build([value]), frozenset({"f64"}), lambda _: True, ACTIVATIONS
    )
    assert does.bias is None and does.rest is not None
    exact = ChainBuilder()
    gelu = exact.step("Gelu", [exact.input("f32")], "f32", {"approximate": "none"})
    does = fused(exact.build([gelu]), frozenset({"f32"}), lambda _: True, ACTIVATIONS)
    assert does.activation == "" and does.rest is not None


def test_a_bias_for_each_row_is_left_to_a_kernel() -> None:
    memory = Memory()
    a, b = memory.random(F32, 128, 128), memory.random(F32, 128, 128)
    builder, value = chain_of("f32", "f32", "Add", operands=1)
    bias = memory.random(F32, 128, 1).broadcast_to((128, 128))
    target = memory.new(np.zeros((128, 128), np.float32))
    out = memory.recorder.temporary(F32, (128, 128))
    after = Epilogue(builder.build([value]), (bias,), (target,))
    Products(tf32=False).record_matmul(memory.recorder, a, b, out, epilogue=after)
    assert memory.run() == ["library", "kernel"]
    expected = product(memory.array(a), memory.array(b)) + memory.array(bias)
    assert_close(memory.array(target), expected)


def test_a_convolution_of_one_place_is_a_product() -> None:
    """[N, 1, lines, rows, *taps, depth], with channels last as images lie then."""
    memory = Memory()
    x, w = memory.random(F32, 2, 1, 16, 16, 1, 1, 64), memory.random(F32, 96, 64)
    weights = View(w.buffer, 0, F32, (1, 1, 1, 1, 64, 96), (0, 0, 0, 0, 1, 64))
    out = memory.new(np.zeros((2, 1, 16, 16, 96), np.float32))
    Products(tf32=False).record_contraction(memory.recorder, x, weights, out)
    assert memory.run() == ["library"]
    images = memory.array(x).reshape(2, 1, 16, 16, 64)
    assert_close(memory.array(out), product(images, memory.array(w).T))


# the library, and what may go wrong


def bound_product(memory: Memory) -> tuple[Product, list[int], np.ndarray[Any, Any]]:
    a, b = memory.random(F32, 32, 32), memory.random(F32, 32, 32)
    out = memory.new(np.zeros((32, 32), np.float32))
    views = [_axes(view) for view in (a, b, out)]
    found = product_of(*views, tf32=False)
    assert found is not None
    addresses = [memory.address(view) for view in (b, a, out)]
    return found, addresses, memory.array(out)


def test_plans_are_made_once_for_a_product() -> None:
    memory = Memory()
    found, addresses, _ = bound_product(memory)
    for _ in range(3):
        memory.engine.bind(found, addresses, (0, 0)).queue(5)
    asked = memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic")
    assert asked == 1
    memory.engine.bind(found._replace(tf32=True), addresses, (0, 0))
    assert memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 2


def test_algorithms_that_want_more_workspace_are_left_out() -> None:
    memory = Memory()
    memory.library.workspaces = [1 << 20, 256, 0]
    found, addresses, _ = bound_product(memory)
    bound = memory.engine.bind(found, addresses, (0, 0))
    bound.queue(5)
    assert memory.library.ran == [(2, 0, 5)]


def test_an_algorithm_that_does_not_run_gives_way_to_the_next() -> None:
    memory = Memory()
    memory.library.workspaces = [0, 0, 0]
    memory.library.refuses = {0, 1}
    found, addresses, out = bound_product(memory)
    bound = memory.engine.bind(found, addresses, (0, 0))
    for _ in range(2):
        bound.queue(5)
    assert memory.library.ran == [(2, 0, 5)] * 2 and out.any()
    memory.library.refuses = {0, 1, 2}
    with pytest.raises(CublasError, match=r"cublasLtMatmul failed with NOT_SUPPORTED"):
        bound.queue(5)


def test_a_gpu_that_fails_is_no_reason_to_try_another_algorithm() -> None:
    memory = Memory()
    memory.library.refuses = {0, 1, 2, 3}
    memory.library.run_status = library_of_products.FAILED
    found, addresses, _ = bound_product(memory)
    bound = memory.engine.bind(found, addresses, (0, 0))
    with pytest.raises(CublasError, match="EXECUTION_FAILED"):
        bound.queue(5)
    assert memory.library.calls.count("cublasLtMatmul") == 1


@pytest.mark.parametrize("status", [library_of_products.UNSUPPORTED, 0])
def test_a_product_without_an_algorithm_is_refused(status: int) -> None:
    memory = Memory()
    memory.library.status = status
    memory.library.workspaces = []
    found, addresses, _ = bound_product(memory)
    with pytest.raises(KernelRefused, match="cuBLASLt"):
        memory.engine.bind(found, addresses, (0, 0))


def test_descriptors_are_given_back() -> None:
    memory = Memory()
    found, addresses, _ = bound_product(memory)
    bound = memory.engine.bind(found, addresses, (0, 0))
    one = memory.library.alive
    bound = memory.engine.bind(found, addresses, (0, 0))
    assert memory.library.alive == one
    del bound
    memory.engine.close()
    memory.engine.close()
    memory.engine = None  # type: ignore[assignment]
    assert memory.library.alive == 0


def test_a_library_without_a_driver_or_a_function_says_so() -> None:
    library: Any = library_of_products.CublasLt()
    library._made["cublasLtCreate"] = cublaslt.ctypes.CFUNCTYPE(
        cublaslt.c_int, cublaslt.c_void_p
    )(lambda _: 1)
    with pytest.raises(CublasError, match="cublasLtCreate failed with NOT_INITIALIZED"):
        CublasLt(library)
    del library._made["cublasLtMatmul"]
    with pytest.raises(AttributeError, match="cublasLtMatmul"):
        CublasLt(library)


GOOD = Product("f32", "f32", *(Matrix(8, 8, 8, 64),) * 3, (False, False), 2)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"element": "i8"}, "products of i8"),
        ({"result": "f16"}, "are not of f16"),
        ({"activation": "tanh"}, "the activation is 'tanh'"),
        ({"a": Matrix(8, 8, 7, 64)}, "no matrix lies as"),
        ({"b": Matrix(8, 0, 8, 64)}, "no matrix lies as"),
        ({"b": Matrix(8, 8, 8, -64)}, "no matrix lies as"),
        ({"b": Matrix(9, 8, 9, 64)}, "give none of"),
        ({"a": Matrix(8, 8, 16, 64)}, "needs memory of"),
        ({"a": Matrix(8, 8, 8, 65)}, "needs memory of"),
        ({"has_bias": True}, "needs memory of"),
        ({"d": Matrix(8, 8, 8, 63)}, "overlap"),
        ({"batches": 3}, "needs memory of"),
        ({"batches": 0}, "overlap"),
    ],
)
def test_a_product_that_leaves_its_memory_is_refused(
    changes: dict[str, Any], text: str
) -> None:
    GOOD.check([512, 512, 512])
    with pytest.raises(ValueError, match=text):
        GOOD._replace(**changes).check([512, 512, 512])


# measured algorithms


class Bench:
    """Measures by what the stand-in ran; memory is numpy's."""

    def __init__(self, library: Any, seconds: dict[int, float]) -> None:
        self.library, self.times = library, seconds
        self.measured: list[int] = []

    def memory(self, nbytes: int) -> Any:
        array = np.zeros(max(nbytes, 1), np.uint8)
        self.library.memory.append(array)
        return SimpleNamespace(address=array.ctypes.data, array=array)

    def seconds(self, queue: Callable[[int], None]) -> float:
        queue(0)
        number = self.library.ran[-1][0]
        self.measured.append(number)
        return self.times[number]


@pytest.fixture
def cached(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def choices(version: str = "13.1", seconds: float = 0.0) -> Choices:
    facts = {"gpu": "H100", "cublasLt": version}
    return Choices("products", facts, logging.getLogger("test"), seconds)


def tuned(
    times: dict[int, float], refuses: set[int] | None = None, **options: Any
) -> tuple[list[int], int]:
    """Which algorithms were measured, and which one ran then."""
    memory = Memory()
    memory.library.workspaces = [0] * 3
    memory.library.refuses = refuses or set()
    bench = Bench(memory.library, times)
    memory.engine = CublasLt(memory.library, choices(**options), bench)
    found, addresses, out = bound_product(memory)
    bound = memory.engine.bind(found, addresses, (0, 0))
    assert not out.any()  # which is not what is measured with
    bound.queue(5)
    return sorted(set(bench.measured)), memory.library.ran[-1][0]


TIMES = {0: 3e-5, 1: 1e-5, 2: 2e-5}


def test_the_fastest_algorithm_is_found_once_and_kept(cached: Path) -> None:
    assert tuned(TIMES) == ([0, 1, 2], 1)
    assert tuned({0: 0.0}) == ([], 1)
    assert tuned({0: 1.0, 1: 2.0, 2: 0.5}, version="13.2") == ([0, 1, 2], 2)


def test_an_algorithm_that_fails_when_it_is_measured_is_out(cached: Path) -> None:
    assert tuned(TIMES, refuses={1}) == ([0, 2], 2)


def test_measuring_ends_when_its_time_is_over(cached: Path) -> None:
    assert tuned(TIMES, seconds=1e-9) == ([0], 0)


def test_a_damaged_entry_is_measured_anew(cached: Path) -> None:
    assert tuned(TIMES) == ([0, 1, 2], 1)
    entry = max(cached.rglob("products-*"))
    for content in (b"", b"\0" * 64, entry.read_bytes()[:-3]):
        entry.write_bytes(content)
        assert tuned(TIMES) == ([0, 1, 2], 1)


def test_nothing_is_measured_unasked(cached: Path) -> None:
    memory = Memory()
    memory.engine = CublasLt(memory.library, choices())
    found, addresses, _ = bound_product(memory)
    memory.engine.bind(found, addresses, (0, 0)).queue(5)
    assert memory.library.ran == [(1, 0, 5)]
    assert not list(cached.rglob("products-*"))


# what NVIDIA's own distributions say


def test_numbers_are_those_of_the_header() -> None:
    lt = pytest.importorskip("nvmath.bindings.cublasLt", reason="needs nvmath-python")
    blas = pytest.importorskip("nvmath.bindings.cublas")
    described = lt.MatmulDescAttribute
    assert cublaslt.TRANSA == described.TRANSA and cublaslt.TRANSB == described.TRANSB
    assert cublaslt.EPILOGUE == described.EPILOGUE
    assert cublaslt.BIAS_POINTER == described.BIAS_POINTER
    laid = lt.MatrixLayoutAttribute
    assert cublaslt.BATCH_COUNT == laid.BATCH_COUNT
    assert cublaslt.BATCH_OFFSET == laid.STRIDED_BATCH_OFFSET
    preferred = lt.MatmulPreferenceAttribute
    assert cublaslt.MOST_WORKSPACE == preferred.MAX_WORKSPACE_BYTES
    assert list(cublaslt.ALIGNMENTS) == [
        preferred[f"MIN_ALIGNMENT_{name}_BYTES"] for name in "ABCD"
    ]
    for (activation, has_bias), number in cublaslt.EPILOGUES.items():
        name = "_".join(filter(None, (activation.upper(), has_bias and "BIAS")))
        assert number == lt.Epilogue[name or "DEFAULT"]
    assert cublaslt.COMPUTE_32F == blas.ComputeType.COMPUTE_32F
    assert cublaslt.COMPUTE_64F == blas.ComputeType.COMPUTE_64F
    assert cublaslt.COMPUTE_TF32 == blas.ComputeType.COMPUTE_32F_FAST_TF32
    for number, name in cublaslt.STATUSES.items():
        assert blas.Status[name] == number
    size = cublaslt.ctypes.sizeof
    assert size(cublaslt.Algorithm) == lt.matmul_algo_dtype.itemsize
    assert size(cublaslt.Suggestion) == lt.matmul_heuristic_result_dtype.itemsize
    for attribute, kind in library_of_products.DESCRIPTION.items():
        dtype = lt.get_matmul_desc_attribute_dtype(attribute)
        assert np.dtype(dtype).itemsize == size(kind)
    for attribute, kind in library_of_products.PREFERENCE.items():
        dtype = lt.get_matmul_preference_attribute_dtype(attribute)
        assert np.dtype(dtype).itemsize == size(kind)
    for attribute, kind in library_of_products.LAYOUT.items():
        dtype = lt.get_matrix_layout_attribute_dtype(attribute)
        assert np.dtype(dtype).itemsize == size(kind)
