"""Chooses for the values around convolutions the order of axes in memory.

Convolutions and the like are fastest where channels are last, all else where axes lie
as the shape has them.  Values that may lie alike are found from convolutions on,
through what is element-wise, joins, moves, or is a view; then orders are chosen so
that as few values as possible are converted, whatever their sizes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from onnxplug.authoring.bounds import permutation
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.frontend.facts import (
    Facts,
    has_pixels,
    keeps_channels,
    keeps_last,
    rank_of,
)
from onnxplug_compiler.layout.minimum_cut import FOREVER, Division

Order: TypeAlias = tuple[int, ...]
"""Axes of a value, the one whose elements are farthest apart in memory first."""

CHANNELS: Final = 1
"""The axis of channels of what is convolved."""

_READ: Final = 1
"""What it costs to read a value in another order than the one that is fast."""

_WRITTEN: Final = 2
"""What it costs to write one so: elements one by one."""


def orders(
    calls: Sequence[Call],
    forms: Mapping[Call, StepForm],
    facts: Facts,
    wanted: Collection[str],
) -> dict[str, Order]:
    """The order of axes of each value that does not lie as its shape says.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise.
        facts: of the calls' values.
        wanted: values that are needed outside, in the order of their axes.
    """
    if not any(call.traits.channels_last for call in calls):
        return {}
    return _Orders(calls, forms, facts, wanted).chosen()


class _Link(NamedTuple):
    """An input of a call and an output that may lie as the input does."""

    call: Call
    source: str
    target: str


class _Orders:
    """Values that convolutions reach, each with the axis that its channels are.

    A view lies as what it is a view of: both are one vertex of what is divided.
    """

    def __init__(
        self,
        calls: Sequence[Call],
        forms: Mapping[Call, StepForm],
        facts: Facts,
        wanted: Collection[str],
    ) -> None:
        self.calls = calls
        self.forms = forms
        self.facts = facts
        self.wanted = wanted
        self.made = {name for call in calls for name in call.outputs if name}
        self.channels: dict[str, int] = {}
        self.links: list[_Link] = []
        self.seen: dict[str, str] = {}

    def chosen(self) -> dict[str, Order]:
        """What :func:`orders` returns."""
        self._spread()
        numbers: dict[str, int] = {}
        for link in self.links:
            if _is_view(link.call):
                self.seen[link.target] = link.source
        for name in self.channels:
            numbers.setdefault(self._root(name), len(numbers))
        place = {name: numbers[self._root(name)] for name in self.channels}
        division = Division(len(numbers))
        self._add_costs(division, place)
        last = division.first()
        if last is None:
            return {}
        chosen: dict[str, Order] = {}
        for name, channels in self.channels.items():
            spatial = [a for a in range(1, self._rank(name)) if a != channels]
            order = (0, channels, *spatial)
            if last[place[name]]:
                order = (0, *spatial, channels)
            if order != tuple(range(len(order))):
                chosen[name] = order
        return chosen

    def _root(self, name: str) -> str:
        while name in self.seen:
            name = self.seen[name]
        return name

    # which values

    def _spread(self) -> None:
        """Find channels of all that convolutions reach, and how they reach it."""
        around: defaultdict[str, list[_Link]] = defaultdict(list)
        for call in self.calls:
            for link in self._possible_links(call):
                around[link.source].append(link)
                around[link.target].append(link)
        waiting: list[str] = []

        def add(name: str, channels: int | None) -> None:
            if channels is None or name in self.channels:
                return
            rank = self._rank(name)
            if rank > 2 and channels in (CHANNELS, rank - 1):
                self.channels[name] = channels
                waiting.append(name)

        for call in self.calls:
            if call.traits.channels_last:
                for end in (call.inputs[0], call.outputs[0]):
                    if end in self.made:
                        add(end, CHANNELS)
        while waiting:
            name = waiting.pop()
            for link in around[name]:
                other = link.target if name == link.source else link.source
                add(other, self._across(link, name))
        self.links = [
            link
            for name in self.channels
            for link in around[name]
            if name == link.source
            and link.target in self.channels
            and self._across(link, name) == self.channels[link.target]
        ]

    def _rank(self, name: str) -> int:
        rank: int = self.facts.ask(rank_of, name)
        return rank

    def _possible_links(self, call: Call) -> Iterator[_Link]:
        outputs = [name for name in call.outputs if name is not None]
        inputs: Sequence[str | None] = ()
        if self._makes_pixels(call):
            pass  # its result may lie otherwise
        elif _is_view(call) or call.traits.channels_last:
            inputs = call.inputs[:1]
        elif call in self.forms or call.traits.any_order:
            inputs = call.inputs
        for source in dict.fromkeys(inputs):
            if source in self.made:
                for target in outputs:
                    yield _Link(call, source, target)

    def _makes_pixels(self, call: Call) -> bool:
        """Whether a convolution copies codes of few channels, to have them in pixels,
        which is fast where each channel is by itself."""
        traits, image = call.traits, call.inputs[0] if call.inputs else None
        return (
            traits.coded
            and traits.channels_last
            and image is not None
            and bool(self.facts.ask(has_pixels, image))
        )

    def _across(self, link: _Link, name: str) -> int | None:
        """The channels at the other end of a link, given those of *name*."""
        call, source, target = link
        channels = self.channels[name]
        if call.traits.permutes:
            rank = self._rank(source)
            perm = call.attributes.get("perm")
            axes = permutation(range(rank)[::-1] if perm is None else perm, rank)
            return axes.index(channels) if name == source else axes[channels]
        if call.traits.reshapes:
            if channels == CHANNELS and self.facts.ask(keeps_channels, source, target):
                return CHANNELS
            if channels != CHANNELS and self.facts.ask(keeps_last, source, target):
                return self._rank(target if name == source else source) - 1
            return None
        if call in self.forms and not self.facts.same_shape(source, target):
            return None
        return channels if self._rank(source) == self._rank(target) else None

    # what orders cost

    def _add_costs(self, division: Division, place: Mapping[str, int]) -> None:
        """State the costs, where the first side is that of channels last."""

        def keep_own(name: str, cost: int) -> None:
            if self.channels[name] == CHANNELS:
                division.prefer_second(place[name], cost)
            else:
                division.prefer_first(place[name], cost)

        linked = {(link.call, link.source) for link in self.links}
        reached = {(link.call, link.target) for link in self.links}
        for link in self.links:
            if not _is_view(link.call):
                division.keep_together(place[link.source], place[link.target], _READ)
        for call in self.calls:
            traits = call.traits
            takes_any = call in self.forms or traits.any_order or traits.channels_last
            for name in dict.fromkeys(filter(None, call.inputs)):
                if name in place and not takes_any and (call, name) not in linked:
                    keep_own(name, _READ)
            for name in filter(None, call.outputs):
                if name in place and not takes_any and (call, name) not in reached:
                    keep_own(name, FOREVER)
            if traits.channels_last:
                for end, cost in ((call.inputs[0], _READ), (call.outputs[0], _WRITTEN)):
                    if end is None or end not in place:
                        continue
                    if end == call.inputs[0] and self._makes_pixels(call):
                        keep_own(end, cost)
                    else:
                        division.prefer_first(place[end], cost)
        for name in self.wanted:
            if name in place:
                keep_own(name, _READ)


def _is_view(call: Call) -> bool:
    return call.traits.keeps_elements or call.traits.selects
