"""LinearAttention."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.linear_attention import LinearAttention
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)

_PAST, _DECAY, _RATE = 3, 4, 5
"""Positions of inputs that may be left out."""

_RULES: Final = {
    "linear": (False, False),
    "gated": (True, False),
    "delta": (False, True),
    "gated_delta": (True, True),
}
"""Whether an update rule has decays, and whether it has rates."""


class _Sizes:
    """The sizes that attributes and shapes say.

    Raises:
        NotCompiled: they do not go together; the array tier says so in its own words.
    """

    def __init__(self, call: Call, inputs: Inputs) -> None:
        shapes = [given(inputs, position).shape for position in range(3)]
        self.heads = int(call.attributes["kv_num_heads"])
        readers = int(call.attributes["q_num_heads"])
        if (
            any(len(shape) != 3 for shape in shapes)
            or self.heads < 1
            or readers < 1
            or readers % self.heads
            or shapes[0][2] % readers
            or shapes[2][2] % self.heads
        ):
            raise NotCompiled(f"{call.op_type} of {shapes}", call)
        self.batch, self.time, _ = shapes[0]
        self.group = readers // self.heads
        self.key, self.value = shapes[0][2] // readers, shapes[2][2] // self.heads

    @property
    def state(self) -> tuple[int, int, int, int]:
        """The shape of the state."""
        return self.batch, self.heads, self.key, self.value

    def packed(self, *widths: int) -> list[tuple[int, ...]]:
        """Shapes whose last axis has so many elements."""
        return [(self.batch, self.time, width) for width in widths]


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes, rest = call.attributes, list(dtypes)
    rule = attributes["update_rule"]
    found = call.input(_DECAY) is not None, call.input(_RATE) is not None
    if _RULES.get(rule) != found:
        return f"{call.op_type} has the rule {rule!r} with (decay, beta) given: {found}"
    past = rest.pop(_PAST) if len(rest) > _PAST else None
    if past is not None and element_of(past) not in target.elements(call.op_type):
        return f"{call.op_type} is not compiled for a state of {past}"
    return computed(call, rest, target)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    sizes = _Sizes(call, inputs)
    heads, key = sizes.heads, sizes.key
    allowed: list[list[tuple[int, ...]]] = [
        sizes.packed(heads * sizes.group * key),
        sizes.packed(heads * key),
        sizes.packed(heads * sizes.value),
        [sizes.state],
        sizes.packed(heads, heads * key),
        sizes.packed(heads, 1),
    ]
    for value, shapes in zip(inputs, allowed, strict=False):
        if value is not None and value.shape not in shapes:
            raise NotCompiled(f"{value.shape} is none of {shapes}", call)


def _record(plan: Plan, call: Call) -> None:
    inputs = [None if name is None else plan.known(name) for name in call.inputs]
    sizes = _Sizes(call, inputs)
    views = [None if name is None else plan.view(name) for name in call.inputs]
    query, key, value, past, decay, rate = (*views, None, None, None)[:6]
    output, last = call.outputs[0], call.output(1)
    assert query is not None and key is not None and value is not None
    assert output is not None
    state_dtype = query.dtype if past is None else past.dtype
    out = plan.destination(output)
    if last is not None:
        state = plan.destination(last)
    else:
        state = plan.recorder.temporary(state_dtype, sizes.state)
    work = LinearAttention(
        _in_groups(query, sizes, sizes.key),
        _in_heads(key, sizes, sizes.key),
        _in_heads(value, sizes, sizes.value),
        None if decay is None else _factors(plan, decay, sizes),
        None if rate is None else _per_head(rate, sizes),
        past,
        _in_groups(out, sizes, sizes.value),
        state,
        float(call.attributes["scale"]) or 1 / math.sqrt(max(sizes.key, 1)),
    )
    if state.size or out.size:
        plan.recorder.target.linear_attention.record_linear_attention(
            plan.recorder, work, call.op_type
        )


def _factors(plan: Plan, decay: View, sizes: _Sizes) -> View:
    """What decays mean, which are logarithms, as [batch, heads, time, key size]."""
    factors = plan.recorder.temporary(np.dtype(np.float32), decay.shape)
    chain = Formula.wide(decay)
    power = chain.step("Exp", chain.read_wide(decay))
    chain.record(plan.recorder, power, factors, "LinearAttention")
    if decay.shape[2] != sizes.heads:
        return _in_heads(factors, sizes, sizes.key)
    of_heads = _per_head(factors, sizes)
    return View(
        of_heads.buffer,
        of_heads.offset,
        of_heads.dtype,
        (*of_heads.shape, sizes.key),
        (*of_heads.strides, 0),
    )


def _per_head(view: View, sizes: _Sizes) -> View:
    """[batch, time, heads], or one for all heads, as [batch, heads, time]."""
    batch, time, head = view.strides
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (sizes.batch, sizes.heads, sizes.time),
        (batch, head if view.shape[2] > 1 else 0, time),
    )


def _in_heads(view: View, sizes: _Sizes, width: int) -> View:
    """[batch, time, heads * width] as [batch, heads, time, width]."""
    batch, time, along = view.strides
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (sizes.batch, sizes.heads, sizes.time, width),
        (batch, width * along, time, along),
    )


def _in_groups(view: View, sizes: _Sizes, width: int) -> View:
    """[batch, time, heads * group * width] as [batch, heads, group, time, width]."""
    batch, time, along = view.strides
    return View(
        view.buffer,
        view.offset,
        view.dtype,
        (sizes.batch, sizes.heads, sizes.group, sizes.time, width),
        (batch, sizes.group * width * along, width * along, time, along),
    )


register("LinearAttention", Operation(_record, _accepts, _check))
