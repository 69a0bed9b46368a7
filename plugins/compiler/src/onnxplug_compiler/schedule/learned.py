"""What predictors of ``ai.onnx.ml`` have in common: features, results, attributes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import Inputs, Plan, given
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_kernels.prepared import attribute_array, prepared_once

F32: Final = np.dtype(np.float32)
F64: Final = np.dtype(np.float64)
I64: Final = np.dtype(np.int64)


def feature_count(call: Call, inputs: Inputs) -> int:
    """How many features rows have.

    Raises:
        NotCompiled: they have none, or the input is of another rank than 1 and 2.
    """
    shape = given(inputs).shape
    if len(shape) not in (1, 2) or not shape[-1]:
        raise NotCompiled(f"{call.op_type} of {shape}", call)
    return shape[-1]


def places(plan: Plan, call: Call) -> tuple[View, View]:
    """The first input, and where the output goes."""
    source, output = call.inputs[0], call.outputs[0]
    assert source is not None and output is not None
    return plan.view(source), plan.destination(output)


def widened(plan: Plan, x: View) -> View:
    """*x* as float32, or as float64 where that could lose something."""
    if x.dtype in (F32, F64):
        return x
    wide, formula = plan.recorder.temporary(F64, x.shape), Formula("f64")
    formula.record(plan.recorder, formula.cast(formula.read(x), "f64"), wide, "Cast")
    return wide


def feature_rows(plan: Plan, call: Call) -> View:
    """The features, [rows, features]: a vector is one row; float32 or float64."""
    name = call.inputs[0]
    assert name is not None
    x = widened(plan, plan.view(name))
    rows = x if len(x.shape) == 2 else x.reshape((1, *x.shape))
    assert rows is not None
    return rows


def written(
    plan: Plan,
    name: str | None,
    shape: tuple[int, ...],
    dtype: np.dtype[Any] = F32,
) -> View:
    """Where an output goes, also one that nobody wants."""
    if name is None:
        return plan.recorder.temporary(dtype, shape)
    out = plan.destination(name).reshape(shape)
    assert out is not None
    return out


def attribute(numbers: Any, dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """The numbers of an attribute, made an array once."""
    found: np.ndarray[Any, Any] = attribute_array(namespace_of(np), numbers, dtype)
    return found


@prepared_once
def matrix(
    numbers: Any, rows: int, columns: int, dtype: np.dtype[Any]
) -> np.ndarray[Any, Any]:
    """The first numbers of an attribute as a matrix, made once."""
    return np.asarray(numbers[: rows * columns], dtype).reshape(rows, columns)
