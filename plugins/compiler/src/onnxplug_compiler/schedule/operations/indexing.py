"""Operators that find elements by indices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.caches import Starts
from onnxplug_compiler.ir.elements import COMPUTED, element_of, is_half
from onnxplug_compiler.ir.formula import Formula, record_cast
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.copies import record_copy
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Facts,
    Inputs,
    Operation,
    Plan,
    Results,
    alike,
    given,
    moved,
    register,
)

_REDUCTIONS = ("none", "add", "mul", "max", "min")
_INDICES = (np.dtype(np.int32), np.dtype(np.int64))


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[1] not in _INDICES:
        return f"{call.op_type} is not compiled for indices of {dtypes[1]}"
    if _reduction(call) not in _REDUCTIONS:
        return f"{call.op_type} with reduction {_reduction(call)!r}"
    if _reduction(call) != "none" and element_of(dtypes[0]) not in COMPUTED:
        return f"{call.op_type} is not compiled with a reduction of {dtypes[0]}"
    if len(dtypes) > 2 and dtypes[2] != dtypes[0]:
        return f"{call.op_type} is not compiled for updates of another type"
    return moved(call, dtypes[:1], target)


def _reduction(call: Call) -> str:
    return str(call.attributes.get("reduction") or "none")


def _axis(call: Call, rank: int) -> int:
    return normal_axis(int(call.attributes.get("axis") or 0), rank)


def _views(plan: Plan, call: Call) -> tuple[list[View], View]:
    """The inputs, and where the output goes."""
    output = call.outputs[0]
    assert output is not None
    views = [plan.view(name) for name in call.inputs if name is not None]
    return views, plan.destination(output)


# taking


def _check_gather(call: Call, inputs: Inputs, results: Results) -> None:
    data = given(inputs)
    if data.shape[_axis(call, len(data.shape))] == 0:
        raise NotCompiled("nothing to gather from", call)


def _record_gather(plan: Plan, call: Call) -> None:
    if _record_row(plan, call):
        return
    (data, indices), target = _views(plan, call)
    plan.recorder.target.indexing.record_gather(
        plan.recorder, data, indices, target, _axis(call, len(data.shape))
    )


def _record_row(plan: Plan, call: Call) -> bool:
    """Gather one place that is known when planning, which is a view."""
    source, positions, output = call.inputs[0], call.inputs[1], call.outputs[0]
    assert source is not None and positions is not None and output is not None
    chosen = plan.known(positions)
    content = chosen.content if chosen.size == 1 else None
    if content is None:
        return False
    data = plan.view(source)
    axis = _axis(call, len(data.shape))
    index = normal_axis(int(content.reshape(-1)[0]), data.shape[axis])
    if not 0 <= index < data.shape[axis]:
        return False
    starts = [0] * len(data.shape)
    starts[axis] = index
    sizes = [*data.shape[:axis], 1, *data.shape[axis + 1 :]]
    row = data.slice(starts, sizes).reshape(plan.known(output).shape)
    if row is None:
        return False
    plan.alias(output, row)
    return True


register("Gather", Operation(_record_gather, _accepts, _check_gather))


def _covers(data: Abstract, indices: Abstract, axis: int) -> bool:
    """Whether *indices*, but along *axis*, lie within *data*."""
    return len(data.shape) == len(indices.shape) and all(
        i <= d
        for a, (i, d) in enumerate(zip(indices.shape, data.shape, strict=True))
        if a != axis
    )


def _check_gather_elements(call: Call, inputs: Inputs, results: Results) -> None:
    data, indices = given(inputs), given(inputs, 1)
    axis = _axis(call, len(data.shape))
    if not _covers(data, indices, axis) or (data.shape[axis] == 0 and indices.size):
        raise NotCompiled(f"indices {indices.shape} for data {data.shape}", call)


def _record_gather_elements(plan: Plan, call: Call) -> None:
    (data, indices), target = _views(plan, call)
    axis = _axis(call, len(data.shape))
    plan.recorder.target.indexing.record_gather_elements(
        plan.recorder, data, indices, target, axis
    )


register(
    "GatherElements",
    Operation(_record_gather_elements, _accepts, _check_gather_elements),
)


def _check_gather_nd(call: Call, inputs: Inputs, results: Results) -> None:
    data, indices = given(inputs), given(inputs, 1)
    batch = int(call.attributes.get("batch_dims", 0))
    if (
        not indices.shape[-1]
        or data.shape[:batch] != indices.shape[:batch]
        or 0 in data.shape
    ):
        raise NotCompiled(f"indices {indices.shape} for data {data.shape}", call)


def _record_gather_nd(plan: Plan, call: Call) -> None:
    (data, indices), target = _views(plan, call)
    batch = int(call.attributes.get("batch_dims", 0))
    plan.recorder.target.indexing.record_gather_nd(
        plan.recorder, data, indices, target, batch
    )


register("GatherND", Operation(_record_gather_nd, _accepts, _check_gather_nd))


# putting


def _check_scatter(call: Call, inputs: Inputs, results: Results) -> None:
    data, indices, updates = (given(inputs, position) for position in range(3))
    if call.op_type == "ScatterND":
        count = indices.shape[-1] if indices.shape else 0
        wanted = (*indices.shape[:-1], *data.shape[count:])
        fits = 0 < count <= len(data.shape) and updates.shape == wanted
    else:
        axis = _axis(call, len(data.shape))
        fits = updates.shape == indices.shape and _covers(data, indices, axis)
    if not fits or 0 in data.shape:
        raise NotCompiled(
            f"updates {updates.shape} at {indices.shape} of {data.shape}", call
        )


def _record_scatter(plan: Plan, call: Call) -> None:
    (data, indices, updates), target = _views(plan, call)
    order = call.attributes.get("perm")  # of a pattern: of data and target
    if order is not None:
        data, target = data.transpose(order), target.transpose(order)
    reduction = _reduction(call)
    sizes = zip(updates.shape, updates.strides, strict=True)
    if reduction != "none" or all(stride or size == 1 for size, stride in sizes):
        updates = plan.contiguous(updates)  # in whose order they are combined
    if call.op_type == "ScatterND":
        plan.recorder.target.indexing.record_scatter_nd(
            plan.recorder, data, indices, updates, target, reduction=reduction
        )
        return
    axis = _axis(call, len(data.shape))
    plan.recorder.target.indexing.record_scatter_elements(
        plan.recorder, data, indices, updates, target, axis, reduction=reduction
    )


register(
    "Scatter ScatterElements ScatterND",
    Operation(_record_scatter, _accepts, _check_scatter, in_place={0: 0}),
)


# places of a cache


def _check_cache(call: Call, inputs: Inputs, results: Results) -> None:
    past, update = given(inputs).shape, given(inputs, 1).shape
    axis = normal_axis(int(call.attributes["axis"]), len(past))
    starts = inputs[2] if len(inputs) > 2 else None
    length = update[axis] if len(update) == len(past) else -1
    wanted = (*past[:axis], length, *past[axis + 1 :])
    if not axis or update != wanted or length > past[axis] or 0 in past:
        raise NotCompiled(f"an update {update} of {past} along {axis}", call)
    if starts is not None and starts.shape != past[:1]:
        raise NotCompiled(f"{starts.shape} places for {past}", call)


def _record_cache(plan: Plan, call: Call) -> None:
    views, target = _views(plan, call)
    past, update = views[:2]
    axis = normal_axis(int(call.attributes["axis"]), len(past.shape))
    if not update.size:
        record_copy(plan.recorder, past, target, label=call.op_type)
        return
    if axis < len(past.shape) - 1 and _has_rows(plan, call, past, update):
        _record_rows(plan, call, views, target, axis)
        return
    if update.dtype != past.dtype:
        narrow = plan.recorder.temporary(past.dtype, update.shape)
        record_cast(plan.recorder, update, narrow)
        update = narrow
    plan.recorder.target.indexing.record_scatter_elements(
        plan.recorder,
        past,
        _places(plan, call, views[2:], update, past.shape[axis], axis),
        update,
        target,
        axis,
        label=call.op_type,
    )


def _has_rows(plan: Plan, call: Call, past: View, update: View) -> bool:
    """Whether a cache is one of keys or values that the target has."""
    target = plan.recorder.target
    found = element_of(update.dtype)
    narrow = found == "f32" and target.has_narrow_factors and is_half(past.dtype)
    return (
        call.attributes["mode"] == "linear"
        and target.caches is not None
        and found in target.elements("com.microsoft.GroupQueryAttention")
        and (narrow or past.dtype == update.dtype)
        and len(past.shape) in (3, 4)
        and past.strides[-1] == update.strides[-1] == 1
    )


def _record_rows(
    plan: Plan, call: Call, views: Sequence[View], target: View, axis: int
) -> None:
    """Write rows where they belong, and keep the others unless they are there."""
    recorder, caches = plan.recorder, plan.recorder.target.caches
    assert caches is not None

    def of_heads(view: View) -> View:
        """[batch, heads, rows, size]"""
        if len(view.shape) == 4:
            return view if axis == 2 else view.transpose((0, 2, 1, 3))
        apart = view.reshape((view.shape[0], 1, *view.shape[1:]))
        assert apart is not None  # a size of 1 is nowhere
        return apart

    past, update, whole = map(of_heads, (*views[:2], target))
    batch, rows = past.shape[0], update.shape[2]
    if len(views) > 2:
        places = views[2]
    else:
        zeros = recorder.constant(np.zeros((), np.int64))
        places = zeros.broadcast_to((batch,))
    caches.record_kept(recorder, past, whole, None, label=call.op_type)
    caches.record_placed(
        recorder, update, whole, Starts(places, 0, rows), label=call.op_type
    )


def _places(
    plan: Plan,
    call: Call,
    starts: Sequence[View],
    update: View,
    size: int,
    axis: int,
) -> View:
    """Where elements of an update are in the cache along *axis*, in its shape.

    Args:
        starts: of each sequence the place of the first; none for 0.
    """
    recorder, length = plan.recorder, update.shape[axis]
    after = np.arange(length, dtype=np.int64)
    if starts:
        found = recorder.temporary(after.dtype, (update.shape[0], length))
        formula = Formula("i64")
        column = starts[0].reshape((update.shape[0], 1))
        if column is None:
            column = plan.contiguous(starts[0]).reshape((update.shape[0], 1))
            assert column is not None
        first = formula.read(column)
        numbers = (after, np.int64(0), np.int64(size))
        views = [recorder.constant(np.asarray(each)) for each in numbers]
        along, zero, most = map(formula.read, views)
        below = formula.step("Less", first, zero, element="i1")
        if call.attributes["mode"] == "circular":
            place = formula.step("Add", formula.step("Mod", first, most), along)
            place = formula.step("Mod", place, most)
        else:
            place = formula.step("Add", first, along)
        # other than ScatterElements' no index counts from the end
        place = formula.step("Where", below, most, place)
        formula.record(recorder, place, found, call.op_type)
    else:
        found = recorder.constant(after).broadcast_to((update.shape[0], length))
    rank = len(update.shape)
    strides = [0] * rank
    strides[0], strides[axis] = found.strides
    return View(found.buffer, found.offset, found.dtype, update.shape, tuple(strides))


def _accepts_cache(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if call.attributes["mode"] not in ("linear", "circular"):
        return f"TensorScatter in mode {call.attributes['mode']!r}"
    if len(dtypes) > 2 and dtypes[2] not in (None, np.dtype(np.int64)):
        return f"TensorScatter is not compiled for indices of {dtypes[2]}"
    cache, update = dtypes[:2]
    if target.has_narrow_factors and is_half(cache) and update == F32:
        return moved(call, [cache], target)
    return alike(call, dtypes[:2], target)


register(
    "TensorScatter",
    Operation(_record_cache, _accepts_cache, _check_cache, in_place={0: 0}),
)


# windows that begin where the device alone knows


def _window_facts(call: Call, facts: Facts) -> list[TensorFacts]:
    data = facts[0]
    assert data is not None
    axis = int(call.attributes["axis"])
    shape = (*data.shape[:axis], call.attributes["size"], *data.shape[axis + 1 :])
    return [TensorFacts(data.dtype, shape)]


def _check_window(call: Call, inputs: Inputs, results: Results) -> None:
    data, start = given(inputs), given(inputs, 1)
    places = data.shape[int(call.attributes["axis"])]
    if start.size != 1 or not 0 < call.attributes["size"] <= places:
        raise NotCompiled(f"{call.attributes['size']} of {places} places", call)


def _record_window(plan: Plan, call: Call) -> None:
    (data, start), target = _views(plan, call)
    axis, size = int(call.attributes["axis"]), int(call.attributes["size"])
    found = plan.recorder.temporary(np.dtype(np.int64), (size,))
    formula = Formula("i64")
    column = start.reshape((1,))
    assert column is not None  # it is of one element
    first = formula.read_wide(column.broadcast_to((size,)))
    numbers = np.arange(size), np.int64(0), np.int64(size), np.int64(data.shape[axis])
    views = [plan.recorder.constant(np.asarray(each, np.int64)) for each in numbers]
    along, zero, many, most = map(formula.read, views)
    end = formula.step("Add", first, many)
    signs = [formula.step("Less", each, zero, element="i1") for each in (first, end)]
    # both count from the same side, or there are not so many places between them
    alike = formula.step("Equal", *signs, element="i1")
    place = formula.step("Where", alike, formula.step("Add", first, along), most)
    formula.record(plan.recorder, place, found, "Slice")
    plan.recorder.target.indexing.record_gather(
        plan.recorder, data, found, target, axis, label="Slice"
    )


def _accepts_window(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    if dtypes[0] is not None and element_of(dtypes[0]) not in target.elements("Slice"):
        return f"Slice is not compiled for {dtypes[0]}"
    if dtypes[1] not in (None, np.dtype(np.int32), np.dtype(np.int64)):
        return f"Slice is not compiled from {dtypes[1]} on"
    return None


register(
    "Window",
    Operation(_record_window, _accepts_window, _check_window, facts=_window_facts),
)
