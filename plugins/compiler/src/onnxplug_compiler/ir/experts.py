"""Mixtures of experts: which rows meet which weights, and commands for any of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View


class Assignment(Record):
    """Slots, each one of the experts of a row, sorted by experts into blocks that have
    one expert each.  All arrays are int64, in C order.

    Attributes:
        rows: [blocks, places], the row of the slot that is there, or 0 where there is
            none; as many blocks as there can be.
        places: [slots], where each slot is among the places of all blocks.
        experts: [blocks], the expert of each block that has a slot.
        used: [1], how many blocks have.
    """

    rows: View
    places: View
    experts: View
    used: View


class Experts(Protocol):
    """What is computed for each of several experts, as a run decides."""

    def record_assignment(
        self,
        recorder: Recorder[Any],
        chosen: View,
        experts: int,
        assignment: Assignment,
        *,
        label: str = "",
    ) -> None:
        """Sort slots by their experts.

        Args:
            chosen: [rows, slots of a row], int64 in C order, each from 0 up to, but
                not with, *experts*.
            experts: how many there are.
            assignment: is written; it has room for any choice.
        """

    def record_alternatives(
        self,
        recorder: Recorder[Any],
        number: View,
        alternatives: Sequence[Sequence[Any]],
        *,
        label: str = "",
    ) -> None:
        """Do the commands of one of several alternatives.

        Args:
            number: one int64, which one: not checked, as only commands write it.
            alternatives: commands that do the same with other buffers, or other places
                of these.  Temporary buffers that one has by itself are those of the
                first one.

        Raises:
            ValueError: alternatives differ in more than that.
        """
