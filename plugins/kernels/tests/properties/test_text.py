"""Strings, letter by letter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from .comparison import assert_near, assert_same, result_of
from .strategies import Array, Draw, examples

STRINGS = np.dtype(object)


@examples(35)
def test_string_concat(draw: Draw) -> None:
    x, y = (draw.array(STRINGS, shape) for shape in draw.shapes())
    one, two = np.broadcast_arrays(x, y)
    expected = np.empty(one.shape, object)
    for place in np.ndindex(one.shape):
        expected[place] = "".join([one[place], two[place]])
    assert_same(result_of("StringConcat", x, y), expected)


@examples(60)
def test_string_split(draw: Draw) -> None:
    words = ["", "a", ",", "a,b", ",a,,b,", " a  b ", "\ta\nb c", "ab", "aab", "🙂,ß"]
    x = draw.of(np.array(words, object), draw.shape(0, 2))
    delimiter = draw.one_of(["", ",", "a", "ab", " ", None])
    most = draw.one_of([None, 0, 1, 2])
    parts = [pieces(text, delimiter or "", most) for text in x.reshape(-1).tolist()]
    width = max(map(len, parts), default=0)
    table = np.full((x.size, width), "", object)
    for row, texts in zip(table, parts, strict=True):
        row[: len(texts)] = texts
    counts = np.array([*map(len, parts)], np.int64)
    given = {"delimiter": delimiter, "maxsplit": most}
    given = {name: value for name, value in given.items() if value is not None}
    y, z = result_of("StringSplit", x, output_count=2, **given)
    assert_same(y, table.reshape(*x.shape, width))
    assert_same(z, counts.reshape(x.shape))


def pieces(text: str, delimiter: str, most: int | None) -> list[str]:
    found: list[str] = []
    if not delimiter:
        text = text.strip()
        while text and (most is None or len(found) < most):
            end = next((n for n, c in enumerate(text) if c.isspace()), len(text))
            found.append(text[:end])
            text = text[end:].lstrip()
        return [*found, text] if text else found
    while delimiter in text and (most is None or len(found) < most):
        at = text.index(delimiter)
        found.append(text[:at])
        text = text[at + len(delimiter) :]
    return [*found, text]


class Expression:
    """A regular expression, and where what it matches may end."""

    def __init__(self, draw: Draw, depth: int) -> None:
        kinds = ["letter", "any", "class", "not", "digits"]
        if depth:
            kinds += ["then", "or", "star", "plus", "optional", "twice"]
        self._kind = draw.one_of(kinds)
        inner = {"then": 2, "or": 2, "star": 1, "plus": 1, "optional": 1, "twice": 1}
        self._parts = [
            Expression(draw, depth - 1) for _ in range(inner.get(self._kind, 0))
        ]
        self._letter = draw.one_of("ab.")
        self.text = self._text()

    def _text(self) -> str:
        texts = [f"({part.text})" for part in self._parts]
        escaped = "\\." if self._letter == "." else self._letter
        return {
            "letter": escaped,
            "any": ".",
            "class": "[a-b]",
            "not": f"[^{self._letter}]",
            "digits": r"\d",
            "then": "".join(texts),
            "or": "|".join(texts),
            "star": f"{''.join(texts)}*",
            "plus": f"{''.join(texts)}+",
            "optional": f"{''.join(texts)}?",
            "twice": f"{''.join(texts)}{{2}}",
        }[self._kind]

    def ends(self, text: str, start: int) -> set[int]:
        """Where matches of *text* from *start* on may end."""
        match self._kind:
            case "then" | "twice":
                one, two = (self._parts * 2)[:2]
                return {e for m in one.ends(text, start) for e in two.ends(text, m)}
            case "or":
                return set().union(*(part.ends(text, start) for part in self._parts))
            case "optional":
                return {start} | self._parts[0].ends(text, start)
            case "star" | "plus":
                first = {start} if self._kind == "star" else set()
                new = first | self._parts[0].ends(text, start)
                found: set[int] = set()
                while new:
                    found |= new
                    new = {e for m in new for e in self._parts[0].ends(text, m)} - found
                return found
        if start >= len(text):
            return set()
        letter = text[start]
        matches = {
            "letter": letter == self._letter,
            "any": letter != "\n",
            "class": letter in "ab",
            "not": letter != self._letter,
            "digits": letter in "0123456789",
        }
        return {start + 1} if matches[self._kind] else set()


@examples(85)
def test_regex_full_match(draw: Draw) -> None:
    pattern = Expression(draw, 3)
    words = ["".join(w) for n in range(4) for w in itertools.product("ab.", repeat=n)]
    words += ["1", "a1", "٣", "\n", "a\n", "ß", "aaaa", "🙂"]
    x = draw.of(np.array(words, object), (24,))
    expected = [len(text) in pattern.ends(text, 0) for text in x.tolist()]
    found = result_of("RegexFullMatch", x, pattern=pattern.text)
    assert_same(found, np.array(expected))


@examples(50)
def test_string_normalizer(draw: Draw) -> None:
    words = ["a", "A", "b", "B", "ab", "aB", "AB", "", "ÄÖ", "äö"]
    shape: Any = (draw.integer(1, 6),)
    x = draw.of(np.array(words, object), (1, *shape) if draw.flag() else shape)
    stops = [word for word in words if draw.one_of([False, False, True])]
    case = draw.one_of(["NONE", "LOWER", "UPPER"])
    exact = draw.integer(0, 1)
    compared = [*stops, *(() if exact else map(str.lower, stops))]
    kept = [
        text
        for text in x.reshape(-1).tolist()
        if (text if exact else text.lower()) not in compared
    ]
    change = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}[case]
    kept = [change(text) for text in kept] or [""]
    expected = np.array(kept, object).reshape(*x.shape[:-1], -1)
    found = result_of(
        "StringNormalizer",
        x,
        case_change_action=case,
        is_case_sensitive=exact,
        stopwords=tuple(stops),
    )
    assert_same(found, expected)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@examples(35)
def test_tf_idf_vectorizer(mode: str, draw: Draw) -> None:
    """Counts of all choices of words that are the same distance apart."""
    strings = draw.flag()
    words: list[Any] = ["a", "b", "ß"] if strings else [1, 2, 3]
    grams = [
        [gram for gram in itertools.product(words, repeat=n) if draw.one_of(SOME)]
        for n in (1, 2, 3)
    ]
    every = [gram for some in grams for gram in some]
    if not every:
        return
    order = list(range(len(every)))
    indexes = order[::-1] if draw.flag() else order
    weights = [0.5 + n for n in order] if mode != "TF" or draw.flag() else []
    low = draw.integer(1, 3)
    high = draw.integer(low, 3)
    skip = draw.integer(0, 3)
    starts = [0, len(grams[0]), len(grams[0]) + 2 * len(grams[1])]
    pool = tuple(itertools.chain.from_iterable(every))
    kind = STRINGS if strings else draw.one_of([np.int64, np.int32])
    table = np.array([*words, words[0]], kind)
    x = draw.of(table, draw.one_of([(4,), (2, 5), (1, 1), (3, 3)]))
    expected = [
        counted(row, every, low, high, skip, mode, weights, indexes)
        for row in x.reshape(-1, x.shape[-1]).tolist()
    ]
    found = result_of(
        "TfIdfVectorizer",
        x,
        max_gram_length=high,
        max_skip_count=skip,
        min_gram_length=low,
        mode=mode,
        ngram_counts=tuple(starts),
        ngram_indexes=tuple(indexes),
        weights=tuple(weights),
        **{"pool_strings" if strings else "pool_int64s": pool},
    )
    exact: Array = np.array(expected, np.longdouble)
    assert_near(found, exact.reshape(*x.shape[:-1], -1), np.float32, 1)


SOME = [True, False]


def counted(
    row: list[Any],
    grams: list[tuple[Any, ...]],
    low: int,
    high: int,
    skip: int,
    mode: str,
    weights: list[float],
    indexes: list[int],
) -> list[float]:
    result = [0.0] * len(grams)
    for number, gram in enumerate(grams):
        if not low <= len(gram) <= high:
            continue
        count = 0
        # words alone are not any distance apart
        for step in range(1, skip + 2) if len(gram) > 1 else (1,):
            for start in range(len(row) - (len(gram) - 1) * step):
                count += tuple(row[start::step][: len(gram)]) == gram
        if mode == "IDF":
            count = min(count, 1)
        weight = weights[number] if weights and mode != "TF" else 1.0
        result[indexes[number]] = count * weight
    return result
