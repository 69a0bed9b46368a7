"""Records a group over stand-ins, and notes what recording asks on the way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np

from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.buffers import (
    Acceptance,
    Address,
    Buffer,
    Constant,
    Input,
    Output,
    Packed,
    Temporary,
)
from onnxplug_compiler.ir.pieces import Alias, PackRequest, Piece, Place
from onnxplug_compiler.ir.recorder import Filling, Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy, record_zeros
from onnxplug_compiler.schedule.groups import record_group
from onnxplug_compiler.schedule.memo import (
    CONTENT,
    DESTINATION,
    FORM,
    PLACE,
    REFUSED,
    RESULTS,
    WITHIN,
    Question,
    State,
)
from onnxplug_compiler.schedule.operations.registry import Results, find_operation

if TYPE_CHECKING:
    from onnxplug_compiler.schedule.inference import Tokens
    from onnxplug_compiler.schedule.planned import Planned, Planning
    from onnxplug_compiler.schedule.structure import Part

_ANYWHERE: Final = -1


class Answers(Protocol):
    """A planner, as recording asks it; slots number the values of a segment."""

    tokens: Tokens
    recorder: Recorder[Target]

    def value(self, slot: int) -> Abstract:
        """What is known of a value."""

    def form(self, slot: int) -> Any:
        """What stands for the dtype and shape of a value."""

    def content(self, slot: int) -> Any:
        """What stands for the content of a value."""

    def place(self, name: str) -> Place:
        """Where a value is."""

    def answer(self, part: Part, question: Question) -> Any:
        """The answer of a question that has to be asked."""

    def results(self, call: Call) -> Results:
        """What is known of the call's outputs, also of those that nobody wants."""

    def planned(self, body: Planning, inputs: Sequence[Abstract]) -> Planned:
        """The plan of a body of control flow."""


class Recording:
    """A group while it is recorded; see :class:`~.operations.registry.Plan`.

    Args:
        planner: answers questions.
        part: the group.

    Attributes:
        log: the questions and the answers.
        lasts: whether the answers say all.
    """

    def __init__(self, planner: Answers, part: Part) -> None:
        self.planner = planner
        self.part = part
        self.log: list[tuple[State | Question, Any]] = []
        self.lasts = True
        self.recorders: list[_PieceRecorder] = []
        self.recorder: Recorder[Target] = _PieceRecorder(self, planner.recorder.target)
        self.pack_requests: dict[Buffer, PackRequest] = {}
        self._asked: set[State | Question] = set()
        self._roles: dict[Buffer, int] = {}
        self._made: dict[str, View] = {}
        self._aliases: list[Alias] = []

    def piece(self) -> Piece:
        """The commands of the group."""
        group = self.part.group
        if group.forms or group.calls[0].traits.anchors:
            record_group(self, group, self.part.outputs)
        else:
            (call,) = group.calls
            operation = find_operation(call)
            assert operation is not None
            operation.record(self, call)
        return self._finished()

    def copy(self, source: str, place: Place) -> Piece:
        """A copy of a value to another place, whose role is the second."""
        stand_in = _stand_in(place, 1)
        self._roles[stand_in] = 1
        record_copy(self.recorder, self.view(source), place.view(stand_in))
        return self._finished()

    def _finished(self) -> Piece:
        for recorder in self.recorders:
            recorder.close()
        return Piece(
            self.recorder.commands,
            self.recorder.checks,
            self._roles,
            self.pack_requests,
            self._aliases,
            self.recorder.target.assemble(self.recorder.commands),
        )

    # what is asked

    def _answer(self, what: int, role: int, answer: Any) -> None:
        question = what, role
        if question not in self._asked:
            self._asked.add(question)
            self.log.append((question, answer))

    def _ask(self, what: str, role: int, argument: Any) -> Any:
        question = Question(what, role, argument)
        answer = self.planner.answer(self.part, question)
        if question not in self._asked:
            self._asked.add(question)
            self.log.append((question, answer))
        return answer

    def known(self, name: str) -> Abstract:
        """What is known of a value of the plan."""
        role = self.part.roles[name]
        slot = self.part.slots[role]
        self._answer(FORM, role, self.planner.form(slot))
        # as far as operations look at it
        return cast(Abstract, _Asked(self, role, self.planner.value(slot)))

    def content(self, role: int) -> np.ndarray[Any, Any] | None:
        """The content of a value."""
        slot = self.part.slots[role]
        self._answer(CONTENT, role, self.planner.content(slot))
        return self.planner.value(slot).content

    def results(self, call: Call) -> Results:
        """What is known of the call's outputs, also of those that nobody wants."""
        number = self.part.group.all_calls.index(call)
        self._ask(RESULTS, _ANYWHERE, number)
        return self.planner.results(call)

    def planned(self, body: Planning, inputs: Sequence[Abstract]) -> Planned:
        """The plan of a body of control flow, which no other plan has."""
        self.lasts = False
        return self.planner.planned(body, inputs)

    def is_refused(self, source: Buffer, layout: str) -> bool | None:
        """Whether a constant may not be packed so; ``None`` if it is the group's
        own."""
        role = self._roles.get(source)
        return None if role is None else bool(self._ask(REFUSED, role, layout))

    # where values are

    def view(self, name: str) -> View:
        """Where a value is."""
        view = self._made.get(name)
        if view is None:
            role = self.part.roles[name]
            place = self.planner.place(name)
            self._answer(PLACE, role, place)
            view = self._made[name] = self._seen(role, place)
        return view

    def destination(self, name: str, *, padded_rows: bool = False) -> View:
        """Where to write a value."""
        role = self.part.roles[name]
        place = self._ask(DESTINATION, role, padded_rows)
        view = self._made[name] = self._seen(role, place)
        if place.halo is not None:
            self._record_halo(view, place)
        return view

    def _record_halo(self, view: View, place: Place) -> None:
        starts = [before for before, _ in place.halo or ()]
        record_zeros(self.recorder, place.around(view.buffer), starts, view.shape)

    def around(self, name: str) -> tuple[View, tuple[int, ...]] | None:
        """A value with the zeros around it, and where in that it begins."""
        view, place = self.view(name), self.planner.place(name)
        if place.halo is None:
            return None
        return place.around(view.buffer), tuple(before for before, _ in place.halo)

    def lies_within(self, name: str, whole: str, start: int) -> bool:
        """Whether a value lies where its channels are those of *whole* from *start*
        on."""
        roles = self.part.roles
        return bool(self._ask(WITHIN, roles[name], (roles[whole], start)))

    def _seen(self, role: int, place: Place) -> View:
        stand_in = _stand_in(place, role)
        self._roles[stand_in] = role
        return place.view(stand_in)

    def alias(self, name: str, view: View) -> None:
        """A value is a view of what was computed."""
        value = self.known(name)
        if (view.shape, view.dtype) != (value.shape, value.dtype):
            raise NotCompiled(
                f"{name} is {value.dtype}{list(value.shape)}, but would be seen as "
                f"{view.dtype}{list(view.shape)}"
            )
        self._made[name] = view
        place, offset = self.planner.tokens.place_of(view)
        self._aliases.append(Alias(self.part.roles[name], view.buffer, place, offset))

    def contiguous(self, view: View) -> View:
        """*view* in C order."""
        if view.is_contiguous:
            return view
        copy = self.recorder.temporary(view.dtype, view.shape)
        record_copy(self.recorder, view, copy)
        return copy


class _Asked:
    """What is known of a value, of which the content is a question of its own."""

    __slots__ = ("_recording", "_role", "dtype", "shape", "size", "varies")

    def __init__(self, recording: Recording, role: int, value: Abstract) -> None:
        self.dtype, self.shape = value.dtype, value.shape
        self.size, self.varies = value.size, value.varies
        self._recording = recording
        self._role = role

    @property
    def content(self) -> np.ndarray[Any, Any] | None:
        """The content."""
        return self._recording.content(self._role)


def _stand_in(place: Place, role: int) -> Buffer:
    if place.kind is Constant:
        return Constant(place.nbytes, _no_content, ("role", role))
    if place.kind is Temporary:
        return Temporary(place.nbytes)
    assert place.kind in (Input, Output)
    return place.kind(role, place.nbytes)


def _no_content() -> np.ndarray[Any, Any]:
    raise AssertionError("recording looked at a constant without asking")


class _PieceRecorder(Recorder[Target]):
    """Collects the commands of a piece."""

    def __init__(self, recording: Recording, target: Target) -> None:
        super().__init__(target)
        self._recording: Recording | None = recording
        recording.recorders.append(self)

    def close(self) -> None:
        """Forget the plan, as requests to pack may keep this recorder."""
        self._recording = None

    def packed(
        self,
        source: View,
        layout: str,
        nbytes: int,
        record: Filling,
        accepts: Acceptance | None = None,
    ) -> Address:
        """What stands for a constant in another layout."""
        if not isinstance(source.buffer, Constant):
            raise TypeError("only constants are packed")
        stand_in = Packed(nbytes)
        assert self._recording is not None
        self._recording.pack_requests[stand_in] = PackRequest(
            source.buffer,
            source.offset,
            source.dtype,
            source.shape,
            source.strides,
            layout,
            nbytes,
            record,
            accepts,
        )
        return Address(stand_in)

    def is_refused(self, source: View, layout: str) -> bool:
        """Whether that form of a constant was packed, and not accepted."""
        recording = self._recording
        assert recording is not None
        refused = recording.is_refused(source.buffer, layout)
        if refused is None:  # of which there is no question
            recording.lasts = False
            return recording.planner.recorder.is_refused(source, layout)
        return refused

    def part(self) -> Recorder[Target]:
        """A recorder of commands that are to be made into one of this recorder's."""
        assert self._recording is not None
        part = _PieceRecorder(self._recording, self.target)
        part.nodes, part.checks = self.nodes, self.checks
        return part
