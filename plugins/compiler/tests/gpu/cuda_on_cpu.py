"""Launches of kernels in CUDA C++ on the processor, compiled by its compiler."""

from __future__ import annotations

import ctypes
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from onnxplug_compiler.gpu.command import MOST_GROUPS, Launch, render
from onnxplug_compiler.gpu.render.cuda import CUDA
from onnxplug_compiler.ir.buffers import Buffer, Constant, Flag, Temporary
from onnxplug_compiler.ir.views import View

GUARD = 64
"""Bytes before and after a buffer that nobody may write to."""

CALLER = """
#undef kernel
#undef onnxplug
static void call_{n}(void* p) {{
  unsigned** b = (unsigned**)p;
  onnxplug_{n}::Words words;
  memcpy(&words, b[{count}], sizeof words);
  onnxplug_{n}::kernel_{n}({buffers}words);
}}
extern "C" bool launch_{n}(void* p, unsigned x, unsigned y) {{
  return launch(call_{n}, p, x, y, {lanes});
}}
"""


class Rendered:
    """A launch with its text.

    Attributes:
        bindings: the buffers, each once, as the text numbers them.
        words: the numbers of the launch.
        written: which of the buffers the kernel writes to.
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


class Processor:
    """Memory, and kernels that are compiled together.

    Args:
        folder: where files of the compiler are.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._memory: dict[Buffer, np.ndarray[Any, Any]] = {}

    def _bytes(self, buffer: Buffer) -> np.ndarray[Any, Any]:
        """A buffer, and what is around it."""
        found = self._memory.get(buffer)
        if found is None:
            size = -(-max(buffer.nbytes, 1) // 4) * 4
            found = self._memory[buffer] = np.full(size + 2 * GUARD, 0xA5, np.uint8)
            if isinstance(buffer, Flag):
                found[:] = 0
            elif isinstance(buffer, Constant):
                content = buffer.array.reshape(-1).view(np.uint8)
                found[GUARD : GUARD + content.size] = content
        return found

    def array(self, content: np.ndarray[Any, Any]) -> View:
        """A view of an array with this content."""
        content = np.ascontiguousarray(content)
        buffer = Temporary(content.nbytes)
        self._bytes(buffer)[GUARD : GUARD + content.nbytes] = content.reshape(-1).view(
            np.uint8
        )
        return View.contiguous(buffer, content.dtype, content.shape)

    def read(self, view: View) -> np.ndarray[Any, Any]:
        """What is in a view."""
        buffer = self._bytes(view.buffer)[GUARD:][: view.buffer.nbytes]
        strides = [stride * view.dtype.itemsize for stride in view.strides]
        return np.ndarray(
            view.shape, view.dtype, buffer, view.offset, strides
        ).copy()  # fmt: skip

    def run(self, launches: Sequence[Launch]) -> None:
        """Compile and run launches, in order."""
        rendered = [Rendered(launch) for launch in launches]
        lines = [f'#include "{Path(__file__).with_suffix(".h")}"']
        for n, each in enumerate(rendered):
            buffers = "".join(f"b[{number}], " for number in range(len(each.bindings)))
            lines += [
                f"#define kernel kernel_{n}\n#define onnxplug onnxplug_{n}",
                each.text.replace('extern "C" ', ""),
                CALLER.format(
                    n=n,
                    count=len(each.bindings),
                    buffers=buffers,
                    lanes=each.launch.kernel.lanes,
                ),
            ]
        # one that is loaded is not written to
        library = self._folder / f"kernels{len(list(self._folder.iterdir()))}.so"
        source = library.with_suffix(".cpp")
        source.write_text("\n".join(lines), "utf-8")
        # what C++ does not define ends the process
        options = "-std=c++17 -O1 -shared -fPIC -w -ffp-contract=off".split()
        checks = ["-fsanitize=undefined", "-fsanitize-undefined-trap-on-error"]
        command = ["g++", *options, *checks, "-fno-strict-aliasing", source]
        subprocess.run([*command, "-o", library], check=True)
        native = ctypes.CDLL(str(library))
        for n, each in enumerate(rendered):
            self._launch(getattr(native, f"launch_{n}"), each)

    def _launch(self, function: Any, each: Rendered) -> None:
        memories = [self._bytes(buffer) for buffer in each.bindings]
        before = [memory.copy() for memory in memories]
        words = ctypes.create_string_buffer(each.words)
        places = [memory.ctypes.data + GUARD for memory in memories]
        arguments = (ctypes.c_void_p * (len(places) + 1))(
            *places, ctypes.addressof(words)
        )
        function.restype = ctypes.c_bool
        x = min(each.launch.groups, MOST_GROUPS)
        ended = function(arguments, x, -(-each.launch.groups // x))
        assert ended, f"{each.launch.label}: some lanes wait for others that ended"
        for memory, was, written in zip(memories, before, each.written, strict=True):
            if written:
                memory, was = (
                    np.concatenate([each[:GUARD], each[-GUARD:]])
                    for each in (memory, was)
                )
            assert (memory == was).all(), f"{each.launch.label} writes out of arrays"
