"""What to say when there is no memory for a program: which node needs most of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_compiler.ir.buffers import Address, Buffer, Output, Packed, Temporary
from onnxplug_cpu.compiler.commands.words import Command, Word, Words


def out_of_memory(
    commands: Sequence[Command], nodes: Mapping[int, ep.Node], error: MemoryError
) -> ep.OutOfMemory:
    """The error that names the largest value of *commands*, and the node it is of.

    Args:
        nodes: the graph's nodes, by index.
        error: what was raised; one that names a node already is returned.
    """
    largest: Buffer | None = None
    maker: Command | None = None
    for command in commands:
        for buffer in _buffers(command.words):
            if isinstance(buffer, Temporary | Output | Packed) and (
                largest is None or buffer.nbytes > largest.nbytes
            ):
                largest, maker = buffer, command
    if largest is None or maker is None:
        return ep.OutOfMemory.of(error, "a compiled program")
    known = [nodes[index] for index in maker.nodes if index in nodes]
    name = ", ".join(map(describe, known)) or maker.label or maker.kernel.key
    packed = (
        ", a constant in its kernel's layout," if isinstance(largest, Packed) else ""
    )
    return ep.OutOfMemory.of(
        error,
        f"a compiled program of {len(commands)} commands, whose largest value{packed} "
        f"has {largest.nbytes:,} bytes, at {name},",
        node=(known[0].name or describe(known[0])) if known else "",
        nbytes=largest.nbytes,
    )


def _buffers(words: Iterable[Word]) -> Iterator[Buffer]:
    nested = [words]
    while nested:
        for word in nested.pop():
            if isinstance(word, Address):
                yield word.buffer
            elif isinstance(word, Words):
                nested.append(word.words)
