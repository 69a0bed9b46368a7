"""A contraction while it is recorded, whatever its arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from onnxplug_cpu.compiler.commands.recording import Recorder, call
from onnxplug_cpu.compiler.commands.words import Word, Words
from onnxplug_cpu.compiler.kernels.contraction.division import Blocks, Division

if TYPE_CHECKING:
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.codegen.kernel import Kernel
    from onnxplug_cpu.compiler.kernels.contraction.operands import Contraction


class Product(ABC):
    """A contraction, its sizes by name.

    Attributes:
        recorder: receives the commands.
        contraction: what is computed.
        label: for profiles.
        batches: matrices of the result.
        lines, line_rows: of each.
        rows: of all its lines.
        columns: of each.
        taps, depth: elements of K, *depth* for each tap; together *inner*.
        itemsize: bytes of an element.
        flops: floating-point operations.
        nbytes: that are read and written at least.
    """

    def __init__(
        self,
        recorder: Recorder,
        contraction: Contraction,
        label: str,
    ) -> None:
        self.recorder = recorder
        self.contraction = contraction
        self.a, self.b, self.out = contraction.a, contraction.b, contraction.out
        self.label = label
        self.batches = self.out.shape[0] * self.out.shape[1]
        self.lines, self.line_rows, self.columns = self.out.shape[2:]
        self.rows = self.lines * self.line_rows
        self.taps, self.depth = len(contraction.offsets), self.a.shape[4]
        self.inner = self.taps * self.depth
        self.itemsize = self.a.dtype.itemsize
        self.nbytes = contraction.nbytes
        self.flops = 2 * self.batches * self.rows * self.columns * self.inner

    @abstractmethod
    def record(self) -> None:
        """Record the commands."""

    def call(
        self,
        kernel: Kernel,
        a: View,
        division: Division,
        blocks: Blocks,
        words: dict[str, Word],
    ) -> None:
        """Record a command with those of :class:`~.chunk.ChunkWords` and *words*.

        Args:
            kernel: takes the words.
            a: the contraction's, or a copy.
            division: of each matrix of the result.
            blocks: of K.
            words: the others of *kernel*.
        """
        contraction, out, size = self.contraction, self.out, self.itemsize
        if contraction.epilogue is not None:
            # where its first result lies, which a kernel may ask the caches for
            out = contraction.epilogue.outputs[0]
        words |= {
            "a": a.address,
            "a_batch0": a.strides[0] * size,
            "a_batch1": a.strides[1] * size,
            "a_line": a.strides[2] * size,
            "a_row": a.strides[3] * size,
            "taps": self.taps,
            "offsets": Words(contraction.offsets),
            "out": out.address,
            "out_batch0": out.strides[0] * out.dtype.itemsize,
            "out_batch1": out.strides[1] * out.dtype.itemsize,
            "out_line": out.strides[2] * out.dtype.itemsize,
            "out_row": out.strides[3] * out.dtype.itemsize,
            "out_element": out.dtype.itemsize,
            "columns": self.columns,
            "batches1": out.shape[1],
        }
        for more in (division, blocks):
            words.update(zip(more._fields, more, strict=True))
        words |= contraction.epilogue_words()
        call(
            self.recorder,
            kernel,
            words,
            chunks=self.batches * division.row_parts * division.column_parts,
            label=self.label,
            flops=self.flops,
            nbytes=self.nbytes,
        )
