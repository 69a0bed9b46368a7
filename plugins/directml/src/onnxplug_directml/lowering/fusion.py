"""Nodes that are computed within the node before them.

An activation, the addition after a product of matrices, and the batch normalisation
after a convolution, take no pass over memory of their own then.  Which operators take
which activations is as of Microsoft's guide *Using fused operators to improve
performance*.  Normalisations change weights, which ``CompileGraph`` leaves to us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import (
    DML_CONVOLUTION_DIRECTION,
    DML_OPERATOR_TYPE,
    OPERATOR_FIELDS,
)
from onnxplug_directml.abi.operators import FieldKind
from onnxplug_directml.lowering.builder import (
    Builder,
    Field,
    Result,
    Source,
    Step,
    Value,
    packed_strides,
)
from onnxplug_directml.lowering.graph import FieldValue, Operator, in_order

_HOSTS: Final = frozenset(
    {
        DML_OPERATOR_TYPE.CONVOLUTION,
        DML_OPERATOR_TYPE.GEMM,
        DML_OPERATOR_TYPE.BATCH_NORMALIZATION,
        DML_OPERATOR_TYPE.MEAN_VARIANCE_NORMALIZATION1,
        DML_OPERATOR_TYPE.ELEMENT_WISE_ADD,  # as ELEMENT_WISE_ADD1
    }
)
"""Operators that compute an activation after themselves."""

_FUSED: Final = frozenset(
    DML_OPERATOR_TYPE[f"ACTIVATION_{name}"]
    for name in (
        "ELU", "HARD_SIGMOID", "IDENTITY", "LEAKY_RELU", "LINEAR",
        "PARAMETRIC_SOFTPLUS", "RELU", "SCALED_ELU", "SCALED_TANH", "SIGMOID",
        "SOFTPLUS", "SOFTSIGN", "TANH", "THRESHOLDED_RELU", "SHRINK", "CELU",
    )
)  # fmt: skip
"""Activations that they compute."""

_FLOATS: Final = frozenset({ep.DataType.FLOAT32, ep.DataType.FLOAT16})


def fuse(build: Builder, results: list[Value]) -> list[Step]:
    """The steps of a builder where what can be is computed within the step before.

    Steps that lost their purpose are still there, with nobody who uses them.

    Args:
        results: what the graph is to give; changed where another step gives it now.
    """
    return _Fusion(build, results).steps


class _Fusion:
    def __init__(self, build: Builder, results: list[Value]) -> None:
        self.steps = list(build.steps)
        self._build = build
        self._results = results
        self._moved: dict[Source, Source] = {}
        self._uses = Counter(
            value.source
            for step in self.steps
            for value in in_order(step.type, step.fields, FieldKind.INPUT)
            if value is not None
        )
        self._uses.update(value.source for value in results)
        for position, step in enumerate(self.steps):
            self._visit(position, self._current(step))
        for place, value in enumerate(results):
            results[place] = self._followed(value)

    def _current(self, step: Step) -> Step:
        """A step that uses what earlier ones have become."""
        fields = {name: self._field(field) for name, field in step.fields.items()}
        return replace(step, fields=fields)

    def _field(self, field: Field) -> Field:
        if isinstance(field, tuple):
            return tuple(self._field(each) for each in field)  # type: ignore[return-value]
        return self._followed(field) if isinstance(field, Value) else field

    def _followed(self, value: Value) -> Value:
        source = self._moved.get(value.source)
        return value if source is None else replace(value, source=source)

    def _visit(self, position: int, step: Step) -> None:
        self.steps[position] = step
        result = step.fields.get("OutputTensor")
        if not isinstance(result, Result):
            return
        host: int | None = None
        if step.type in _FUSED:
            host = self._fuse_activation(step, result)
        elif step.type is DML_OPERATOR_TYPE.ELEMENT_WISE_ADD:
            host = self._fuse_addition(step, result)
        elif step.type is DML_OPERATOR_TYPE.BATCH_NORMALIZATION:
            host = self._fuse_normalization(step, result)
        if host is not None:
            source = Source(position, 0)
            self._moved[source] = Source(host, 0)
            self._uses[Source(host, 0)] = self._uses[source]

    def _host(self, x: Field, result: Result) -> Step | None:
        """The step that makes *x* for nobody else, looked at as *result* is."""
        if (
            not isinstance(x, Value)
            or x.source.node is None
            or x.strides is not None
            or x.dtype not in _FLOATS
            or x.shape != result.shape
            or self._uses[x.source] != 1
        ):
            return None
        step = self.steps[x.source.node]
        return step if step.type in _HOSTS and not _activation(step) else None

    def _fuse_activation(self, step: Step, result: Result) -> int | None:
        x = step.fields["InputTensor"]
        host = self._host(x, result)
        if host is None or not isinstance(x, Value) or x.source.node is None:
            return None
        parameters: dict[str, FieldValue] = {
            field.name: step.fields[field.name]  # type: ignore[misc]
            for field in OPERATOR_FIELDS[step.type]
            if field.kind is FieldKind.VALUE
        }
        if host.type is DML_OPERATOR_TYPE.ELEMENT_WISE_ADD:
            host = replace(host, type=DML_OPERATOR_TYPE.ELEMENT_WISE_ADD1)
        activation = Operator(step.type, parameters)
        self._extend(x.source.node, host, step, {"FusedActivation": activation})
        return x.source.node

    def _fuse_addition(self, step: Step, result: Result) -> int | None:
        """*A @ B + C*, where *C* is there before the product is."""
        pair = step.fields["ATensor"], step.fields["BTensor"]
        for x, other in (pair, pair[::-1]):
            host = self._host(x, result)
            if (
                host is None
                or host.type is not DML_OPERATOR_TYPE.GEMM
                or host.fields.get("CTensor") is not None
                or not isinstance(x, Value)
                or x.source.node is None
                or not isinstance(other, Value)
                or _position(other) >= x.source.node
            ):
                continue
            made = host.fields["OutputTensor"]
            addend = _seen_as(other, made) if isinstance(made, Result) else None
            if addend is not None:
                added: dict[str, Field] = {"CTensor": addend, "Beta": 1.0}
                self._extend(x.source.node, host, step, added)
                return x.source.node
        return None

    def _fuse_normalization(self, step: Step, result: Result) -> int | None:
        """A normalisation by constants, as other weights of the convolution before."""
        x = step.fields["InputTensor"]
        host = self._host(x, result)
        if (
            host is None
            or host.type is not DML_OPERATOR_TYPE.CONVOLUTION
            or host.fields["Direction"] != DML_CONVOLUTION_DIRECTION.FORWARD
            or not isinstance(x, Value)
            or x.source.node is None
        ):
            return None
        names = ("ScaleTensor", "BiasTensor", "MeanTensor", "VarianceTensor")
        numbers = [self._content(step.fields[name]) for name in names]
        filters = self._content(host.fields["FilterTensor"])
        stated = host.fields.get("BiasTensor")
        before = np.zeros(()) if stated is None else self._content(stated)
        if filters is None or before is None or any(each is None for each in numbers):
            return None
        scale, bias, mean, variance = (
            each.reshape(-1) for each in numbers if each is not None
        )
        spread = variance + step.fields["Epsilon"]
        if not (spread > 0).all():
            return None
        factor = scale / np.sqrt(spread)
        along = (1,) * (filters.ndim - 2)
        made = (
            filters * factor.reshape(-1, 1, *along),
            ((before.reshape(-1) - mean) * factor + bias).reshape(1, -1, *along),
        )
        with np.errstate(over="ignore"):
            narrowed = [array.astype(x.dtype.numpy) for array in made]
        if not all(np.isfinite(array).all() for array in narrowed):
            return None
        weights, biases = map(self._build.constant, narrowed)
        self._extend(
            x.source.node, host, step, {"FilterTensor": weights, "BiasTensor": biases}
        )
        return x.source.node

    def _content(self, field: Field) -> Any | None:
        """The elements of a constant in float64."""
        found = self._build.content(field) if isinstance(field, Value) else None
        return None if found is None else found.astype(np.float64)

    def _extend(
        self, position: int, host: Step, step: Step, fields: Mapping[str, Field]
    ) -> None:
        self.steps[position] = replace(
            host, name=f"{host.name}, {step.name}", fields={**host.fields, **fields}
        )


def _position(value: Value) -> int:
    """That of the step that makes a value; -1 if the graph is given it."""
    return -1 if value.source.node is None else value.source.node


def _activation(step: Step) -> Field:
    return step.fields.get("FusedActivation")


def _seen_as(x: Value, made: Result) -> Value | None:
    """*x* in the shape of *made*, which has the same elements, if strides can tell it.

    That is so if it is packed, or repeated along all dimensions but the last.
    """
    if x.strides is None or x.strides == packed_strides(x.shape):
        return replace(x, shape=made.shape, strides=None)
    if x.shape[-1] == made.shape[-1] and not any(x.strides[:-1]):
        strides = (0,) * (len(made.shape) - 1) + x.strides[-1:]
        return replace(x, shape=made.shape, strides=strides)
    return None
