"""How calls are grouped, for all shapes that give the same answers to what was asked.

A structure is made from equalities of shapes and the like, never from sizes alone, so
that it serves most shapes that a segment meets.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.frontend.facts import Facts, Question
from onnxplug_compiler.frontend.fusion import Group, fuse
from onnxplug_compiler.frontend.patterns.mapped import take_tables
from onnxplug_compiler.frontend.patterns.quantised import take_codes
from onnxplug_compiler.frontend.patterns.rewriting import rewrite
from onnxplug_compiler.ir.buffers import Buffer
from onnxplug_compiler.ir.pieces import Place, Placed
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.layout.halos import halo_for
from onnxplug_compiler.layout.orders import CHANNELS, Order, orders
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.schedule.inference import Inferred
from onnxplug_compiler.schedule.memo import Branch, Memo

MOST_VIEWS: Final = 32
"""Views in a row through which a value is written where the last of them is wanted."""

Fact: TypeAlias = tuple[Question, tuple[int, ...], Any]
"""A question, the slots of the values that it is about, and the answer."""

_PLAIN: Final = (bool, int, float, str, bytes, type(None))


class Part:
    """A group of a structure.

    Attributes:
        group: its calls.
        names: of its values, by role.
        roles: the same the other way round.
        slots: numbers of the values in the segment, by role.
        nodes: indices of the graph's nodes.
        outputs: what others read of it.
        results: what its calls make; *made* are the slots.
        memo: what was recorded for groups like this.
        getters: what takes the answers of a branch from all that are there, by the
            number of its questions.
        destinations: numbers of those that its results may have.
    """

    __slots__ = (
        "destinations",
        "getters",
        "group",
        "made",
        "memo",
        "names",
        "nodes",
        "outputs",
        "results",
        "roles",
        "slots",
    )

    def __init__(
        self,
        group: Group,
        names: tuple[str, ...],
        slots: tuple[int, ...],
        outputs: list[str],
        memo: Memo,
    ) -> None:
        self.group = group
        self.names = names
        self.roles = {name: role for role, name in enumerate(names)}
        self.slots = slots
        self.nodes = tuple(node for call in group.all_calls for node in call.nodes)
        self.outputs = outputs
        self.results = [
            name for call in group.all_calls for name in call.outputs if name
        ]
        self.made = [slots[self.roles[name]] for name in self.results]
        self.memo = memo
        self.getters: dict[int, Callable[[list[Any]], Any]] = {}
        self.destinations = [
            destination_number(slot, padded_rows)
            for slot in self.made
            for padded_rows in (False, True)
        ]

    @classmethod
    def of(cls, name: str, slots: tuple[int, ...]) -> Part:
        """A part of no calls, that reads one value."""
        return cls(Group([]), (name,), slots, [], Memo())

    def bound(self, branch: Branch, count: int) -> Callable[[list[Any]], Any]:
        """What takes the answers of *branch* from a list of all that are there, which
        has those of each question for *count* values."""
        places = [what * count + self.slots[role] for what, role in branch.states]
        getter: Callable[[list[Any]], Any] = (
            itemgetter(*places) if places else lambda state: ()
        )
        self.getters[branch.number] = getter
        return getter


def destination_number(slot: int, padded_rows: bool) -> int:
    """The number of the target of a value with *padded_rows* or without."""
    return 2 * slot + padded_rows


def slot_of(number: int) -> int:
    """The slot of the value of a target."""
    return number // 2


Where: TypeAlias = tuple[Place, int, int]
"""A place, bytes of its buffer, and those before it."""

Found: TypeAlias = tuple[Where, str | None, Sequence[str]]
"""Where a value goes, the output that it is in, and the outputs that have their place
by that."""


class Destination:
    """Where a value was placed, by the forms of all that it may be written as.

    Attributes:
        chain: names of the value and of what views make of it.
        key: takes their forms from those of all values.
    """

    __slots__ = ("_found", "_names", "chain", "key")

    def __init__(
        self,
        chain: Sequence[str],
        slots: Mapping[str, int],
        found: dict[Any, tuple[Where, int | None, tuple[int, ...]]],
    ) -> None:
        self._names = chain
        self.chain = frozenset(chain)
        self.key = itemgetter(*[slots[name] for name in chain])
        self._found = found

    def find(self, key: Any) -> Found | None:
        """What was found for a value like this and the same key."""
        found = self._found.get(key)
        if found is None:
            return None
        where, output, written = found
        if output is None:
            return where, None, ()
        names = self._names
        return where, names[output], [names[each] for each in written]

    def keep(
        self,
        key: Any,
        where: Where,
        output: str | None,
        written: Iterable[str],
    ) -> None:
        """Keep what was found."""
        number = self._names.index
        if output is None:
            self._found[key] = where, None, ()
        else:
            wrote = tuple([number(name) for name in written])
            self._found[key] = where, number(output), wrote


class Latest(Record):
    """A plan from which the next one of its structure differs in a few parts.

    Attributes:
        inferred: what was known of its values.
        state, buffers, offsets, destinations, made, written: as of its planner.
        placed: its pieces, by the part.
    """

    inferred: Inferred
    state: list[Any]
    buffers: list[Buffer | None]
    offsets: list[int]
    destinations: dict[int, Place]
    made: dict[int, Buffer]
    written: set[str]
    placed: list[Placed | None]


class Structure:
    """The groups of a segment in the order in which they are computed.

    Attributes:
        parts: the groups.
        readers: the calls that read a value.
        positions: of the values that are outputs.
        orders: of axes in memory, of values that do not lie as their shapes say.
        halos: of values that convolutions want with zeros around them.
        joined: what is joined along channels to a value, by its name.
        wholes: of those that may lie where they are joined the value that is made.
        notes: what is to be said of nodes, by their index.
        outlines: of the blocks of plans.
        latest: the plan that was made last; ``None`` if there is none.
    """

    def __init__(
        self,
        known: Sequence[bool],
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        facts: Facts,
        outputs: Sequence[str],
        slots: Mapping[str, int],
        memos: dict[Hashable, Memo],
        target: Target,
    ) -> None:
        self._known = list(known)
        self._slots = slots
        self.positions = {name: place for place, name in enumerate(outputs)}
        self.readers: defaultdict[str, list[Call]] = defaultdict(list)
        remaining = [
            call for call, is_known in zip(calls, known, strict=True) if not is_known
        ]
        remaining = take_tables(_needed(remaining, outputs), forms, facts, target)
        remaining = take_codes(remaining, facts, outputs, target)
        remaining = rewrite(remaining, facts, outputs)
        self.notes = {
            node: call.note for call in remaining if call.note for node in call.nodes
        }
        for call in remaining:
            for name in call.inputs:
                if name is not None:
                    self.readers[name].append(call)
        self.orders: Mapping[str, Order] = {}
        if target.prefers_channels_last:
            self.orders = orders(remaining, forms, facts, self.positions)
        self.halos = {
            name: halo
            for name, order in self.orders.items()
            if (halo := halo_for(self.readers[name], name, order)) is not None
        }
        self.joined: dict[str, list[str]] = {}
        self.wholes: dict[str, str] = {}
        for call in remaining if self.orders else ():
            if call.op_type == "Concat":
                self._join(call)
        self.parts = [
            self._part(group, forms, memos)
            for group in fuse(
                remaining, forms, facts.same_shape, target.chain_limits, outputs
            )
        ]
        self._facts = [
            (question, tuple(slots[name] for name in names), answer)
            for question, names, answer in facts.varying()
        ]
        self.outlines: dict[Any, Any] = {}
        self.latest: Latest | None = None
        self._forms = forms
        self._destinations: dict[int, Destination] = {}
        self._found: dict[Hashable, dict[Any, Any]] = {}

    # the first plan of a structure is made of all its parts, and most have no second

    @functools.cached_property
    def concerned(self) -> Mapping[int, Sequence[int]]:
        """The parts that may ask for something of a value, by its slot."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for number, part in enumerate(self.parts):
            asked = set(part.slots)
            for name in part.results:
                asked.update(self._slots[each] for each in self._chain(name))
                whole = self.wholes.get(name)
                while whole is not None:
                    asked.update(self._slots[each] for each in self._chain(whole))
                    whole = self.wholes.get(whole)
            for slot in asked:
                found[slot].append(number)
        return found

    @functools.cached_property
    def _facts_about(self) -> Mapping[int, Sequence[int]]:
        """The numbers of the facts that a value is in, by its slot."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for number, (_, slots, _) in enumerate(self._facts):
            for slot in slots:
                found[slot].append(number)
        return found

    def holds(
        self,
        known: list[bool],
        values: Sequence[Abstract | None],
        changed: Sequence[int] | None = None,
    ) -> bool:
        """Whether all that was asked has the same answer for these values.

        Args:
            changed: slots of those that may be others than those of a plan of this
                structure.
        """
        if self._known != known:
            return False
        facts: Iterable[Fact] = self._facts
        if changed is not None:
            about = self._facts_about
            numbers = {number for slot in changed for number in about.get(slot, ())}
            facts = [self._facts[number] for number in numbers]
        return all(
            question(*[values[slot] for slot in slots]) == answer
            for question, slots, answer in facts
        )

    @functools.cached_property
    def names(self) -> Mapping[int, str]:
        """The names of values, by slot."""
        return {slot: name for name, slot in self._slots.items()}

    def destination(self, number: int) -> Destination:
        """What decides where a value goes; see :func:`destination_number`."""
        destination = self._destinations.get(number)
        if destination is None:
            chain = self._chain(self.names[slot_of(number)])
            roles: dict[str, int] = {each: role for role, each in enumerate(chain)}
            for each in chain:
                for reader in self.readers[each]:
                    for other in (*reader.inputs, *reader.outputs):
                        if other is not None:
                            roles.setdefault(other, len(roles))
            # all that a place may depend on, for values that are like each other
            kind = (
                number % 2,
                *[
                    (
                        each in self.positions,
                        self.orders.get(each),
                        *[
                            _kind_of(reader, self._forms.get(reader), roles)
                            for reader in self.readers[each]
                        ],
                    )
                    for each in chain
                ],
            )
            found = self._found.setdefault(kind, {})
            destination = self._destinations[number] = Destination(
                chain, self._slots, found
            )
        return destination

    def forget_destinations(self) -> None:
        """Keep nothing of where values were placed."""
        for found in tuple(self._found.values()):
            found.clear()

    def _join(self, call: Call) -> None:
        """Let what a Concat joins along channels lie where it is joined."""
        whole, names = call.outputs[0], [name for name in call.inputs if name]
        order = self.orders.get(whole or "")
        if whole is None or whole in self.positions or order is None:
            return
        axis = int(call.attributes.get("axis", CHANNELS)) % len(order)
        if axis != CHANNELS or order[-1] != CHANNELS:
            return
        self.joined[whole] = names
        for name in names:
            if name not in self.positions and self.orders.get(name) == order:
                self.wholes.setdefault(name, whole)
                self.halos.pop(name, None)

    def _chain(self, name: str) -> list[str]:
        """*name* and what views make of it, as long as each is the only reader."""
        names: list[str] = []
        follower: str | None = name
        while follower is not None and len(names) <= MOST_VIEWS + 1:
            names.append(follower)
            readers = self.readers[follower]
            if len(readers) != 1:
                break
            reader = readers[0]
            if not reader.traits.keeps_elements:
                break
            follower = reader.outputs[0]
        return names

    def _part(
        self,
        group: Group,
        forms: Mapping[Call, StepForm],
        memos: dict[Hashable, Memo],
    ) -> Part:
        roles: dict[str, int] = {}
        for call in group.all_calls:
            for name in (*call.inputs, *call.outputs):
                if name is not None:
                    roles.setdefault(name, len(roles))
        outputs = self._needed_outside(group)
        kind: list[Hashable] = [
            group.anchor is not None,
            len(group.reshapes),
            len(group.forms),
            tuple(roles[name] for name in outputs),
        ]
        for call in group.all_calls:
            form = forms.get(call) if call in group.calls and group.forms else None
            kind.append(_kind_of(call, form, roles))
        return Part(
            group,
            tuple(roles),
            tuple(self._slots[name] for name in roles),
            outputs,
            memos.setdefault(tuple(kind), Memo()),
        )

    def _needed_outside(self, group: Group) -> list[str]:
        """The values of a group that others read, or that are outputs."""
        inside = set(map(id, group.all_calls))
        return [
            name
            for call in group.all_calls
            for name in call.outputs
            if name is not None
            and (
                name in self.positions
                or any(id(reader) not in inside for reader in self.readers[name])
            )
        ]


def _needed(calls: Sequence[Call], outputs: Sequence[str]) -> list[Call]:
    """Without calls of whose results nothing but the shape is read."""
    wanted = set(outputs)
    needed: list[Call] = []
    for call in reversed(calls):
        if not wanted.isdisjoint(call.outputs):
            needed.append(call)
            wanted.update(name for name in call.inputs if name is not None)
    return needed[::-1]


def _kind_of(
    call: Call, form: StepForm | None, roles: Mapping[str, int]
) -> tuple[Hashable, ...]:
    """All of a call that does not depend on shapes, its values named by their roles."""

    def role(name: str | None) -> int:
        return -1 if name is None else roles[name]

    written = _written(call.attributes)
    return (
        call.op_type,
        call.domain,
        call.version,
        call if written is None else written,
        call.dtypes,
        tuple(map(role, call.inputs)),
        tuple(map(role, call.outputs)),
        form
        and (
            form.operator,
            # numbers as text, as equality takes -0 for 0 and True for 1
            tuple(role(o) if isinstance(o, str) else repr(o) for o in form.operands),
            form.element,
            repr(form.attributes),
        ),
    )


_MOST_ELEMENTS: Final = 1024
"""Elements of an attribute that is written as text."""


def _written(attributes: Mapping[str, Any]) -> str | None:
    """Attributes as a text that others do not have; ``None`` if there is none, or it
    is long."""
    for value in attributes.values():
        elements = value if isinstance(value, (list, tuple)) else (value,)
        if len(elements) > _MOST_ELEMENTS:
            return None
        if not all(type(element) in _PLAIN for element in elements):
            return None
    return repr(sorted(attributes.items()))


def facts_of(
    values: Sequence[Abstract | None], slots: Mapping[str, int], constants: Constants
) -> Facts:
    """What is known of a segment's values, to be asked."""

    def known(name: str) -> Abstract:
        value = values[slots[name]]
        assert value is not None, f"nothing is known of {name}"
        return value

    return Facts(known, constants)
