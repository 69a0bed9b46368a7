"""OneHot: places are compared with all of their axis."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug_compiler.frontend.call import Abstract, Call, NotCompiled
from onnxplug_compiler.ir.elements import COMPUTED, FLOATS, element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_I32: Final = np.dtype(np.int32)
_MOST: Final = 2**31 - 1
"""Places of an axis that are compared."""

_WRAPS_SINCE: Final = 11
"""The opset from which negative places count back."""


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    indices, _, values = dtypes[:3]
    for dtype in (indices, values):
        if dtype is None or element_of(dtype) not in COMPUTED:
            return f"OneHot is not compiled for {dtype}"
    if indices == np.dtype(np.uint64):
        return "OneHot is not compiled for indices of uint64"
    assert indices is not None
    wide, is_float = _wide(indices), element_of(indices) in FLOATS
    if is_float and not target.supports_step("Clip", (wide,) * 3, wide, {}):
        return f"OneHot is not compiled for indices of {indices}"
    elements = "i1", str(element_of(values)), str(element_of(values))
    if not target.supports_step("Where", elements, elements[1], {}):
        return f"OneHot is not compiled for {values}"
    return None


def _wide(dtype: np.dtype[Any]) -> str:
    """The floats in which indices of floats are compared."""
    return "f64" if element_of(dtype) == "f64" else "f32"


def _depth(call: Call, value: Abstract) -> int:
    if value.content is None or value.size != 1:
        raise NotCompiled("the depth of OneHot is not known", call)
    depth = value.content.reshape(-1)[0]
    if not 1 <= depth <= _MOST:
        raise NotCompiled(f"OneHot has a depth of {depth}", call)
    return int(depth)


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    _depth(call, given(inputs, 1))
    if given(inputs, 2).shape != (2,):
        raise NotCompiled(f"OneHot of values {given(inputs, 2).shape}", call)


def _record(plan: Plan, call: Call) -> None:
    indices, depth, values = call.inputs
    output = call.outputs[0]
    assert indices is not None and depth is not None
    assert values is not None and output is not None
    count = _depth(call, plan.known(depth))
    places = _places(
        plan, plan.view(indices), count, wraps=call.version >= _WRAPS_SINCE
    )
    out, ends = plan.destination(output), plan.view(values)
    rank = len(out.shape)
    axis = normal_axis(int(call.attributes["axis"]), rank)
    shape = (*places.shape[:axis], 1, *places.shape[axis:])
    compared = places.reshape(shape)
    along = [count if a == axis else 1 for a in range(rank)]
    numbers = plan.recorder.constant(np.arange(count, dtype=np.int32)).reshape(along)
    assert compared is not None and numbers is not None
    formula = Formula.of(out)
    off, on = (formula.read(ends.slice((at,), (1,))) for at in (0, 1))
    hot = formula.step(
        "Equal",
        formula.read(compared),
        formula.read(numbers),
        element="i1",
    )
    formula.record(plan.recorder, formula.step("Where", hot, on, off), out, "OneHot")


def _places(plan: Plan, indices: View, depth: int, *, wraps: bool) -> View:
    """The places as int32, negative where there is none."""
    formula = Formula.of(indices)
    found = formula.read(indices)
    if indices.dtype.kind not in "iub":
        found = _finite(formula, found, _wide(indices.dtype))
    place = formula.cast(found, "i64")

    def number(value: int) -> Number:
        view = plan.recorder.constant(np.array(value, np.int64))
        return formula.read(view)

    zero, size = number(0), number(depth)
    if wraps:
        back = formula.step("Less", place, zero, element="i1")
        turned = formula.step("Add", place, size, element="i64")
        place = formula.step("Where", back, turned, place, element="i64")
    low = formula.step("GreaterOrEqual", place, zero, element="i1")
    high = formula.step("Less", place, size, element="i1")
    within = formula.step("And", low, high, element="i1")
    kept = formula.step("Where", within, place, number(-1), element="i64")
    narrow = formula.cast(kept, "i32")
    places = plan.recorder.temporary(_I32, indices.shape)
    formula.record(plan.recorder, narrow, places, "OneHot")
    return places


def _finite(formula: Formula, found: Number, wide: str) -> Number:
    """What is no place of any axis as one that is none, too."""
    found = formula.cast(found, wide)
    far = 2.0**62
    limits = [formula.number(value, wide) for value in (-far, far)]
    missing = formula.step("IsNaN", found, element="i1")
    bounded = formula.step("Clip", found, *limits, element=wide)
    return formula.step("Where", missing, limits[1], bounded, element=wide)


register("OneHot", Operation(_record, _accepts, _check, known=frozenset({1})))
