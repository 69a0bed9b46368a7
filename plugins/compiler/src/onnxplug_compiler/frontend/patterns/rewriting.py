"""Puts one call in the place of those that a pattern was written as.

A pattern is looked for from a call that it cannot be without; every value within it
must be read within it alone.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import Facts

if TYPE_CHECKING:
    from onnxplug_compiler.frontend.patterns.terms import Rewrite

_PATTERNS: Final = {
    "Conv": "convolution",
    "ConvTranspose": "convolution",
    "DequantizeLinear": "codes",
    "Expand": "shared_heads",
    "ScatterND": "movement",
    "Transpose": "batches",
    "Sqrt": "normalization",
    "Softmax": "attention",
}
"""Modules beside this one, by the operator from which their patterns are looked for."""

_FARTHEST: Final = 4
"""Calls from there to the last one of a pattern, at most."""


def rewrite(
    calls: Sequence[Call],
    facts: Facts,
    wanted: Collection[str],
) -> list[Call]:
    """*calls* with the patterns in them replaced.

    Args:
        calls: in topological order.
        facts: of the calls' values.
        wanted: values that are needed outside.
    """
    if _PATTERNS.keys().isdisjoint(call.op_type for call in calls):
        return list(calls)
    return _Rewriter(calls, facts, wanted).rewrite()


class _Rewriter:
    def __init__(
        self,
        calls: Sequence[Call],
        facts: Facts,
        wanted: Collection[str],
    ) -> None:
        # many models have no patterns
        from onnxplug_compiler.frontend.patterns.terms import Graph

        self.calls = list(calls)
        self.graph = Graph(calls, facts, wanted)
        self.made: dict[Call, Call] = {}
        self.places: dict[Call, Call] = {}

    def rewrite(self) -> list[Call]:
        """Replace what is found; a joined call stands where its last one stood."""
        gone = self.graph.gone
        for call in self.calls:
            root = call if call.op_type in _PATTERNS and call not in gone else None
            if root is not None:
                name = f"{__package__}.{_PATTERNS[call.op_type]}"
                rewrites = importlib.import_module(name).REWRITES
                while root is not None:
                    root = self._replaced(root, rewrites)
        return [
            self.made.get(call, call)
            for call in self.calls
            if call in self.made or call not in gone
        ]

    def _replaced(self, root: Call, rewrites: Sequence[Rewrite]) -> Call | None:
        """The call that now stands for a pattern around *root*, if there was one."""
        for rewrite in rewrites:
            if rewrite.root != root.op_type:
                continue
            for last in self._followers(root, rewrite.term.operators):
                for bound, members in rewrite.term.found(self.graph, last):
                    if root not in members or not self.graph.is_closed(members, last):
                        continue
                    joined = rewrite.make(self.graph, last, bound)
                    if joined is not None and not _reads_from(joined, members):
                        self._join(members, last, joined)
                        return joined
        return None

    def _followers(self, root: Call, operators: Collection[str]) -> Iterator[Call]:
        """Calls of *operators* that a path of such leads to, the nearest first."""
        seen = {root}
        calls = [root]
        for _ in range(_FARTHEST):
            following: list[Call] = []
            for call in calls:
                for reader in self.graph.followers(call):
                    if reader.op_type in operators and reader not in seen:
                        seen.add(reader)
                        following.append(reader)
            if not following:
                return
            yield from following
            calls = following

    def _join(self, members: Sequence[Call], last: Call, joined: Call) -> None:
        """Put *joined* in the place of *last*, and take the members away."""
        graph = self.graph
        joined.nodes = tuple(sorted({node for call in members for node in call.nodes}))
        graph.gone.update(members)
        graph.joined.add(joined)
        for call in members:
            if call in self.places:  # it stood for a smaller pattern
                del self.made[self.places.pop(call)]
        self.made[last] = joined
        self.places[joined] = last
        for name in joined.outputs:
            if name is not None:
                graph.producer[name] = joined
        for name in joined.inputs:
            if name is not None:
                others = [each for each in graph.readers[name] if each not in members]
                graph.readers[name] = [*others, joined]


def _reads_from(joined: Call, members: Sequence[Call]) -> bool:
    """Whether it would read what is no longer computed."""
    made = {name for call in members for name in call.outputs}
    return any(name is not None and name in made for name in joined.inputs)
