"""What wgpu is told to copy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def counted() -> Iterator[dict[str, int]]:
    """Bytes, from the host to the device, ``uploaded``, and from buffer to buffer,
    ``copied``, of which those are that the host reads."""
    from wgpu.backends import wgpu_native

    native: Any = wgpu_native  # whose names it computes
    queue, encoder = native.GPUQueue, native.GPUCommandEncoder
    write, copy = queue.write_buffer, encoder.copy_buffer_to_buffer
    counts = {"uploaded": 0, "copied": 0}

    def writing(self: Any, buffer: Any, start: int, data: Any, *rest: Any) -> None:
        counts["uploaded"] += memoryview(data).nbytes
        write(self, buffer, start, data, *rest)

    def copying(
        self: Any, source: Any, start: int, target: Any, to: int, size: int
    ) -> None:
        counts["copied"] += size
        copy(self, source, start, target, to, size)

    with (
        mock.patch.object(queue, "write_buffer", writing),
        mock.patch.object(encoder, "copy_buffer_to_buffer", copying),
    ):
        yield counts
