"""A program computed in float16 where it was written for float32."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering.program import Constant, Operation, Program, Value

_WIDE = ep.DataType.FLOAT32
_NARROW = ep.DataType.FLOAT16


def narrowed(program: Program) -> Program:
    """*program* with its float32 values as float16, but for inputs and outputs.

    What is beyond float16 becomes infinity, as the lowest number of a mask does.
    """
    operations: list[Operation] = []
    names: dict[str, str] = {}
    for port in program.inputs:
        value = port.value
        if value.dtype is _WIDE:
            inside = Value(f"{value.name}_narrow", _NARROW, value.shape)
            names[value.name] = inside.name
            operations.append(_cast(value, inside, node=0))
    results = {value.name for value in program.results}
    for operation in program.operations:
        made = []
        for value in operation.outputs:
            if value.dtype is not _WIDE:
                made.append(value)
                continue
            name = f"{value.name}_narrow" if value.name in results else value.name
            names[value.name] = name
            made.append(Value(name, _NARROW, value.shape))
        operations.append(
            replace(
                operation,
                inputs=tuple(
                    None if name is None else names.get(name, name)
                    for name in operation.inputs
                ),
                attributes={
                    name: _NARROW if value is _WIDE else value
                    for name, value in operation.attributes.items()
                },
                outputs=tuple(made),
            )
        )
        operations += [
            _cast(inside, value, operation.node)
            for value, inside in zip(operation.outputs, made, strict=True)
            if inside.name != value.name
        ]
    return replace(
        program,
        constants={
            name: _narrow_constant(constant)
            for name, constant in program.constants.items()
        },
        operations=operations,
    )


def _cast(value: Value, to: Value, node: int) -> Operation:
    attributes: dict[str, Any] = {"dtype": to.dtype}
    return Operation("cast", (value.name,), attributes, (to,), node)


def _narrow_constant(constant: Constant) -> Constant:
    if constant.value.dtype is not _WIDE:
        return constant
    with np.errstate(over="ignore"):
        array = constant.array.astype(np.float16)
    return Constant(replace(constant.value, dtype=_NARROW), array)
