"""Strings: matching, joining, splitting, cleaning, and counting of n-grams."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxplug.authoring.bounds import at_least
from onnxplug_kernels.patterns import check_patterns, compile_re2, encoded
from onnxplug_kernels.prepared import prepared_once
from onnxplug_kernels.registry import operator


@operator("StringConcat", since=20, host_only=True)
def string_concat(xp: Any, x: Any, y: Any) -> Any:
    return xp.asarray(x.astype(object) + y.astype(object), dtype=object)


@operator("RegexFullMatch", since=20, host_only=True, check=check_patterns("pattern"))
def regex_full_match(xp: Any, x: Any, *, pattern: str = "") -> Any:
    matches = compile_re2(pattern).fullmatch
    found = (matches(encoded(text)) is not None for text in x.flat)
    return xp.fromiter(found, dtype=bool, count=x.size).reshape(x.shape)


@operator("StringSplit", since=20, host_only=True)
def string_split(
    xp: Any, x: Any, *, delimiter: str = "", maxsplit: int | None = None
) -> Any:
    """The parts of each text, filled up with empty ones, and how many there are."""
    limit = -1 if maxsplit is None else maxsplit
    if delimiter:
        parts = [text.split(delimiter, limit) for text in x.flat]
    else:
        # Python leaves white space at the end of what is not split
        parts = [text.strip().split(None, limit) for text in x.flat]
    counts = xp.array([len(texts) for texts in parts], dtype=xp.int64)
    table = xp.full((x.size, max(map(len, parts), default=0)), "", dtype=object)
    for row, texts in zip(table, parts, strict=True):
        row[: len(texts)] = texts
    return table.reshape(*x.shape, table.shape[1]), counts.reshape(x.shape)


@operator("StringNormalizer", since=10, host_only=True)
def string_normalizer(
    xp: Any,
    x: Any,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "en_US",
    stopwords: tuple[str, ...] = (),
) -> Any:
    """Without the stop words, and in the case asked for; one empty text for none."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(
            f"StringNormalizer takes an input of shape [C] or [1, C], not {x.shape}"
        )
    if case_change_action not in ("NONE", "LOWER", "UPPER"):
        raise ValueError(
            f"StringNormalizer: case_change_action is {case_change_action!r}, "
            f"not 'NONE', 'LOWER' or 'UPPER'"
        )
    kept = x.ravel().tolist()
    if stopwords:
        compared = str if is_case_sensitive else _case_changes(locale)[0]
        stops = {compared(word) for word in stopwords}
        kept = [text for text in kept if compared(text) not in stops]
    if case_change_action != "NONE":
        lower, upper = _case_changes(locale)
        kept = [*map(lower if case_change_action == "LOWER" else upper, kept)]
    return xp.array(kept or [""], dtype=object).reshape(*x.shape[:-1], -1)


def _case_changes(locale: str) -> tuple[Callable[[str], str], Callable[[str], str]]:
    """Lower and upper case in a locale.

    They do not depend on the locales that the machine has: Unicode's mapping holds
    for all but Turkish and Azerbaijani, which have an i without a dot.
    Source: SpecialCasing.txt of the Unicode character database.
    """
    if locale.lower().startswith(("tr", "az")):
        return (
            lambda text: text.replace("İ", "i").replace("I", "ı").lower(),
            lambda text: text.replace("i", "İ").replace("ı", "I").upper(),
        )
    return str.lower, str.upper


@operator("TfIdfVectorizer", since=9, host_only=True)
def tf_idf_vectorizer(
    xp: Any,
    x: Any,
    *,
    max_gram_length: int,
    max_skip_count: int,
    min_gram_length: int,
    mode: str,
    ngram_counts: tuple[int, ...],
    ngram_indexes: tuple[int, ...],
    pool_int64s: tuple[int, ...] = (),
    pool_strings: tuple[str, ...] = (),
    weights: tuple[float, ...] = (),
) -> Any:
    """How often each n-gram of the pool occurs, weighted."""
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ValueError(
            f"TfIdfVectorizer: mode is {mode!r}, not 'TF', 'IDF' or 'TFIDF'"
        )
    if x.ndim not in (1, 2):
        raise ValueError(
            f"TfIdfVectorizer takes an input of rank 1 or 2, not of shape {x.shape}"
        )
    at_least(1, [min_gram_length, max_gram_length], "a length of n-grams")
    at_least(0, [max_skip_count], "max_skip_count")
    at_least(0, ngram_indexes, "ngram_indexes")
    at_least(0, ngram_counts, "ngram_counts")
    pool = _pool(pool_strings or pool_int64s, ngram_counts)
    tokens = pool.tokens(xp.atleast_2d(x))
    counts = xp.zeros((len(tokens), len(ngram_indexes)), dtype=xp.int64)
    for length in range(min_gram_length, min(max_gram_length, len(pool.grams)) + 1):
        # one token has no gaps, and beyond the text there is nothing
        most = (tokens.shape[1] - 1) // (length - 1) if length > 1 else 1
        for step in range(1, min(max_skip_count + 1, most) + 1):
            pool.count(counts, tokens, length, step)
    values = (counts > 0 if mode == "IDF" else counts).astype(xp.float32)
    if weights and mode != "TF":
        values *= xp.asarray(weights, dtype=xp.float32)
    width = max(ngram_indexes) + 1
    result = xp.zeros((len(tokens), width), dtype=xp.float32)
    xp.add.at(result, (slice(None), xp.asarray(ngram_indexes)), values)
    return result.reshape(*x.shape[:-1], width)


@dataclass(frozen=True, slots=True)
class Grams:
    """The n-grams of one length, as sorted tables of prefixes.

    ``levels[k]`` holds the distinct pairs (prefix of k + 1 tokens, next token), each
    pair as one number; the place of a pair is the number of the longer prefix.

    Attributes:
        entries: which entry of the pool a complete n-gram is, by its number.
    """

    levels: tuple[Any, ...]
    entries: Any


@dataclass(frozen=True, slots=True)
class _Pool:
    """Attributes: numbers: of each token that occurs in an n-gram, from zero."""

    numbers: dict[Any, int]
    grams: tuple[Grams, ...]

    def tokens(self, x: Any) -> Any:
        """Each token's number; one more than the largest for an unknown token."""
        unknown = len(self.numbers)
        numbers = (self.numbers.get(token, unknown) for token in x.ravel().tolist())
        return np.fromiter(numbers, dtype=np.int64, count=x.size).reshape(x.shape)

    def count(self, counts: Any, tokens: Any, length: int, step: int) -> None:
        """Count the n-grams of tokens that are *step* apart."""
        grams = self.grams[length - 1]
        places = tokens.shape[1] - (length - 1) * step
        if places <= 0 or not len(grams.entries):
            return
        base = len(self.numbers) + 1
        prefix = np.zeros((len(tokens), places), dtype=np.int64)
        for order, level in enumerate(grams.levels):
            key = prefix * base + tokens[:, order * step : order * step + places]
            prefix = np.minimum(np.searchsorted(level, key), len(level) - 1)
            # what is negative stays negative, so is never found again
            prefix[level[prefix] != key] = -1
        rows, columns = np.nonzero(prefix >= 0)
        np.add.at(counts, (rows, grams.entries[prefix[rows, columns]]), 1)


def sequences_of(
    pool: Sequence[int], ngram_counts: tuple[int, ...]
) -> tuple[Any, tuple[Grams, ...]]:
    """The tokens of a pool, by number, and its n-grams by length, from 1.

    Raises:
        ValueError: it has no whole n-grams.
    """
    at_least(0, ngram_counts, "ngram_counts")
    found = _pool(pool, ngram_counts)
    return np.array([*found.numbers], np.int64), found.grams


@prepared_once
def _pool(pool: Sequence[Any], ngram_counts: tuple[int, ...]) -> _Pool:
    numbers = {token: i for i, token in enumerate(dict.fromkeys(pool))}
    tokens = np.array([numbers[token] for token in pool], dtype=np.int64)
    base = len(numbers) + 1
    first_entry = 0
    lengths = []
    bounds = (*ngram_counts, len(pool))
    for length, (start, end) in enumerate(itertools.pairwise(bounds), start=1):
        table = tokens[start:end]
        if len(table) % length:
            raise ValueError(
                f"TfIdfVectorizer: the pool has {len(table)} tokens from {start} to "
                f"{end} for n-grams of {length}, which is not a multiple of {length}"
            )
        table = table.reshape(-1, length)
        prefix = np.zeros(len(table), dtype=np.int64)
        levels = []
        for column in table.T:
            level, prefix = np.unique(prefix * base + column, return_inverse=True)
            levels.append(level)
        entries = np.zeros(len(levels[-1]), dtype=np.int64)
        entries[prefix] = first_entry + np.arange(len(table))
        lengths.append(Grams(tuple(levels), entries))
        first_entry += len(table)
    return _Pool(numbers, tuple(lengths))
