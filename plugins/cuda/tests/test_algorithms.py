"""Algorithms of cuBLASLt: asked for, checked, measured, and kept."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from onnxplug_compiler.gpu.command import Launch
from onnxplug_compiler.gpu.execution.device import DeviceLost, KernelRefused
from onnxplug_cuda.engines import cublaslt
from onnxplug_cuda.engines.choices import Choices
from onnxplug_cuda.engines.cublaslt import BoundProduct, CublasError, CublasLt
from onnxplug_cuda.engines.product import Matrix, Product
from onnxplug_cuda.families.products import Products

from . import library_of_products
from .on_products import (
    F32,
    Memory,
    bound_product,
)

# the library, and what may go wrong


def bound_to(memory: Memory, found: Product, addresses: list[int]) -> BoundProduct:
    return memory.engine.prepare(found, [0] * len(addresses), 0).bind(addresses, 0)


def test_plans_are_made_once_for_a_product() -> None:
    memory = Memory()
    found, addresses, _ = bound_product(memory)
    for _ in range(3):
        bound_to(memory, found, addresses).queue(5)
    asked = memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic")
    assert asked == 1
    bound_to(memory, found._replace(tf32=True), addresses)
    assert memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 2


def test_algorithms_that_want_more_workspace_are_left_out() -> None:
    memory = Memory()
    memory.library.workspaces = [1 << 20, 256, 0]
    found, addresses, _ = bound_product(memory)
    bound = bound_to(memory, found, addresses)
    bound.queue(5)
    assert memory.library.ran == [(2, 0, 5)]


def test_an_algorithm_that_does_not_run_gives_way_to_the_next() -> None:
    memory = Memory()
    memory.library.workspaces = [0, 0, 0]
    memory.library.refuses = {0, 1}
    found, addresses, out = bound_product(memory)
    bound = bound_to(memory, found, addresses)
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
    bound = bound_to(memory, found, addresses)
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
        bound_to(memory, found, addresses)


def test_algorithms_are_kept_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "MOST_PLANS", 1)
    memory = Memory()
    found, addresses, _ = bound_product(memory)
    bound = bound_to(memory, found, addresses)
    other = bound_to(memory, found._replace(tf32=True), addresses)
    alive = memory.library.alive
    del other
    bound_to(memory, found, addresses)
    assert memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 3
    assert memory.library.alive < alive
    bound.queue(5)  # whose descriptors are its own
    assert memory.library.wrong == []


def test_descriptors_are_given_back() -> None:
    memory = Memory()
    found, addresses, _ = bound_product(memory)
    bound = bound_to(memory, found, addresses)
    one = memory.library.alive
    bound = bound_to(memory, found, addresses)
    assert memory.library.alive == one
    del bound
    memory.engine.close()
    memory.engine.close()
    memory.engine = None  # type: ignore[assignment]
    assert memory.library.alive == 0


def test_a_product_that_the_library_has_no_algorithm_for_is_a_kernel() -> None:
    memory = Memory()
    memory.library.workspaces = []
    a, b = memory.random(F32, 128, 128), memory.random(F32, 128, 128)
    out = memory.new(np.zeros((128, 128), np.float32))
    family = Products(tf32=False, library=memory.engine)
    family.record_matmul(memory.recorder, a, b, out)
    assert [type(each) for each in memory.recorder.commands] == [Launch]
    memory.library.workspaces = [0]
    family.record_matmul(memory.recorder, a, b, out)
    assert memory.library.calls.count("cublasLtMatmulAlgoGetHeuristic") == 2


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


def choices(version: str = "13.1") -> Choices:
    facts = {"gpu": "H100", "cublasLt": version}
    return Choices("products", facts, logging.getLogger("test"))


def tuned(
    times: dict[int, float],
    refuses: set[int] | None = None,
    version: str = "13.1",
    **options: Any,
) -> tuple[list[int], int]:
    """Which algorithms were measured, and which one ran then."""
    memory = Memory()
    memory.library.workspaces = [0] * 3
    memory.library.refuses = refuses or set()
    bench = Bench(memory.library, times)
    memory.engine = CublasLt(memory.library, choices=choices(version), bench=bench)
    found, addresses, out = bound_product(memory)
    options = {"uses_measured": True, "measures": True, **options}
    found = found._replace(**options)
    bound = bound_to(memory, found, addresses)
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


def test_what_lacked_memory_is_measured_again_by_the_next_process(
    cached: Path,
) -> None:
    asked = []

    def measure(number: int) -> float:
        asked.append(number)
        if number == 1:
            raise MemoryError("64 bytes of device memory were asked for")
        return TIMES[number]

    names, measures = ["a", "b", "c"], choices()
    for _ in range(2):
        assert measures.best("x", names, measure) == 2
    assert len(asked) == 7
    assert choices().best("x", names, None) == 0
    assert choices().best("x", names, TIMES.__getitem__) == 1
    assert choices().best("x", names, None) == 1


def test_a_device_that_is_lost_as_it_is_measured_is_no_reason_to_go_on(
    cached: Path,
) -> None:
    asked = []

    def measure(number: int) -> float:
        asked.append(number)
        raise DeviceLost("the GPU was lost")

    with pytest.raises(DeviceLost):
        choices().best("x", ["a", "b"], measure)
    assert asked == [0]


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
    memory.engine = CublasLt(memory.library, choices=choices())
    found, addresses, _ = bound_product(memory)
    bound_to(memory, found, addresses).queue(5)
    assert memory.library.ran == [(1, 0, 5)]
    assert not list(cached.rglob("products-*"))
    assert tuned(TIMES, measures=False) == ([], 0)
    assert tuned(TIMES, seconds=1e3) == ([0, 1, 2], 1)
    assert tuned(TIMES, measures=False) == ([], 1)
    assert tuned(TIMES, uses_measured=False) == ([], 0)


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
