"""Types of what operators on strings make."""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.bounds import at_least
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule, broadcast_shapes
from onnxplug.shapes.facts import NodeCall, Value

_STRING = DataType.STRING


def _regex_full_match(call: NodeCall) -> Value:
    return Value(DataType.BOOL, call.value().shape)


def _string_concat(call: NodeCall) -> Value:
    return Value(_STRING, broadcast_shapes([call.value(at).shape for at in range(2)]))


def _string_normalizer(call: NodeCall) -> Value:
    """[C] or [1, C]: some of the strings, or else one that is empty."""
    shape = call.value().shape
    return Value(_STRING, shape and (*shape[:-1], call.fresh()))


def _string_split(call: NodeCall) -> list[Value]:
    shape = call.value().shape
    parts = None if shape is None else (*shape, call.fresh())
    return [Value(_STRING, parts), Value(DataType.INT64, shape)]


def _tf_idf_vectorizer(call: NodeCall) -> Value:
    shape = call.value().shape
    if not shape:
        return Value(DataType.FLOAT32)
    places = at_least(0, call.attribute("ngram_indexes"), "ngram_indexes")
    return Value(DataType.FLOAT32, (*shape[:-1], max(places) + 1))


RULES: Final[dict[str, Rule]] = {
    "RegexFullMatch": _regex_full_match,
    "StringConcat": _string_concat,
    "StringNormalizer": _string_normalizer,
    "StringSplit": _string_split,
    "TfIdfVectorizer": _tf_idf_vectorizer,
}
