"""Names the bytes of a packed constant by the commands that write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_compiler.ir.buffers import (
    Address,
    Buffer,
    Constant,
    Packed,
    Temporary,
)
from onnxplug_cpu.compiler.commands.words import Code, Command, Word, Words
from onnxplug_cpu.compiler.machine.isa import Isa

DIVIDING: Final = frozenset({"parts"})
"""Words of kernels that, like the number of chunks, say how work is divided among
threads, and not what is written."""


def layout_name(
    commands: Sequence[Command], source: Constant, target: Packed, isa: Isa
) -> str | None:
    """What *commands* make of *source* in *target*: equal for equal bytes of *source*
    only if the bytes that are used of *target* are equal, too.

    It is put together from all that the commands are given, so that nothing can be
    forgotten.

    Returns:
        ``None`` if they read something else, of which only addresses are known.
    """
    places: dict[Buffer, str] = {source: "source", target: "target"}
    try:
        calls = "; ".join(_call(command, places) for command in commands)
    except KeyError:
        return None
    return f"onnxplug-cpu {isa.name} {target.nbytes} bytes: {calls}"


def _call(command: Command, places: dict[Buffer, str]) -> str:
    names = command.kernel.words
    words = ",".join(
        f"{name}={_describe(word, places)}"
        for name, word in zip(names, command.words, strict=True)
        if name not in DIVIDING
    )
    return f"{command.kernel.key}({words})"


def _describe(word: Word, places: dict[Buffer, str]) -> str:
    match word:
        case Address(buffer, offset):
            if buffer not in places and isinstance(buffer, Temporary):
                places[buffer] = f"temporary{len(places)}"
            return f"{places[buffer]}+{offset}"
        case Code(kernel):
            return kernel.key
        case Words(words):
            return f"[{','.join(_describe(each, places) for each in words)}]"
        case number:
            return str(number)
