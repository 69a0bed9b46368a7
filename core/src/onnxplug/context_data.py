"""The bytes of compiled models in callbacks of programs, in ONNX Runtime's words.

By them a program keeps the files of compiled models where it likes: encrypted, say, or
in an archive of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from onnxplug.errors import ContextError, InvalidArgument
from onnxplug.interruption import raise_interruption


class OrtEpContextData:
    """Bytes that a compiled model would have in a file of this name.

    Attributes:
        size: how many.
    """

    def __init__(self, parts: list[memoryview]) -> None:
        self._parts: Final = parts
        self.size: Final = sum(map(len, parts))

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A copy of *length* bytes from *offset* on, by default of all that follow.

        Raises:
            InvalidArgument: there are not as many.
        """
        end = self.size if length is None else offset + length
        if not 0 <= offset <= end <= self.size:
            raise InvalidArgument(
                f"bytes {offset} to {end} were asked for, of {self.size}"
            )
        found = bytearray()
        start = 0
        for part in self._parts:
            inner = part[max(0, offset - start) : max(0, end - start)]
            found += inner
            start += len(part)
        return bytes(found)


class OrtEpContextDataBuffer:
    """Takes the bytes of a file of a compiled model.

    Attributes:
        max_size: the most that it takes.
    """

    def __init__(self, max_size: int) -> None:
        self.max_size: Final = max_size
        self._content: bytearray | None = None

    @property
    def is_allocated(self) -> bool:
        """Whether :meth:`allocate` was called."""
        return self._content is not None

    @property
    def size(self) -> int:
        """How many bytes it takes; 0 before it is allocated."""
        return len(self._content or b"")

    def allocate(self, size: int) -> None:
        """Make room for *size* bytes; to be called once.

        Raises:
            InvalidArgument: it was called before, or *size* is above the limit.
        """
        if self._content is not None:
            raise InvalidArgument("the buffer was allocated before; write() to it")
        if not 0 <= size <= self.max_size:
            raise InvalidArgument(
                f"{size} bytes are asked for; the limit that was given to "
                f"set_ep_context_data_read_func is {self.max_size}"
            )
        self._content = bytearray(size)

    def write(self, data: Any, offset: int = 0) -> None:
        """Copy *data* to *offset*.

        Raises:
            InvalidArgument: it does not fit, or nothing was allocated.
        """
        view = memoryview(data).cast("B")
        if self._content is None:
            raise InvalidArgument("the buffer was not allocated; call allocate()")
        if not 0 <= offset <= offset + len(view) <= len(self._content):
            raise InvalidArgument(
                f"{len(view)} bytes at {offset} do not fit into {len(self._content)}"
            )
        self._content[offset : offset + len(view)] = view

    def content(self, name: str) -> memoryview:
        """What was written, read-only.

        Raises:
            ContextError: nothing was allocated.
        """
        if self._content is None:
            raise ContextError(
                f"the function of set_ep_context_data_read_func allocated nothing for "
                f"{name!r}"
            )
        return memoryview(self._content).toreadonly()


ReadFunction = Callable[[str, OrtEpContextDataBuffer], None]
"""Writes what is in the file of a name to a buffer."""

WriteFunction = Callable[[str, OrtEpContextData], None]
"""Takes what would be in the file of a name."""


def reader(read: ReadFunction, max_size: int) -> Callable[[str], memoryview]:
    """A function that gives the content of a file by asking *read* for it."""

    def content(name: str) -> memoryview:
        buffer = OrtEpContextDataBuffer(max_size)
        try:
            read(name, buffer)
        except Exception as error:
            raise_interruption(error)
            raise ContextError(
                "the function of set_ep_context_data_read_func failed for "
                f"{name!r}: {type(error).__name__}: {error}"
            ) from error
        return buffer.content(name)

    return content
