"""Programs for all sizes that are alike, made from a plan of traced sizes.

Which commands there are, and where everything is in their block, was found once; what
sizes decide are expressions of those of the inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Check, Packed
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.trace import Trace
from onnxplug_compiler.ir.traced import MARK, NotTraced
from onnxplug_cpu.compiler.commands.laid import Laid
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.link import (
    Contents,
    Outline,
    buffers_of,
    identities_of,
)
from onnxplug_cpu.compiler.runtime.linked import ErrorFound, LinkedProgram
from onnxplug_cpu.compiler.runtime.program import resolve
from onnxplug_cpu.compiler.runtime.template import Described, Template, head_of
from onnxplug_cpu.compiler.runtime.time_slices import Division, seconds_of_all

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.words import ChosenCode, Command
    from onnxplug_cpu.compiler.runtime.jit import Library


_MOST_ADDRESSES: Final = 1024
"""Of kernels that sizes choose, that are kept to be found at once."""


class ParametricProgram:
    """The programs of one plan of traced sizes; safe to use from several threads.

    Args:
        trace: of the sizes.
        work: the commands; all packed constants are there.
        shapes: of the outputs, of traced sizes.
        rank: axes of the inputs and outputs together.
        library: has the machine code of kernels.
        workers: threads that a command may use.
        arenas: those of the session.
        n_inputs: how many of the arrays of a run are inputs.

    Raises:
        NotTraced: something of it cannot be told by sizes.
    """

    def __init__(
        self,
        trace: Trace,
        work: Work,
        shapes: Sequence[tuple[int, ...]],
        rank: int,
        *,
        library: Library,
        workers: int,
        arenas: Arenas,
        n_inputs: int,
    ) -> None:
        self._library: Final = library
        self._workers: Final = workers
        self._arenas: Final = arenas
        self._n_inputs: Final = n_inputs
        self._shapes = [len(shape) for shape in shapes]
        laid: list[Laid] = [each.piece.assembly for each in work.placed]
        self._check(work, laid)
        resolve(work, library, lambda: None)
        self._buffers: Final = buffers_of(work)
        n_arrays = n_inputs + len(shapes)
        # the commands, and the shapes and dtypes of arrays before them
        head = len(head_of(n_inputs, n_arrays, [_OfRank()] * n_arrays)) + rank
        self._outline: Final = Outline(
            work, head, self._buffers, identities_of(self._buffers)
        )
        self._entries = list(chain.from_iterable([each.entries for each in laid]))
        self._pauses = any(each.pauses for each in laid)
        self._checks = [
            Check(check.flag, lambda found: ErrorFound(), check.nodes)
            for check in work.checks
        ]
        words, traced, chosen = _joined(laid)
        self._words = np.frombuffer(words, np.uint64)
        self._traced = np.array([place for place, _ in traced], np.int64)
        self._chosen = np.array([place for place, _ in chosen], np.int64)
        self._makes = [(code.make, len(code.sizes)) for _, code in chosen]
        self._addresses: dict[Any, int] = {}
        commands: Sequence[Command] = [
            command  # type: ignore[misc]
            for each in work.placed
            for command in each.piece.commands
        ]
        offsets = chain.from_iterable([each.offsets for each in work.placed])
        parts = [
            [size for _, size in traced],
            list(offsets),
            [command.chunks for command in commands],
            [self._buffers[at].nbytes for at in self._outline.temporaries],
            [command.flops for command in commands],
            [command.nbytes for command in commands],
            list(chain.from_iterable([code.sizes for _, code in chosen])),
            list(chain.from_iterable(shapes)),
        ]
        self._ends = list(np.cumsum([len(part) for part in parts]).tolist())
        self._evaluate = trace.finished(list(chain.from_iterable(parts)))

    def _check(self, work: Work, laid: Sequence[Laid]) -> None:
        kernels = [*chain.from_iterable([each.kernels for each in laid])]
        kernels += [kernel for each in laid for _, kernel in each.code]
        if any(MARK in kernel.key for kernel in kernels):
            raise NotTraced("a kernel depends on the text of a size")
        for each in buffers_of(work):
            if isinstance(each, Packed) and each.memory is None:
                raise NotTraced("a constant is not packed yet")

    def shapes(self, found: Sequence[Any]) -> list[tuple[int, ...]]:
        """The shapes of the outputs, of what :meth:`evaluate` gave."""
        shapes, first = [], self._ends[-2]
        for rank in self._shapes:
            shapes.append(tuple(found[first : first + rank]))
            first += rank
        return shapes

    def evaluate(self, sizes: Sequence[int]) -> list[Any] | None:
        """What :meth:`shapes` and :meth:`program` take; ``None`` if these sizes are
        not like those of the plan."""
        try:
            return self._evaluate(*sizes)
        except ArithmeticError:  # before a guard that would have failed
            return None

    def template(self, found: Sequence[Any], specs: Sequence[Described]) -> Template:
        """The block for such sizes; see :meth:`program`."""
        words, offsets, chunks, temporaries, _, nbytes, chosen, _ = self._ends
        block = self._words.copy()
        block[self._chosen] = self._code(found[nbytes:chosen])
        block[self._traced] = np.array(found[:words], np.int64).view(np.uint64)
        contents = Contents(
            block.tobytes(),
            list(found[words:offsets]),
            self._entries,
            list(found[offsets:chunks]),
            list(found[chunks:temporaries]),
            self._pauses,
        )
        head = head_of(self._n_inputs, len(specs), specs)
        return self._outline.completed(
            contents, head, self._buffers, self._n_inputs, len(specs), self._arenas
        )

    def program(
        self, found: Sequence[Any], specs: Sequence[Described]
    ) -> LinkedProgram:
        """The program for such sizes.

        A run of it that finds an error raises :class:`ErrorFound`.

        Args:
            found: what :meth:`evaluate` gave.
            specs: of the inputs and outputs.
        """
        _, offsets, chunks, temporaries, flops, nbytes, *_ = self._ends
        counts = found[offsets:chunks]
        workers = self._workers
        work = found[temporaries:flops], found[flops:nbytes]
        costs = seconds_of_all(*work, counts, workers)
        return LinkedProgram(
            self.template(found, specs),
            Division(counts, costs, workers),
            self._library,
            workers,
            n_inputs=self._n_inputs,
            specs=specs,
            arenas=self._arenas,
            checks=self._checks,
        )

    def _code(self, sizes: Sequence[int]) -> list[int]:
        """The addresses of the kernels that sizes choose."""
        addresses, known, first = [], self._addresses, 0
        for number, (make, count) in enumerate(self._makes):
            key = (number, *sizes[first : first + count])
            first += count
            address = known.get(key)
            if address is None:
                kernel = make(*key[1:])
                address = self._library.addresses([kernel])[kernel]
                if len(known) >= _MOST_ADDRESSES:
                    known.clear()
                known[key] = address
            addresses.append(address)
        return addresses


class _OfRank:
    """An array of rank 0."""

    dtype = None
    shape = ()


def _joined(
    laid: Sequence[Laid],
) -> tuple[bytearray, list[tuple[int, Any]], list[tuple[int, ChosenCode]]]:
    """The words of all pieces, and which of them are traced or chosen code."""
    words, traced = bytearray(), list[tuple[int, Any]]()
    chosen: list[tuple[int, ChosenCode]] = []
    for each in laid:
        first = len(words) // 8
        words += each.words
        traced += [(first + place, size) for place, size in each.traced]
        chosen += [(first + place, code) for place, code in each.chosen]
    return words, traced, chosen
