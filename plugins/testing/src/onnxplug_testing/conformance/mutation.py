"""Changes a model of one node at random: its attributes, and the sizes of its inputs.

Whether ONNX allows what comes out is for those to say that compute it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, defs, helper

from onnxplug_testing.measuring.variations import Variation

_SIZES: Final = (0, 1, 1, 2, 3, 5, 8)
_MOST: Final = 4096
"""Elements of an input, so that a run stays short."""

KEPT: Final = frozenset({"to", "dtype", "body", "then_branch", "else_branch"})
"""Attributes by which the types of results change, or that hold graphs."""

SIZING: Final = frozenset(
    {"BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Range"}
)
"""Operators whose inputs say how large the result is."""


class Pool:
    """The cases of one operator, and the attributes that they have.

    Attributes:
        cases: those that can be mutated.
        attributes: what values each attribute has in them.
    """

    def __init__(self, cases: Sequence[Variation]) -> None:
        self.cases = [case for case in cases if _small(case)]
        self.attributes: dict[str, list[AttributeProto]] = {}
        for case in cases:
            for attribute in case.node.attribute:
                if attribute.name not in KEPT:
                    self.attributes.setdefault(attribute.name, []).append(attribute)


def _small(case: Variation) -> bool:
    if any(attribute.HasField("g") for attribute in case.node.attribute):
        return False  # its body says of which shapes values are
    arrays = [array for array in case.inputs if array is not None]
    return bool(arrays) and all(array.size <= _MOST for array in arrays)


def mutations(pool: Pool, draw: random.Random) -> Iterator[Variation]:
    """Cases of *pool*, each with one change or two, without end."""
    changes: list[Callable[[Variation, Pool, random.Random], Variation | None]] = [
        _one_size,
        _one_axis,
        one_attribute,
        one_attribute,
        _fewer_axes,
    ]
    while pool.cases:
        case = draw.choice(pool.cases)
        changed: Variation | None = None
        for _ in range(draw.choice((1, 1, 2))):
            changed = draw.choice(changes)(changed or case, pool, draw) or changed
        if changed is not None:
            yield replace(
                changed, kind="mutated", expected=None, dynamic=draw.random() < 0.25
            )


def _data(case: Variation) -> list[int]:
    """Positions of inputs that are data, and no lists of sizes or axes."""
    if case.node.op_type in SIZING:
        return []
    lists = case.lists()
    return [
        position
        for position, array in enumerate(case.inputs)
        if array is not None and position not in lists
    ]


def _one_size(case: Variation, pool: Pool, draw: random.Random) -> Variation | None:
    """One size, wherever it occurs, is another: none, one, or a few."""
    data = _data(case)
    sizes = sorted({size for position in data for size in case.inputs[position].shape})
    if not sizes:
        return None
    old, new = draw.choice(sizes), draw.choice(_SIZES)
    inputs = list(case.inputs)
    for position in data:
        shape = tuple(new if s == old else s for s in inputs[position].shape)
        inputs[position] = _resized(inputs[position], shape, draw)
    return _with_inputs(case, inputs)


def _one_axis(case: Variation, pool: Pool, draw: random.Random) -> Variation | None:
    """One axis of one input has another size, so that the others are broadcast."""
    data = [position for position in _data(case) if case.inputs[position].ndim]
    if not data:
        return None
    position = draw.choice(data)
    inputs = list(case.inputs)
    shape = list(inputs[position].shape)
    shape[draw.randrange(len(shape))] = draw.choice((1, 1, 1, 0, 2))
    inputs[position] = _resized(inputs[position], shape, draw)
    return _with_inputs(case, inputs)


def _fewer_axes(case: Variation, pool: Pool, draw: random.Random) -> Variation | None:
    """One input lacks its first axis, or has one more."""
    data = _data(case)
    if not data:
        return None
    position = draw.choice(data)
    inputs = list(case.inputs)
    shape = inputs[position].shape
    if shape and draw.random() < 0.7:
        shape = shape[1:]
    else:
        shape = (draw.choice((1, 2)), *shape)
    inputs[position] = _resized(inputs[position], shape, draw)
    return _with_inputs(case, inputs)


def _with_inputs(case: Variation, inputs: Sequence[Any]) -> Variation | None:
    if any(array is not None and array.size > _MOST for array in inputs):
        return None
    return replace(case, inputs=tuple(inputs))


def _resized(array: Any, shape: Sequence[int], draw: random.Random) -> Any:
    """Values drawn from *array* in another *shape*."""
    if array.shape == tuple(shape):
        return array
    if not array.size:
        return np.full(shape, "" if array.dtype == object else 0, array.dtype)
    numbers = np.random.default_rng(draw.getrandbits(64))
    places = numbers.integers(0, array.size, tuple(shape))
    return np.asarray(array.reshape(-1)[places], array.dtype).reshape(shape)


def one_attribute(case: Variation, pool: Pool, draw: random.Random) -> Variation | None:
    """One attribute that the operator has here is set to another value, or left out."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    names = sorted(schema.attributes.keys() - KEPT)
    if not names:
        return None
    name = draw.choice(names)
    had = any(attribute.name == name for attribute in case.node.attribute)
    declared = schema.attributes[name]
    attribute: AttributeProto | None = None
    if not (had and not declared.required and draw.random() < 0.2):
        attribute = _drawn(name, declared, case, pool, draw)
        if attribute is None:
            return None
    return case.with_attributes(**{name: attribute})


def _drawn(
    name: str, declared: Any, case: Variation, pool: Pool, draw: random.Random
) -> AttributeProto | None:
    """A value for the attribute: one that it has elsewhere, or one like those."""
    kind = int(declared.type)
    known = pool.attributes.get(name, [])
    if kind == AttributeProto.INT and name in ("axis", "batch_dims"):
        ranks = [case.inputs[position].ndim for position in _data(case)]
        rank = max(ranks, default=0)
        axis = draw.randrange(-rank, rank) if rank else 0
        return helper.make_attribute(name, axis)
    if kind == AttributeProto.INTS and name == "axes":
        rank = case.inputs[0].ndim if case.inputs[0] is not None else 0
        axes = draw.sample(range(rank), draw.randint(0, rank))
        drawn = [axis - rank * draw.randint(0, 1) for axis in axes]
        return helper.make_attribute(name, drawn, attr_type=AttributeProto.INTS)
    if kind == AttributeProto.FLOAT:
        around = known[0].f if known else 1.0
        value = draw.choice((0.5, 2.0, 1.5, -1.0, 0.25)) * (around or 1.0)
        return helper.make_attribute(name, float(np.float32(value)))
    if known and draw.random() < 0.8:
        return draw.choice(known)
    if kind == AttributeProto.INT:
        return helper.make_attribute(name, draw.choice((0, 1)))
    return draw.choice(known) if known else None
