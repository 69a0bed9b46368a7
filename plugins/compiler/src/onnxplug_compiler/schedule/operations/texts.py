"""TfIdfVectorizer of tokens that are numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.tables import HASH, Grams
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.learned import F32, I64, places
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    moved,
    register,
)
from onnxplug_kernels.prepared import prepared_once
from onnxplug_kernels.text import sequences_of

_MODES: Final = ("TF", "IDF", "TFIDF")
_MOST: Final = 1 << 20
"""Tokens of a sequence, and how far they may be apart: more than any text has."""


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    indexes, weights = attributes["ngram_indexes"], attributes["weights"]
    if attributes["pool_strings"] or attributes["mode"] not in _MODES:
        return f"{call.op_type} is compiled for numbers, with TF, IDF and TFIDF"
    if not indexes or len(set(indexes)) < len(indexes) or min(indexes) < 0:
        return f"{call.op_type} is compiled for sequences with a column each"
    if weights and len(weights) != len(indexes):
        return f"{call.op_type} is compiled with a weight for each column"
    lengths = attributes["min_gram_length"], attributes["max_gram_length"]
    if not all(1 <= each <= _MOST for each in lengths):
        return f"{call.op_type} is not compiled for sequences of {lengths} tokens"
    if not 0 <= attributes["max_skip_count"] < _MOST:
        return f"{call.op_type} is not compiled with such skips"
    if _grams(attributes["pool_int64s"], attributes["ngram_counts"], indexes) is None:
        return f"{call.op_type} has a pool that is none"
    return moved(call, dtypes, target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    shape = given(inputs).shape
    if len(shape) not in (1, 2):
        raise NotCompiled(f"{call.op_type} of {shape}", call)


def _record(plan: Plan, call: Call) -> None:
    x, out = places(plan, call)
    attributes, recorder = call.attributes, plan.recorder
    indexes = attributes["ngram_indexes"]
    found = _grams(attributes["pool_int64s"], attributes["ngram_counts"], indexes)
    assert found is not None
    buckets, lengths = found
    longest = min(attributes["max_gram_length"], lengths)
    steps = attributes["max_skip_count"] + 1
    grams = Grams(buckets, attributes["min_gram_length"], longest, steps)
    tokens = x if len(x.shape) == 2 else x.reshape((1, *x.shape))
    counts = out if len(out.shape) == 2 else out.reshape((1, *out.shape))
    assert tokens is not None and counts is not None
    mode = attributes["mode"]
    is_plain = mode == "TF" or (mode == "TFIDF" and not attributes["weights"])
    made = counts if is_plain else recorder.temporary(F32, counts.shape)
    recorder.target.tables.record_grams(recorder, tokens, grams, made, call.op_type)
    if is_plain:
        return
    formula = Formula("f32")
    value = formula.read(made)
    if mode == "IDF":
        there = formula.step("Greater", value, formula.number(0.0), element="i1")
        value = formula.cast(there, "f32")
    if attributes["weights"]:
        weights = _by_column(attributes["weights"], indexes)
        value = formula.step("Mul", value, formula.read(recorder.constant(weights)))
    formula.record(recorder, value, counts, mode)


@prepared_once
def _by_column(weights: Any, indexes: Any) -> np.ndarray[Any, Any]:
    columns = np.zeros(max(indexes) + 1, F32)
    columns[np.asarray(indexes)] = weights
    return columns


@prepared_once
def _grams(
    pool: Any, counts: Any, indexes: Any
) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int] | None:
    """The edges of the tries as :class:`Grams` has them, and of how many lengths there
    are; ``None`` if the pool is none."""
    try:
        tokens, lengths = sequences_of(pool, counts)
    except ValueError as error:
        raise_interruption(error)
        return None
    if any((grams.entries >= len(indexes)).any() for grams in lengths):
        return None
    columns = np.asarray(indexes, I64)
    edges = [np.zeros((0, 3), I64)]
    base, states = len(tokens) + 1, len(lengths) + 1
    for length, grams in enumerate(lengths, start=1):
        before = np.array([length])
        for depth, level in enumerate(grams.levels, start=1):
            prefix, token = np.divmod(level, base)
            if depth < length:
                after = states + np.arange(len(level))
                states += len(level)
            else:
                after = columns[grams.entries]
            edges.append(np.stack((before[prefix], tokens[token], after), axis=1))
            before = after
    return _hashed(np.concatenate(edges)), len(lengths)


def _hashed(edges: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, Any]:
    """A table of *edges*, of which no two have the same state and token."""
    size = 1 << (2 * len(edges) + 1).bit_length()
    by_state, by_token, shift = map(np.int64, HASH)
    with np.errstate(over="ignore"):
        mixed = edges[:, 0] * by_state + edges[:, 1] * by_token
    bucket = (mixed ^ (mixed >> shift)) & (size - 1)
    table = np.full((size, 4), -1, I64)
    left = np.arange(len(edges))
    while len(left):
        # of those that want a free bucket the first takes it
        free = left[table[bucket[left], 0] < 0]
        _, firsts = np.unique(bucket[free], return_index=True)
        taken = free[firsts]
        table[bucket[taken], :3] = edges[taken]
        left = left[~np.isin(left, taken)]
        bucket[left] = (bucket[left] + 1) & (size - 1)
    return table


register("TfIdfVectorizer", Operation(_record, _accepts, _check))
