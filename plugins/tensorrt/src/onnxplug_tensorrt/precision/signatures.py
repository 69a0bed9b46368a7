"""Which formal parameters of an operator admit an element type, by ONNX's schemas."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import onnx.defs

from onnxplug.authoring.record import Record
from onnxplug_tensorrt.precision.elements import Element

_FLOAT32: Final = "tensor(float)"

_APART: Final = {
    "Attention": {"U"},
    "BatchNormalization": {"T1", "T2"},
    "DequantizeLinear": {"T2"},
    "Dropout": {"T1"},
    "GridSample": {"T2"},
    "QuantizeLinear": {"T2"},
    "Resize": {"T2"},
}
"""Type variables of inputs that stay float32 beside narrow data: masks, statistics,
scales, and coordinates, which lose whole pixels in 11 bits.  Each is one that its
operator's data do not have, in versions that tell the two apart."""

_UNCHANGED: Final = frozenset(
    {
        "Bernoulli",
        "BitCast",
        "Cast",
        "CastLike",
        "Constant",
        "ConstantOfShape",
        "EyeLike",
        "MeanVarianceNormalization",
        "Multinomial",
        "OptionalGetElement",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
"""Operators whose result takes its type from an attribute or from what is not data,
that draw numbers, which would be others, or whose body in ONNX has constants of
float32."""

_ALL_BFLOAT16: Final = 22
"""The opset in which the last of ONNX's operators came to take bfloat16."""

_OF_SEQUENCES: Final = ("seq(", "optional(", "map(")


class Signature(Record):
    """What an operator's formal parameters may become.

    Attributes:
        inputs: for each, whether it may be narrow; the last stands for all that follow
            where ``variadic``.
        outputs: likewise.
        by_attribute: the attribute that has to name the type of the result, too.
    """

    inputs: tuple[bool, ...]
    outputs: tuple[bool, ...]
    by_attribute: str | None

    def input(self, position: int) -> bool:
        """Whether the input at *position* may be narrow."""
        return self.inputs[min(position, len(self.inputs) - 1)]

    def output(self, position: int) -> bool:
        """Whether the output at *position* may be narrow."""
        return self.outputs[min(position, len(self.outputs) - 1)]


@functools.lru_cache(maxsize=1024)
def signature_of(
    operator: str, version: int, element: Element, *, constant_input: bool = False
) -> Signature | None:
    """What may be narrow of *operator*, of ONNX's own domain, in opset *version*.

    Args:
        operator: its name.
        version: of the opset that the model imports.
        element: the type to become.
        constant_input: its data are weights: scales of ``DequantizeLinear`` are rounded
            only for these.

    Returns:
        ``None`` if ONNX has no such operator, or it takes nothing of *element*.
    """
    if operator in _UNCHANGED:
        return None
    try:
        schema = onnx.defs.get_schema(operator, version, "")
    except onnx.defs.SchemaError:
        return None
    admitted = _admitted(schema, operator)
    if _holds_sequences(schema, admitted):
        return None
    results = {parameter.type_str for parameter in schema.outputs}
    sources = {parameter.type_str for parameter in schema.inputs}
    apart = _apart(operator, schema)
    by_attribute = None
    if operator == "DequantizeLinear":
        if "output_dtype" in schema.attributes and "T3" in admitted:
            by_attribute, sources = "output_dtype", sources | {"T3"}
        elif not constant_input:
            return None

    def narrows(parameter: Any) -> bool:
        types = admitted.get(parameter.type_str, ())
        return (
            parameter.type_str not in apart
            and _FLOAT32 in types
            and element.type_name in types
        )

    inputs = tuple(narrows(parameter) for parameter in schema.inputs)
    outputs = tuple(
        narrows(parameter) and parameter.type_str in sources
        for parameter in schema.outputs
    )
    refused = _refused(schema, admitted, apart, element)
    if refused & results or not (any(inputs) or any(outputs)):
        return None
    return Signature(inputs=inputs, outputs=outputs, by_attribute=by_attribute)


def _admitted(schema: Any, operator: str) -> dict[str, set[str]]:
    """What each type variable of *schema* may be.

    ONNX lets convolutions and others be bfloat16 from opset 22 only, where nothing else
    about them changed.  TensorRT asks what a type is, not which opset brought it.
    """
    admitted = {
        constraint.type_param_str: set(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
    }
    if schema.since_version < _ALL_BFLOAT16:
        later = onnx.defs.get_schema(operator, _ALL_BFLOAT16, "")
        if _parameters(later) == _parameters(schema):
            for constraint in later.type_constraints:
                admitted[constraint.type_param_str] |= set(constraint.allowed_type_strs)
    return admitted


def _parameters(schema: Any) -> list[tuple[str, str]]:
    return [
        (parameter.name, parameter.type_str)
        for parameter in (*schema.inputs, *schema.outputs)
    ]


def _apart(operator: str, schema: Any) -> set[str]:
    """Type variables that stay float32 though the operator's data do not."""
    data = {part[0].type_str for part in (schema.inputs, schema.outputs) if part}
    return _APART.get(operator, set()) - data


def _holds_sequences(schema: Any, admitted: Mapping[str, set[str]]) -> bool:
    """Whether a parameter is never a tensor: what goes in or out has its type."""
    return any(
        all(
            text.startswith(_OF_SEQUENCES)
            for text in admitted.get(parameter.type_str, {parameter.type_str})
        )
        for parameter in (*schema.inputs, *schema.outputs)
    )


def _refused(
    schema: Any, admitted: Mapping[str, set[str]], apart: set[str], element: Element
) -> set[str]:
    """Type variables of data that hold float32 and cannot hold *element*."""
    return {
        parameter.type_str
        for parameter in schema.inputs
        if parameter.type_str not in apart
        and _FLOAT32 in (types := admitted.get(parameter.type_str, set()))
        and element.type_name not in types
    }


def opset_of(model: Any) -> int:
    """The version of ONNX's own operators that *model* imports."""
    imports: Sequence[Any] = model.opset_import
    return max(
        (entry.version for entry in imports if entry.domain in ("", "ai.onnx")),
        default=1,
    )
