"""Attention with a cache whose memory may be that of the cache before."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.caches import Rotation, Starts
from onnxplug_compiler.ir.elements import described, element_of
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
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


def _heads(call: Call, shapes: list[tuple[int, ...] | None], total: int) -> _Heads:
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
    cache = (found.batch, found.groups, found.present, found.size)
    out = (found.batch, found.queries, found.heads * found.size)
    return [TensorFacts(query.dtype, out), *[TensorFacts(query.dtype, cache)] * 2]


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
    sinks = shapes[11] if len(shapes) > 11 else None
    if sinks is not None and sinks != (found.heads,):
        raise NotCompiled(f"sinks {sinks}", call)


def _record_grouped(plan: Plan, call: Call) -> None:
    shapes = [None if n is None else plan.known(n).shape for n in call.inputs]
    known = plan.results(call)[1] or plan.results(call)[2]
    found = _heads(call, shapes, 0 if known is None else known.shape[2])
    recorder, caches = plan.recorder, plan.recorder.target.caches
    assert caches is not None
    q, k, v = _split(plan, call, found)
    starts = Starts(
        _of_shape(plan, plan.view(_name(call, 5)), (found.batch,)),
        1 - found.queries,
        1,
        clamped=True,
    )
    rotation = _rotation(plan, call)
    kept = []
    for new, past, present in ((k, 3, 1), (v, 4, 2)):
        shape = (found.batch, found.groups, found.present, found.size)
        name, earlier = call.output(present), call.input(past)
        whole = recorder.temporary(new.dtype, shape)
        if name is not None:
            whole = plan.destination(name)
        if earlier is not None:
            view = plan.view(earlier)
            caches.record_kept(recorder, view, whole, starts, label=call.op_type)
        caches.record_placed(
            recorder, new, whole, starts, rotation=rotation if new is k else None,
            label=call.op_type,
        )  # fmt: skip
        kept.append(whole)
    if rotation is not None:
        turned = recorder.temporary(q.dtype, q.shape)
        caches.record_placed(
            recorder, q, turned, starts, rotation=rotation, shifted=False,
            label=call.op_type,
        )  # fmt: skip
        q = turned
    attributes = call.attributes
    causal, window = bool(attributes.get("causal", 1)), _window(call)
    scale = float(attributes.get("scale", 0)) or found.size**-0.5
    caches.record_cached_attention(
        recorder,
        q,
        kept[0],
        kept[1],
        _destination(plan, call, found),
        starts,
        scale=scale,
        causal=causal,
        window=window - 1 if causal and window > 0 else None,
        softcap=float(attributes.get("softcap", 0)),
        sinks=_sinks(plan, call, found, q.dtype),
        label=call.op_type,
    )


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


def _split(plan: Plan, call: Call, found: _Heads) -> list[View]:
    """Queries, keys and values, [batch, heads, rows, size]."""

    def of_heads(view: View, heads: int) -> View:
        shape = (found.batch, found.queries, heads, found.size)
        apart = _of_shape(plan, plan.contiguous(view), shape)
        return apart.transpose((0, 2, 1, 3))

    counts = found.heads, found.groups, found.groups
    if call.input(1) is not None:
        views = [plan.view(_name(call, position)) for position in range(3)]
        return [of_heads(*each) for each in zip(views, counts, strict=True)]
    whole = of_heads(plan.view(_name(call, 0)), sum(counts))
    parts, start = [], 0
    for count in counts:
        shape = (found.batch, count, found.queries, found.size)
        parts.append(whole.slice((0, start, 0, 0), shape))
        start += count
    return parts


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
    if any(call.input(at) is not None for at in (10, 12, 13, 14, 15)):
        return "GroupQueryAttention is compiled without a bias, scales and norms"
    pairs = ((1, 2), (3, 4), (7, 8))
    if any((call.input(a) is None) != (call.input(b) is None) for a, b in pairs):
        return "GroupQueryAttention is compiled with both of keys and values"
    if call.attributes.get("do_rotary", 0) and call.input(7) is None:
        return "GroupQueryAttention rotates, and has no tables"
    if call.input(5) is None or call.input(6) is None or len(call.outputs) > 3:
        return "GroupQueryAttention lacks lengths, or has outputs that it has not"
    found = [dtypes[at] for at in range(len(dtypes)) if at not in (5, 6, 9)]
    if first is None or any(dtype not in (None, first) for dtype in found):
        return "GroupQueryAttention is compiled for inputs of one type"
    if element_of(first) not in elements:
        return (
            f"GroupQueryAttention is compiled for {described(elements)}; found {first}"
        )
    return None


register(
    _GROUPED,
    Operation(
        _record_grouped,
        _accepts_grouped,
        _check_grouped,
        known=frozenset({6}),
        facts=_grouped_facts,
        floors={6: (3, 2)},
    ),
)
