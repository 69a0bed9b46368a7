"""How many threads numpy's matrix products may use while a session runs."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import numpy as np

from onnxplug.authoring.locks import new_lock
from onnxplug_kernels.families import FAMILIES

_MULTIPLYING: Final = frozenset(
    ("attention", "conv", "matmul", "ml.linear", "ml.svm", "quantize", "resize", "rnn")
)
"""Families of kernels that multiply matrices, some of their operators at least."""

_BOUNDED: Final = frozenset(("matmul",))
"""Those of them whose products are no larger than factors of these sizes allow."""

_FEW: Final = 512
"""Elements of two factors whose product is not worth a second thread: 512 × 512
multiplications at most, up to which OpenBLAS uses one."""

_lock = new_lock()
_entered: list[Sequence[int]] = []
"""For each limit that is in force the threads that each BLAS had before it."""

_left: list[Sequence[int]] = []
"""In the child of a fork, what each had before the limits that threads of the parent
had set."""

_MOVING: Final = frozenset(("optional", "sequence", "shape", "text"))
"""Families of kernels that leave numbers as they are."""


def uses_blas(domain: str, op_type: str) -> bool:
    """Whether kernels of an operator may multiply matrices; of others than ONNX's own
    nobody knows."""
    family = FAMILIES.get((domain, op_type))
    return family is None or family in _MULTIPLYING


def limits_itself(domain: str, op_type: str) -> bool:
    """Whether kernels of an operator are to be called by way of :func:`limiting`."""
    return FAMILIES.get((domain, op_type)) in _BOUNDED


def limiting(function: Callable[..., Any], threads: int) -> Callable[..., Any]:
    """*function* of arrays, which has BLAS use *threads* threads if there is enough for
    two to do: to see to that takes longer than a small product."""

    @functools.wraps(function)
    def limited(*arrays: Any, **named: Any) -> Any:
        if len(arrays) <= 2:
            for array in arrays:
                if array is None or array.size > _FEW:
                    break
            else:
                return function(*arrays, **named)
        with limited_to(threads):
            return function(*arrays, **named)

    return limited


def computes(domain: str, op_type: str) -> bool:
    """Whether kernels of an operator compute with floating-point numbers, as far as
    anybody knows."""
    return op_type != "ZipMap" and FAMILIES.get((domain, op_type)) not in _MOVING


class on_arrays(AbstractContextManager[None]):
    """A context for kernels on arrays: floating-point errors are values, not warnings,
    and BLAS uses at most *threads* threads, as it likes with 0."""

    __slots__ = ("_errors", "_limit")

    def __init__(self, threads: int) -> None:
        self._errors = np.errstate(all="ignore")
        self._limit = limited_to(threads) if threads else None

    def __enter__(self) -> None:
        self._errors.__enter__()
        if self._limit is not None:
            self._limit.__enter__()

    def __exit__(self, *raised: object) -> None:
        if self._limit is not None:
            self._limit.__exit__()
        self._errors.__exit__(None, None, None)


def called_on_arrays(threads: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """*function*, called in such a context, which takes a shorter time."""
    if threads:

        def called(*given: Any) -> Any:
            with on_arrays(threads):
                return function(*given)

        return called
    quiet: Callable[..., Any] = np.errstate(all="ignore")(function)
    return quiet


class limited_to(AbstractContextManager[None]):
    """A context in which BLAS uses at most *threads* threads.

    The limit is the process's: two sessions that run at the same time share the one
    that was set last.  When no session is in such a context any more, it is again what
    it was before the first was.
    """

    __slots__ = ("_threads",)

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        with _lock:
            found = _threads_of_blas()
            if _left:
                _set(_left.pop(), found)
                found = _threads_of_blas()
            _entered.append(found)
            _set([self._threads] * len(found), found)

    def __exit__(self, *raised: object) -> None:
        with _lock:
            # only the first remembers what was before them all, and it is popped last
            before = _entered.pop()
            if not _entered:
                _set(before, _threads_of_blas())


def _start_child() -> None:
    # setting BLAS's threads begins new ones, which is left until there is work for them
    _left[:] = _entered[:1]  # which remembers what was before them all
    _entered.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_child)


def _threads_of_blas() -> list[int]:
    return [blas.get_num_threads() for blas in _blas()]


def _set(threads: Sequence[int], found: Sequence[int]) -> None:
    """Set the threads of each where it has others: asking takes less time."""
    for blas, wanted, has in zip(_blas(), threads, found, strict=True):
        if wanted != has:
            blas.set_num_threads(wanted)


@functools.cache
def _blas() -> Sequence[Any]:
    # finding the loaded libraries takes milliseconds
    from threadpoolctl import ThreadpoolController

    found: Any = ThreadpoolController()  # type: ignore[no-untyped-call]
    return tuple(found.select(user_api="blas").lib_controllers)
