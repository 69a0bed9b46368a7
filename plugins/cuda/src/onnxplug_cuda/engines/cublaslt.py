"""Products by cuBLASLt, through ctypes.

The interface is that of NVIDIA's documentation of cuBLASLt
(https://docs.nvidia.com/cuda/cublas/#using-the-cublaslt-api), which is the same for
CUDA 12 and 13.  It is called by ctypes and not by a binding: nvmath-python has one that
it calls experimental and that brings three distributions, and a dozen functions are
used.  What they are given is checked before, as they check no memory.
"""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from ctypes import (
    POINTER,
    c_double,
    c_float,
    c_int,
    c_int64,
    c_size_t,
    c_uint64,
    c_void_p,
)
from typing import Any, Final

from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_cuda.engines.choices import MOST_PLANS, Bench, Choices, Scratch
from onnxplug_cuda.engines.product import Matrix, Product

TYPES: Final = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
"""``cudaDataType_t`` of elements."""

COMPUTE_32F: Final = 68
COMPUTE_64F: Final = 70
COMPUTE_TF32: Final = 77
"""``cublasComputeType_t``: in float32, in float64, and with factors of TF32."""

TRANSA: Final = 3
TRANSB: Final = 4
EPILOGUE: Final = 7
BIAS_POINTER: Final = 8
"""``cublasLtMatmulDescAttributes_t``."""

BATCH_COUNT: Final = 5
BATCH_OFFSET: Final = 6
"""``cublasLtMatrixLayoutAttribute_t``."""

MOST_WORKSPACE: Final = 1
ALIGNMENTS: Final = (5, 6, 7, 8)
"""``cublasLtMatmulPreferenceAttributes_t``: bytes of workspace, and by which the
addresses of A, B, C and D are divided."""

EPILOGUES: Final = {
    ("", False): 1,
    ("relu", False): 2,
    ("", True): 4,
    ("relu", True): 6,
    ("gelu", False): 32,
    ("gelu", True): 36,
}
"""``cublasLtEpilogue_t``, by the activation and whether there is a bias."""

STATUSES: Final = {
    1: "NOT_INITIALIZED",
    3: "ALLOC_FAILED",
    7: "INVALID_VALUE",
    8: "ARCH_MISMATCH",
    11: "MAPPING_ERROR",
    13: "EXECUTION_FAILED",
    14: "INTERNAL_ERROR",
    15: "NOT_SUPPORTED",
    16: "LICENSE_ERROR",
}
"""``cublasStatus_t``."""

_REFUSALS: Final = frozenset({7, 8, 15})
"""Of those what an algorithm answers that does not do a product; another may."""

MOST_ALGORITHMS: Final = 8
"""Algorithms that are asked for."""

_MOST_ALIGNMENT: Final = 256

_SCALARS: Final = (c_float(1), c_float(0)), (c_double(1), c_double(0))
"""One and zero of float32, and of float64."""


class Algorithm(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``, opaque."""

    _fields_ = (("data", c_uint64 * 8),)


class Suggestion(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algorithm", Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cublasLtCreate": (POINTER(c_void_p),),
    "cublasLtDestroy": (c_void_p,),
    "cublasLtMatmulDescCreate": (POINTER(c_void_p), c_int, c_int),
    "cublasLtMatmulDescDestroy": (c_void_p,),
    "cublasLtMatmulDescSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatrixLayoutCreate": (
        POINTER(c_void_p), c_int, c_uint64, c_uint64, c_int64,
    ),
    "cublasLtMatrixLayoutDestroy": (c_void_p,),
    "cublasLtMatrixLayoutSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulPreferenceCreate": (POINTER(c_void_p),),
    "cublasLtMatmulPreferenceDestroy": (c_void_p,),
    "cublasLtMatmulPreferenceSetAttribute": (c_void_p, c_int, c_void_p, c_size_t),
    "cublasLtMatmulAlgoGetHeuristic": (
        *(c_void_p,) * 7, c_int, POINTER(Suggestion), POINTER(c_int),
    ),
    "cublasLtMatmul": (*(c_void_p,) * 12, c_void_p, c_void_p, c_size_t, c_void_p),
}  # fmt: skip
"""The arguments of the functions that are called, each of which returns a status."""


class CublasError(RuntimeError):
    """A function of cuBLASLt failed."""

    def __init__(self, function: str, status: int) -> None:
        super().__init__(
            f"{function} failed with {STATUSES.get(status, 'status')} ({status})"
        )
        self.code = status


class _Plan(Record):
    """What calls of a product share: layouts, and algorithms, the best first."""

    layouts: tuple[c_void_p, ...]
    suggestions: list[Suggestion]


class CublasLt:
    """cuBLASLt on a GPU.  Safe for threads.

    Args:
        library: the loaded library, or what has its functions.
        current: makes the GPU the current one of a thread.
        lock: held while it plans, measures and queues.  It has to be the one that is
            held where calls are bound, and memory to measure with is taken: two threads
            could wait for each other.
        choices: which algorithms were the fastest, for products that use it.
        bench: measures those that were not, for products that do.

    Raises:
        CublasError: the library does not begin, as without a driver.
        AttributeError: it lacks a function.
    """

    def __init__(
        self,
        library: Any,
        current: AbstractContextManager[Any] | None = None,
        lock: threading.RLock | None = None,
        choices: Choices | None = None,
        bench: Bench | None = None,
    ) -> None:
        self._functions = {}
        for name, arguments in SIGNATURES.items():
            function = getattr(library, name)
            function.argtypes, function.restype = arguments, c_int
            self._functions[name] = function
        self._current = current or nullcontext()
        self._choices, self._bench = choices, bench
        self._lock = lock or new_rlock()
        self._plans: OrderedDict[tuple[str, tuple[int, ...], int], _Plan] = (
            OrderedDict()
        )
        with self._current:
            self._handle = self._made("cublasLtCreate")

    def prepare(
        self, product: Product, begins: Sequence[int], workspace: int
    ) -> PreparedProduct:
        """The algorithms for a product.

        Args:
            begins: where A, B, C and the bias if there are such, and D begin, in
                bytes, in memory whose address is a multiple of what algorithms may ask
                for.
            workspace: bytes that it may have.

        Raises:
            KernelRefused: no algorithm does it.
        """
        # as aligned as what is bound will be
        a, b, c, d, bias = _named(product, [_MOST_ALIGNMENT + each for each in begins])
        alignments = tuple(map(_alignment, (a, b, c, d)))
        description = self.description(product, bias)
        plan = self._plan(product, description, alignments, workspace)
        prepared = PreparedProduct(self, product, plan, workspace)
        if product.uses_measured and self._choices is not None:
            prepared.order = self._order(prepared, alignments)
        return prepared

    def takes(self, product: Product, begins: Sequence[int], workspace: int) -> bool:
        """Whether there is an algorithm for a product; see :meth:`prepare`."""
        plain = product._replace(uses_measured=False, measures=False)
        try:
            self.prepare(plain, begins, workspace)
        except KernelRefused:
            return False
        return True

    def _order(
        self, prepared: PreparedProduct, alignments: tuple[int, ...]
    ) -> list[int]:
        """The algorithms, beginning with the one that was measured to be fastest."""
        assert self._choices is not None
        product = prepared.product
        names = [bytes(each.algorithm).hex() for each in prepared.plan.suggestions]
        measure = None
        if product.measures and self._bench is not None:
            measure = _Trial(self, self._bench, prepared).seconds
        # the same, however it is found
        key = product._replace(uses_measured=True, measures=True, seconds=0.0)
        best = self._choices.best(
            repr((key, alignments)), names, measure, product.seconds
        )
        return sorted(prepared.order, key=lambda number: number != best)

    def call(self, function: str, *arguments: Any) -> None:
        """Call *function*.

        Raises:
            CublasError: it fails.
        """
        status = self._functions[function](*arguments)
        if status:
            raise CublasError(function, status)

    def queue(self, bound: BoundProduct, number: int, stream: int) -> None:
        """Queue a product by one of its algorithms.

        Raises:
            CublasError: it is not queued.
        """
        prepared, (a, b, c, d) = bound.prepared, bound.addresses
        one, zero = _SCALARS[prepared.product.element == "f64"]
        beta = zero if prepared.product.c is None else one
        layout_a, layout_b, layout_c, layout_d = prepared.plan.layouts
        suggestion = prepared.plan.suggestions[number]
        self.call(
            "cublasLtMatmul", self._handle, bound.description, ctypes.byref(one),
            a, layout_a, b, layout_b, ctypes.byref(beta), c, layout_c, d, layout_d,
            ctypes.byref(suggestion.algorithm), bound.workspace or None,
            prepared.workspace if bound.workspace else 0, stream,
        )  # fmt: skip

    def _plan(
        self,
        product: Product,
        description: c_void_p,
        alignments: tuple[int, ...],
        workspace: int,
    ) -> _Plan:
        """The algorithms that the library suggests; it is asked once.

        Raises:
            KernelRefused: it has none.
        """
        key = repr(product), alignments, workspace
        with self._lock:
            plan = self._plans.get(key)
            if plan is None:
                with self._current:
                    plan = self._suggested(product, description, alignments, workspace)
                self._plans[key] = plan
                if len(self._plans) > MOST_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
        return plan

    def _suggested(
        self,
        product: Product,
        description: c_void_p,
        alignments: tuple[int, ...],
        workspace: int,
    ) -> _Plan:
        """The algorithms that the library suggests.

        Raises:
            KernelRefused: it has none.
        """
        a, b, d = (
            self._layout(matrix, element, product.batches)
            for matrix, element in (
                (product.a, product.element),
                (product.b, product.element),
                (product.d, product.result),
            )
        )
        c = d
        if product.c is not None:
            c = self._layout(product.c, product.result, product.batches)
        preference = self._made("cublasLtMatmulPreferenceCreate")
        weakref.finalize(
            preference, self._functions["cublasLtMatmulPreferenceDestroy"],
            preference.value,
        )  # fmt: skip
        setter = "cublasLtMatmulPreferenceSetAttribute"
        self._set(setter, preference, MOST_WORKSPACE, c_uint64(workspace))
        for attribute, value in zip(ALIGNMENTS, alignments, strict=True):
            self._set(setter, preference, attribute, ctypes.c_uint32(value))
        found, count = (Suggestion * MOST_ALGORITHMS)(), c_int()
        try:
            self.call(
                "cublasLtMatmulAlgoGetHeuristic", self._handle, description, a, b, c,
                d, preference, MOST_ALGORITHMS, found, ctypes.byref(count),
            )  # fmt: skip
        except CublasError as error:
            raise KernelRefused(
                f"cuBLASLt does not compute {product}: {error}"
            ) from error
        fit = [
            each
            for each in found[: max(0, min(count.value, MOST_ALGORITHMS))]
            if not each.state and each.workspace <= workspace
        ]
        if not fit:
            raise KernelRefused(
                f"cuBLASLt has no algorithm for {product} with {workspace} bytes of "
                "workspace"
            )
        return _Plan((a, b, c, d), fit)

    def description(self, product: Product, bias: int = 0) -> c_void_p:
        """What is computed, and from which bias."""
        is_double = product.element == "f64"
        compute = COMPUTE_TF32 if product.tf32 else COMPUTE_32F
        if is_double:
            compute = COMPUTE_64F
        made = self._made(
            "cublasLtMatmulDescCreate", compute, TYPES["f64" if is_double else "f32"]
        )
        weakref.finalize(made, self._functions["cublasLtMatmulDescDestroy"], made.value)
        setter = "cublasLtMatmulDescSetAttribute"
        for attribute, turned in zip((TRANSA, TRANSB), product.turned, strict=True):
            self._set(setter, made, attribute, c_int(turned))
        epilogue = EPILOGUES[product.activation, product.has_bias]
        self._set(setter, made, EPILOGUE, c_int(epilogue))
        if product.has_bias:
            self._set(setter, made, BIAS_POINTER, c_void_p(bias))
        return made

    def _layout(self, matrix: Matrix, element: str, batches: int) -> c_void_p:
        made = self._made(
            "cublasLtMatrixLayoutCreate", TYPES[element], matrix.rows, matrix.columns,
            matrix.leading,
        )  # fmt: skip
        weakref.finalize(
            made, self._functions["cublasLtMatrixLayoutDestroy"], made.value
        )
        if batches > 1:
            setter = "cublasLtMatrixLayoutSetAttribute"
            self._set(setter, made, BATCH_COUNT, c_int(batches))
            self._set(setter, made, BATCH_OFFSET, c_int64(matrix.apart))
        return made

    def _made(self, function: str, *arguments: Any) -> c_void_p:
        made = c_void_p()
        self.call(function, ctypes.byref(made), *arguments)
        return made

    def _set(self, setter: str, target: c_void_p, attribute: int, value: Any) -> None:
        self.call(setter, target, attribute, ctypes.byref(value), ctypes.sizeof(value))

    def close(self) -> None:
        """Give up the library's own memory; idempotent, after all queued work."""
        handle, self._handle = self._handle, c_void_p()
        if handle.value:
            with self._current:
                self._functions["cublasLtDestroy"](handle)


class PreparedProduct:
    """A product, and what it is computed by.

    Attributes:
        order: the numbers of the algorithms, the first of which is tried first.
        workspace: bytes that it may have.
    """

    def __init__(
        self, library: CublasLt, product: Product, plan: _Plan, workspace: int
    ) -> None:
        self.library = library
        self.product = product
        self.plan = plan
        self.workspace = workspace
        self.order = list(range(len(plan.suggestions)))

    def bind(self, addresses: Sequence[int], workspace: int) -> BoundProduct:
        """The product of what is at *addresses*, ready to be queued.

        Args:
            addresses: of A, B, C and the bias if there are such, and D, which were
                checked to be in memory.
            workspace: its address; 0 where there is none.
        """
        a, b, c, d, bias = _named(self.product, addresses)
        description = self.library.description(self.product, bias)
        return BoundProduct(self, description, (a, b, c, d), workspace)


class BoundProduct(Record):
    """A product of what is at fixed addresses.

    Attributes:
        addresses: of A, B, C and D; of D twice where there is no C.
        workspace: the address of it.
    """

    prepared: PreparedProduct
    description: c_void_p
    addresses: tuple[int, int, int, int]
    workspace: int

    def queue(self, stream: int) -> None:
        """Queue it on the CUDA stream of this address.

        An algorithm that does not do it after all gives way to the next, for good.

        Raises:
            CublasError: none does it, or the GPU fails.
        """
        prepared = self.prepared
        while True:
            try:
                prepared.library.queue(self, prepared.order[0], stream)
            except CublasError as error:
                if error.code not in _REFUSALS or len(prepared.order) == 1:
                    raise
                prepared.order = prepared.order[1:]
                continue
            return


class _Trial:
    """Measures the algorithms of a product, on memory of its own."""

    def __init__(
        self, library: CublasLt, bench: Bench, prepared: PreparedProduct
    ) -> None:
        self._library, self._bench, self._prepared = library, bench, prepared
        self._memories: list[Scratch] = []
        self._bound: BoundProduct | None = None

    def seconds(self, number: int) -> float:
        """The time of the algorithm of a number.

        Raises:
            CublasError: it does not do the product.
            MemoryError: there is no memory to measure with.
        """
        bound = self._bound = self._bound or self._bound_to_scratch()
        return self._bench.seconds(
            lambda stream: self._library.queue(bound, number, stream)
        )

    def _bound_to_scratch(self) -> BoundProduct:
        needed = (*self._prepared.product.needed, self._prepared.workspace)
        self._memories = [self._bench.memory(each) for each in needed]
        *addresses, workspace = (memory.address for memory in self._memories)
        return self._prepared.bind(addresses, workspace)


def _named(product: Product, given: Sequence[int]) -> tuple[int, int, int, int, int]:
    """Of what :attr:`Product.needed` is of: A, B, C, D, and the bias, or 0.  Without C,
    D stands there, as it does in NVIDIA's samples."""
    a, b, *between, d = given
    c = d if product.c is None else between.pop(0)
    return a, b, c, d, between.pop() if product.has_bias else 0


def _alignment(address: int) -> int:
    """Bytes by which an address is divided, a power of two."""
    return min(address & -address, _MOST_ALIGNMENT) or _MOST_ALIGNMENT
