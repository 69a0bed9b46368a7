"""What is computed of the sizes of a plan that is traced, and what is asked of them."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug_compiler.ir.evaluation import Evaluate, evaluation
from onnxplug_compiler.ir.traced import (
    Monomial,
    NotTraced,
    Terms,
    TracedReal,
    TracedSize,
    is_whole,
    terms_of,
)

MOST: Final = 1 << 24
"""A size above this is not followed: computing takes long then beside planning."""

LARGEST: Final = 16
"""What numbers are at most that say how something is done, such as rows of a tile."""

MOST_FIXED: Final = 1 << 12
"""A number that could be one of more is a size; plans of one size serve no others."""

MOST_STEPS: Final = 1 << 18
"""Numbers that are computed, and compared, while one plan is traced."""

_LARGEST_END: Final = 1 << 1000
"""Ends of ranges above it are infinite."""

MOST_TERMS: Final = 24
"""Terms of a polynomial that is a product."""

_COMPARE: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
}


class Trace:
    """What was computed from some sizes.

    Args:
        sizes: the first ones, each 1 or more.

    Attributes:
        sizes: the same as traced numbers; equal ones may differ in other plans.
        is_open: whether what is asked becomes a guard.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.is_open = True
        self._lines: list[tuple[str, Any]] = []
        self._values: list[int] = []
        self._ranges: list[tuple[float, float]] = []
        self._interned: dict[Any, Any] = {}
        self._variables: dict[Any, int] = {}
        self._asked: set[Any] = set()
        self._reals = self._steps = 0
        self.sizes = []
        for position, size in enumerate(sizes):
            if not 1 <= size <= MOST:
                raise NotTraced(f"a size of {size}")
            number = self._variable(("size", position), f"s{position}", size)
            self._ranges[number] = (1, MOST)
            self._lines.append(("guard", f"1 <= v{number} <= {MOST}"))
            self.sizes.append(self._polynomial({(number,): 1}))

    # integers

    def _variable(self, key: Any, text: str, value: int) -> int:
        """The number of a variable that has this key."""
        number = self._variables.get(key)
        if number is None:
            number = self._variables[key] = len(self._values)
            self._values.append(value)
            self._ranges.append((-math.inf, math.inf))
            self._lines.append(("set", f"v{number} = {text}"))
        return number

    def _polynomial(self, terms: Mapping[Monomial, int]) -> Any:
        """The traced number of these terms, or a number if it is always the same."""
        key = self._simplified(terms)
        if not key:
            return 0
        if len(key) == 1 and not key[0][0]:
            return key[0][1]
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = TracedSize(self, key, self._value(key))
        return found

    def _simplified(self, terms: Mapping[Monomial, int]) -> Terms:
        """A polynomial without variables that are always the same."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NotTraced("too much is computed of sizes")
        simple: dict[Monomial, int] = {}
        for monomial, factor in terms.items():
            left = monomial
            for variable in monomial:
                low, high = self._ranges[variable]
                if low == high:
                    factor *= int(low)
                    rest = list(left)
                    rest.remove(variable)
                    left = tuple(rest)
            simple[left] = simple.get(left, 0) + factor
        return tuple(sorted([each for each in simple.items() if each[1]]))

    def range_of(self, terms: Terms) -> tuple[float, float]:
        """Between what a polynomial is, as far as guards tell: whole numbers, which
        floats would round, or infinite."""
        low: float = 0
        high: float = 0
        for monomial, factor in terms:
            first: float = 1
            last: float = 1
            for variable in monomial:
                ends = self._ranges[variable]
                each = [_times(a, b) for a in (first, last) for b in ends]
                first, last = min(each), max(each)
            both = _times(first, factor), _times(last, factor)
            low += min(both)
            high += max(both)
        return low, high

    def combined(self, pairs: Iterable[tuple[Terms, int]]) -> Any:
        """A sum of polynomials, each with a factor."""
        return self._polynomial(_sum(pairs))

    def product(self, one: Terms, other: Terms) -> Any:
        """The product of two polynomials."""
        total: dict[Monomial, int] = {}
        for first, factor in one:
            for second, by in other:
                both = tuple(sorted(first + second))
                total[both] = total.get(both, 0) + factor * by
        if len(total) > MOST_TERMS:
            raise NotTraced("a product has too many terms")
        return self._polynomial(total)

    def quotient(self, one: Terms, other: Terms) -> Any:
        """*one* // *other*, what is divided by a number evenly taken out."""
        divisor = _constant(other)
        if divisor is None:
            exact = _exact_quotient(one, other)
            if exact is not None and self.range_of(other)[0] > 0:
                return self._polynomial(exact)
            return self._divided(one, other, other)
        whole = tuple((m, f // divisor) for m, f in one if f // divisor)
        rest = tuple((m, f % divisor) for m, f in one if f % divisor)
        if not rest or _constant(rest) is not None:
            return self._polynomial(dict(whole))
        if divisor > 0:
            low, high = self.range_of(rest)
            if low >= 0 and high < divisor:
                return self._polynomial(dict(whole))
        part = self._divided(rest, other, other)
        return self.combined([(whole, 1), (terms_of(part), 1)])

    def _divided(self, one: Terms, other: Terms, by: Terms) -> Any:
        first, second = self._text(one), self._text(by)
        value = self._value(one) // self._value(by)
        key = "//", one, by
        fresh = key not in self._variables
        number = self._variable(key, f"({first}) // ({second})", value)
        if fresh:
            ends, divisors = self.range_of(one), self.range_of(other)
            if divisors[0] > 0:
                each = [_floor(a, b) for a in ends for b in divisors]
                self._ranges[number] = min(each), max(each)
        return self._polynomial({(number,): 1})

    def _value(self, terms: Terms) -> int:
        return sum(
            factor * math.prod([self._values[each] for each in monomial])
            for monomial, factor in terms
        )

    def _text(self, terms: Terms) -> str:
        return (
            " + ".join(
                "*".join([str(factor), *[f"v{each}" for each in monomial]])
                for monomial, factor in terms
            )
            or "0"
        )

    # questions

    def compare(self, pairs: Iterable[tuple[Terms, int]], how: str) -> bool:
        """Whether a sum of polynomials, each with a factor, is ``<``, ``<=`` or ``==``
        0, which is a guard if it is not always so."""
        terms = self._simplified(_sum(pairs))
        constant = _constant(terms)
        if constant is not None:
            return _COMPARE[how](constant, 0)
        low, high = self.range_of(terms)
        known = _decided(low, high, how)
        if known is not None:
            return known
        answer = _COMPARE[how](self._value(terms), 0)
        if self.is_open and (terms, how) not in self._asked:
            self._asked.add((terms, how))
            text = f"{self._text(terms)} {how} 0"
            self._lines.append(("guard", text if answer else f"not ({text})"))
            self._narrow(terms, how, answer)
        return answer

    def _narrow(self, terms: Terms, how: str, answer: bool) -> None:
        """Note what a guard says of the range of a variable."""
        linear = [(m, f) for m, f in terms if m]
        if len(linear) != 1 or len(linear[0][0]) != 1:
            return
        ((variable,), factor), number = linear[0], dict(terms).get((), 0)
        low, high = self._ranges[variable]
        if how == "==":
            if answer:
                low = high = -number // factor
        else:
            strict = (how == "<") == answer
            # factor * v + number < 0, or <= 0; turned around if that is false
            below = (factor > 0) == answer
            if below:
                most = -number // factor if factor > 0 else number // -factor
                exact = most * factor == -number
                high = min(high, most - (strict and exact))
            else:
                least = -(number // factor) if factor > 0 else -(-number // -factor)
                exact = least * factor == -number
                low = max(low, least + (strict and exact))
        self._ranges[variable] = low, high

    def fixed(self, size: TracedSize) -> int:
        """A traced number as the number that it is, which becomes a guard.

        Raises:
            NotTraced: it is a size, and a plan of one size serves no others.
        """
        low, high = self.range_of(size.terms)
        if self.is_open and size.value > LARGEST and high - low > MOST_FIXED:
            raise NotTraced(f"a size has to be {size.value}")
        self.compare([(size.terms, 1), (terms_of(size.value), -1)], "==")
        return int(size.value)

    def extreme(self, how: str, one: Any, other: Any, value: int) -> Any:
        """The ``max`` or ``min`` of two whole numbers, whichever it is."""
        terms = tuple(sorted((terms_of(one), terms_of(other))))
        ranges = [self.range_of(each) for each in terms]
        for number, known in ((0, 1), (1, 0)):
            if ranges[number][1] <= ranges[known][0]:
                return self._polynomial(dict(terms[known if how == "max" else number]))
        text = f"{how}({self._text(terms[0])}, {self._text(terms[1])})"
        key = how, terms
        fresh = key not in self._variables
        number = self._variable(key, text, value)
        if fresh:
            (low, high), (least, most) = ranges
            choose = max if how == "max" else min
            self._ranges[number] = choose(low, least), choose(high, most)
        return self._polynomial({(number,): 1})

    def either(self, one: Any, other: Any, if_less: Any, if_not: Any) -> Any:
        """One of two whole numbers, by whether *one* is less than *other*."""
        if is_whole(one) and is_whole(other):
            less = self.combined([(terms_of(one), 1), (terms_of(other), -1)])
            known = _decided(*self.range_of(terms_of(less)), "<")
            if known is not None:
                return if_less if known else if_not
        first, second = terms_of(if_less), terms_of(if_not)
        test = f"{self.text_of(one)} < {self.text_of(other)}"
        text = f"({self._text(first)}) if {test} else ({self._text(second)})"
        is_less = getattr(one, "value", one) < getattr(other, "value", other)
        key = "if", text
        fresh = key not in self._variables
        number = self._variable(key, text, self._value(first if is_less else second))
        if fresh:
            (low, high), (least, most) = map(self.range_of, (first, second))
            self._ranges[number] = min(low, least), max(high, most)
        return self._polynomial({(number,): 1})

    # numbers with fractions

    def real(self, how: str, operands: Sequence[Any], value: float) -> Any:
        """A float, computed from others."""
        texts = tuple([self.text_of(each) for each in operands])
        key = how, texts
        found = self._interned.get(key)
        if found is None:
            self._reals += 1
            name = f"r{self._reals}"
            self._lines.append(("set", f"{name} = {how.format(*texts)}"))
            found = self._interned[key] = TracedReal(self, name, value)
        return found

    def text_of(self, number: Any) -> str:
        """A number or traced number as an expression."""
        if type(number) is TracedSize:
            return f"({self._text(number.terms)})"
        if type(number) is TracedReal:
            return number.name
        return repr(number.item() if isinstance(number, np.generic) else number)

    def ask(self, how: str, operands: Sequence[Any], answer: Any) -> Any:
        """What an expression of such numbers gives, which becomes a guard."""
        text = how.format(*[self.text_of(each) for each in operands])
        if self.is_open and text not in self._asked:
            self._asked.add(text)
            self._lines.append(("guard", f"({text}) == {self.text_of(answer)}"))
        return answer

    def whole(self, how: str, operands: Sequence[Any], value: int) -> Any:
        """An integer that is computed from numbers with fractions."""
        text = how.format(*[self.text_of(each) for each in operands])
        number = self._variable(("whole", text), text, value)
        return self._polynomial({(number,): 1})

    # the result

    def close(self) -> None:
        """Let traced numbers be what they are from now on."""
        self.is_open = False

    def finished(self, wanted: Sequence[Any]) -> Evaluate:
        """A function of the first sizes that gives what *wanted* is for them."""
        self.close()
        texts = [self.text_of(each) for each in wanted]
        return evaluation(len(self.sizes), self._lines, texts)


def _sum(pairs: Iterable[tuple[Terms, int]]) -> dict[Monomial, int]:
    total: dict[Monomial, int] = {}
    for terms, factor in pairs:
        for monomial, each in terms:
            total[monomial] = total.get(monomial, 0) + factor * each
    return total


def _exact_quotient(one: Terms, other: Terms) -> dict[Monomial, int] | None:
    """A polynomial divided by one of a single term, if nothing is left."""
    if len(other) != 1:
        return {(): 1} if one == other else None
    ((divisor, by),) = other
    quotient: dict[Monomial, int] = {}
    for monomial, factor in one:
        left = list(monomial)
        for variable in divisor:
            if variable not in left:
                return None
            left.remove(variable)
        if factor % by:
            return None
        quotient[tuple(left)] = factor // by
    return quotient


def _times(one: float, other: float) -> float:
    """A product of whole or infinite numbers; infinite, too, where it would be no
    float, as whole numbers are added to infinite ones."""
    if not one or not other:
        return 0
    is_large = max(abs(one), abs(other)) > _LARGEST_END
    if is_large or abs(one * other) > _LARGEST_END:
        return math.inf if (one > 0) == (other > 0) else -math.inf
    return one * other


def _floor(one: float, other: float) -> float:
    if math.isinf(other):
        return 0 if one >= 0 else -1
    return one if math.isinf(one) else one // other


def _decided(low: float, high: float, how: str) -> bool | None:
    """The answer of a comparison with 0, if all numbers in a range have one."""
    if how == "==":
        return False if low > 0 or high < 0 else None
    if how == "<":
        return True if high < 0 else False if low >= 0 else None
    return True if high <= 0 else False if low > 0 else None


def _constant(terms: Terms) -> int | None:
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and not terms[0][0] else None
