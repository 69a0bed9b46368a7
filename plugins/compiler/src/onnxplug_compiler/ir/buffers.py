"""Buffers: the memory that commands read and write, before it is anywhere."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug import ep


class Buffer:
    """Memory that commands read or write, *nbytes*.  Identity is what counts."""

    __slots__ = ("nbytes",)

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class Temporary(Buffer):
    """Memory of a run, 64-byte aligned, alive from the first command that names it to
    the last."""

    __slots__ = ()


class Input(Buffer):
    """What the caller passes at *position*: C-contiguous, never written."""

    __slots__ = ("position",)

    def __init__(self, position: int, nbytes: int) -> None:
        super().__init__(nbytes)
        self.position = position


class Output(Buffer):
    """What the caller receives at *position*: C-contiguous; overlaps no input."""

    __slots__ = ("position",)

    def __init__(self, position: int, nbytes: int) -> None:
        super().__init__(nbytes)
        self.position = position


class Constant(Buffer):
    """An array in C order that plans keep and never write.

    Args:
        nbytes: its size.
        load: gives the array when it is first needed.
        key: tells it from other constants of the session for good; ``None`` if only
            the array's identity does.
        find_source: tells it from constants of other sessions; ``None`` if nothing
            does.

    Attributes:
        memory: where the target has the content; ``None`` as long as it has not.
    """

    __slots__ = ("__weakref__", "_array", "_load", "find_source", "key", "memory")

    def __init__(
        self,
        nbytes: int,
        load: Callable[[], np.ndarray[Any, Any]],
        key: Hashable | None = None,
        find_source: Callable[[], ep.WeightSource | None] | None = None,
    ) -> None:
        super().__init__(nbytes)
        self.find_source = find_source
        self._load = load
        self._array: np.ndarray[Any, Any] | None = None
        self.key = key
        self.memory: Any = None

    def another(self) -> Constant:
        """The same constant, whose content may be in memory for another time."""
        return Constant(self.nbytes, self._load, self.key, self.find_source)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        """The content, which stays in memory from now on."""
        if self._array is None:
            array = self._load()
            if not array.flags.c_contiguous:
                array = np.ascontiguousarray(array)
            self._array = array
        return self._array


Acceptance: TypeAlias = "Callable[[np.ndarray[Any, np.dtype[np.uint8]]], bool]"
"""Looks at the bytes of a packed constant."""


class Packed(Buffer):
    """A constant in a layout of its own, filled once, before its first use.

    Attributes:
        fill: commands over this buffer and constants that write all of it; none when
            they are done.
        source: the constant that they pack; ``None`` then, too.
        lock: held while that is done.
        memory: where the target has the bytes; ``None`` until they are there.
        accepts: whether the bytes may be used, which may depend on the constant; always
            if it is ``None``.
        refused: that they may not; there is no memory then, and will be none.
        recipe: how the target fills it again in another process; ``None`` if it keeps
            nothing of that.
    """

    __slots__ = (
        "__weakref__",
        "accepts",
        "fill",
        "lock",
        "memory",
        "recipe",
        "refused",
        "source",
    )

    def __init__(self, nbytes: int, accepts: Acceptance | None = None) -> None:
        super().__init__(nbytes)
        self.source: Constant | None = None
        self.fill: tuple[Any, ...] = ()
        self.lock: Final = new_rlock()
        self.memory: Any = None
        self.accepts = accepts
        self.refused = False
        self.recipe: Any = None


class Flag(Buffer):
    """An i64 that is 0 when a run begins; another value at its end fails the run."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(8)


class Check(Record):
    """What to look at after a run.

    Attributes:
        flag: where a command may have written.
        error: makes the exception to raise from what was written.
        nodes: indices of the graph's nodes whose commands write it.
    """

    flag: Flag
    error: Callable[[int], Exception]
    nodes: tuple[int, ...]


class Address(Record):
    """The place of a byte of a buffer."""

    buffer: Buffer
    offset: int = 0


def constant_named(partition: ep.Partition, name: str, nbytes: int) -> Constant:
    """A constant of the partition, loaded when its address is asked for."""
    return Constant(
        nbytes,
        functools.partial(content_of, partition, name),
        (id(partition.graph), name),
        functools.partial(partition.weight, name),
    )


def content_of(partition: ep.Partition, name: str) -> np.ndarray[Any, Any]:
    """The content of a constant of the partition."""
    content = partition.constant(name)
    assert content is not None, f"{name} is no constant"
    return np.asarray(content)
