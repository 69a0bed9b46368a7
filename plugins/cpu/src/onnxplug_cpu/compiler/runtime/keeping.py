"""What is kept of programs that were just made; see :mod:`.kept`."""

from __future__ import annotations

import array
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

from onnxplug import ep
from onnxplug_compiler.ir.buffers import Buffer, Constant, Packed
from onnxplug_compiler.ir.pieces import Work
from onnxplug_cpu.compiler.commands.laid import Laid, work_of
from onnxplug_cpu.compiler.runtime import driver
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.kept import (
    CONTENT,
    NAMED,
    PACKED,
    TARGET,
    Filling,
    KeptProgram,
    Plain,
    Values,
)
from onnxplug_cpu.compiler.runtime.link import link
from onnxplug_cpu.compiler.runtime.packed_layout import layout_name
from onnxplug_cpu.compiler.runtime.program import Program, resolve, seconds_of

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.codegen.kernel import Kernel
    from onnxplug_cpu.compiler.runtime.jit import Library
    from onnxplug_cpu.compiler.runtime.template import Described

MOST_CONTENT: Final = 1 << 20
"""Bytes of a computed constant that is kept as it is."""


class _NotKept(Exception):
    """Something of a program has no plain value."""


class _Recipe:
    """How a packed constant is filled.

    Attributes:
        filling: without the source's origin.
        looks: whether the bytes were looked at.
    """

    def __init__(self, filling: Filling, *, looks: bool) -> None:
        self.filling: Final = filling
        self.looks: Final = looks


def note_filling(packed: Sequence[Packed], library: Library, workers: int) -> None:
    """Note how packed constants are filled, which they forget when they are."""
    for buffer in packed:
        with buffer.lock:
            fill, source = buffer.fill, buffer.source
            if buffer.recipe is not None or source is None or not fill:
                continue
            try:
                buffer.recipe = _recipe(buffer, source, fill, library, workers)
            except _NotKept:
                continue


def _recipe(
    buffer: Packed,
    source: Constant,
    fill: Sequence[Any],
    library: Library,
    workers: int,
) -> _Recipe:
    work = work_of(fill)
    resolve(work, library, lambda: None)

    def describe(each: Buffer) -> Plain:
        if each is buffer:
            return (TARGET,)
        if each is not source:
            raise _NotKept
        return (NAMED,)

    kept = _kept(work, 0, 0, None, workers, Arenas(), describe)
    layout = layout_name(fill, source, buffer, library.isa)
    filling = Filling(
        PACKED, _constant(source), layout, int(buffer.nbytes), None, tuple(kept)
    )
    return _Recipe(filling, looks=buffer.accepts is not None)


def kept_program(
    program: Program, origin: Callable[[Plain], str | None]
) -> KeptProgram | None:
    """A program as plain values; ``None`` if it has none.

    Args:
        origin: tells the bytes of a constant from others, if anything does.
    """

    def describe(each: Buffer) -> Plain:
        if not isinstance(each, Packed):
            return _constant(each)
        recipe: _Recipe | None = each.recipe
        if recipe is None:
            raise _NotKept
        filling = recipe.filling
        if recipe.looks:
            found = origin(filling.source)
            if found is None:
                raise _NotKept
            filling = filling._replace(origin=found)
        return tuple(filling)

    specs = program.specs or ()
    n_inputs = program.n_inputs
    try:
        return _kept(
            program.work,
            n_inputs,
            len(specs) - n_inputs,
            specs,
            program.workers,
            program.arenas,
            describe,
        )
    except _NotKept:
        return None


def _kept(
    work: Work,
    n_inputs: int,
    n_outputs: int,
    specs: Sequence[Described] | None,
    workers: int,
    arenas: Arenas,
    describe: Callable[[Buffer], Plain],
) -> KeptProgram:
    template = link(work, n_inputs, n_outputs, specs, arenas)
    if template.pauses:
        raise _NotKept
    constants = tuple([describe(each) for each in template.constants])
    head = int(template.words[driver.COMMANDS]) // 8
    laid: list[Laid] = [each.piece.assembly for each in work.placed]
    code = _code(laid, head, head + 3 * len(work))
    numbers: dict[str, int] = {}
    for _, kernel in code:
        numbers.setdefault(kernel.key, len(numbers))
    return KeptProgram(
        template.words.tobytes(),
        n_inputs,
        None if specs is None else names_of(specs),
        tuple(numbers),
        _bytes([place for place, _ in code]),
        _bytes([numbers[kernel.key] for _, kernel in code]),
        template.arena_words.tobytes(),
        template.block_words.tobytes(),
        template.constant_words.tobytes(),
        template.constant_owners.tobytes(),
        int(template.arena_nbytes),
        constants,
        tuple(map(int, template.flags.values())),
        tuple(map(int, itertools.chain.from_iterable([e.chunks for e in laid]))),
        tuple(map(float, seconds_of(work, workers))),
    )


def names_of(specs: Sequence[Described]) -> Values:
    """Names of dtypes, and shapes."""
    return tuple(
        [
            (
                "" if each.dtype is None else str(ep.DataType.from_numpy(each.dtype)),
                tuple(map(int, each.shape)),
            )
            for each in specs
        ]
    )


def _code(laid: Sequence[Laid], table: int, base: int) -> list[tuple[int, Kernel]]:
    """Which words of a block are addresses of kernels, and of which."""
    found: list[tuple[int, Kernel]] = []
    for each in laid:
        for kernel in each.kernels:
            found.append((table, kernel))
            table += 3
        found += [(base + place, kernel) for place, kernel in each.code]
        base += len(each.words)
    return found


def _constant(constant: Buffer) -> Plain:
    if not isinstance(constant, Constant):
        raise _NotKept
    if constant.key is not None:
        name: str = cast("tuple[int, str]", constant.key)[1]
        return NAMED, name, int(constant.nbytes)
    if constant.nbytes > MOST_CONTENT or constant.array.dtype.hasobject:
        raise _NotKept
    return CONTENT, constant.array.tobytes(), int(constant.nbytes)


def _bytes(numbers: Sequence[int]) -> bytes:
    return array.array("q", numbers).tobytes()
