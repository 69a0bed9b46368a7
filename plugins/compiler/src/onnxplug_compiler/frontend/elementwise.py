"""Element-wise calls as steps of a chain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug_compiler.frontend.call import (
    Abstract,
    Call,
    NotCompiled,
    broadcasts_to,
)
from onnxplug_compiler.frontend.quantization import SCALED, is_scaled_step
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.target import Support

_BROADCAST_SINCE: Final = 7
"""The opset before which a second input was broadcast by attributes: by ``axis`` as no
operator is since, without it as all are."""

_SCALED_STEPS: Final = 6
"""Of a call that quantises or dequantises, about."""


class StepForm(Record):
    """A call as a step, before its operands have numbers.

    Attributes:
        operator, element, attributes: as of :class:`~..ir.elementwise.Step`, but for
            QuantizeLinear and DequantizeLinear, which become several.
        operands: names of values, numbers that attributes of old opsets gave, ``None``
            for what is left out.
    """

    operator: str
    operands: tuple[str | float | None, ...]
    element: str
    attributes: tuple[tuple[str, Any], ...]

    @property
    def steps(self) -> int:
        """How many steps a chain has for it."""
        return _SCALED_STEPS if self.operator in SCALED else 1


def step_form(
    call: Call, dtypes: tuple[np.dtype[Any] | None, ...], target: Support
) -> StepForm | None:
    """*call* as a step of a chain; ``None`` if it is not an element-wise operator, or
    *target* has none for inputs of *dtypes*."""
    if is_scaled_step(call, dtypes, target):
        return _scaled_form(call)
    if call.domain or len(call.outputs) != 1 or call.dtypes[0] is None:
        return None
    if not call.inputs or call.op_type in SCALED:
        return None
    is_old = len(call.inputs) > 1 and call.version < _BROADCAST_SINCE
    if is_old and (call.op_type == "PRelu" or call.attributes.get("axis") is not None):
        return None
    if len(call.inputs) > target.chain_limits.inputs:
        return None
    element = element_of(call.dtypes[0])
    if element is None:
        return None
    attributes = {k: v for k, v in call.attributes.items() if v is not None}
    for name in ("consumed_inputs", *(("broadcast",) if is_old else ())):
        attributes.pop(name, None)
    operator = call.op_type
    operands: tuple[str | float | None, ...] = call.inputs
    match operator:
        case "Clip" if "min" in attributes or "max" in attributes:
            low, high = attributes.pop("min", None), attributes.pop("max", None)
            operands = (call.inputs[0], low, high)
        case "Cast" | "CastLike":
            to = attributes.get("to")
            if isinstance(to, int) and to != DataType.from_numpy(call.dtypes[0]).onnx:
                return None  # the model declares another type than the node makes
            operator, operands = "Cast", call.inputs[:1]
            attributes.pop("to", None)
            if element != "f8e8m0fnu":  # the one that is rounded in another way
                attributes.pop("round_mode", None)
    if not all(isinstance(v, int | float | str) for v in attributes.values()):
        return None
    elements = _operand_elements(call, operands, dtypes)
    if elements is None or not target.supports_step(
        operator, elements, element, attributes
    ):
        return None
    return StepForm(operator, operands, element, tuple(sorted(attributes.items())))


def _scaled_form(call: Call) -> StepForm:
    assert call.dtypes[0] is not None
    element = element_of(call.dtypes[0])
    assert element is not None
    attributes = [
        (name, int(call.attributes[name]))
        for name in ("axis", "precision", "saturate")
        if call.attributes.get(name) is not None
    ]
    return StepForm(call.op_type, call.inputs[:3], element, tuple(attributes))


def check_form(call: Call, operands: Sequence[Abstract], result: Abstract) -> None:
    """Raise ``NotCompiled`` unless the operands of *call* broadcast to its result."""
    shape = result.shape
    for operand in operands:
        if operand.shape != shape and not broadcasts_to(operand.shape, shape):
            shapes = [operand.shape for operand in operands]
            raise NotCompiled(f"{shapes} do not broadcast to {shape}", call)
    if call.op_type == "Clip" and any(limit.size != 1 for limit in operands[1:]):
        shapes = [limit.shape for limit in operands[1:]]
        raise NotCompiled(f"{shapes} are no limits of Clip", call)


def _operand_elements(
    call: Call,
    operands: tuple[str | float | None, ...],
    dtypes: tuple[np.dtype[Any] | None, ...],
) -> tuple[str, ...] | None:
    """The element type of each operand; empty for one that is left out."""
    elements = []
    first = None if dtypes[0] is None else element_of(dtypes[0])
    for position, operand in enumerate(operands):
        if operand is None:
            elements.append("")
        elif isinstance(operand, str):
            dtype = dtypes[position]
            found = None if dtype is None else element_of(dtype)
            if found is None:
                return None
            elements.append(found)
        elif first is None:
            return None
        else:
            elements.append(first)
    return tuple(elements)


def scalar_of(value: Abstract) -> bool | int | float | None:
    """The number that every plan has at *value*; ``None`` if it is no such constant."""
    if value.size != 1 or value.content is None or value.varies:
        return None
    number = value.content.reshape(())[()]
    if value.dtype.kind == "b":
        return bool(number)
    return int(number) if value.dtype.kind in "iu" else float(number)
