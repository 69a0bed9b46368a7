"""Whether calls compute each place along an axis by itself.

Where that is so, places may be added, and what they give left out again: one plan then
serves all sizes up to its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from onnxplug.authoring.bounds import normal_axes, normal_axis
from onnxplug_compiler.frontend.call import Abstract, Call

Values: TypeAlias = Mapping[str, Abstract]


def row_axes(
    calls: Sequence[Call],
    elementwise: Collection[Call],
    axes: Mapping[str, int],
    few: Values,
    many: Values,
) -> dict[str, int] | None:
    """For each value that has as many places along an axis as those of *axes*, and no
    other, that axis; ``None`` if not all calls compute each place by itself.

    Args:
        calls: in topological order.
        elementwise: those that are.
        axes: of what is fed, which axis has the places.
        few, many: what is known of all values for two sizes of these axes.
    """
    found = dict(axes)
    for call in calls:
        named = [name for name in call.outputs if name is not None]
        if not all(name in few and name in many for name in named):
            return None
        grown = [name for name in named if _differ(few[name], many[name])]
        reads = any(name in found for name in call.inputs)
        if not grown and not reads:
            continue
        if len(grown) < len(named) or not reads:
            return None
        for name in grown:
            axis = _grown_axis(few[name], many[name], few, many, axes)
            if axis is None:
                return None
            found[name] = axis
        keeps = _is_aligned if call in elementwise else _RULES.get(call.op_type)
        if keeps is None or not keeps(call, found, few):
            return None
    return found


def _differ(one: Abstract, other: Abstract) -> bool:
    first, second = one.content, other.content
    if one.shape != other.shape or first is None or second is None:
        return one.shape != other.shape or first is not second
    return not np.array_equal(first, second)


def _grown_axis(
    one: Abstract, other: Abstract, few: Values, many: Values, axes: Mapping[str, int]
) -> int | None:
    """The only axis along which sizes differ, if they do as those of what is fed."""
    name, at = next(iter(axes.items()))
    sizes = few[name].shape[at], many[name].shape[at]
    pairs = [*zip(one.shape, other.shape, strict=False)]
    differing = [axis for axis, (a, b) in enumerate(pairs) if a != b]
    if one.content is not None or len(one.shape) != len(other.shape):
        return None
    if len(differing) != 1 or pairs[differing[0]] != sizes:
        return None
    return differing[0]


_Axes: TypeAlias = Mapping[str, int]
_Rule: TypeAlias = Callable[[Call, _Axes, Values], bool]


def _first(call: Call) -> tuple[str, str]:
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    return source, output


def _is_aligned(call: Call, axes: _Axes, few: Values) -> bool:
    _, output = _first(call)
    from_end = axes[output] - len(few[output].shape)
    return all(
        axes[name] - len(few[name].shape) == from_end
        for name in call.inputs
        if name is not None and name in axes
    )


def _only_first(call: Call, axes: _Axes) -> bool:
    """Whether nothing but the first input has the places."""
    return not any(name in axes for name in call.inputs[1:])


def _is_gathered(call: Call, axes: _Axes, few: Values) -> bool:
    """A place of the indices, or of the data along another axis."""
    data, output = _first(call)
    indices, rank = call.inputs[1], len(few[data].shape)
    assert indices is not None
    along = normal_axis(int(call.attributes.get("axis") or 0), rank)
    if data not in axes:
        return axes[output] == along + axes[indices]
    at = axes[data]
    if indices in axes or at == along:
        return False
    return axes[output] == at + (len(few[indices].shape) - 1) * (at > along)


def _is_gathered_by_tuples(call: Call, axes: _Axes, few: Values) -> bool:
    data, output = _first(call)
    indices = call.inputs[1]
    assert indices is not None
    if data in axes or call.attributes.get("batch_dims"):
        return False
    at = axes[indices]
    return at == axes[output] and at < len(few[indices].shape) - 1


def _is_beside(call: Call, axes: _Axes, few: Values) -> bool:
    """What is next to each other along another axis."""
    _, output = _first(call)
    at = axes[output]
    along = int(call.attributes.get("axis", 1))
    return at != normal_axis(along, len(few[output].shape)) and all(
        axes.get(name or "") == at for name in call.inputs
    )


def _is_split(call: Call, axes: _Axes, few: Values) -> bool:
    source, output = _first(call)
    along = normal_axis(int(call.attributes.get("axis", 0)), len(few[output].shape))
    return axes[source] != along and _only_first(call, axes)


def _is_turned(call: Call, axes: _Axes, few: Values) -> bool:
    source, output = _first(call)
    rank = len(few[source].shape)
    order = call.attributes.get("perm") or range(rank)[::-1]
    return normal_axis(int(order[axes[output]]), rank) == axes[source]


def _is_reshaped(call: Call, axes: _Axes, few: Values) -> bool:
    """As many elements are before the places as there were."""
    source, output = _first(call)
    before = [few[name].shape[: axes[name]] for name in (source, output)]
    return _only_first(call, axes) and math.prod(before[0]) == math.prod(before[1])


def _is_sliced(call: Call, axes: _Axes, few: Values) -> bool:
    """Slices along other axes."""
    source, _ = _first(call)
    rank = len(few[source].shape)
    given = call.attributes.get("axes")
    name = call.input(3)
    if name is not None:
        content = few[name].content
        if content is None:
            return False
        given = content.reshape(-1).tolist()
    if given is None:
        count = call.attributes.get("starts")
        starts = few.get(call.input(1) or "")
        size = len(count) if count is not None else starts.size if starts else rank
        given = range(size)
    return _only_first(call, axes) and axes[source] not in normal_axes(
        [int(axis) for axis in given], rank
    )


def _is_kept(call: Call, axes: _Axes, few: Values) -> bool:
    """What has the places still has not been reduced along them."""
    return _only_first(call, axes)


_RULES: Final[Mapping[str, _Rule]] = {
    "Concat": _is_beside,
    "Flatten": _is_reshaped,
    "Gather": _is_gathered,
    "GatherND": _is_gathered_by_tuples,
    "Identity": _is_reshaped,
    "ReduceMax": _is_kept,
    "ReduceMin": _is_kept,
    "Reshape": _is_reshaped,
    "Slice": _is_sliced,
    "Split": _is_split,
    "Squeeze": _is_reshaped,
    "Transpose": _is_turned,
    "Unsqueeze": _is_reshaped,
}
"""Whether a call computes each place by itself, if what it gives has these places."""
