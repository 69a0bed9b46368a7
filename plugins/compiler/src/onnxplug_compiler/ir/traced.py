"""Sizes that remember how they were computed, and what was asked of them.

A plan is made with such sizes in the place of those of its inputs.  What comes of it
are expressions of these, and *guards*: the answers that steered the making.  For other
sizes with the same answers the same code would take the same way, so the expressions
give what it would have made.  This is tracing as of just-in-time compilers (Gal et al.
2009, "Trace-based just-in-time type specialization for dynamic languages").

Nothing is missed: a traced size is no ``int`` for the interpreter, so each way from it
to a number goes through a method here, and what cannot be followed becomes a guard that
it is that number.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np

MARK: Final = "\N{NUMERO SIGN}"
"""What stands for a traced number in texts, which nothing may depend on."""

Monomial: TypeAlias = tuple[int, ...]
"""The numbers of variables, in their order, each as often as it is a factor."""

Terms: TypeAlias = tuple[tuple[Monomial, int], ...]
"""A polynomial: coefficients by monomials, in their order."""


class NotTraced(Exception):
    """What happens to a size cannot be followed."""


Number = TypeVar("Number", int, float)


def larger(one: Number, other: Number) -> Number:
    """``max``, which is no guard for traced numbers."""
    if not _are_traced(one, other):
        return max(one, other)
    most: Number = _extreme("max", one, other)
    return most


def smaller(one: Number, other: Number) -> Number:
    """``min``, which is no guard for traced numbers."""
    if not _are_traced(one, other):
        return min(one, other)
    least: Number = _extreme("min", one, other)
    return least


def either(one: float, other: float, if_less: int, if_not: int) -> int:
    """*if_less* if *one* is less than *other*, otherwise *if_not*; which is no guard
    for traced numbers."""
    if not _are_traced(one, other):
        return if_less if one < other else if_not
    chosen: int = _trace_of(one, other).either(one, other, if_less, if_not)
    return chosen


def common_divisor(*numbers: int) -> int:
    """``math.gcd`` of numbers from 0 on; what a traced one can be divided by is asked,
    and not what it is."""
    traced = [number for number in numbers if is_traced(number)]
    known = math.gcd(*[number for number in numbers if not is_traced(number)])
    if not known and len(traced) == 1:
        return traced[0]
    for number in traced:
        sizes = range(known or int(number), 0, -1)
        known = next(n for n in sizes if known % n == 0 and number % n == 0)
    return known


def _are_traced(one: Any, other: Any) -> bool:
    return type(one) in _TRACED or type(other) in _TRACED


def _trace_of(one: Any, other: Any) -> Any:
    return getattr(one, "trace", None) or other.trace


def _extreme(how: str, one: Any, other: Any) -> Any:
    trace = _trace_of(one, other)
    values = [getattr(each, "value", each) for each in (one, other)]
    value = max(values) if how == "max" else min(values)
    if is_whole(one) and is_whole(other):
        return trace.extreme(how, one, other, value)
    return trace.real(how + "({}, {})", (one, other), value)


def terms_of(number: Any) -> Terms:
    """A number or traced number as a polynomial."""
    if type(number) is TracedSize:
        terms: Terms = number.terms
        return terms
    number = operator.index(number)
    return (((), number),) if number else ()


def is_traced(number: Any) -> bool:
    """Whether a whole number is traced."""
    return type(number) is TracedSize


def is_whole(number: Any) -> bool:
    return type(number) is TracedSize or isinstance(number, (int, np.integer))


class _Traced:
    """What both kinds of traced numbers have."""

    __slots__ = ("trace", "value")
    __array_ufunc__ = None  # numpy leaves arithmetic to the methods here

    trace: Any
    value: Any

    def _real(self, how: str, *operands: Any) -> Any:
        for each in operands:
            if not isinstance(each, (int, float)) or isinstance(each, bool):
                return NotImplemented
        values = [getattr(each, "value", each) for each in operands]
        return self.trace.real(how, operands, _REAL[how](*values))

    def __truediv__(self, other: Any) -> Any:
        return self._real("{} / {}", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._real("{} / {}", other, self)

    def __str__(self) -> str:
        return MARK if self.trace.is_open else str(self.value)

    def __format__(self, spec: str) -> str:
        return MARK if self.trace.is_open else format(self.value, spec)

    def _ask(self, how: str, *operands: Any) -> Any:
        values = [getattr(each, "value", each) for each in operands]
        return self.trace.ask(how, operands, _ASKED[how](*values))

    def __reduce__(self) -> Any:
        raise NotTraced("a traced number is written to somewhere")


_REAL: Final[dict[str, Callable[..., float]]] = {
    "{} / {}": operator.truediv,
    "{} * {}": operator.mul,
    "{} + {}": operator.add,
    "{} - {}": operator.sub,
    "{} ** {}": operator.pow,
    "-{}": operator.neg,
}
_ASKED: Final[dict[str, Callable[..., Any]]] = {
    "{} < {}": operator.lt,
    "{} <= {}": operator.le,
    "{} == {}": operator.eq,
    "int({})": int,
    "{}": lambda number: number,
}


class TracedSize(_Traced):
    """An integer that is a polynomial of variables.

    Attributes:
        terms: the polynomial.
        value: what it is.
    """

    __slots__ = ("terms",)

    def __init__(self, trace: Any, terms: Terms, value: int) -> None:
        self.trace = trace
        self.terms = terms
        self.value = value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        # for isinstance, as of all code that takes sizes
        return int

    # to a number

    def __index__(self) -> int:
        return int(self.trace.fixed(self))

    def __int__(self) -> int:
        return int(self.trace.fixed(self))

    def __float__(self) -> float:
        return float(self.trace.fixed(self))

    def __hash__(self) -> int:
        return hash(self.trace.fixed(self))

    def __repr__(self) -> str:
        return repr(self.trace.fixed(self))

    def __bool__(self) -> bool:
        return not self.trace.compare([(self.terms, 1)], "==")

    # comparisons

    def _compare(self, other: Any, how: str, *, turned: bool = False) -> Any:
        if not is_whole(other):
            if isinstance(other, float) or type(other) is TracedReal:
                pair = (other, self) if turned else (self, other)
                return self._ask(f"{{}} {how} {{}}", *pair)
            return NotImplemented
        sign = -1 if turned else 1
        return self.trace.compare([(self.terms, sign), (terms_of(other), -sign)], how)

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "<")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "<=")

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, "<", turned=True)

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, "<=", turned=True)

    def __eq__(self, other: object) -> Any:
        return True if self is other else self._compare(other, "==")

    def __ne__(self, other: object) -> Any:
        equal = self == other
        return equal if equal is NotImplemented else not equal

    # arithmetic

    def _sum(self, other: Any, sign: int, by: int, how: str, *, turned: bool) -> Any:
        if is_whole(other):
            return self.trace.combined([(self.terms, sign), (terms_of(other), by)])
        return self._real(how, *((other, self) if turned else (self, other)))

    def __add__(self, other: Any) -> Any:
        return self._sum(other, 1, 1, "{} + {}", turned=False)

    def __radd__(self, other: Any) -> Any:
        return self._sum(other, 1, 1, "{} + {}", turned=True)

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, 1, -1, "{} - {}", turned=False)

    def __rsub__(self, other: Any) -> Any:
        return self._sum(other, -1, 1, "{} - {}", turned=True)

    def __mul__(self, other: Any) -> Any:
        if is_whole(other):
            return self.trace.product(self.terms, terms_of(other))
        if isinstance(other, (str, bytes, list, tuple)):
            return other * self.trace.fixed(self)
        return self._real("{} * {}", self, other)

    def __rmul__(self, other: Any) -> Any:
        if is_whole(other):
            return self.trace.product(self.terms, terms_of(other))
        if isinstance(other, (str, bytes, list, tuple)):
            return other * self.trace.fixed(self)
        return self._real("{} * {}", other, self)

    def __floordiv__(self, other: Any) -> Any:
        if not is_whole(other):
            return NotImplemented
        return self.trace.quotient(self.terms, terms_of(other))

    def __rfloordiv__(self, other: Any) -> Any:
        if not is_whole(other):
            return NotImplemented
        return self.trace.quotient(terms_of(other), self.terms)

    def __mod__(self, other: Any) -> Any:
        quotient = self // other
        return quotient if quotient is NotImplemented else self - quotient * other

    def __rmod__(self, other: Any) -> Any:
        if not is_whole(other):
            return NotImplemented
        return other - other // self * self

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __neg__(self) -> Any:
        return self.trace.combined([(self.terms, -1)])

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return -self if self < 0 else self

    def __pow__(self, other: Any) -> Any:
        if type(other) is int and 0 <= other <= 4:
            return math.prod([self] * other)
        return self._real("{} ** {}", self, other)

    def __lshift__(self, other: Any) -> Any:
        return self * (1 << other)

    def __rshift__(self, other: Any) -> Any:
        return self // (1 << other)

    def __and__(self, other: Any) -> Any:
        if isinstance(other, int) and other >= 0 and other & (other + 1) == 0:
            return self % (other + 1)  # a mask of the last bits
        return self.trace.fixed(self) & other

    def __rand__(self, other: Any) -> Any:
        return self & other

    def __or__(self, other: Any) -> Any:
        return self.trace.fixed(self) | other

    def __ror__(self, other: Any) -> Any:
        return other | self.trace.fixed(self)

    def __xor__(self, other: Any) -> Any:
        return self.trace.fixed(self) ^ other

    def __rxor__(self, other: Any) -> Any:
        return other ^ self.trace.fixed(self)

    def __rlshift__(self, other: Any) -> Any:
        return other << self.trace.fixed(self)

    def __rrshift__(self, other: Any) -> Any:
        return other >> self.trace.fixed(self)

    def __round__(self, digits: int | None = None) -> Any:
        return self

    def __trunc__(self) -> Any:
        return self

    def __floor__(self) -> Any:
        return self

    def __ceil__(self) -> Any:
        return self

    @property
    def numerator(self) -> int:
        """As of the number that it is, which becomes a guard."""
        return int(self.trace.fixed(self))

    @property
    def denominator(self) -> int:
        """1."""
        return 1

    def bit_length(self) -> int:
        """As of the number that it is, which becomes a guard."""
        return int(self.trace.fixed(self)).bit_length()


class TracedReal(_Traced):
    """A float that is computed from traced numbers.

    Attributes:
        name: of the variable that it is.
        value: what it is.
    """

    __slots__ = ("name",)

    def __init__(self, trace: Any, name: str, value: float) -> None:
        self.trace = trace
        self.name = name
        self.value = value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return float

    def __int__(self) -> int:
        return int(self._ask("int({})", self))

    def __float__(self) -> float:
        return float(self._ask("{}", self))

    def __hash__(self) -> int:
        return hash(float(self))

    def __repr__(self) -> str:
        return repr(float(self))

    def __bool__(self) -> bool:
        return not self._ask("{} == {}", self, 0)

    def __lt__(self, other: Any) -> Any:
        return self._ask("{} < {}", self, other)

    def __le__(self, other: Any) -> Any:
        return self._ask("{} <= {}", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._ask("{} < {}", other, self)

    def __ge__(self, other: Any) -> Any:
        return self._ask("{} <= {}", other, self)

    def __eq__(self, other: object) -> Any:
        return self._ask("{} == {}", self, other)

    def __ne__(self, other: object) -> Any:
        return not self == other

    def __add__(self, other: Any) -> Any:
        return self._real("{} + {}", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._real("{} + {}", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._real("{} - {}", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._real("{} - {}", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._real("{} * {}", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._real("{} * {}", other, self)

    def __pow__(self, other: Any) -> Any:
        return self._real("{} ** {}", self, other)

    def __neg__(self) -> Any:
        return self._real("-{}", self)

    def _whole(self, how: str, value: int) -> Any:
        return self.trace.whole(how, (self,), value)

    def __round__(self, digits: int | None = None) -> Any:
        if digits is not None:
            return round(float(self), digits)
        return self._whole("round({})", round(self.value))

    def __floor__(self) -> Any:
        return self._whole("floor({})", math.floor(self.value))

    def __ceil__(self) -> Any:
        return self._whole("ceil({})", math.ceil(self.value))

    def __trunc__(self) -> Any:
        return self._whole("int({})", math.trunc(self.value))


_TRACED: Final = frozenset({TracedSize, TracedReal})
