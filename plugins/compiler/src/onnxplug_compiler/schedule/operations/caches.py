"""Attention with a cache whose memory may be that of the cache before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.caches import Rotation, Starts
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
    number_in,
    of_all_heads,
    of_shape,
    record_kept_rows,
    scale_of,
    split,
)
from onnxplug_compiler.schedule.operations.coded_caches import (
    SCALES,
    bits_of,
    check_scales,
    record_codes,
    record_scaled,
    why_not,
    width_of,
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

_VALID: Final = 16
"""The input that says how many rows are no padding."""

_NOT_COMPILED: Final = {"sliding_window_cache": 0, "qk_output": 0}
"""Attributes of what is not compiled, and their defaults."""


def _heads(call: Call, shapes: Sequence[tuple[int, ...] | None], total: int) -> Heads:
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
    return Heads(batch, queries, heads, groups, size, before, present)


def _grouped_facts(call: Call, facts: Facts) -> list[TensorFacts]:
    """The attended values, and the caches."""
    shapes = [None if each is None else each.shape for each in facts]
    total = facts[6]
    found = _heads(call, shapes, number_in(None if total is None else total.content))
    query = facts[0]
    assert query is not None
    out = (found.batch, found.queries, found.heads * found.size)
    return [TensorFacts(query.dtype, out), *cache_facts(call, found, facts, 3)]


def _check_grouped(call: Call, inputs: Inputs, results: Results) -> None:
    shapes = [None if each is None else each.shape for each in inputs]
    present = results[1] or results[2]
    total = 0 if present is None else present.shape[2]
    if present is None and inputs[6] is not None:
        total = number_in(inputs[6].content)
    found = _heads(call, shapes, total)
    row = (found.batch, found.queries, found.groups * found.size)
    check_scales(call, shapes, found.groups, found.size)
    width = width_of(found.size, bits_of(call))
    cache = (found.batch, found.groups, found.past, width)
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
    if call.input(_VALID) is not None and given(inputs, _VALID).size != found.batch:
        raise NotCompiled(f"rows of {shapes[_VALID]} sequences", call)
    check_added(call, found, shapes[10] if len(shapes) > 10 else None)


def _record_grouped(plan: Plan, call: Call) -> None:
    shapes = [None if n is None else plan.known(n).shape for n in call.inputs]
    known = plan.results(call)[1] or plan.results(call)[2]
    found = _heads(call, shapes, 0 if known is None else known.shape[2])
    starts = _starts(plan, call, found)
    rotation = _rotation(plan, call)
    q, k, v = split(plan, call, found)
    q = _normed(plan, call, q, 14, "q_norm_epsilon")
    k = _normed(plan, call, k, 15, "k_norm_epsilon")
    bias = call.input(10)
    mask = None if bias is None else plan.view(bias)
    seen = found.present if mask is None else mask.shape[3]
    bits, out = bits_of(call), destination_of(plan, call, found)
    if rotation is not None:
        q = _turned(plan, call, q, starts, rotation)
    new, attended = (k, v), out
    if bits:
        if rotation is not None:
            k, rotation = _turned(plan, call, k, starts, rotation), None
        new = _codes(plan, call, (k, v))
        attended = plan.recorder.temporary(F32, out.shape)
        q = _scaled(plan, call, q, 0, plan.recorder.temporary(F32, q.shape))
    keys, values = record_kept_rows(
        plan, call, found, new, (3, 4), starts, seen, rotation
    )
    attributes = call.attributes
    causal, window = bool(attributes.get("causal", 1)), _window(call)
    family(plan).record_cached_attention(
        plan.recorder,
        q,
        keys,
        values,
        attended,
        starts,
        scale=scale_of(call, found),
        mask=of_all_heads(mask, found),
        causal=causal,
        window=window - 1 if causal and window > 0 else None,
        softcap=float(attributes.get("softcap", 0)),
        sinks=_sinks(plan, call, found, q.dtype),
        label=call.op_type,
    )
    if bits:
        _scaled(plan, call, attended, 1, out)


def _starts(plan: Plan, call: Call, found: Heads) -> Starts:
    """Where the new rows of each sequence begin.

    Of those that are padding, behind the others, nobody reads what becomes; they have
    places, too, and see themselves.
    """
    lengths = of_shape(plan, plan.view(name_of(call, 5)), (found.batch,))
    valid = call.input(_VALID)
    if valid is None:
        return Starts(lengths, 1 - found.queries, 1, clamped=True)
    formula = Formula("i64")
    wanted = formula.read_wide(of_shape(plan, plan.view(valid), (found.batch,)))
    count = formula.step("Max", wanted, formula.number(0))
    count = formula.step("Min", count, formula.number(found.queries))
    length = formula.step("Add", formula.read_wide(lengths), formula.number(1))
    # no sequence has such a start, which is told of where its rows would be placed
    start = formula.step(
        "Where",
        formula.step("Equal", wanted, count, element="i1"),
        formula.step("Sub", length, count),
        formula.number(-1),
    )
    starts = plan.recorder.temporary(np.dtype(np.int64), (found.batch,))
    formula.record(plan.recorder, start, starts, call.op_type)
    return Starts(starts, 0, found.queries)


def _turned(
    plan: Plan, call: Call, rows: View, starts: Starts, rotation: Rotation
) -> View:
    """Rows, rotated."""
    turned = plan.recorder.temporary(rows.dtype, rows.shape)
    family(plan).record_placed(
        plan.recorder, rows, turned, starts, rotation=rotation, shifted=False,
        label=call.op_type,
    )  # fmt: skip
    return turned


def _codes(plan: Plan, call: Call, rows: tuple[View, View]) -> tuple[View, View]:
    """New keys and values as codes."""
    keys, values = (
        record_codes(
            plan.recorder,
            part,
            plan.view(name_of(call, at)),
            bits_of(call),
            call.op_type,
        )
        for part, at in zip(rows, SCALES, strict=True)
    )
    return keys, values


def _scaled(plan: Plan, call: Call, x: View, which: int, out: View) -> View:
    """*out*, where heads are multiplied with the scales of keys or values."""
    scale = plan.view(name_of(call, SCALES[which]))
    groups = int(call.attributes["kv_num_heads"])
    record_scaled(plan.recorder, x, scale, groups, out, call.op_type)
    return out


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


def _window(call: Call) -> int:
    return int(call.attributes.get("local_window_size", -1))


def _rotation(plan: Plan, call: Call) -> Rotation | None:
    if not call.attributes.get("do_rotary", 0):
        return None
    places = call.input(9)
    return Rotation(
        plan.view(name_of(call, 7)),
        plan.view(name_of(call, 8)),
        None if places is None else plan.view(places),
        bool(call.attributes.get("rotary_interleaved", 0)),
    )


def _sinks(
    plan: Plan, call: Call, found: Heads, dtype: np.dtype[np.generic]
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
    for name, default in _NOT_COMPILED.items():
        if call.attributes.get(name, default) != default:
            return f"GroupQueryAttention is not compiled with {name!r}"
    if not {"num_heads", "kv_num_heads"} <= call.attributes.keys():
        return "GroupQueryAttention lacks 'num_heads' or 'kv_num_heads'"
    if call.input(_VALID) is not None and (
        call.input(3) is None
        or call.input(10) is not None
        or not call.attributes.get("causal", 1)
    ):
        return (
            "GroupQueryAttention is compiled with 'query_seqlens' where it is causal "
            "and has a cache, and nothing is added to scores"
        )
    if call.input(14) is not None and not target.elements("RMSNormalization"):
        return "GroupQueryAttention is compiled without norms of queries and keys"
    counts = target.supports_step("Min", ("i64", "i64"), "i64", {})
    if call.input(_VALID) is not None and not counts:
        return "GroupQueryAttention is compiled without 'query_seqlens'"
    reason = why_not(call, [*dtypes, *[None] * (17 - len(dtypes))], target)
    if reason is not None:
        return reason
    pairs = ((1, 2), (3, 4), (7, 8), (14, 15))
    if any((call.input(a) is None) != (call.input(b) is None) for a, b in pairs):
        return (
            "GroupQueryAttention is compiled with both of keys and values, and of norms"
        )
    if call.attributes.get("do_rotary", 0) and call.input(7) is None:
        return "GroupQueryAttention rotates, and has no tables"
    if call.input(5) is None or call.input(6) is None or len(call.outputs) > 3:
        return "GroupQueryAttention lacks lengths, or has outputs that it has not"
    others = {3, 4, 5, 6, 9, *SCALES, _VALID}
    found = [dtypes[at] for at in range(len(dtypes)) if at not in others]
    if not fits(first, found, [] if bits_of(call) else dtypes[3:5], target):
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
        in_place={1: 3, 2: 4},
    ),
)
