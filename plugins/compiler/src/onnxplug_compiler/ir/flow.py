"""Control flow: commands that are done if a condition says so, or turn after turn.

Source: ONNX operators If-25, Loop-25 and Scan-25, which state what is done when.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.buffers import Address, Buffer
from onnxplug_compiler.ir.pieces import Work
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Move(Record):
    """Bytes that are copied, in each turn or once.

    Attributes:
        target, source: where the first ones are.
        nbytes: how many.
        target_step, source_step: bytes by which they are farther in each turn.
    """

    target: Address
    source: Address
    nbytes: int
    target_step: int = 0
    source_step: int = 0


class Turns(Record):
    """How often commands are done, and what is copied around them.

    Attributes:
        limit: of int64, the number of turns at most; ``None`` for no limit.
        given: of bool, whether there is a first turn; ``None`` if there is.
        again: of bool, which the commands write: whether there is another turn;
            ``None`` if there is.
        number: of int64, where the commands read which turn it is; ``None`` if they do
            not.
        condition: of bool, where they read that there is a turn, likewise.
        start: of int64, the number of the first turn; ``None`` for 0.
        done: of int64, where to write how many turns there were, if that is wanted.
        first: copied once, before the first turn, also if there is none.
        before, after: copied before the commands of each turn, and after them.
    """

    limit: View | None
    given: View | None
    again: View | None
    number: View | None
    condition: View | None
    first: Sequence[Move]
    before: Sequence[Move]
    after: Sequence[Move]
    start: View | None = None
    done: View | None = None


class Flow(Protocol):
    """Commands within commands."""

    def moved(
        self, recorder: Recorder[Any], work: Work, places: Mapping[Buffer, Address]
    ) -> Sequence[Any]:
        """The commands of *work* over other buffers, to be done within one command.

        Args:
            places: of the inputs and outputs; temporary buffers get a place of their
                own.

        Raises:
            ValueError: one of them takes so long by itself that a run could not end on
                its way.
        """

    def record_choice(
        self,
        recorder: Recorder[Any],
        condition: View,
        then: Sequence[Any],
        otherwise: Sequence[Any],
        *,
        label: str = "If",
    ) -> None:
        """Do the commands *then* if *condition*, a bool, is true, and *otherwise* those
        others."""

    def record_turns(
        self,
        recorder: Recorder[Any],
        turns: Turns,
        commands: Sequence[Any],
        *,
        count: int | None = None,
        label: str = "Loop",
    ) -> None:
        """Do *commands* turn after turn.

        A run can end between turns.

        Args:
            count: how many turns there are, if that is known.
        """
