"""Tensors made of numbers that are known, without inputs."""

from __future__ import annotations

import numpy as np

from onnxplug_directml.lowering.builder import Builder, Result, Value
from onnxplug_directml.lowering.call import Call, lowers


@lowers("ConstantOfShape")
def _constant_of_shape(call: Call) -> Value:
    value = call.attribute("value")
    number = 0 if value is None else np.asarray(value).reshape(()).item()
    return filled(call.build, call.result(), number)


def filled(build: Builder, result: Result, number: float) -> Value:
    """The same number everywhere."""
    return build(
        "FILL_VALUE_CONSTANT", OutputTensor=result,
        ValueDataType=build.data_type(result.dtype), Value=number,
    )  # fmt: skip


@lowers("Range")
def _range(call: Call) -> Value:
    start, delta = (call.content(at).reshape(()).item() for at in (0, 2))
    result = call.result()
    return call.build(
        "FILL_VALUE_SEQUENCE", OutputTensor=result,
        ValueDataType=call.build.data_type(result.dtype),
        ValueStart=start, ValueDelta=delta,
    )  # fmt: skip
