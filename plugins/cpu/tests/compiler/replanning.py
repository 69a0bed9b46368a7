"""Compares plans that were put together from what was kept with fresh ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from onnxplug_compiler.frontend.call import Abstract
from onnxplug_compiler.ir.buffers import Address, Buffer, Constant, Input, Output
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.schedule.plan import Plans
from onnxplug_compiler.schedule.planned import Planned
from onnxplug_cpu.compiler.commands.recording import Recorder
from onnxplug_cpu.compiler.commands.words import Code, Word, Words
from onnxplug_cpu.compiler.cpu_target import CpuTarget


@contextmanager
def compared_with_fresh_plans() -> Iterator[list[int]]:
    """A context in which every plan has to be, word for word, what it is without any
    before it; gives how many commands each had."""
    make = Plans.make
    compared: list[int] = []

    def both(
        plans: Plans,
        inputs: Sequence[Abstract],
        recorder: Recorder,
        packed: Any,
        look: Any = lambda: None,
    ) -> Planned:
        found = make(plans, inputs, recorder, packed, look)
        if not isinstance(recorder.target, CpuTarget):
            return found  # whose commands are no words
        anew = Plans(
            plans.calls, plans.forms, plans.constants, plans.inputs, plans.outputs
        )
        fresh = make(anew, inputs, recorder, packed)
        for one, other in zip(found.results, fresh.results, strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert (one.content is None) == (other.content is None)
            if one.content is not None and other.content is not None:
                assert one.content.tobytes() == other.content.tobytes()
        assert described(found.work) == described(fresh.work)
        compared.append(len(found.work))
        return found

    with mock.patch.object(Plans, "make", both):
        yield compared


def described(work: Work) -> list[Any]:
    """All of each command, buffers by their order and what is known of them."""
    numbers: dict[Buffer, int] = {}
    commands: list[Any] = []
    for piece, buffers, offsets, nodes in work.placed:
        real = dict(zip(piece.assembly.buffers, buffers, strict=True))
        before = dict(zip(piece.assembly.buffers, offsets, strict=True))

        def word(
            given: Word,
            real: dict[Buffer, Buffer] = real,
            before: dict[Buffer, int] = before,
        ) -> Any:
            match given:
                case Address(buffer, offset):
                    return before[buffer] + offset, _described(real[buffer], numbers)
                case Code(kernel):
                    return kernel.key
                case Words(words):
                    return [word(each) for each in words]
                case number:
                    return int(number)

        for command in piece.commands:
            commands.append(
                (
                    command.kernel.key,
                    [word(each) for each in command.words],
                    command.chunks,
                    command.label,
                    command.flops,
                    command.nbytes,
                    nodes,
                )
            )
        commands += [
            ("check", str(check.error(7)), _described(check.flag, numbers, real))
            for check in piece.checks
        ]
    return commands


def _described(
    buffer: Buffer,
    numbers: dict[Buffer, int],
    real: dict[Buffer, Buffer] | None = None,
) -> Any:
    buffer = buffer if real is None else real[buffer]
    number = numbers.setdefault(buffer, len(numbers))
    known: list[Any] = [number, type(buffer).__name__, buffer.nbytes]
    if isinstance(buffer, Input | Output):
        known.append(buffer.position)
    if isinstance(buffer, Constant):
        known.append(buffer.array.tobytes() if buffer.key is None else str(buffer.key))
    return known
