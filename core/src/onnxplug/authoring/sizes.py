"""Sizes as polynomials of named sizes, in a canonical form; see :class:`Size`.

Two sizes with the same form are equal whatever the names stand for.  A name stands for
a size, so it is never negative; it may be 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from onnxplug.authoring.generated import GENERATED
from onnxplug.authoring.record import Record

MOST_TERMS: Final = 16
"""Terms above which a size is not worth following."""

MOST_TEXT: Final = 120
"""Characters above which a size is not worth writing down."""

MOST_FOLLOWED: Final = 4 * MOST_TEXT
"""Characters above which nothing more is made of a size but a name for it."""

_LIMIT: Final = 4 * MOST_TERMS
"""Terms, and factors of one, above which a size gets a name."""

_DEEPEST: Final = 32
"""Brackets in one another that are read."""


class TooLong(ValueError):
    """A size that would take too long to work with, and may be negative."""


class Call(Record):
    """A function of sizes that no polynomial expresses; it is never negative.

    Attributes:
        function: ``//`` (rounds down; the divisor is a positive number), ``min``,
            ``max``, or ``broadcast`` (the second argument if the first is 1).
    """

    function: str
    first: Extent
    second: Extent


Atom: TypeAlias = "str | Call"
Monomial: TypeAlias = tuple[Atom, ...]
"""A product, sorted by text; empty for the number 1."""


class Size:
    """A sum of products of sizes that is not just a number; it never changes.

    Two sizes are equal if they are whatever the names stand for.  ``str`` writes one as
    types state it; :meth:`parse` reads that.  ``+``, ``-`` and ``*`` give a ``Size``,
    or an ``int`` where no name is left.

    Of what would grow without end arithmetic makes a name, the same for the same
    size; as a name is never negative, it raises ``TooLong``, a ``ValueError``, for what
    may be.

    Attributes:
        terms: products with their coefficients, which are not 0, in canonical order.
    """

    __slots__ = ("_hash", "_text", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash: int | None = None
        self._text: str | None = None

    @staticmethod
    def parse(text: str) -> Size | None:
        """The size that *text* says, as dimensions of types do.

        ``None`` if it is no expression of names.  A minus sign has spaces around it:
        ``batch-size`` is a name.
        """
        return _parse(text)

    def evaluate(self, sizes: Mapping[str, int]) -> int | None:
        """The number that this is where names stand for *sizes*.

        ``None`` if not all names that matter are among them.
        """
        found = substituted(self, sizes)
        return found if isinstance(found, int) else None

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Size) and self.terms == other.terms

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(self.terms)
        return self._hash

    def __repr__(self) -> str:
        return f"Size({self})"

    def __add__(self, other: Extent) -> Extent:
        return _sum(self.terms, _terms(other), 1)

    __radd__ = __add__

    def __sub__(self, other: Extent) -> Extent:
        return _sum(self.terms, _terms(other), -1)

    def __rsub__(self, other: int) -> Extent:
        return _sum(_terms(other), self.terms, -1)

    def __neg__(self) -> Extent:
        return _sum((), self.terms, -1)

    def __mul__(self, other: Extent) -> Extent:
        if isinstance(other, int):
            if other == 0:
                return 0
            return Size(tuple((m, c * other) for m, c in self.terms))
        if len(self.terms) * len(other.terms) > _LIMIT * MOST_TERMS:
            return _shortened(self) * _shortened(other)
        table: dict[Monomial, int] = {}
        for mine, times in self.terms:
            for theirs, count in other.terms:
                if len(mine) + len(theirs) > _LIMIT:
                    return _shortened(self) * _shortened(other)
                product = tuple(sorted(mine + theirs, key=_text))
                table[product] = table.get(product, 0) + times * count
        return _canonical(table)

    __rmul__ = __mul__

    def __str__(self) -> str:
        if self._text is None:
            self._text = _written(self.terms)
        return self._text


Extent: TypeAlias = int | Size
"""A number, or a size that depends on names."""


def named(name: Atom) -> Size:
    """The size that *name* stands for."""
    return Size((((name,), 1),))


def is_natural(size: Extent) -> bool:
    """Whether *size* is provably at least 0."""
    if isinstance(size, int):
        return size >= 0
    if all(count > 0 for _, count in size.terms):
        return True
    least = 0
    for monomial, count in size.terms:
        if not monomial:
            least += count
        elif count < 0:
            most = _most(monomial[0]) if len(monomial) == 1 else None
            if most is None:
                return False
            least += count * most
    return least >= 0


def _most(size: Atom | Extent) -> int | None:
    """The largest value that *size* can have, if it is easily seen."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return None
    if isinstance(size, Call):
        bounds = [_most(size.first), _most(size.second)]
        known = [bound for bound in bounds if bound is not None]
        match size.function:
            case "//" if len(known) == 2:
                return known[0] // known[1]
            case "max" if len(known) == 2:
                return max(known)
            case "min":
                return min(known, default=None)
        return None
    total = 0
    for monomial, count in size.terms:
        if not monomial:
            total += count
        elif count > 0:  # what is taken away is at least 0
            most = _most(monomial[0]) if len(monomial) == 1 else None
            if most is None:
                return None
            total += count * most
    return total


def differ(one: Extent, other: Extent) -> bool:
    """Whether two sizes are provably never the same."""
    rest = one - other
    return is_natural(rest - 1) or is_natural(-rest - 1)


def quotient(dividend: Extent, divisor: int) -> Extent | None:
    """*dividend* divided by *divisor*, rounded down; None if that is not positive."""
    if divisor <= 0:
        return None
    if isinstance(dividend, int):
        return dividend // divisor
    whole = _canonical({m: c // divisor for m, c in dividend.terms})
    rest = _canonical({m: c % divisor for m, c in dividend.terms})
    if isinstance(rest, int):  # less than the divisor
        return whole
    added = _number_in(rest)
    inner = _only_call(rest - added)
    if inner is not None and inner.function == "//":
        # (a // b + c) // d = (a + b * c) // (b * d)
        assert isinstance(inner.second, int)
        found = quotient(inner.first + inner.second * added, inner.second * divisor)
        assert found is not None
        return whole + found
    return whole + _called("//", rest, divisor)


def exact_quotient(dividend: Extent, divisor: Extent) -> Extent | None:
    """The polynomial that *divisor* is multiplied with to give *dividend*, if any."""
    if divisor == 0:
        return None
    if isinstance(dividend, int) and isinstance(divisor, int):
        whole, rest_of_it = divmod(dividend, divisor)
        return None if rest_of_it else whole
    divisor_terms = _terms(divisor)
    lead, lead_count = divisor_terms[0]
    result: Extent = 0
    rest = dividend
    for _ in range(MOST_TERMS):
        if rest == 0:
            return result
        monomial, count = _terms(rest)[0]
        left = _without(monomial, lead)
        if left is None or count % lead_count:
            return None
        term = _canonical({left: count // lead_count})
        result = result + term
        rest = rest - term * divisor
    return None


def minimum(one: Extent, other: Extent) -> Extent | None:
    """The smaller of two sizes; None if one that is unknown may be negative."""
    if is_natural(other - one):
        return one
    if is_natural(one - other):
        return other
    if not (is_natural(one) and is_natural(other)):
        return None
    return _called("min", *_in_order(one, other))


def maximum(one: Extent, other: Extent) -> Extent | None:
    """The larger of two sizes; None if both may be negative and neither is known."""
    if is_natural(one - other):
        return one
    if is_natural(other - one):
        return other
    if not (is_natural(one) or is_natural(other)):
        return None
    return _called("max", *_in_order(one, other))


def broadcast(one: Extent, other: Extent) -> Extent:
    """The size that two sizes have in common once a 1 is repeated."""
    if one == other or other == 1:
        return one
    if one == 1 or isinstance(other, int):
        return other
    if isinstance(one, int):
        return one
    for size, call in ((other, _only_call(one)), (one, _only_call(other))):
        if call is None or size not in (call.first, call.second):
            continue
        if call.function == "broadcast":
            return named(call)
        limit = call.second if size == call.first else call.first
        if call.function == "min" and is_natural(limit - 1):
            return size  # or else the two sizes do not go together
        if call.function == "max" and limit == 0:
            return size  # which is a tensor's, and so not less than 0
    return _called("broadcast", *_in_order(one, other))


def product(sizes: Iterable[Extent]) -> Extent:
    """All *sizes* multiplied."""
    result: Extent = 1
    for size in sizes:
        result = result * size
    return result


def names_in(size: Extent) -> set[str]:
    """The names that *size* depends on."""
    found: set[str] = set()
    for monomial, _ in () if isinstance(size, int) else size.terms:
        for atom in monomial:
            if isinstance(atom, str):
                found.add(atom)
            else:
                found |= names_in(atom.first) | names_in(atom.second)
    return found


def substituted(size: Extent, sizes: Mapping[str, Extent]) -> Extent | None:
    """*size* with others in place of names; None if one turns out to be negative."""
    if isinstance(size, int):
        return size
    total: Extent = 0
    for monomial, count in size.terms:
        term: Extent = count
        for atom in monomial:
            factor = (
                sizes.get(atom, named(atom))
                if isinstance(atom, str)
                else _substituted_call(atom, sizes)
            )
            if factor is None:
                return None
            term = term * factor
        total = total + term
    return total


def _substituted_call(call: Call, sizes: Mapping[str, Extent]) -> Extent | None:
    first, second = substituted(call.first, sizes), substituted(call.second, sizes)
    if first is None or second is None:
        return None
    return _apply(call.function, first, second)


def _apply(function: str, first: Extent, second: Extent) -> Extent | None:
    match function:
        case "//":
            return quotient(first, second) if isinstance(second, int) else None
        case "min":
            return minimum(first, second)
        case "max":
            return maximum(first, second)
    return broadcast(first, second)


# reading what was written

_TOKEN: Final = re.compile(r"\s*(?:(\d+)|([^\W\d][\w.:-]*)|(//|[-+*(),]))")
_CALLS: Final = frozenset({"min", "max", "broadcast"})


@lru_cache(256)  # a model has few, and asks at each new shape of a result
def _parse(text: str) -> Size | None:
    if text.isidentifier():
        return named(text)
    if len(text) > 4 * MOST_TEXT:
        return None
    tokens: list[str] = []
    at = 0
    text = text.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        tokens.append(match[0].strip())
        at = match.end()
    reader = _Reader(tokens)
    try:
        result = reader.sum()
    except TooLong:
        return None
    if reader.at != len(tokens) or not isinstance(result, Size):
        return None
    return result


class _Reader:
    """Recursive descent; a method gives None where the text is no expression."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = [*tokens, ""]
        self.at = 0
        self.depth = 0

    def take(self, *wanted: str) -> str:
        token = self.tokens[self.at]
        if token not in wanted or not token:
            return ""
        self.at += 1
        return token

    def sum(self) -> Extent | None:
        if self.depth == _DEEPEST:
            raise TooLong
        self.depth += 1
        total = self.product()
        while total is not None and (sign := self.take("+", "-")):
            term = self.product()
            if term is None:
                return None
            total = total + term if sign == "+" else total - term
        self.depth -= 1
        return total

    def product(self) -> Extent | None:
        negative = False
        while self.take("-"):
            negative = not negative
        result = self.factor()
        while result is not None and (operator := self.take("*", "//")):
            factor = self.factor()
            if factor is None:
                return None
            if operator == "*":
                result = result * factor
            else:
                result = _apply("//", result, factor)
        return -result if negative and result is not None else result

    def factor(self) -> Extent | None:
        token = self.tokens[self.at]
        self.at += bool(token)
        if token.isdecimal():
            return int(token)
        if token == "(":
            inner = self.sum()
            return inner if self.take(")") else None
        if not token or not (token[0].isalpha() or token[0] == "_"):
            return None
        if token not in _CALLS or not self.take("("):
            return named(token)
        first = self.sum()
        comma = self.take(",")
        second = self.sum()
        if first is None or second is None or not comma or not self.take(")"):
            return None
        return _apply(token, first, second)


# the canonical form


def _terms(size: Extent) -> tuple[tuple[Monomial, int], ...]:
    if isinstance(size, Size):
        return size.terms
    return (((), size),) if size else ()


def _sum(
    one: tuple[tuple[Monomial, int], ...],
    other: tuple[tuple[Monomial, int], ...],
    sign: int,
) -> Extent:
    table = dict(one)
    for monomial, count in other:
        table[monomial] = table.get(monomial, 0) + sign * count
    return _canonical(table)


def _canonical(table: Mapping[Monomial, int]) -> Extent:
    terms = [(monomial, count) for monomial, count in table.items() if count]
    if not terms:
        return 0
    if len(terms) == 1:
        monomial, count = terms[0]
        return Size(((monomial, count),)) if monomial else count
    terms.sort(key=_rank)
    size = Size(tuple(terms))
    return size if len(terms) <= _LIMIT else _shortened(size)


def _shortened(size: Size) -> Size:
    """A name for *size*.

    Raises:
        TooLong: *size* may be negative.
    """
    if not is_natural(size):
        raise TooLong
    import hashlib

    digest = hashlib.sha256(str(size).encode()).digest()
    return named(f"{GENERATED}{int.from_bytes(digest[:8], 'big'):020}")


def _called(function: str, first: Extent, second: Extent) -> Size:
    size = named(Call(function, first, second))
    is_short = len(str(first)) + len(str(second)) <= MOST_FOLLOWED
    return size if is_short else _shortened(size)


def _rank(term: tuple[Monomial, int]) -> tuple[int, tuple[str, ...]]:
    """Graded lexicographic: large products first, the number last."""
    monomial = term[0]
    return -len(monomial), tuple(map(_text, monomial))


def _written(terms: tuple[tuple[Monomial, int], ...]) -> str:
    text = ""
    for monomial, count in terms:
        if len(monomial) == 1 and abs(count) == 1:
            parts = [_text(monomial[0])]
        else:
            parts = [_factor(atom) for atom in monomial]
            if abs(count) != 1 or not parts:
                parts.insert(0, str(abs(count)))
        sign = "-" if count < 0 else "+"
        lead = f" {sign} " if text else ("-" if count < 0 else "")
        text += lead + "*".join(parts)
    return text


def _text(atom: Atom) -> str:
    if isinstance(atom, str):
        return atom
    if atom.function == "//":
        first = str(atom.first)
        first = first if first.isidentifier() else f"({first})"
        return f"{first}//{atom.second}"
    return f"{atom.function}({atom.first}, {atom.second})"


def _factor(atom: Atom) -> str:
    """As text that can stand in a product: ``//`` is as strong as ``*`` is."""
    is_division = not isinstance(atom, str) and atom.function == "//"
    return f"({_text(atom)})" if is_division else _text(atom)


def _only_call(size: Extent) -> Call | None:
    """The call that *size* is, if it is nothing else."""
    if isinstance(size, Size) and len(size.terms) == 1:
        monomial, count = size.terms[0]
        if count == 1 and len(monomial) == 1 and isinstance(monomial[0], Call):
            return monomial[0]
    return None


def _number_in(size: Size) -> int:
    """The number that is added to the rest of *size*."""
    monomial, count = size.terms[-1]
    return 0 if monomial else count


def _without(monomial: Monomial, part: Monomial) -> Monomial | None:
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def _in_order(one: Extent, other: Extent) -> tuple[Extent, Extent]:
    return (one, other) if str(one) <= str(other) else (other, one)
