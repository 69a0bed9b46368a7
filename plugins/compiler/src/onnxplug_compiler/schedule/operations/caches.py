"""Attention with a cache whose memory may be that of the cache before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled, data_type
from onnxplug_compiler.ir.caches import Caches, Rotation, Starts
from onnxplug_compiler.ir.elements import described, element_of, is_half
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
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

_NO_QUANTIZED: Final = {
    "k_quant_type": "NONE",
    "v_quant_type": "NONE",
    "kv_cache_bit_width": 0,
    "sliding_window_cache": 0,
    "qk_output": 0,
}
"""Attributes of what is not compiled, and their defaults."""


class _Heads(NamedTuple):
    """Sizes of GroupQueryAttention.

    Attributes:
        batch, queries: sequences, and new rows of each.
        heads, groups: of queries, and of keys.
        size: elements of a head.
        past, present: rows of the caches before and after; ``None`` for the first
            where there is none.
    """

    batch: int
    queries: int
    heads: int
    groups: int
    size: int
    past: int | None
    present: int


def _heads(call: Call, shapes: Sequence[tuple[int, ...] | None], total: int) -> _Heads:
    query, key, past = shapes[0], shapes[1], shapes[3]
    heads, groups = (int(call.attributes[n]) for n in ("num_heads", "kv_num_heads"))
    if heads < 1 or groups < 1 or heads % groups:
        raise NotCompiled(f"{heads} heads that share {groups}", call)
    if query is None or len(query) != 3:
        raise NotCompiled(f"queries {query}", call)
    parts = heads if key is not None else heads + 2 * groups
    if query[2] % parts or not query[2]:
        raise NotCompiled(f"{query} does not split into {parts} heads", call)
    batch, queries, size = query[0], query[1], query[2] // parts
    before = None if past is None else past[2] if len(past) == 4 else -1
    present = queries if before is None else max(before, total)
    return _Heads(batch, queries, heads, groups, size, before, present)


def _number(content: np.ndarray | None) -> int:
    return 0 if content is None or content.size != 1 else int(content.reshape(-1)[0])


def _grouped_facts(call: Call, facts: Facts) -> list[TensorFacts]:
    """The attended values, and the caches."""
    shapes = [None if each is None else each.shape for each in facts]
    total = facts[6]
    found = _heads(call, shapes, _number(None if total is None else total.content))
    query = facts[0]
    assert query is not None
    out = (found.batch, found.queries, found.heads * found.size)
    return [TensorFacts(query.dtype, out), *_cache_facts(call, found, facts, 3)]


def _cache_facts(
    call: Call, found: _Heads, facts: Facts, past: int
) -> list[TensorFacts]:
    """The caches after, of the type of that before, which is the input *past*; without
    one of the type that the graph says, or of the queries'."""
    before, query = facts[past], facts[0]
    assert query is not None
    dtype = query.dtype
    if before is not None:
        dtype = before.dtype
    elif len(call.dtypes) > 1 and call.dtypes[1] is not None:
        dtype = data_type(call.dtypes[1])
    cache = (found.batch, found.groups, found.present, found.size)
    return [TensorFacts(dtype, cache)] * 2


def _check_grouped(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [None if each is None else each.shape for each in inputs]
    present = results[1] or results[2]
    total = 0 if present is None else present.shape[2]
    if present is None and inputs[6] is not None:
        total = _number(inputs[6].content)
    found = _heads(call, shapes, total)
    row = (found.batch, found.queries, found.groups * found.size)
    cache = (found.batch, found.groups, found.past, found.size)
    wanted: dict[int, tuple[int | None, ...]] = {1: row, 2: row, 3: cache, 4: cache}
    for position, shape in wanted.items():
        if shapes[position] is not None and shapes[position] != shape:
            raise NotCompiled(f"input {position} of {shapes[position]}", call)
    if given(inputs, 5).size != found.batch or not found.queries:
        raise NotCompiled(f"lengths {shapes[5]} of {found.batch} sequences", call)
    tables = [shape for shape in shapes[7:9] if shape is not None]
    if tables and (
        tables != [tables[0]] * 2
        or len(tables[0]) != 2
        or not 0 < 2 * tables[0][1] <= found.size
        or not tables[0][0]
    ):
        raise NotCompiled(f"tables {tables} for heads of {found.size}", call)
    places = shapes[9] if len(shapes) > 9 else None
    if places is not None and places != (found.batch, found.queries):
        raise NotCompiled(f"positions {places}", call)
    vectors = {11: found.heads, 14: found.size, 15: found.size}
    for position, size in vectors.items():
        vector = shapes[position] if len(shapes) > position else None
        if vector not in (None, (size,)):
            raise NotCompiled(f"input {position} of {vector}", call)
    _check_added(call, found, shapes[10] if len(shapes) > 10 else None)


def _check_added(call: Call, found: _Heads, shape: tuple[int, ...] | None) -> None:
    """Check what is added to scores: [B or 1, N or 1, S, keys]."""
    if shape is None:
        return
    lead = found.batch, found.heads
    if (
        len(shape) != 4
        or any(n not in (1, m) for n, m in zip(shape, lead, strict=False))
        or shape[2] != found.queries
        or not 0 < shape[3] <= found.present
    ):
        raise NotCompiled(f"a bias of {shape} for {found.present} keys", call)


def _record_grouped(plan: Plan, call: Call) -> None:
    shapes = [None if n is None else plan.known(n).shape for n in call.inputs]
    known = plan.results(call)[1] or plan.results(call)[2]
    found = _heads(call, shapes, 0 if known is None else known.shape[2])
    lengths = _of_shape(plan, plan.view(_name(call, 5)), (found.batch,))
    starts = Starts(lengths, 1 - found.queries, 1, clamped=True)
    rotation = _rotation(plan, call)
    q, k, v = _split(plan, call, found)
    q = _normed(plan, call, q, 14, "q_norm_epsilon")
    k = _normed(plan, call, k, 15, "k_norm_epsilon")
    bias = call.input(10)
    mask = None if bias is None else plan.view(bias)
    seen = found.present if mask is None else mask.shape[3]
    keys, values = _kept(plan, call, found, (k, v), (3, 4), starts, seen, rotation)
    if rotation is not None:
        turned = plan.recorder.temporary(q.dtype, q.shape)
        _caches(plan).record_placed(
            plan.recorder, q, turned, starts, rotation=rotation, shifted=False,
            label=call.op_type,
        )  # fmt: skip
        q = turned
    attributes = call.attributes
    causal, window = bool(attributes.get("causal", 1)), _window(call)
    _caches(plan).record_cached_attention(
        plan.recorder,
        q,
        keys,
        values,
        _destination(plan, call, found),
        starts,
        scale=_scale(call, found),
        mask=_of_all(mask, found),
        causal=causal,
        window=window - 1 if causal and window > 0 else None,
        softcap=float(attributes.get("softcap", 0)),
        sinks=_sinks(plan, call, found, q.dtype),
        label=call.op_type,
    )


def _caches(plan: Plan) -> Caches:
    found = plan.recorder.target.caches
    assert found is not None
    return found


def _kept(
    plan: Plan,
    call: Call,
    found: _Heads,
    new: tuple[View, View],
    past: tuple[int, int],
    starts: Starts,
    seen: int,
    rotation: Rotation | None = None,
) -> list[View]:
    """The first rows of the caches of keys and values, with the new ones.

    Args:
        past: positions of the inputs that are the caches before; the outputs behind
            the first are those after.
        seen: how many rows may be in use.
    """
    recorder, caches = plan.recorder, _caches(plan)
    shape = (found.batch, found.groups, found.present, found.size)
    kept = []
    for number, (rows, position) in enumerate(zip(new, past, strict=True)):
        name, earlier = call.output(1 + number), call.input(position)
        before = None if earlier is None else plan.view(earlier)
        if name is not None:
            whole = plan.destination(name)
        else:
            dtype = rows.dtype if before is None else before.dtype
            whole = recorder.temporary(dtype, shape)
        if before is not None:
            caches.record_kept(recorder, before, whole, starts, label=call.op_type)
        first = whole.slice((0,) * 4, (*shape[:2], seen, shape[3]))
        caches.record_placed(
            recorder, rows, first, starts, rotation=None if number else rotation,
            label=call.op_type,
        )  # fmt: skip
        kept.append(first)
    return kept


def _normed(plan: Plan, call: Call, rows: View, position: int, epsilon: str) -> View:
    """Rows [batch, heads, rows, size] divided by the root of their mean square, times
    the input at *position*, if that is there."""
    name = call.input(position)
    if name is None:
        return rows
    recorder, attributes = plan.recorder, call.attributes
    out = recorder.temporary(rows.dtype, rows.shape)
    given = float(attributes.get(epsilon, 0)) or float(
        attributes.get("qk_norm_epsilon", 1e-6)
    )
    recorder.target.rows.record_norm(
        recorder, rows, out, epsilon=given, centered=False,
        scale=plan.view(name).broadcast_to(rows.shape), label=call.op_type,
    )  # fmt: skip
    return out


def _of_all(mask: View | None, found: _Heads) -> View | None:
    """What is added to scores, for all heads."""
    if mask is None:
        return None
    shape = (found.batch, found.heads, found.queries, mask.shape[3])
    return mask.broadcast_to(shape)


def _scale(call: Call, found: _Heads) -> float:
    return float(call.attributes.get("scale", 0)) or found.size**-0.5


def _name(call: Call, position: int) -> str:
    name = call.inputs[position]
    assert name is not None
    return name


def _window(call: Call) -> int:
    return int(call.attributes.get("local_window_size", -1))


def _of_shape(plan: Plan, view: View, shape: tuple[int, ...]) -> View:
    found = view.reshape(shape) or plan.contiguous(view).reshape(shape)
    assert found is not None
    return found


def _split(
    plan: Plan, call: Call, found: _Heads, bias: str | None = None
) -> list[View]:
    """Queries, keys and values, [batch, heads, rows, size].

    Args:
        bias: is added to all of them, where they are apart.
    """

    def of_heads(view: View, heads: int) -> View:
        shape = (found.batch, found.queries, heads, found.size)
        apart = _of_shape(plan, plan.contiguous(view), shape)
        return apart.transpose((0, 2, 1, 3))

    counts = found.heads, found.groups, found.groups
    if call.input(1) is not None:
        views = [plan.view(_name(call, position)) for position in range(3)]
        if bias is not None:
            views = _biased(plan, views, plan.view(bias))
        return [of_heads(*each) for each in zip(views, counts, strict=True)]
    whole = of_heads(plan.view(_name(call, 0)), sum(counts))
    parts, start = [], 0
    for count in counts:
        shape = (found.batch, count, found.queries, found.size)
        parts.append(whole.slice((0, start, 0, 0), shape))
        start += count
    return parts


def _biased(plan: Plan, views: Sequence[View], bias: View) -> list[View]:
    """Sums of views and of as many parts of *bias*, one after the other."""
    sums, start = [], 0
    for view in views:
        width = view.shape[-1]
        formula = Formula.wide(view)
        part = bias.slice((start,), (width,)).broadcast_to(view.shape)
        total = formula.step("Add", formula.read_wide(view), formula.read_wide(part))
        sums.append(plan.recorder.temporary(view.dtype, view.shape))
        formula.record(plan.recorder, total, sums[-1], "Add")
        start += width
    return sums


def _rotation(plan: Plan, call: Call) -> Rotation | None:
    if not call.attributes.get("do_rotary", 0):
        return None
    places = call.input(9)
    return Rotation(
        plan.view(_name(call, 7)),
        plan.view(_name(call, 8)),
        None if places is None else plan.view(places),
        bool(call.attributes.get("rotary_interleaved", 0)),
    )


def _destination(plan: Plan, call: Call, found: _Heads) -> View:
    output = call.outputs[0]
    assert output is not None
    out = plan.destination(output, padded_rows=True)
    apart = out.reshape((found.batch, found.queries, found.heads, found.size))
    assert apart is not None
    return apart.transpose((0, 2, 1, 3))


def _sinks(
    plan: Plan, call: Call, found: _Heads, dtype: np.dtype[np.generic]
) -> View | None:
    name = call.input(11)
    if name is not None:
        return plan.view(name)
    if int(call.attributes.get("smooth_softmax", -1)) == 1:
        return plan.recorder.constant(np.zeros(found.heads, dtype))
    return None


def _accepts_grouped(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    elements, first = target.elements(_GROUPED), dtypes[0]
    if not elements:
        return "GroupQueryAttention is not compiled"
    for name, default in _NO_QUANTIZED.items():
        if call.attributes.get(name, default) != default:
            return f"GroupQueryAttention is not compiled with {name!r}"
    if not {"num_heads", "kv_num_heads"} <= call.attributes.keys():
        return "GroupQueryAttention lacks 'num_heads' or 'kv_num_heads'"
    if any(call.input(at) is not None for at in (12, 13, 16)):
        return "GroupQueryAttention is compiled without scales and 'query_seqlens'"
    pairs = ((1, 2), (3, 4), (7, 8), (14, 15))
    if any((call.input(a) is None) != (call.input(b) is None) for a, b in pairs):
        return (
            "GroupQueryAttention is compiled with both of keys and values, and of norms"
        )
    if call.attributes.get("do_rotary", 0) and call.input(7) is None:
        return "GroupQueryAttention rotates, and has no tables"
    if call.input(5) is None or call.input(6) is None or len(call.outputs) > 3:
        return "GroupQueryAttention lacks lengths, or has outputs that it has not"
    found = [dtypes[at] for at in range(len(dtypes)) if at not in (3, 4, 5, 6, 9)]
    if not _fit(first, found, dtypes[3:5], target):
        return "GroupQueryAttention is compiled for inputs of one type"
    if element_of(first) not in elements:
        return (
            f"GroupQueryAttention is compiled for {described(elements)}; found {first}"
        )
    return None


def _fit(
    first: np.dtype[Any] | None, others: Dtypes, caches: Dtypes, target: Support
) -> bool:
    """Whether all are of one type, or caches of a narrower one that the target has."""
    if first is None or any(dtype not in (None, first) for dtype in others):
        return False
    narrow = first == F32 and target.has_narrow_factors and is_half(caches[0])
    alike = caches[0] if narrow else first
    return all(dtype in (None, alike) for dtype in caches)


register(
    _GROUPED,
    Operation(
        _record_grouped,
        _accepts_grouped,
        _check_grouped,
        known=frozenset({6}),
        facts=_grouped_facts,
        floors={6: (3, 2)},
        in_place={1: 3, 2: 4},
    ),
)


# heads that share none, with a cache that has room

_LENGTHS: Final = {"MultiHeadAttention": 8, "DecoderMaskedMultiHeadAttention": 7}
"""Positions of the input that says how many rows of the cache are in use."""

_BIASES: Final = {"MultiHeadAttention": 3, "DecoderMaskedMultiHeadAttention": 10}

_ADDED: Final = {"MultiHeadAttention": 5, "DecoderMaskedMultiHeadAttention": 4}
_PADDING: Final = {"MultiHeadAttention": 4, "DecoderMaskedMultiHeadAttention": 3}

_FILLER: Final = -10000.0
"""What is added to scores that padding hides, unless an attribute says otherwise."""

_PAST: Final = {"MultiHeadAttention": (6, 7), "DecoderMaskedMultiHeadAttention": (5, 6)}


def _shared_heads(call: Call, shapes: Sequence[tuple[int, ...] | None]) -> _Heads:
    heads = int(call.attributes["num_heads"])
    query, past = shapes[0], shapes[_PAST[call.op_type][0]]
    if query is None or len(query) != 3 or heads < 1 or query[2] % heads:
        raise NotCompiled(f"queries {query} of {heads} heads", call)
    if past is None or len(past) != 4 or not query[2]:
        raise NotCompiled(f"a cache {past}", call)
    size = query[2] // heads
    return _Heads(query[0], query[1], heads, heads, size, past[2], past[2])


def _shared_facts(call: Call, facts: Facts) -> list[TensorFacts]:
    shapes = [None if each is None else each.shape for each in facts]
    found = _shared_heads(call, shapes)
    query = facts[0]
    assert query is not None
    kept = _cache_facts(call, found, facts, _PAST[call.op_type][0])
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
    _check_added(call, found, shapes[at])
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


def _shared_mask(plan: Plan, call: Call, found: _Heads, label: str) -> View | None:
    """What is added to scores, for all heads."""
    bias, padding = (call.input(at[label]) for at in (_ADDED, _PADDING))
    added = None if bias is None else plan.view(bias)
    if padding is None:
        return _of_all(added, found)
    hidden = plan.view(padding)
    batch, keys = hidden.shape
    hidden = _of_shape(plan, plan.contiguous(hidden), (batch, 1, 1, keys))
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
    return _of_all(whole, found)


def _record_shared(plan: Plan, call: Call) -> None:
    shapes = [None if n is None else plan.known(n).shape for n in call.inputs]
    found = _shared_heads(call, shapes)
    length = plan.view(_name(call, _LENGTHS[call.op_type]))
    length = _of_shape(plan, length, (1,)).broadcast_to((found.batch,))
    starts = Starts(length, 0, found.queries)
    q, k, v = _split(plan, call, found, call.input(_BIASES[call.op_type]))
    past, seen = _PAST[call.op_type], _seen(call, shapes)
    keys, values = _kept(plan, call, found, (k, v), past, starts, seen)
    _caches(plan).record_cached_attention(
        plan.recorder,
        q,
        keys,
        values,
        _destination(plan, call, found),
        starts,
        scale=_scale(call, found),
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
    if not _fit(first, alike, caches, target):
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
