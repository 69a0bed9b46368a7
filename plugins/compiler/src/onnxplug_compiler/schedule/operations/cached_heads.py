"""What attention with a cache has in common, whatever shares its heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled, data_type
from onnxplug_compiler.ir.caches import Caches, Rotation, Starts
from onnxplug_compiler.ir.elements import is_half
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.traced import is_traced
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.coded_caches import (
    bits_of,
    dtype_of,
    width_of,
)
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Facts,
    Plan,
)


class Heads(NamedTuple):
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


def number_in(content: np.ndarray | None) -> int:
    """The only element, which may be a traced size; 0 if that is not known."""
    if content is None or content.size != 1:
        return 0
    number: int = content.reshape(-1)[0]
    return number if is_traced(number) else int(number)


def cache_facts(call: Call, found: Heads, facts: Facts, past: int) -> list[TensorFacts]:
    """The caches after, of the type of that before, which is the input *past*; without
    one of the type that the graph says, or of the queries'."""
    before, query = facts[past], facts[0]
    assert query is not None
    dtype = query.dtype
    if before is not None:
        dtype = before.dtype
    elif len(call.dtypes) > 1 and call.dtypes[1] is not None:
        dtype = data_type(call.dtypes[1])
    width = width_of(found.size, bits_of(call))
    cache = (found.batch, found.groups, found.present, width)
    return [TensorFacts(dtype, cache)] * 2


def check_added(call: Call, found: Heads, shape: tuple[int, ...] | None) -> None:
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


def family(plan: Plan) -> Caches:
    found = plan.recorder.target.caches
    assert found is not None
    return found


def record_kept_rows(
    plan: Plan,
    call: Call,
    found: Heads,
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
    recorder, caches = plan.recorder, family(plan)
    bits = bits_of(call)
    width = width_of(found.size, bits)
    shape = (found.batch, found.groups, found.present, width)
    kept = []
    for number, (rows, position) in enumerate(zip(new, past, strict=True)):
        name, earlier = call.output(1 + number), call.input(position)
        before = None if earlier is None else plan.view(earlier)
        if name is not None:
            whole = plan.destination(name)
        else:
            dtype = dtype_of(bits) if bits else rows.dtype
            dtype = dtype if before is None else before.dtype
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


def of_all_heads(mask: View | None, found: Heads) -> View | None:
    """What is added to scores, for all heads."""
    if mask is None:
        return None
    shape = (found.batch, found.heads, found.queries, mask.shape[3])
    return mask.broadcast_to(shape)


def scale_of(call: Call, found: Heads) -> float:
    return float(call.attributes.get("scale", 0)) or found.size**-0.5


def name_of(call: Call, position: int) -> str:
    name = call.inputs[position]
    assert name is not None
    return name


def of_shape(plan: Plan, view: View, shape: tuple[int, ...]) -> View:
    found = view.reshape(shape) or plan.contiguous(view).reshape(shape)
    assert found is not None
    return found


def split(plan: Plan, call: Call, found: Heads, bias: str | None = None) -> list[View]:
    """Queries, keys and values, [batch, heads, rows, size].

    Args:
        bias: is added to all of them, where they are apart.
    """

    def of_heads(view: View, heads: int) -> View:
        shape = (found.batch, found.queries, heads, found.size)
        apart = of_shape(plan, plan.contiguous(view), shape)
        return apart.transpose((0, 2, 1, 3))

    counts = found.heads, found.groups, found.groups
    if call.input(1) is not None:
        views = [plan.view(name_of(call, position)) for position in range(3)]
        if bias is not None:
            views = _biased(plan, views, plan.view(bias))
        return [of_heads(*each) for each in zip(views, counts, strict=True)]
    whole = of_heads(plan.view(name_of(call, 0)), sum(counts))
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


def destination_of(plan: Plan, call: Call, found: Heads) -> View:
    output = call.outputs[0]
    assert output is not None
    out = plan.destination(output, padded_rows=True)
    apart = out.reshape((found.batch, found.queries, found.heads, found.size))
    assert apart is not None
    return apart.transpose((0, 2, 1, 3))


def fits(
    first: np.dtype[Any] | None, others: Dtypes, caches: Dtypes, target: Support
) -> bool:
    """Whether all are of one type, or caches of a narrower one that the target has."""
    if first is None or any(dtype not in (None, first) for dtype in others):
        return False
    alike: np.dtype[Any] | None = first
    if caches and first == F32 and target.has_narrow_factors and is_half(caches[0]):
        alike = caches[0]
    return all(dtype in (None, alike) for dtype in caches)
