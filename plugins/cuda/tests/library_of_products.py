"""A stand-in for cuBLASLt that computes what calls mean, in float64.

Its functions are C functions: what is given to them goes through ctypes on both sides,
with the argument types that the header of cuBLASLt has.  It keeps each descriptor's
attributes by the sizes that they really have, refuses others as the library does, reads
and writes the addresses that it is given, and knows which of them are there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import POINTER, c_float, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any

import ml_dtypes
import numpy as np

SUCCESS, INVALID, FAILED, UNSUPPORTED = 0, 7, 13, 15

DTYPES: dict[int, Any] = {
    0: np.float32,
    1: np.float64,
    2: np.float16,
    14: ml_dtypes.bfloat16,
}
EPILOGUES = {
    1: ("", False),
    2: ("relu", False),
    4: ("", True),
    6: ("relu", True),
    32: ("gelu", False),
    36: ("gelu", True),
}
DESCRIPTION = {3: c_int, 4: c_int, 7: c_int, 8: c_void_p}
LAYOUT = {5: c_int, 6: c_int64}
PREFERENCE = {1: c_uint64, **dict.fromkeys((5, 6, 7, 8), ctypes.c_uint32)}
"""The types of attributes that are set, by their numbers."""


class Algo(ctypes.Structure):
    """``cublasLtMatmulAlgo_t``."""

    _fields_ = (("data", c_uint64 * 8),)


class HeuristicResult(ctypes.Structure):
    """``cublasLtMatmulHeuristicResult_t``."""

    _fields_ = (
        ("algo", Algo),
        ("workspaceSize", c_size_t),
        ("state", c_int),
        ("wavesCount", c_float),
        ("reserved", c_int * 4),
    )


def gelu(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """By tanh."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return np.asarray(0.5 * x * (1 + np.tanh(inner)))


def tf32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Rounded to ten bits behind the point, halves to even."""
    bits = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~np.uint64(0x1FFF)
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


class CublasLt:
    """The functions that the EP calls, with what tests plant and look at.

    Attributes:
        memory: arrays that exist; addresses of none of them are refused.
        workspaces: bytes of workspace that the algorithms suggest, in order.
        refuses: numbers of algorithms that do no product after all.
        status: what the heuristic answers.
        calls: names of the functions that were called.
        ran: of each product the algorithm, the workspace, and the stream.
        alive: how many descriptors there are.
        wrong: what was wrong with calls.
    """

    def __init__(self) -> None:
        self.memory: list[np.ndarray[Any, Any]] = []
        self.workspaces = [1 << 20, 0, 1 << 40, 0]
        self.refuses: set[int] = set()
        self.status = SUCCESS
        self.run_status = UNSUPPORTED
        self.calls: list[str] = []
        self.ran: list[tuple[int, int, int]] = []
        self.wrong: list[str] = []
        self._objects: dict[int, dict[Any, Any]] = {}
        self._next = 1000
        self._made: dict[str, Any] = {}
        out = POINTER(c_void_p)
        setter = (c_void_p, c_int, c_void_p, c_size_t)
        for name, function, arguments in [
            ("Create", self._create, (out,)),
            ("Destroy", self._destroy, (c_void_p,)),
            ("MatmulDescCreate", self._create, (out, c_int, c_int)),
            ("MatmulDescDestroy", self._destroy, (c_void_p,)),
            ("MatmulDescSetAttribute", self._setter(DESCRIPTION), setter),
            (
                "MatrixLayoutCreate",
                self._create,
                (out, c_int, c_uint64, c_uint64, c_int64),
            ),
            ("MatrixLayoutDestroy", self._destroy, (c_void_p,)),
            ("MatrixLayoutSetAttribute", self._setter(LAYOUT), setter),
            ("MatmulPreferenceCreate", self._create, (out,)),
            ("MatmulPreferenceDestroy", self._destroy, (c_void_p,)),
            ("MatmulPreferenceSetAttribute", self._setter(PREFERENCE), setter),
            (
                "MatmulAlgoGetHeuristic",
                self._suggest,
                (*(c_void_p,) * 7, c_int, POINTER(HeuristicResult), POINTER(c_int)),
            ),
            (
                "Matmul",
                self._matmul,
                (*(c_void_p,) * 12, POINTER(Algo), c_void_p, c_size_t, c_void_p),
            ),
        ]:
            whole = f"cublasLt{name}"
            kind = ctypes.CFUNCTYPE(c_int, *arguments)
            self._made[whole] = kind(self._logged(whole, function))

    def __getattr__(self, name: str) -> Any:
        try:
            function = self.__dict__["_made"][name]
        except KeyError:
            raise AttributeError(f"undefined symbol: {name}") from None
        # as one of a CDLL: with argument types of its own
        return ctypes.cast(function, ctypes.CFUNCTYPE(c_int))

    @property
    def alive(self) -> int:
        return len(self._objects)

    def _logged(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            self.calls.append(name)
            try:
                return function(*arguments)
            except Exception as error:  # noqa: BLE001  # which ctypes would swallow
                self.wrong.append(f"{name}: {type(error).__name__}: {error}")
                return 14

        return call

    def _create(self, out: Any, *values: int) -> int:
        self._next += 8
        self._objects[self._next] = {"made": values}
        out[0] = self._next
        return SUCCESS

    def _destroy(self, handle: int) -> int:
        del self._objects[handle]
        return SUCCESS

    def _setter(self, types: dict[int, Any]) -> Callable[..., int]:
        def set_(handle: int, attribute: int, value: int, size: int) -> int:
            kind = types[attribute]
            if size != ctypes.sizeof(kind):
                return INVALID
            self._objects[handle][attribute] = kind.from_address(value).value
            return SUCCESS

        return set_

    def _suggest(
        self, handle: int, description: int, a: int, b: int, c: int, d: int,
        preference: int, requested: int, results: Any, count: Any,
    ) -> int:  # fmt: skip
        for each in (handle, description, a, b, c, d, preference):
            self._objects[each]  # which are there
        if self.status:
            return self.status
        count[0] = min(requested, len(self.workspaces))
        for number in range(count[0]):
            results[number].algo.data[0] = number + 1
            results[number].workspaceSize = self.workspaces[number]
        return SUCCESS

    def _matmul(
        self, handle: int, description: int, alpha: int, a: int, layout_a: int, b: int,
        layout_b: int, beta: int, c: int, layout_c: int, d: int, layout_d: int,
        algo: Any, workspace: int | None, nbytes: int, stream: int | None,
    ) -> int:  # fmt: skip
        assert handle in self._objects
        number = algo[0].data[0] - 1
        if number in self.refuses:
            return self.run_status
        about = dict(self._objects[description])
        compute, scale = about["made"]
        kind = ctypes.c_double if DTYPES[scale] is np.float64 else c_float
        assert kind.from_address(alpha).value == 1
        adds = kind.from_address(beta).value
        assert adds in (0, 1)
        places, layouts = (a, b, d), (layout_a, layout_b, layout_d)
        if adds:
            assert c != d
            places, layouts = (a, b, c, d), (layout_a, layout_b, layout_c, layout_d)
        else:
            assert (c, layout_c) == (d, layout_d)
        laid = [dict(self._objects[each]) for each in layouts]

        def compute_product() -> None:
            left, right, *added, out = (
                self._matrices(address, each)
                for address, each in zip(places, laid, strict=True)
            )
            self._compute(about, compute, left, right, out, added)
            if nbytes:
                used = self._array(workspace or 0, np.dtype(np.uint8), (nbytes,), (1,))
                used[:] = 0xAA

        ranges = [
            (address, address + _extent(each), address == d)
            for address, each in zip(places, laid, strict=True)
        ]
        self.submit(stream or 0, compute_product, ranges)
        self.ran.append((number, nbytes, stream or 0))
        return SUCCESS

    def submit(
        self,
        stream: int,
        do: Callable[[], None],
        ranges: Sequence[tuple[int, int, bool]],
    ) -> None:
        """Have *do* done, which touches these addresses: at once."""
        do()

    def _compute(
        self,
        about: dict[Any, Any],
        compute: int,
        left: np.ndarray[Any, Any],
        right: np.ndarray[Any, Any],
        out: np.ndarray[Any, Any],
        added: Sequence[np.ndarray[Any, Any]],
    ) -> None:
        left, right = left.astype(np.float64), right.astype(np.float64)
        if compute == 77:
            left, right = tf32(left), tf32(right)
        if about.get(3):
            left = left.swapaxes(-1, -2)
        if about.get(4):
            right = right.swapaxes(-1, -2)
        result = sum((each.astype(np.float64) for each in added), left @ right)
        activation, has_bias = EPILOGUES[about[7]]
        if has_bias:
            rows = out.shape[-2]
            bias = self._array(about[8], out.dtype, (rows,), (out.dtype.itemsize,))
            result += bias.astype(np.float64)[:, None]
        if activation == "relu":
            result = np.maximum(result, 0)
        elif activation == "gelu":
            result = gelu(result)
        out[...] = result.astype(out.dtype)

    def _matrices(self, address: int, about: dict[Any, Any]) -> np.ndarray[Any, Any]:
        """[batch, rows, columns], as a layout has them, in columns."""
        kind, rows, columns, leading = about["made"]
        assert leading >= rows
        dtype = np.dtype(DTYPES[kind])
        size = dtype.itemsize
        return self._array(
            address,
            dtype,
            (about.get(5, 1), rows, columns),
            (about.get(6, 0) * size, size, leading * size),
        )

    def _array(
        self,
        address: int,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        strides: tuple[int, ...],
    ) -> np.ndarray[Any, Any]:
        last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        found = self.bytes(address, last + dtype.itemsize)
        return np.ndarray(shape, dtype, found.data, 0, strides)

    def bytes(self, address: int, nbytes: int) -> np.ndarray[Any, Any]:
        """What is at an address."""
        for array in self.memory:
            begin = array.ctypes.data
            end = address + nbytes
            if begin <= address and end <= begin + array.nbytes:
                return array.reshape(-1).view(np.uint8)[address - begin : end - begin]
        raise AssertionError(f"{address:#x} is in no memory, or too near its end")


def _extent(about: dict[Any, Any]) -> int:
    """Bytes of matrices from the first element to the end."""
    kind, rows, columns, leading = about["made"]
    whole = (about.get(5, 1) - 1) * about.get(6, 0) + (columns - 1) * leading + rows
    return int(whole * np.dtype(DTYPES[kind]).itemsize)
