"""Elements written at indices.

Of indices that are equal, DirectML leaves open whose element is written last, as ONNX
does.  Both lack sums of them; where indices are known and differ, elements can be read,
combined and written.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Result, Value
from onnxplug_directml.lowering.call import Call, lowers
from onnxplug_directml.lowering.operators.borders import padded
from onnxplug_directml.lowering.operators.filling import filled
from onnxplug_directml.lowering.operators.gathering import (
    around,
    covered,
    gathered_elements,
    gathered_slices,
    indices_of,
    tuples_of,
)
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_directml.lowering.operators.pieces import cut, joined

_LARGEST: Final = int(np.iinfo(np.int32).max)

_COMBINED: Final = {
    "add": "ELEMENT_WISE_ADD",
    "mul": "ELEMENT_WISE_MULTIPLY",
    "max": "ELEMENT_WISE_MAX",
    "min": "ELEMENT_WISE_MIN",
}


@lowers("Scatter", "ScatterElements")
def _scatter_elements(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    axis = call.axis(x.rank)
    indices, updates = indices_of(call, 1, x.shape[axis]), call.operand(2)
    if updates.shape != indices.shape:
        raise _other_shape("updates", updates, indices.shape)
    near = covered(build, x, axis, indices.shape)
    outer, size, inner = around(near.shape, axis)
    shape = (outer, indices.shape[axis], inner)
    updates = build.reshape(updates, shape)
    combined = _combined(call, _differ_along(call, axis))
    if combined is not None:
        old = gathered_elements(build, near, axis, indices)
        updates = build.binary(combined, old, updates)
    written = build(
        "SCATTER_ELEMENTS", InputTensor=build.reshape(near, (outer, size, inner)),
        IndicesTensor=build.reshape(indices, shape), UpdatesTensor=updates,
        OutputTensor=Result(x.dtype, (outer, size, inner)), Axis=1,
    )  # fmt: skip
    return _put_back(build, build.reshape(written, near.shape), x)


def _put_back(build: Builder, part: Value, whole: Value) -> Value:
    """*whole* with *part* in place of its first elements in each dimension."""
    for axis, size in enumerate(whole.shape):
        there = part.shape[axis]
        if there == size:
            continue
        beside = cut(build, whole, [slice(each) for each in part.shape[:axis]] + [
            slice(there, None), *(slice(each) for each in part.shape[axis + 1 :])
        ])  # fmt: skip
        part = joined(build, (part, beside), axis)
    return part


@lowers("ScatterND")
def _scatter_nd(call: Call) -> Value:
    build, x = call.build, call.operand(0)
    indices, updates = tuples_of(call, 1, x.shape), call.operand(2)
    count = indices.shape[-1]
    if updates.shape != (*indices.shape[:-1], *x.shape[count:]):
        raise _other_shape("updates", updates, (*indices.shape[:-1], *x.shape[count:]))
    inner, tuples = math.prod(x.shape[count:]), math.prod(indices.shape[:-1])
    updates = build.reshape(updates, (tuples, inner))
    combined = _combined(call, _differ(call, x.shape[:count]))
    if combined is not None:
        old = build.reshape(gathered_slices(build, x, indices, 0), (tuples, inner))
        updates = build.binary(combined, old, updates)
    # one dimension more than is counted, as the documentation has it
    rank = count + 2
    flat = build.at_rank(build.reshape(x, (*x.shape[:count], inner)), rank)
    written = build(
        "SCATTER_ND", InputTensor=flat,
        IndicesTensor=build.at_rank(build.reshape(indices, (tuples, count)), rank),
        UpdatesTensor=build.at_rank(updates, rank),
        OutputTensor=Result(x.dtype, flat.shape),
        InputDimensionCount=count + 1, IndicesDimensionCount=2,
    )  # fmt: skip
    return build.reshape(written, x.shape)


def _other_shape(what: str, found: Value, wanted: tuple[int, ...]) -> Refused:
    return Refused(
        ep.RefusalCode.OTHER, f"{what} of {list(found.shape)} for {list(wanted)}"
    )


def _combined(call: Call, differ: bool) -> str | None:
    """By which operator old elements and new ones are combined; ``None``: by none."""
    reduction = call.attribute("reduction", "none")
    if reduction == "none":
        return None
    if reduction not in _COMBINED:
        raise call.refuse_attribute("reduction", ", ".join(("none", *_COMBINED)))
    if not differ:
        raise Refused(
            ep.RefusalCode.NOT_CONSTANT,
            f"reduction {reduction} at indices that are computed, or of which some are "
            "equal; takes constants that differ: DirectML writes one element only",
        )
    return _COMBINED[reduction]


def _differ_along(call: Call, axis: int) -> bool:
    """Whether no element is told twice by indices along an axis."""
    indices = call.known(1)
    if indices is None:
        return False
    size = call.shape(0)[axis]
    ordered = np.sort(np.where(indices < 0, indices + size, indices), axis)
    return bool((np.diff(ordered, axis=axis) != 0).all())


def _differ(call: Call, shape: tuple[int, ...]) -> bool:
    """Whether no slice is told twice by tuples of indices."""
    indices: Any | None = call.known(1)
    if indices is None:
        return False
    tuples = indices.reshape(-1, len(shape))
    sizes = np.array(shape)
    tuples = np.where(tuples < 0, tuples + sizes, tuples)
    return len(np.unique(tuples, axis=0)) == len(tuples)


@lowers("TensorScatter")
def _tensor_scatter(call: Call) -> Value:
    """New rows of a cache [batch, …, places, …], which begin where each batch says."""
    build, x, updates = call.build, call.operand(0), call.operand(1)
    axis = call.axis(x.rank, -2)
    mode = call.attribute("mode", "linear")
    if mode not in ("linear", "circular"):
        raise call.refuse_attribute("mode", "linear, circular")
    beside = (*x.shape[:axis], *x.shape[axis + 1 :])
    if axis == 0 or (*updates.shape[:axis], *updates.shape[axis + 1 :]) != beside:
        raise _other_shape("updates", updates, x.shape)
    batch, merged, places = x.shape[0], math.prod(x.shape[1:axis]), x.shape[axis]
    new, inner = updates.shape[axis], math.prod(x.shape[axis + 1 :])
    count = np.arange(new, dtype=np.int32).reshape(1, 1, new, 1)
    indices = build.constant(count)
    if call.has(2):
        last = places - new if mode == "linear" else _LARGEST - new
        starts = held(
            build, call.operand(2), 0, last + 1,
            f"a write index is out of range; takes 0 to {last}",
        )  # fmt: skip
        starts = build.cast(starts, ep.DataType.INT32)
        starts = build.reshape(starts, (batch, 1, 1, 1))
        indices = build.binary("ELEMENT_WISE_ADD", starts, indices)
        if mode == "circular":
            size = build.scalar(places, ep.DataType.INT32)
            indices = build.binary("ELEMENT_WISE_MODULUS_FLOOR", indices, size)
    shape = (batch, merged, new, inner)
    flat = (batch, merged, places, inner)
    written = build(
        "SCATTER_ELEMENTS", InputTensor=build.reshape(x, flat),
        IndicesTensor=build.packed(build.broadcast_to(indices, shape)),
        UpdatesTensor=build.reshape(updates, shape),
        OutputTensor=Result(x.dtype, flat), Axis=2,
    )  # fmt: skip
    return build.reshape(written, x.shape)


@lowers("MaxUnpool")
def _max_unpool(call: Call) -> Value:
    """Zeros, but the elements of *x* at their places in all of the output.

    They count in the output that the attributes tell; in a larger one that lies at the
    start of each dimension.
    """
    build, x = call.build, call.operand(0)
    kernel = call.required("kernel_shape")
    rank = len(kernel)
    strides = call.attribute("strides", (1,) * rank)
    pads = call.attribute("pads", (0,) * 2 * rank)
    if not x.rank - 2 == len(strides) == len(pads) // 2 == rank:
        raise call.refuse_attribute("kernel_shape", f"{x.rank - 2} numbers")
    if call.shape(1) != x.shape:
        raise _other_shape("indices", call.operand(1), x.shape)
    whole = [
        (size - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank]
        for i, size in enumerate(x.shape[2:])
    ]
    shape = (*x.shape[:2], *whole)
    if min(whole) < 1:
        raise Refused(ep.RefusalCode.OTHER, f"an output {list(shape)}")
    flat = (1, math.prod(shape), 1)
    indices = held(
        build, call.operand(1), 0, flat[1],
        f"an index is out of range; there are {flat[1]} elements",
    )  # fmt: skip
    written = build(
        "SCATTER_ELEMENTS", InputTensor=filled(build, Result(x.dtype, flat), 0),
        IndicesTensor=build.reshape(indices, (1, x.size, 1)),
        UpdatesTensor=build.reshape(x, (1, x.size, 1)),
        OutputTensor=Result(x.dtype, flat), Axis=1,
    )  # fmt: skip
    found = build.reshape(written, shape)
    after = [
        wanted - size for wanted, size in zip(call.output_shape(), shape, strict=True)
    ]
    if min(after) < 0:
        raise Refused(
            ep.RefusalCode.OTHER, f"an output smaller than {list(shape)} is asked for"
        )
    return padded(build, found, (0,) * x.rank, after) if any(after) else found
