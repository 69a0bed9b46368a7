"""What commands are recorded for, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir import recorder
from onnxplug_compiler.ir.buffers import Address, Temporary
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import MAX_CHUNKS
from onnxplug_cpu.compiler.commands.words import Command, Word
from onnxplug_cpu.compiler.machine.isa import Isa


def _trusted() -> bool:
    return True


class Machine(Record):
    """A processor, and how commands use it.

    Attributes:
        isa: the processor to generate for.
        workers: how many threads will run the commands, for the number of chunks.
        allow_bf16x3: whether products of float32 may be computed from bfloat16 terms;
            asked only where that is of use.
        largest_tile: of transforms that convolutions may be computed by; 0 for none.
        rounds: of how many terms of bfloat16 factors of products may be at most, by the
            dtype of weights; of those that are not named, of as many as are exact.
        allow_byte_tiles: whether tiles multiply bytes as they should; asked only where
            that is of use.
    """

    isa: Isa
    workers: int
    allow_bf16x3: Callable[[], bool] = bool
    largest_tile: int = 0
    rounds: tuple[tuple[str, int], ...] = ()
    allow_byte_tiles: Callable[[], bool] = _trusted

    @property
    def isa_of_bytes(self) -> Isa:
        """The processor as products of bytes may use it."""
        isa = self.isa
        if isa.multiplies_byte_tiles and not self.allow_byte_tiles():
            return isa.without("amx-int8")
        return isa


Recorder: TypeAlias = recorder.Recorder[Machine]


def worker_memory(recorder: Recorder, nbytes: int) -> tuple[Address, int]:
    """*nbytes* for each worker: the first one's address, and the distance between two
    workers', which is what a kernel multiplies with its worker's number."""
    distance = -(-nbytes // 64) * 64
    return Address(Temporary(distance * recorder.target.workers)), distance


def call(
    recorder: Recorder,
    kernel: Kernel,
    words: dict[str, Word],
    *,
    chunks: int = 1,
    label: str = "",
    flops: int = 0,
    nbytes: int = 0,
    note: str = "",
) -> None:
    """Record a command; *words* are by name, in any order.

    Raises:
        ValueError: other words than the kernel's, or too many chunks.
    """
    if words.keys() != set(kernel.words):
        raise ValueError(
            f"{kernel.key} takes the words {sorted(kernel.words)}; got {sorted(words)}"
        )
    if not 0 <= chunks <= MAX_CHUNKS:
        raise ValueError(
            f"{label or kernel.key} has {chunks} chunks; expected 0 to {MAX_CHUNKS}"
        )
    if chunks == 0:
        return
    ordered = tuple(words[name] for name in kernel.words)
    recorder.commands.append(
        Command(kernel, ordered, chunks, label, flops, nbytes, recorder.nodes, note)
    )
