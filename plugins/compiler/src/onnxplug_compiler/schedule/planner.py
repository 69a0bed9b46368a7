"""Puts one plan together from pieces, those of other plans where they fit."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.buffers import (
    Buffer,
    Constant,
    Flag,
    Input,
    Output,
    Packed,
    Temporary,
)
from onnxplug_compiler.ir.pieces import (
    Halo,
    PackRequest,
    Piece,
    Place,
    Placed,
    Work,
)
from onnxplug_compiler.ir.recorder import PackedConstants, Recorder
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_compiler.layout.orders import CHANNELS
from onnxplug_compiler.schedule.common import Common
from onnxplug_compiler.schedule.inference import Inferred
from onnxplug_compiler.schedule.memo import (
    CONTENT,
    DESTINATION,
    PLACE,
    REFUSED,
    WITHIN,
    Branch,
    Fork,
    Question,
)
from onnxplug_compiler.schedule.operations.registry import Results
from onnxplug_compiler.schedule.placement import Placement
from onnxplug_compiler.schedule.planned import Planned, Planning, Result
from onnxplug_compiler.schedule.recording import Recording
from onnxplug_compiler.schedule.structure import (
    Latest,
    Part,
    Structure,
    destination_number,
    slot_of,
)


class Planner:
    """Puts the pieces of one plan together."""

    def __init__(
        self,
        plans: Common,
        inferred: Inferred,
        structure: Structure,
        recorder: Recorder[Target],
        packed: PackedConstants,
        look: Callable[[], None],
    ) -> None:
        self.tokens = plans.tokens
        self.recorder = recorder
        self._plans = plans
        self._inferred = inferred
        self._structure = structure
        self._packed = packed
        self._look = look
        self._count = plans.count
        # answers by question and slot
        self._state: list[Any] = inferred.forms + inferred.contents
        # where values are, by slot: the buffer, and the bytes before the first of them
        self._buffers: list[Buffer | None] = []
        self._offsets = [0] * plans.count
        self._destinations: dict[int, Place] = {}
        self._made: dict[int, Buffer] = {}
        # which refers to no planner, so that this one goes when it is done
        self._placement = Placement(
            functools.partial(_known, inferred.values, plans.slots),
            structure.readers,
            structure.positions,
            structure.orders,
            structure.halos,
            recorder,
        )
        self._placed: list[Placed | None] = [None] * len(structure.parts)
        # values whose forms or contents are others than in the latest plan
        self._changed: set[int] = set()
        # destinations that parts of them were given
        self._shared: set[int] = set()
        self._copies: list[Placed] = []

    def make(self, latest: Latest | None, changed: Sequence[int]) -> Planned:
        """The commands and the results.

        Args:
            latest: another plan of the structure.
            changed: slots of values that may not be as they are there.
        """
        structure = self._structure
        if latest is None:
            self._make_all()
        else:
            self._make_changed(latest, changed)
        results = tuple(map(self._result, self._plans.outputs))
        structure.latest = Latest(
            self._inferred,
            self._state,
            self._buffers,
            self._offsets,
            self._destinations,
            self._made,
            self._placement.written,
            self._placed,
        )
        placed = [each for each in self._placed if each is not None]
        return Planned(Work(placed + self._copies, structure.outlines), results)

    def _make_all(self) -> None:
        plans = self._plans
        self._state += plans.places
        self._buffers = plans.buffers.copy()
        for position, name in enumerate(plans.inputs):
            self._take_input(position, name)
        for name in tuple(plans.viewed):
            if self._known(name).content is not None:
                self.place(name)
        for number, part in enumerate(self._structure.parts):
            self._make_part(number, part)

    def _make_changed(self, latest: Latest, changed: Sequence[int]) -> None:
        """All parts as in another plan, but those of which something has changed that
        they may ask."""
        plans, structure, count = self._plans, self._structure, self._count
        fresh, before = self._state, latest.state
        self._state = state = before.copy()
        self._buffers = latest.buffers.copy()
        self._offsets = latest.offsets.copy()
        self._destinations = latest.destinations.copy()
        self._made = latest.made.copy()
        self._placement.written = latest.written.copy()
        self._placed = latest.placed.copy()
        slots = self._changed = set(changed)
        for slot in slots:
            state[slot], state[count + slot] = fresh[slot], fresh[count + slot]
        for position, name in enumerate(plans.inputs):
            if plans.slots[name] in slots:
                self._take_input(position, name)
        for name in tuple(plans.viewed):
            slot = plans.slots[name]
            if slot in slots and self.value(slot).content is not None:
                state[2 * count + slot] = None
                self.place(name)
        waiting = bytearray(len(structure.parts))
        for slot in slots:
            for number in structure.concerned.get(slot, ()):
                waiting[number] = 1
        buffers, earlier = self._buffers, latest.buffers
        offsets, moved = self._offsets, latest.offsets
        number = waiting.find(1)
        while number >= 0:
            part = structure.parts[number]
            self._forget(part)
            self._make_part(number, part)
            for slot in part.made:
                if (
                    buffers[slot] is not earlier[slot]
                    or offsets[slot] != moved[slot]
                    or state[2 * count + slot] is not before[2 * count + slot]
                ):
                    for other in structure.concerned[slot]:
                        waiting[other] = 1
            number = waiting.find(1, number + 1)

    def _forget(self, part: Part) -> None:
        """Make a part's values have no place."""
        for wanted in part.destinations:
            if wanted in self._destinations:
                self._drop(wanted)

    def _drop(self, wanted: int) -> None:
        """Make a value have no place, but for one that others lie in: that stays while
        its shape does, or if one of these has been given it in this plan."""
        structure, slot = self._structure, slot_of(wanted)
        if structure.names[slot] in structure.joined and (
            wanted in self._shared or slot not in self._changed
        ):
            return
        del self._destinations[wanted]
        self._placement.written -= structure.destination(wanted).chain

    def _make_part(self, number: int, part: Part) -> None:
        try:
            piece = self._found(part) or self._recorded(part)
            self._placed[number] = self._put(part, piece)  # which may pack
        except NotCompiled as refusal:
            refusal.call = refusal.call or part.group.all_calls[0]
            raise
        except (IndexError, ValueError) as error:
            raise_interruption(error)
            # a kernel does not take what the array tier may take, or refuse better
            raise NotCompiled(str(error), part.group.all_calls[0]) from error

    def _take_input(self, position: int, name: str) -> None:
        slot = self._plans.slots[name]
        places, form = self._plans.input_places, self._state[slot]
        place = places.get(form)
        if place is None:
            value = self.value(slot)
            strides = c_strides(value.shape)
            place = self.tokens.place(Input, value.dtype, value.shape, strides)
            places[form] = place
        self._buffers[slot] = Input(position, place.nbytes)
        self._state[2 * self._count + slot] = place

    # pieces

    def _found(self, part: Part) -> Piece | None:
        """What was recorded for the same answers."""
        state, getters = self._state, part.getters
        branches = part.memo.branches
        while True:
            for branch in branches:
                getter = getters.get(branch.number) or self._bound(part, branch)
                found = branch.ways.get(getter(state))
                if found is not None:
                    break
            else:
                return None
            if type(found) is not Fork:
                return found  # type: ignore[return-value]
            after = found.ways.get(self.answer(part, found.question))
            if after is None:
                return None
            branches = after

    def _bound(self, part: Part, branch: Branch) -> Callable[[list[Any]], Any]:
        """What takes the answers of a branch, now that somebody wants them."""
        for what, role in branch.states:
            if what == CONTENT:
                self.content(part.slots[role])
            elif what == PLACE:
                self.place(part.names[role])
        return part.bound(branch, self._count)

    def _recorded(self, part: Part) -> Piece:
        self._look()
        recording = Recording(self, part)
        piece = recording.piece()
        if recording.lasts:
            part.memo.add(recording.log, piece)
        return piece

    def _put(self, part: Part, piece: Piece) -> Placed | None:
        """A piece with the part's values; ``None`` if it has no commands."""
        slots, buffers, offsets = part.slots, self._buffers, self._offsets
        own: dict[Buffer, Buffer] = {}
        placed = None
        if piece.commands:
            real: list[Buffer] = []
            first: list[int] = []
            for source in piece.sources:
                if type(source) is int:
                    slot = slots[source]
                    buffer = buffers[slot]
                    assert buffer is not None
                    first.append(offsets[slot])
                else:
                    buffer = self._of(piece, source, part, own)
                    first.append(0)
                real.append(buffer)
            placed = Placed(piece, real, first, part.nodes)
        for role, stand_in, place, offset in piece.aliases:
            slot = slots[role]
            seen = piece.roles.get(stand_in)
            if seen is None:
                buffers[slot] = self._of(piece, stand_in, part, own)
                offsets[slot] = offset
            else:
                buffers[slot] = buffers[slots[seen]]
                offsets[slot] = offsets[slots[seen]] + offset
            self._state[2 * self._count + slot] = place
        return placed

    def _of(
        self, piece: Piece, stand_in: Buffer, part: Part, own: dict[Buffer, Buffer]
    ) -> Buffer:
        """The buffer of this plan in the place of one that is no value of the part."""
        buffer = own.get(stand_in)
        if buffer is not None:
            return buffer
        if type(stand_in) is Temporary:
            buffer = Temporary(stand_in.nbytes)
        elif type(stand_in) is Flag:
            buffer = Flag()
        elif stand_in in piece.pack_requests:
            buffer = self._granted(piece, piece.pack_requests[stand_in], part)
        else:
            # a constant that the piece has, packed for a body of control flow or not
            buffer = stand_in
        own[stand_in] = buffer
        return buffer

    def _granted(self, piece: Piece, request: PackRequest, part: Part) -> Packed:
        """The packed constant that a piece wants."""
        source: Buffer | None = request.source
        before = 0
        role = piece.roles.get(request.source)
        if role is not None:
            slot = part.slots[role]
            source, before = self._buffers[slot], self._offsets[slot]
        assert isinstance(source, Constant)
        layout = _layout_from(before, request.layout)
        found = self._packed.get((_key_of(source), layout))
        if found is not None:
            return found[1]
        if source.key is not None:
            source = source.another()  # whose content goes when it is packed
        offset = before + request.offset
        view = View(source, offset, request.dtype, request.shape, request.strides)
        address = self.recorder.packed(
            view, layout, request.nbytes, request.record, request.accepts
        )
        assert isinstance(address.buffer, Packed)
        return address.buffer

    # what recording asks

    def value(self, slot: int) -> Abstract:
        """What is known of a value."""
        value = self._inferred.values[slot]
        assert value is not None
        return value

    def _known(self, name: str) -> Abstract:
        return self.value(self._plans.slots[name])

    def form(self, slot: int) -> Any:
        """What stands for the dtype and shape of a value."""
        return self._state[slot]

    def content(self, slot: int) -> Any:
        """What stands for the content of a value."""
        place = self._count + slot
        token = self._state[place]
        if token is None and self.value(slot).content is not None:
            token = self._plans.inference.content_of_constant(slot)
            self._state[place] = self._inferred.contents[slot] = token
        return token

    def place(self, name: str) -> Place:
        """Where a value is."""
        slot = self._plans.slots[name]
        place: Place | None = self._state[2 * self._count + slot]
        if place is None:
            content = self.value(slot).content
            assert content is not None, f"{name} is not computed yet"
            if content.dtype.hasobject:
                self.tokens.check_numbers(name)
            view = self.recorder.constant(content)
            place = self._take(slot, view)
            self._plans.viewed.add(name)
        return place

    def answer(self, part: Part, question: Question) -> Any:
        """The answer of a question that has to be asked."""
        if question.what == DESTINATION:
            role = question.role
            return self._destination(
                part.names[role], part.slots[role], question.argument
            )
        if question.what == REFUSED:
            slot = part.slots[question.role]
            source = self._buffers[slot]
            assert isinstance(source, Constant)
            layout = _layout_from(self._offsets[slot], question.argument)
            found = self._packed.get((_key_of(source), layout))
            return found is not None and found[1].refused
        if question.what == WITHIN:
            whole, start = question.argument
            slot = part.slots[question.role]
            return self._lies_within(slot, part.names[whole], start)
        call = part.group.all_calls[question.argument]
        return tuple(
            None if value is None else self.tokens.form(value)
            for value in self.results(call)
        )

    def results(self, call: Call) -> Results:
        """What is known of the call's outputs, also of those that nobody wants."""
        place = self._plans.inference.places.get(call)
        if place is None:  # a pattern made it
            return [
                None if name is None else self._known(name) for name in call.outputs
            ]
        return self._inferred.results[place]

    def planned(self, body: Planning, inputs: Sequence[Abstract]) -> Planned:
        """The plan of a body of control flow."""
        self.tokens.check_numbers("a body of control flow")
        recorder = Recorder(self.recorder.target, self._packed)
        body.forget_latest()  # which may want a constant that is refused by now
        return body.make(inputs, recorder, self._packed, self._look)

    def _destination(self, name: str, slot: int, padded_rows: bool) -> Place:
        """Where a value is to be written; the same each time in one plan."""
        wanted = destination_number(slot, padded_rows)
        place = self._destinations.get(wanted)
        if place is not None:
            return place
        structure = self._structure
        # what it lies in may lie in another, and so on, thousands of times
        within: list[tuple[str, int, int, str]] = []
        while place is None and (whole := structure.wholes.get(name)) is not None:
            within.append((name, slot, wanted, whole))
            name, slot, padded_rows = whole, self._plans.slots[whole], False
            wanted = destination_number(slot, padded_rows)
            self._share(wanted)
            place = self._destinations.get(wanted)
        if place is None:
            place = self._destinations[wanted] = self._place_alone(
                name, slot, padded_rows
            )
        for name, slot, wanted, whole in reversed(within):
            place = self._destinations[wanted] = self._place_within(name, slot, whole)
        return place

    def _place_alone(self, name: str, slot: int, padded_rows: bool) -> Place:
        """The place of a value that lies in no other."""
        structure = self._structure
        if structure.latest is None:  # and maybe there will never be another plan
            return self._place_anew(name, slot, padded_rows)
        wanted = destination_number(slot, padded_rows)
        destination = structure.destination(wanted)
        written = self._placement.written
        known = not written or written.isdisjoint(destination.chain)
        key = destination.key(self._state)
        found = destination.find(key) if known else None
        if found is None:
            before = written.copy()
            place = self._place_anew(name, slot, padded_rows)
            wrote = written - before
            buffer, output = self._buffers[slot], None
            assert buffer is not None
            if isinstance(buffer, Output):
                output = self._plans.outputs[buffer.position]
            if (
                known
                and destination.chain.issuperset(wrote)
                and bool(wrote) == bool(output)
            ):
                where = place, buffer.nbytes, self._offsets[slot]
                destination.keep(key, where, output, wrote)
        else:
            (place, nbytes, offset), output, also = found
            position = None if output is None else structure.positions[output]
            made = self._made.get(slot)
            # one of another plan will do
            if (
                made is None
                or made.nbytes != nbytes
                or self._state[2 * self._count + slot] is not place
                or (isinstance(made, Output) and made.position != position)
            ):
                made = (
                    Temporary(nbytes) if position is None else Output(position, nbytes)
                )
            self._buffers[slot] = self._made[slot] = made
            self._offsets[slot] = offset
            self._state[2 * self._count + slot] = place
            if also:
                written.update(also)
        return place

    def _place_anew(self, name: str, slot: int, padded_rows: bool) -> Place:
        view = self._placement.place(name, padded_rows=padded_rows)
        place = self._take(slot, view, self._placement.halo(name))
        self._made[slot] = view.buffer
        return place

    def _share(self, wanted: int) -> None:
        """Let others lie in a value from now on, and not where that was in another
        plan if its shape has changed."""
        if wanted not in self._shared:
            if wanted in self._destinations:
                self._drop(wanted)
            self._shared.add(wanted)

    def _place_within(self, name: str, slot: int, whole: str) -> Place:
        """The place of a value where its channels are those of *whole*, which has
        one."""
        start = 0
        for other in self._structure.joined[whole]:
            if other == name:
                break
            start += self._known(other).shape[CHANNELS]
        return self._take(slot, self._part_of(whole, start, self.value(slot).shape))

    def _lies_within(self, slot: int, whole: str, start: int) -> bool:
        """Whether a value lies where its channels are those of *whole* from *start*
        on."""
        if self._buffers[slot] is not self._buffers[self._plans.slots[whole]]:
            return False
        part = self._part_of(whole, start, self.value(slot).shape)
        place, offset = self.tokens.place_of(part)
        lies = self._state[2 * self._count + slot]
        return place is lies and offset == self._offsets[slot]

    def _part_of(self, whole: str, start: int, shape: tuple[int, ...]) -> View:
        """The channels of *whole* from *start* on that a value of *shape* has."""
        slot = self._plans.slots[whole]
        place, buffer = self.place(whole), self._buffers[slot]
        assert buffer is not None
        first = place.offset + self._offsets[slot]
        view = View(buffer, first, place.dtype, place.shape, place.strides)
        return view.slice([0, start, *[0] * (len(shape) - 2)], shape)

    def _take(self, slot: int, view: View, halo: Halo | None = None) -> Place:
        place, self._offsets[slot] = self.tokens.place_of(view, halo)
        self._buffers[slot] = view.buffer
        self._state[2 * self._count + slot] = place
        return place

    # results

    def _result(self, name: str) -> Result:
        slot = self._plans.slots[name]
        value = self.value(slot)
        if value.content is not None:
            return Result(value.dtype, value.shape, value.content)
        position = self._structure.positions[name]
        place = self.place(name)
        buffer = self._buffers[slot]
        assert buffer is not None
        wanted = (
            isinstance(buffer, Output)
            and buffer.position == position
            and place.is_contiguous
        )
        if not wanted:
            nbytes = value.size * value.dtype.itemsize
            self._copy(name, place, Output(position, nbytes), value)
        results, form = self._plans.results, self._state[slot]
        result = results.get(form)
        if result is None:
            result = results[form] = Result(value.dtype, value.shape)
        return result

    def _copy(self, name: str, place: Place, output: Output, value: Abstract) -> None:
        """Copy a value to where the caller wants it."""
        slots = (self._plans.slots[name],)
        piece = self._plans.copies.get(place)
        if piece is None:
            part = Part.of(name, slots)
            target = self.tokens.place(
                Output, value.dtype, value.shape, c_strides(value.shape)
            )
            piece = self._plans.copies[place] = Recording(self, part).copy(name, target)
        own: dict[Buffer, Buffer] = {}
        source = self._buffers[slots[0]]
        assert source is not None
        first = self._offsets[slots[0]]
        real = [
            (source, output)[each]
            if type(each) is int
            else self._of(piece, each, Part.of(name, slots), own)
            for each in piece.sources
        ]
        offsets = [first if each == 0 else 0 for each in piece.sources]
        self._copies.append(Placed(piece, real, offsets, ()))


def _known(
    values: Sequence[Abstract | None], slots: Mapping[str, int], name: str
) -> Abstract:
    value = values[slots[name]]
    assert value is not None, f"nothing is known of {name}"
    return value


def _layout_from(offset: int, layout: str) -> str:
    """The name of the layout of a constant that begins at *offset* of another."""
    return f"{layout} from {offset}" if offset else layout


def _key_of(constant: Constant) -> Hashable:
    return id(constant.array) if constant.key is None else constant.key
