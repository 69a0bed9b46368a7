"""Attention of heads that share none, with a cache that has room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.caches import Starts
from onnxplug_compiler.ir.elements import described, element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.cached_heads import (
    Heads,
    cache_facts,
    check_added,
    destination_of,
    family,
    fits,
    name_of,
    of_all_heads,
    of_shape,
    record_kept_rows,
    scale_of,
    split,
)
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Facts,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_GROUPED: Final = "com.microsoft.GroupQueryAttention"

_LENGTHS: Final = {"MultiHeadAttention": 8, "DecoderMaskedMultiHeadAttention": 7}
"""Positions of the input that says how many rows of the cache are in use."""

_BIASES: Final = {"MultiHeadAttention": 3, "DecoderMaskedMultiHeadAttention": 10}

_ADDED: Final = {"MultiHeadAttention": 5, "DecoderMaskedMultiHeadAttention": 4}
_PADDING: Final = {"MultiHeadAttention": 4, "DecoderMaskedMultiHeadAttention": 3}

_FILLER: Final = -10000.0
"""What is added to scores that padding hides, unless an attribute says otherwise."""

_PAST: Final = {"MultiHeadAttention": (6, 7), "DecoderMaskedMultiHeadAttention": (5, 6)}


def _shared_heads(call: Call, shapes: Sequence[tuple[int, ...] | None]) -> Heads:
    heads = int(call.attributes["num_heads"])
    query, past = shapes[0], shapes[_PAST[call.op_type][0]]
    if query is None or len(query) != 3 or heads < 1 or query[2] % heads:
        raise NotCompiled(f"queries {query} of {heads} heads", call)
    if past is None or len(past) != 4 or not query[2]:
        raise NotCompiled(f"a cache {past}", call)
    size = query[2] // heads
    return Heads(query[0], query[1], heads, heads, size, past[2], past[2])


def _shared_facts(call: Call, facts: Facts) -> list[TensorFacts]:
    shapes = [None if each is None else each.shape for each in facts]
    found = _shared_heads(call, shapes)
    query = facts[0]
    assert query is not None
    kept = cache_facts(call, found, facts, _PAST[call.op_type][0])
    return [TensorFacts(query.dtype, query.shape), *kept]


def _check_shared(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [None if each is None else each.shape for each in inputs]
    found = _shared_heads(call, shapes)
    cache = (found.batch, found.groups, found.present, found.size)
    rows = [shapes[0]] * 2
    if shapes[1:3] != rows or [shapes[at] for at in _PAST[call.op_type]] != [cache] * 2:
        raise NotCompiled(f"keys and values {shapes} with a cache {cache}", call)
    at = _BIASES[call.op_type]
    width = 3 * found.heads * found.size
    if call.input(at) is not None and shapes[at] != (width,):
        raise NotCompiled(f"a bias of {shapes[at]}; expected {width} elements", call)
    at, padding = _ADDED[call.op_type], _PADDING[call.op_type]
    check_added(call, found, shapes[at])
    hidden = shapes[padding]
    rows_seen = _seen(call, shapes)
    if hidden is not None and (
        len(hidden) != 2
        or hidden != (found.batch, rows_seen)
        or not 0 < rows_seen <= found.present
    ):
        raise NotCompiled(f"a mask of {hidden} for {rows_seen} keys", call)
    if given(inputs, _LENGTHS[call.op_type]).size != 1 or not found.queries:
        raise NotCompiled(f"no one length of what is in the cache: {shapes}", call)


def _seen(call: Call, shapes: Sequence[tuple[int, ...] | None]) -> int:
    """How many rows of the cache may be in use: as many as masks are for."""
    for at in (_ADDED[call.op_type], _PADDING[call.op_type]):
        shape = shapes[at]
        if shape is not None:
            return shape[-1]
    return _shared_heads(call, shapes).present


def _shared_mask(plan: Plan, call: Call, found: Heads, label: str) -> View | None:
    """What is added to scores, for all heads."""
    bias, padding = (call.input(at[label]) for at in (_ADDED, _PADDING))
    added = None if bias is None else plan.view(bias)
    if padding is None:
        return of_all_heads(added, found)
    hidden = plan.view(padding)
    batch, keys = hidden.shape
    hidden = of_shape(plan, plan.contiguous(hidden), (batch, 1, 1, keys))
    shape = hidden.shape
    if added is not None:
        shape = (batch, *added.shape[1:])
    formula = Formula("f32")
    counts = formula.step(
        "Greater", formula.read(hidden), formula.number(0, "i32"), element="i1"
    )
    filler = float(call.attributes.get("mask_filter_value", _FILLER))
    total = formula.step("Where", counts, formula.number(0.0), formula.number(filler))
    if added is not None:
        total = formula.step("Add", total, formula.read_wide(added))
    whole = plan.recorder.temporary(F32, shape)
    formula.record(plan.recorder, total, whole, label)
    return of_all_heads(whole, found)


def _record_shared(plan: Plan, call: Call) -> None:
    shapes = [None if n is None else plan.known(n).shape for n in call.inputs]
    found = _shared_heads(call, shapes)
    length = plan.view(name_of(call, _LENGTHS[call.op_type]))
    length = of_shape(plan, length, (1,)).broadcast_to((found.batch,))
    starts = Starts(length, 0, found.queries)
    q, k, v = split(plan, call, found, call.input(_BIASES[call.op_type]))
    past, seen = _PAST[call.op_type], _seen(call, shapes)
    keys, values = record_kept_rows(plan, call, found, (k, v), past, starts, seen)
    family(plan).record_cached_attention(
        plan.recorder,
        q,
        keys,
        values,
        destination_of(plan, call, found),
        starts,
        scale=scale_of(call, found),
        mask=_shared_mask(plan, call, found, call.op_type),
        causal=bool(call.attributes.get("unidirectional", 0)),
        label=call.op_type,
    )


def _accepts_shared(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    name, elements = call.op_type, target.elements(_GROUPED)
    if not elements:
        return f"{name} is not compiled"
    used = {0, 1, 2, *_PAST[name], _LENGTHS[name]}
    bias, added, padding = _BIASES[name], _ADDED[name], _PADDING[name]
    if "num_heads" not in call.attributes or len(call.outputs) > 3:
        return f"{name} lacks 'num_heads', or has outputs that it has not"
    found = {at for at in range(11) if call.input(at) is not None}
    if not used <= found <= used | {bias, added, padding}:
        return f"{name} is compiled with a cache that has room, and without beams"
    first = dtypes[0]
    caches = [dtypes[at] for at in _PAST[name]]
    alike = [*dtypes[:3], *dtypes[bias : bias + 1], dtypes[added]]
    if dtypes[padding] not in (None, np.dtype(np.int32)):
        return f"{name} is compiled with a mask of int32; found {dtypes[padding]}"
    if not fits(first, alike, caches, target):
        return f"{name} is compiled for inputs of one type"
    if element_of(first) not in elements:
        return f"{name} is compiled for {described(elements)}; found {first}"
    return None


for _name_of in _LENGTHS:
    register(
        f"com.microsoft.{_name_of}",
        Operation(
            _record_shared,
            _accepts_shared,
            _check_shared,
            facts=_shared_facts,
            in_place=dict(zip((1, 2), _PAST[_name_of], strict=True)),
        ),
    )
