"""Scaled dot-product attention."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.caches import Starts
from onnxplug_compiler.ir.elements import is_half
from onnxplug_compiler.ir.formula import record_cast
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_concat, record_copy
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)


def _record(plan: Plan, call: Call) -> None:
    """Of a call that a pattern made: q, k transposed, v and perhaps a mask; or, of
    heads that several of q share, k as it is."""
    names = call.inputs[:3]
    output = call.outputs[0]
    assert output is not None
    q, k, v = (plan.view(name) for name in names if name is not None)
    out = plan.destination(output, padded_rows=True)
    rank = len(q.shape)
    if not call.attributes["shared"]:
        k = k.transpose((*range(rank - 2), rank - 1, rank - 2))
    mask = None
    name = call.input(3)
    if name is not None:
        mask = plan.view(name).broadcast_to((*q.shape[:-1], k.shape[-2]))
    views = [
        _of_rank_4(view)
        for view in (_rows(plan, q), _rows(plan, k), _rows(plan, v), out)
    ]
    plan.recorder.target.attention.record_attention(
        plan.recorder,
        *views,
        scale=float(call.attributes["scale"]),
        mask=None if mask is None else _of_rank_4(mask),
        undefined=call.attributes["undefined"],
        hides=call.attributes["hides"],
        fill=call.attributes["fill"],
    )


def _rows(plan: Plan, view: View) -> View:
    """The view with consecutive elements in its last axis."""
    if view.shape[-1] > 1 and view.strides[-1] != 1:
        return plan.contiguous(view)
    return view


def _of_rank_4(view: View) -> View:
    whole = view.reshape((1,) * (4 - len(view.shape)) + view.shape)
    if whole is None:
        raise NotCompiled(f"{view.shape} does not become of rank 4")
    return whole


register("ScaledDotProduct", Operation(_record, computed))


# the operator of opset 23


class _Heads(NamedTuple):
    """Queries, keys and values by heads: [batch, heads, sequence, size]."""

    q: tuple[int, int, int, int]
    k: tuple[int, int, int, int]
    v: tuple[int, int, int, int]
    past: int


def _heads(call: Call, inputs: Inputs) -> _Heads:
    shapes: list[tuple[int, int, int, int]] = []
    for position, attribute in enumerate(("q_num_heads", *("kv_num_heads",) * 2)):
        value = inputs[position]
        assert value is not None
        shape = value.shape
        if len(shape) == 3:
            heads = int(call.attributes[attribute] or 0)
            if heads < 1 or shape[2] % heads:
                raise NotCompiled(f"{shape} does not split into {heads} heads", call)
            shape = (shape[0], heads, shape[1], shape[2] // heads)
        if len(shape) != 4:
            raise NotCompiled(f"attention of rank {len(shape)}", call)
        shapes.append((shape[0], shape[1], shape[2], shape[3]))
    past = 0
    q, k, v = shapes
    earlier = [inputs[at] if call.input(at) else None for at in (4, 5)]
    if earlier != [None, None]:
        found = [() if value is None else value.shape for value in earlier]
        past = found[0][2] if len(found[0]) == 4 else 0
        if found != [(*part[:2], past, part[3]) for part in (k, v)]:
            raise NotCompiled(f"attention to {found} before {k} and {v}", call)
    return _Heads(q, k, v, past)


def _check_operator(call: Call, inputs: Inputs, results: Results) -> None:
    heads = _heads(call, inputs)
    if (
        heads.k[3] != heads.q[3]
        or heads.k[:3] != heads.v[:3]
        or heads.k[0] != heads.q[0]
        or not heads.k[1]
        or heads.q[1] % heads.k[1]
        or not heads.q[3]
        or (call.input(6) is not None and given(inputs, 6).shape != heads.q[:1])
    ):
        raise NotCompiled(f"attention of {heads.q}, {heads.k} and {heads.v}", call)


def _split_heads(plan: Plan, view: View, heads: tuple[int, int, int, int]) -> View:
    if len(view.shape) == 4:
        return _rows(plan, view)
    batch, count, sequence, size = heads
    apart = _rows(plan, view).reshape((batch, sequence, count, size))
    if apart is None:
        raise NotCompiled(f"{view.shape} does not split into heads")
    return apart.transpose((0, 2, 1, 3))


def _record_operator(plan: Plan, call: Call) -> None:
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    heads = _heads(call, inputs)
    names = call.inputs[:3]
    q, k, v = (
        _split_heads(plan, plan.view(name), shape)
        for name, shape in zip(names, heads[:3], strict=True)
        if name is not None
    )
    k = _present(plan, k, call.input(4), call.output(1))
    v = _present(plan, v, call.input(5), call.output(2))
    output = call.outputs[0]
    assert output is not None
    batch, count, queries, _ = heads.q
    out = plan.destination(output, padded_rows=True)
    if len(out.shape) == 3:
        apart = out.reshape((batch, queries, count, heads.v[3]))
        assert apart is not None
        out = apart.transpose((0, 2, 1, 3))
    mask = None
    name = call.input(3)
    if name is not None:
        keys = k.shape[2]
        mask = plan.view(name)
        if mask.shape[-1] != keys:
            raise NotCompiled(f"a mask of {mask.shape} for {keys} keys")
        mask = mask.broadcast_to((batch, count, queries, keys))
    scale = call.attributes.get("scale")
    scale = heads.q[3] ** -0.5 if scale is None else float(scale)
    causal = bool(call.attributes.get("is_causal", 0))
    softcap = max(0.0, float(call.attributes.get("softcap", 0.0)))
    lengths = call.input(6)
    if lengths is None:
        plan.recorder.target.attention.record_attention(
            plan.recorder, q, k, v, out, scale=scale, mask=mask, causal=causal,
            past_length=heads.past, softcap=softcap,
        )  # fmt: skip
        return
    window = int(call.attributes.get("left_window_size", -1))
    caches = plan.recorder.target.caches
    assert caches is not None
    caches.record_cached_attention(
        plan.recorder, q, k, v, out, Starts(plan.view(lengths), -queries, 0),
        scale=scale, mask=mask, causal=causal, softcap=softcap,
        window=None if window < 0 else window,
    )  # fmt: skip


def _present(plan: Plan, new: View, past: str | None, present: str | None) -> View:
    """Keys or values with the earlier ones before them."""
    if past is None:
        if present is not None:
            record_copy(plan.recorder, new, plan.destination(present))
        return new
    earlier = plan.view(past)
    rows = earlier.shape[2]
    shape = (*new.shape[:2], rows + new.shape[2], new.shape[3])
    if present is None:
        whole = plan.recorder.temporary(earlier.dtype, shape)
    else:
        whole = plan.destination(present)
    if earlier.dtype == new.dtype:
        record_concat(plan.recorder, [earlier, new], whole, 2)
        return whole
    record_copy(plan.recorder, earlier, whole.slice((0,) * 4, earlier.shape))
    record_cast(plan.recorder, new, whole.slice((0, 0, rows, 0), new.shape))
    return whole


def _accepts_operator(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    if call.output(3) is not None:
        return "Attention is not compiled with its scores as output"
    has_lengths = call.input(6) is not None
    if has_lengths and not target.elements("TensorScatter"):
        return "Attention is not compiled with lengths"
    if has_lengths and call.input(4) is not None:
        return "Attention has lengths, and a past"
    sides = ["right_window_size", *([] if has_lengths else ["left_window_size"])]
    if any(attributes.get(side, -1) != -1 for side in sides):
        return "Attention is not compiled with a window"
    if attributes.get("softmax_precision") not in (None, 0, 1):
        return "Attention is compiled with a softmax in float32"
    mask = dtypes[3] if len(dtypes) > 3 else None
    if mask is not None and mask not in (dtypes[0], np.dtype(np.bool_)):
        return f"Attention is not compiled for a mask of {mask}"
    found = list(dtypes)
    for pair in ((1, 2), (4, 5)):
        if (
            target.has_narrow_factors
            and dtypes[0] == F32
            and pair[1] < len(dtypes)
            and is_half(dtypes[pair[0]])
            and dtypes[pair[0]] == dtypes[pair[1]]
        ):
            found[pair[0]] = found[pair[1]] = F32
    return computed(
        call, [d for i, d in enumerate(found) if i not in (3, 6) and d], target
    )


register("Attention", Operation(_record_operator, _accepts_operator, _check_operator))
