"""The language of patterns: terms that match values by the calls that make them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.facts import Facts, is_nothing, number_of

Bound: TypeAlias = Mapping[str, Any]
"""What parts of a pattern were found to be: names of values, numbers, and choices."""


Found: TypeAlias = tuple[Bound, tuple[Call, ...]]
"""A match of a term, or of a part of one: what was bound, and the calls in it."""


class Graph:
    """The calls that patterns are looked for in.

    Attributes:
        facts: of the calls' values.
        wanted: values that are needed outside.
        producer: of each value.
        readers: of each value.
        gone: calls that are part of a pattern that was found.
        joined: the calls that stand for patterns.
    """

    def __init__(
        self, calls: Sequence[Call], facts: Facts, wanted: Collection[str]
    ) -> None:
        self.facts = facts
        self.wanted = frozenset(wanted)
        self.producer: dict[str, Call] = {}
        self.readers: defaultdict[str, list[Call]] = defaultdict(list)
        for call in calls:
            for name in call.outputs:
                if name is not None:
                    self.producer[name] = call
            for name in call.inputs:
                if name is not None:
                    self.readers[name].append(call)
        self.gone: set[Call] = set()
        self.joined: set[Call] = set()

    def number(self, name: str) -> float | None:
        """The number that *name* always is."""
        if name in self.producer:
            return None
        value = self.facts.ask(number_of, name)
        return None if value is None else float(value)

    def followers(self, call: Call) -> Iterator[Call]:
        """The calls that read its result, if it is not needed outside."""
        name = call.outputs[0]
        if name is not None and name not in self.wanted:
            yield from (each for each in self.readers[name] if each not in self.gone)

    def is_closed(self, members: Collection[Call], last: Call) -> bool:
        """Whether what *members* make is read within them alone, but for the *last*."""
        return all(
            name not in self.wanted and all(r in members for r in self.readers[name])
            for call in members
            if call is not last
            for name in call.outputs
            if name is not None
        )


class Term:
    """Something that a value may be."""

    operators: frozenset[str] = frozenset()
    """Of the calls that it can take in."""

    made_by: str | None = None
    """The operator of the call that makes it, if that has to be one."""

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        """All ways in which the value *name* is this, in order of preference.

        Args:
            found: what was bound and taken in before.
        """
        raise NotImplementedError

    def found(self, graph: Graph, last: Call) -> list[Found]:
        """All ways in which the result of *last* is this."""
        return self.match(graph, last.outputs[0], ({}, ()))

    def __or__(self, other: Term) -> Term:
        return Either(self, other)

    @property
    def alternatives(self) -> tuple[Term, ...]:
        """The terms of which this is one or another."""
        return (self,)


class Either(Term):
    """The first of two terms or, if all does not fit together then, the second."""

    def __init__(self, first: Term, second: Term) -> None:
        self._alternatives = first.alternatives + second.alternatives
        self.operators = first.operators | second.operators

    @property
    def alternatives(self) -> tuple[Term, ...]:
        return self._alternatives

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        call = graph.producer.get(name or "")
        operator = None if call is None else call.op_type
        matches: list[Found] = []
        for term in self._alternatives:
            if term.made_by is None or term.made_by == operator:
                matches += term.match(graph, name, found)
        return matches


class Value(Term):
    """A value, the same wherever the *key* stands; one that is *term*, if given."""

    def __init__(self, key: str, term: Term | None = None) -> None:
        self.key, self.term = key, term
        if term is not None:
            self.operators, self.made_by = term.operators, term.made_by

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        if name is None:
            return []
        bound, members = found
        if self.key in bound:
            return [found] if bound[self.key] == name else []
        found = {**bound, self.key: name}, members
        return [found] if self.term is None else self.term.match(graph, name, found)


class Missing(Term):
    """An input that is left out."""

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        return [found] if name is None else []


class Number(Term):
    """A number that is the same in all runs: that one, or any, which is bound."""

    def __init__(self, key_or_value: str | float) -> None:
        self.key_or_value = key_or_value

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        number = None if name is None else graph.number(name)
        if number is None:
            return []
        if isinstance(self.key_or_value, str):
            bound, members = found
            return [({**bound, self.key_or_value: number}, members)]
        return [found] if number == self.key_or_value else []


class Nothing(Term):
    """Zeros, known before a run, of any shape."""

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        is_zero = name is not None and graph.facts.ask(is_nothing, name)
        return [found] if is_zero else []


class Choice(Term):
    """A term, with something that is bound where it matches."""

    def __init__(self, term: Term, **bound: Any) -> None:
        self.term, self.bound = term, bound
        self.operators, self.made_by = term.operators, term.made_by

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        return [
            ({**bound, **self.bound}, members)
            for bound, members in self.term.match(graph, name, found)
        ]


Condition: TypeAlias = Callable[[Graph, Call, Bound], bool]


class Op(Term):
    """The first output of a call of an operator, of inputs that are the *operands*.

    Args:
        swaps: whether two operands may stand the other way round.
        more: whether there may be further inputs, which *where* looks at.
        where: what else has to hold, looked at when the operands match.
    """

    def __init__(
        self,
        operator: str,
        *operands: Term,
        swaps: bool = False,
        more: bool = False,
        where: Condition | None = None,
    ) -> None:
        self.made_by, self.operands = operator, operands
        self.swaps, self.more, self.where = swaps, more, where
        self.operators = frozenset({operator}).union(*(o.operators for o in operands))

    def match(self, graph: Graph, name: str | None, found: Found) -> list[Found]:
        call = graph.producer.get(name or "")
        if call is None or call.op_type != self.made_by or call in graph.gone:
            return []
        inputs, count = call.inputs, len(self.operands)
        if call.outputs[0] != name or len(inputs) < count:
            return []
        if len(inputs) > count and not self.more:
            return []
        bound, members = found
        if call not in members:
            found = bound, (*members, call)
        matches = self._operands(graph, inputs, found)
        if self.swaps and inputs[0] != inputs[1]:
            matches += self._operands(graph, inputs[::-1], found)
        if self.where is None or not matches:
            return matches
        return [each for each in matches if self.where(graph, call, each[0])]

    def _operands(
        self, graph: Graph, inputs: Sequence[str | None], found: Found
    ) -> list[Found]:
        matches = [found]
        for operand, name in zip(self.operands, inputs, strict=False):
            if len(matches) == 1:  # as it mostly is
                matches = operand.match(graph, name, matches[0])
            else:
                matches = [
                    match
                    for each in matches
                    for match in operand.match(graph, name, each)
                ]
            if not matches:
                break
        return matches


class Rewrite(Record):
    """A pattern and what it becomes.

    Attributes:
        root: an operator that the pattern cannot be without.
        term: matches the result of the pattern.
        make: the call that it becomes, given the last call of the pattern and what was
            bound; ``None`` if something does not hold.
    """

    root: str
    term: Term
    make: Callable[[Graph, Call, Bound], Call | None]
