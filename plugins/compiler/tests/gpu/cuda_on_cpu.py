"""Launches of kernels in CUDA C++ on the processor, compiled by its compiler."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug_compiler.gpu.command import MOST_GROUPS, Launch, render
from onnxplug_compiler.gpu.render.cuda import CUDA
from onnxplug_compiler.ir.buffers import Buffer, Constant, Flag, Temporary
from onnxplug_compiler.ir.views import View
from onnxplug_testing import cuda_on_cpu


class Rendered:
    """A launch with its text.

    Attributes:
        bindings: the buffers, each once, as the text numbers them.
        words: the numbers of the launch.
        written: which of the buffers the kernel writes to.
        intervals: of each buffer which bytes the views have, in whole words.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        numbers: dict[Buffer, int] = {}
        operands = [numbers.setdefault(v.buffer, len(numbers)) for v in launch.views]
        body = render(launch.kernel, operands, CUDA)
        self.text = body.text(launch.kernel.lanes)
        self.bindings = list(numbers)
        self.written = [each.written for each in body.buffers]
        words = list(launch.sizes)
        for view in launch.views:
            words += [view.offset // view.dtype.itemsize, *view.strides]
        assert len(words) == body.words
        self.words = struct.pack(f"<{len(words)}i", *words)
        self.intervals: list[list[tuple[int, int, bool]]] = [[] for _ in numbers]
        for view, operand in zip(launch.views, launch.kernel.operands, strict=True):
            begin, end = span(view)
            self.intervals[numbers[view.buffer]].append((begin, end, operand.written))


def span(view: View) -> tuple[int, int]:
    """Where the bytes of a view begin and end in its buffer, in whole words."""
    first = last = view.offset
    for size, stride in zip(view.shape, view.strides, strict=True):
        far = (size - 1) * stride * view.dtype.itemsize
        first, last = first + min(far, 0), last + max(far, 0)
    empty = 0 in view.shape
    return first // 4 * 4, first if empty else -(-(last + view.dtype.itemsize) // 4) * 4


class Processor:
    """Memory, and kernels.

    Args:
        native: what runs them.
    """

    def __init__(self, native: cuda_on_cpu.Processor) -> None:
        self._native = native
        self._memory: dict[Buffer, np.ndarray[Any, Any]] = {}

    def _bytes(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """What is in a buffer, in whole words, aligned as a GPU's memory is."""
        found = self._memory.get(buffer)
        if found is None:
            size = -(-max(buffer.nbytes, 1) // 4) * 4
            room = np.full(size + 256, 0xA5, np.uint8)
            found = self._memory[buffer] = room[-room.ctypes.data % 256 :][:size]
            if isinstance(buffer, Flag):
                found[:] = 0
            elif isinstance(buffer, Constant):
                content = buffer.array.reshape(-1).view(np.uint8)
                found[: content.size] = content
        return found

    def array(self, content: np.ndarray[Any, Any]) -> View:
        """A view of an array with this content."""
        content = np.ascontiguousarray(content)
        view = View.contiguous(Temporary(content.nbytes), content.dtype, content.shape)
        self.write(view, content)
        return view

    def write(self, view: View, content: np.ndarray[Any, Any]) -> None:
        """Give a contiguous view, the only one of its buffer, another content."""
        flat = content.reshape(-1).view(np.uint8)
        self._bytes(view.buffer)[: flat.size] = flat

    def read(self, view: View) -> np.ndarray[Any, Any]:
        """What is in a view."""
        buffer = self._bytes(view.buffer)[: view.buffer.nbytes]
        strides = [stride * view.dtype.itemsize for stride in view.strides]
        return np.ndarray(
            view.shape, view.dtype, buffer, view.offset, strides
        ).copy()  # fmt: skip

    def run(self, launches: Sequence[Launch]) -> None:
        """Compile and run launches, in order."""
        rendered = [Rendered(launch) for launch in launches]
        for each in rendered:
            self._native.kernel(each.text)
        for each in rendered:
            self.run_text(each, each.text)

    def compile(self, texts: Sequence[str]) -> None:
        """Compile kernels together that :meth:`run_text` runs."""
        for text in texts:
            self._native.kernel(text)
        self._native.compile()

    def run_text(self, each: Rendered, text: str, seed: int | None = None) -> None:
        """Run a launch as if its kernel had this text."""
        arguments: list[cuda_on_cpu.Memory | bytes] = []
        for buffer, written, intervals in zip(
            each.bindings, each.written, each.intervals, strict=True
        ):
            memory = self._bytes(buffer)
            address = memory.ctypes.data
            arguments.append(
                cuda_on_cpu.Memory(address, memory.size, written, tuple(intervals))
            )
        x = min(each.launch.groups, MOST_GROUPS)
        self._native.kernel(text).launch(
            (x, -(-each.launch.groups // x)),
            (each.launch.kernel.lanes,),
            [*arguments, each.words],
            seed=seed,
        )
