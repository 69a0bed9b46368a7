"""Groups calls that one kernel computes: element-wise chains, behind a matmul or not.

A group is computed as a whole, so no path may lead out of it and back in.  For every
group the set of groups that it depends on is kept as the bits of an integer, and a
call joins a group only if nothing else that it needs depends on that group.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from onnxplug_cpu.compiler.call import Abstract, Call
from onnxplug_cpu.compiler.operations.elementwise import StepForm

MAX_STEPS: Final = 48
"""Steps of a chain, beyond which its values no longer fit the registers."""

MAX_OPERANDS: Final = 12
"""Arrays that a chain reads and writes."""

ANCHORS: Final = frozenset({"MatMul", "Gemm"})
"""Operators whose results a chain can take tile by tile."""


@dataclass(slots=True, eq=False)
class Group:
    """Calls that are computed together.

    Attributes:
        calls: in order; element-wise ones if *forms* is not empty.
        forms: the steps that the calls are.
        anchor: the call whose tiles the chain is applied to.
    """

    calls: list[Call]
    forms: list[StepForm] = field(default_factory=list)
    anchor: Call | None = None

    @property
    def all_calls(self) -> list[Call]:
        """The calls, the anchor first."""
        return self.calls if self.anchor is None else [self.anchor, *self.calls]


def fuse(
    calls: Sequence[Call],
    forms: Mapping[Call, StepForm],
    known: Mapping[str, Abstract],
) -> list[Group]:
    """The groups of *calls*, in an order in which they can be computed.

    Args:
        calls: in topological order; none whose outputs are known when planning.
        forms: the calls that are element-wise.
        known: shapes of all values.
    """
    fuser = _Fuser(known)
    for call in calls:
        fuser.add(call, forms.get(call))
    fuser.anchor()
    return fuser.scheduled()


class _Fuser:
    def __init__(self, known: Mapping[str, Abstract]) -> None:
        self.known = known
        self.groups: list[Group | None] = []
        self.needs: list[int] = []
        self.home: dict[str, int] = {}

    def add(self, call: Call, form: StepForm | None) -> None:
        sources = {self.home[name] for name in call.inputs if name in self.home}
        index = None
        if form is not None:
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
        shape = self.known[output].shape
        for index in sorted(sources, reverse=True):
            group = self.groups[index]
            if group is None or not group.forms or len(group.calls) >= MAX_STEPS:
                continue
            first = group.calls[0].outputs[0]
            assert first is not None
            if self.known[first].shape != shape:
                continue
            if self._closure(set(sources) - {index}) >> index & 1:
                continue
            inside = {name for member in group.calls for name in member.outputs}
            read = {name for member in (*group.calls, call) for name in member.inputs}
            if len(read - inside) <= MAX_OPERANDS:
                return index
        return None

    # matmuls

    def anchor(self) -> None:
        """Give chains the matmul whose result they take."""
        for index, group in enumerate(self.groups):
            if group is not None and group.forms:
                self._find_anchor(index, group)

    def _find_anchor(self, index: int, group: Group) -> None:
        inside = {name for call in group.calls for name in call.outputs}
        outside = {
            name
            for call in group.calls
            for name in call.inputs
            if name in self.home and name not in inside
        }
        first = group.calls[0].outputs[0]
        assert first is not None
        shape = self.known[first].shape
        sources = {name: self.home[name] for name in outside}
        for name, source in sorted(sources.items(), key=lambda item: -item[1]):
            matmul = self.groups[source]
            if matmul is None or matmul.forms or len(matmul.calls) != 1:
                continue
            if matmul.calls[0].op_type not in ANCHORS or (
                self.known[name].shape != shape
            ):
                continue
            others = set(sources.values()) - {source}
            if self._closure(others) >> source & 1:
                continue
            group.anchor = matmul.calls[0]
            self.groups[source] = None
            self.home[name] = index
            self._require(index, self.needs[source])
            for other, needed in enumerate(self.needs):
                if needed >> source & 1 and other != index:
                    self.needs[other] = needed | self.needs[index] | 1 << index
            return

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
