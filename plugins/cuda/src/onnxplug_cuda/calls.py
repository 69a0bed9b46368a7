"""Calls of libraries: what a library is to the EP, and its calls on memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_cuda.pool import Memory

_MOST_BOUND: Final = 64
"""Bound calls that are kept of one, for memory that is where it was before."""


class Bound(Protocol):
    """A library's call on memory, ready to be queued."""

    def queue(self, stream: int) -> None:
        """Queue it on a stream of CUDA's."""


class Prepared(Protocol):
    """A library's plan for a call."""

    def bind(self, addresses: Sequence[int], workspace: int) -> Bound:
        """The call on memory.

        Args:
            addresses: where the first element of each of the command's views is.
            workspace: the address of what it may use; 0 where it needs nothing.
        """


class Library(Protocol):
    """What does an EP's calls of one type; see :mod:`onnxplug_cuda.engines`."""

    def prepare(self, call: Any, begins: Sequence[int], workspace: int) -> Prepared:
        """A plan for a call, which is done on whatever memory an arena gives.

        Args:
            begins: bytes from the beginnings of memories to the first elements of the
                command's views.
            workspace: bytes that it may use besides.

        Raises:
            KernelRefused: it is not done.
        """

    def close(self) -> None:
        """Give up the library's own memory; idempotent, after all queued work."""


class LibraryCall:
    """A call of a library in a program.  Used under the device's lock, and within the
    driver's context.

    Args:
        call: plain data, which checks what it is given.
        prepared: the library's plan for it.
    """

    def __init__(self, call: Any, prepared: Prepared) -> None:
        self._call = call
        self._prepared = prepared
        self._known: dict[tuple[int, tuple[int, ...], tuple[int, ...]], Bound] = {}

    def bound(
        self, buffers: Sequence[tuple[Memory, int, int]], workspace: Memory | None
    ) -> Bound:
        """The call on memory, ready to be queued.

        Args:
            buffers: memories in the order of the command's views, where the first
                element of each view is, and how many bytes from there on are there.

        Raises:
            KernelRefused: it leaves what is there.
        """
        room = 0 if workspace is None else workspace.address
        addresses = tuple(memory.address + begin for memory, begin, _ in buffers)
        there = tuple(
            min(nbytes, memory.nbytes - begin) for memory, begin, nbytes in buffers
        )
        key = room, addresses, there
        found = self._known.get(key)
        if found is None:
            try:
                self._call.check(there)
            except ValueError as error:
                raise KernelRefused(str(error)) from error
            if len(self._known) >= _MOST_BOUND:
                self._known.clear()
            found = self._known[key] = self._prepared.bind(addresses, room)
        return found
