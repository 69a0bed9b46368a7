"""Groups calls that one kernel computes: element-wise chains, behind a matmul or not.

A group is computed as a whole, so no path may lead out of it and back in.  For every
group the set of groups that it depends on is kept as the bits of an integer, and a
call joins a group only if nothing else that it needs depends on that group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.ir.target import ChainLimits

_WIDENS: Final = "DequantizeLinear"
"""The operator before which chains are best parted, if anywhere."""


class Group:
    """Calls that are computed together.

    Attributes:
        calls: in order; element-wise ones if *forms* is not empty.
        forms: the steps that the calls are.
        anchor: the call whose tiles the chain is applied to.
        reshapes: calls between the anchor and the chain, which give the result another
            shape.
    """

    __slots__ = ("anchor", "calls", "forms", "reshapes")

    def __init__(self, calls: list[Call], forms: Sequence[StepForm] = ()) -> None:
        self.calls = calls
        self.forms = [*forms]
        self.anchor: Call | None = None
        self.reshapes: list[Call] = []

    @property
    def all_calls(self) -> list[Call]:
        """The calls, the anchor first."""
        if self.anchor is None:
            return self.calls
        return [self.anchor, *self.reshapes, *self.calls]

    @property
    def steps(self) -> int:
        """How many steps the chain has."""
        return sum(form.steps for form in self.forms)


def fuse(
    calls: Sequence[Call],
    forms: Mapping[Call, StepForm],
    same_shape: Callable[[str, str], bool],
    limits: ChainLimits,
    wanted: Collection[str] = (),
) -> list[Group]:
    """The groups of *calls*, in an order in which they can be computed.

    Args:
        calls: in topological order; none whose outputs are known when planning.
        forms: the calls that are element-wise.
        same_shape: whether two values, by their names, have the same shape.
        limits: of chains.
        wanted: values that are needed outside.
    """
    fuser = _Fuser(same_shape, limits, wanted)
    for call in calls:
        fuser.add(call, forms.get(call))
    fuser.anchor()
    return fuser.scheduled()


class _Fuser:
    def __init__(
        self,
        same_shape: Callable[[str, str], bool],
        limits: ChainLimits,
        wanted: Collection[str],
    ) -> None:
        self.same_shape = same_shape
        self.limits = limits
        self.wanted = frozenset(wanted)
        self.groups: list[Group | None] = []
        self.needs: list[int] = []
        self.home: dict[str, int] = {}
        self.order: dict[Call, int] = {}
        self.readers: defaultdict[str, set[int]] = defaultdict(set)

    def add(self, call: Call, form: StepForm | None) -> None:
        """Put *call* into a group, a new one or that of something it reads."""
        self.order[call] = len(self.order)
        sources = {self.home[name] for name in call.inputs if name in self.home}
        begins = form is not None and form.operator == _WIDENS
        index = None
        if form is not None and not begins:
            index = self._joinable(call, form, sources)
        if index is None:
            index = len(self.groups)
            self.groups.append(Group([call], [] if form is None else [form]))
            self.needs.append(self._closure(sources))
        else:
            group = self.groups[index]
            assert group is not None and form is not None
            group.calls.append(call)
            group.forms.append(form)
            self._require(index, self._closure(sources - {index}))
        for name in call.outputs:
            if name is not None:
                self.home[name] = index
        for name in call.inputs:
            if name is not None:
                self.readers[name].add(index)
        if form is not None and not begins:
            for source in sorted(sources - {index}, reverse=True):
                self._merge(source, index)

    def _merge(self, other: int, index: int) -> None:
        """Make one chain of two, not both with an anchor, if they have one shape and
        nothing lies between."""
        one, two = self.groups[other], self.groups[index]
        assert one is not None and two is not None
        if not one.forms or one.steps + two.steps > self.limits.steps:
            return
        if not self.same_shape(_first(one), _first(two)):
            return
        if self._closure(self._sources(two, index) - {other}) >> other & 1:
            return
        if self._closure(self._sources(one, other) - {index}) >> index & 1:
            return
        if self._is_before_anchor(other, two) or self._is_before_anchor(index, one):
            return
        if len(self._operands([*one.calls, *two.calls])) > self.limits.operands:
            return
        # what the later one reads of the earlier one was computed before
        two.calls[:0], two.forms[:0] = one.calls, one.forms
        if one.anchor is not None:
            two.anchor, two.reshapes = one.anchor, one.reshapes
        self._place(two)
        self.groups[other] = None
        for call in two.all_calls:
            for name in call.outputs:
                if name is not None:
                    self.home[name] = index
        for readers in self.readers.values():
            if other in readers:
                readers.remove(other)
                readers.add(index)
        self._require(index, self.needs[other] & ~(1 << index))
        gone = 1 << other
        for group, needed in enumerate(self.needs):
            if needed & gone:
                needed &= ~gone
                if group != index:
                    needed |= self.needs[index] & ~gone | 1 << index
                self.needs[group] = needed

    def _is_before_anchor(self, index: int, group: Group) -> bool:
        """Whether the anchor of *group*, if it has one, needs that at *index*."""
        if group.anchor is None:
            return False
        calls = (group.anchor, *group.reshapes)
        names = {name for call in calls for name in call.inputs}
        sources = {self.home[name] for name in names if name in self.home}
        own = {self.home[name] for call in calls for name in call.outputs if name}
        return bool(self._closure(sources - own) >> index & 1)

    def _place(self, group: Group) -> None:
        """Bring the calls of a chain into the order in which they were added."""
        pairs = zip(group.calls, group.forms, strict=True)
        ordered = sorted(pairs, key=lambda pair: self.order[pair[0]])
        group.calls = [call for call, _ in ordered]
        group.forms = [form for _, form in ordered]

    def _sources(self, group: Group, index: int) -> set[int]:
        names = {name for call in group.all_calls for name in call.inputs}
        return {self.home[name] for name in names if name in self.home} - {index}

    def _operands(self, calls: Sequence[Call]) -> set[str | None]:
        """What a chain of these calls reads from elsewhere."""
        inside = {name for call in calls for name in call.outputs}
        return {name for call in calls for name in call.inputs} - inside

    def _closure(self, sources: Collection[int]) -> int:
        bits = 0
        for source in sources:
            bits |= self.needs[source] | 1 << source
        return bits

    def _require(self, index: int, bits: int) -> None:
        """Add to what group *index* depends on, and with it all that depend on it."""
        if not bits & ~self.needs[index]:
            return
        self.needs[index] |= bits
        for other, needed in enumerate(self.needs):
            if needed >> index & 1:
                self.needs[other] = needed | bits

    def _joinable(
        self, call: Call, form: StepForm, sources: Collection[int]
    ) -> int | None:
        """The latest chain among *sources* that *call* can be part of."""
        output = call.outputs[0]
        assert output is not None
        for index in sorted(sources, reverse=True):
            group = self.groups[index]
            if (
                group is None
                or not group.forms
                or group.steps + form.steps > self.limits.steps
            ):
                continue
            if not self.same_shape(_first(group), output):
                continue
            if self._closure(set(sources) - {index}) >> index & 1:
                continue
            if len(self._operands([*group.calls, call])) <= self.limits.operands:
                return index
        return None

    # matmuls

    def anchor(self) -> None:
        """Give chains the matmul whose result they take, and join those that codes lie
        between."""
        for index, group in enumerate(self.groups):
            if group is not None and group.forms:
                self._find_anchor(index, group)
                self._join_codes(index, group)

    def _join_codes(self, index: int, group: Group) -> None:
        """Join the chains whose codes *group* reads, the latest first, of those that
        have an anchor one at most: what the others are anchored to writes codes, which
        are narrower than what they stand for."""
        codes = {
            call.inputs[0]
            for call, form in zip(group.calls, group.forms, strict=True)
            if form.operator == _WIDENS
        }
        sources = {self.home[name] for name in codes if name in self.home} - {index}
        for source in sorted(sources, reverse=True):
            other = self.groups[source]
            assert other is not None
            if group.anchor is None or other.anchor is None:
                self._merge(source, index)

    def _find_anchor(self, index: int, group: Group) -> None:
        inside = {name for call in group.calls for name in call.outputs}
        outside = {
            name
            for call in group.calls
            for name in call.inputs
            if name in self.home and name not in inside
        }
        first = _first(group)
        sources = {name: self.home[name] for name in outside}
        for name, source in sorted(sources.items(), key=lambda item: -item[1]):
            if not self.same_shape(name, first):  # it is broadcast
                continue
            between: list[int] = []
            while self._is_reshape(source) and self.readers[name] == {index}:
                between.append(source)
                name = self._call(source).inputs[0] or ""
                if self.readers[name] != {source} or name not in self.home:
                    break
                source = self.home[name]
            if not self._can_anchor(source, name, reshaped=bool(between)):
                continue
            others = set(sources.values()) - {source, *between}
            if self._closure(others) >> source & 1:
                continue
            self._absorb(index, group, source, between)
            return

    def _call(self, index: int) -> Call:
        group = self.groups[index]
        assert group is not None
        return group.calls[0]

    def _is_reshape(self, index: int) -> bool:
        group = self.groups[index]
        return (
            group is not None
            and not group.forms
            and group.calls[0].traits.reshapes
            and group.calls[0].outputs[0] not in self.wanted
        )

    def _can_anchor(self, index: int, name: str, *, reshaped: bool) -> bool:
        """Whether *name* is a product's, and needed nowhere else if it is reshaped."""
        group = self.groups[index]
        return (
            group is not None
            and not group.forms
            and group.calls[0].traits.anchors
            and group.calls[0].outputs[0] == name
            and not (reshaped and name in self.wanted)
        )

    def _absorb(
        self, index: int, group: Group, source: int, between: Sequence[int]
    ) -> None:
        """Make the product at *source* the anchor of *group*."""
        group.anchor = self._call(source)
        group.reshapes = [self._call(reshape) for reshape in reversed(between)]
        bits = gone = 0
        for number in (source, *between):
            self.groups[number] = None
            bits |= self.needs[number]
            gone |= 1 << number
        for call in (group.anchor, *group.reshapes):
            for name in call.outputs:
                if name is not None:
                    self.home[name] = index
        self._require(index, bits)
        bits = self.needs[index] | 1 << index
        for other, needed in enumerate(self.needs):
            if needed & gone and other != index:
                self.needs[other] = needed | bits

    # order

    def scheduled(self) -> list[Group]:
        """The groups, each after what it depends on."""
        done: set[int] = set()
        order: list[Group] = []

        def visit(index: int) -> None:
            stack = [index]
            while stack:
                top = stack[-1]
                group = self.groups[top]
                if top in done or group is None:
                    stack.pop()
                    continue
                waiting = [
                    self.home[name]
                    for call in group.all_calls
                    for name in call.inputs
                    if name in self.home
                    and self.home[name] != top
                    and self.home[name] not in done
                ]
                if waiting:
                    stack.extend(waiting)
                    continue
                stack.pop()
                done.add(top)
                order.append(group)

        for index in range(len(self.groups)):
            visit(index)
        return order


def _first(group: Group) -> str:
    """A value of the shape that all of a chain's have."""
    first = group.calls[0].outputs[0]
    assert first is not None
    return first
