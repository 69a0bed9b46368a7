"""``ACTIVATION_*`` of each element on its own.

Those that "Using fused operators to improve performance" lists have ``apply``.  A NaN
that meets ``max`` or ``min`` is lost, as in a shader.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from . import Desc, Rejected, operator
from .agreement import Tensors, same, uniform
from .arithmetic import Array, converted, erf, largest, quiet, real, smallest

FIELDS = "InputTensor OutputTensor"

OF_FLOATS = """
    3.0 1-8 FLOATS
    2.0 4-5 FLOATS
    1.0 4   FLOATS
"""

Function = Callable[[Desc, Array], Array]


def register(
    name: str,
    function: Function,
    levels: str = OF_FLOATS,
    *,
    may_be_fused: bool = True,
    valid: Callable[[Desc], bool] = lambda desc: True,
) -> None:
    """An activation.

    Args:
        name: Microsoft's, without ``DML_OPERATOR_ACTIVATION_``.
        function: of the description and values in float64, or integers.
        levels: of `uniform`.
        may_be_fused: whether other operators may apply it to what they compute.
        valid: whether the description's coefficients are what the page allows.
    """

    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, FIELDS)
        if not valid(desc):
            raise Rejected(f"a coefficient of {desc} is out of its range")

    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        result = quiet(function)(desc, real(inputs[0]))
        return [converted(result, desc.OutputTensor.data_type)]

    members: dict[str, object] = {"check": check, "evaluate": evaluate}
    members["support"] = uniform(FIELDS, levels)
    if may_be_fused:
        members["apply"] = quiet(function)
    operator(f"ACTIVATION_{name}")(type(name, (), members))


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``."""
    return np.asarray(1 / (1 + np.exp(-x)))


def hard_sigmoid(d: Desc, x: Array) -> Array:
    """``max(0, min(Alpha * x + Beta, 1))``."""
    return largest(smallest(d.Alpha * x + d.Beta, 1), 0)


def celu(d: Desc, x: Array) -> Array:
    """``max(0, x) + min(0, Alpha * (exp(x / Alpha) - 1))``."""
    return largest(x, 0) + smallest(d.Alpha * np.expm1(x / d.Alpha), 0)


def scaled_elu(d: Desc, x: Array) -> Array:
    """``Gamma * x`` of what is positive, ``Gamma * (Alpha * exp(x) - Alpha)`` else."""
    return np.asarray(d.Gamma * np.where(x > 0, x, d.Alpha * np.expm1(x)))


def softplus(x: Array) -> Array:
    """``ln(1 + exp(x))``, without overflow: whether a GPU's does is not documented."""
    return np.asarray(np.logaddexp(0, x))


def shrink(d: Desc, x: Array) -> Array:
    """Towards zero by ``Bias``, and 0 within ``Threshold``."""
    if x.dtype.kind != "f":  # unsigned integers are never below -Threshold
        x = x.astype(np.float64)
    return np.where(
        x > d.Threshold, x - d.Bias, np.where(x < -d.Threshold, x + d.Bias, 0)
    )


register("CELU", celu, "3.0 1-8 FLOATS")
register("ELU", lambda d, x: np.where(x >= 0, x, d.Alpha * np.expm1(x)))
register("HARD_SIGMOID", hard_sigmoid)
register("IDENTITY", lambda d, x: x)
register("LEAKY_RELU", lambda d, x: np.where(x >= 0, x, d.Alpha * x))
register("LINEAR", lambda d, x: d.Alpha * x + d.Beta)
register("PARAMETRIC_SOFTPLUS", lambda d, x: d.Alpha * softplus(d.Beta * x))
register(
    "RELU", lambda d, x: largest(x, 0), f"5.1 1-8 FLOATS INT32 INT16 INT8{OF_FLOATS}"
)
register("SCALED_ELU", scaled_elu)
register("SCALED_TANH", lambda d, x: d.Alpha * np.tanh(d.Beta * x))
register(
    "SHRINK",
    shrink,
    """
    5.1 1-8 FLOATS INT32 INT16 INT8 UINT32 UINT16 UINT8
    3.0 1-8 FLOATS
    2.0 4-5 FLOATS
    """,
)
register("SIGMOID", lambda d, x: sigmoid(x))
register(
    "SOFTPLUS",
    lambda d, x: softplus(d.Steepness * x) / d.Steepness,
    valid=lambda d: bool(d.Steepness >= 1),
)
register("SOFTSIGN", lambda d, x: x / (1 + np.abs(x)))
register("TANH", lambda d, x: np.tanh(x))
register("THRESHOLDED_RELU", lambda d, x: np.where(x > d.Alpha, x, 0))
register(
    "GELU",
    lambda d, x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "5.1 1-8 FLOATS",
    may_be_fused=False,
)
register(
    "SWISH",
    lambda d, x: x * sigmoid(d.SigmoidInputScale * x),
    "6.2 1-8 FLOATS",
    may_be_fused=False,
)
register(
    "HARD_SWISH",
    lambda d, x: x * hard_sigmoid(d, x),
    "6.2 1-8 FLOATS",
    may_be_fused=False,
)


@operator("ACTIVATION_PARAMETERIZED_RELU")
class ParameterizedRelu:
    support = uniform(
        "InputTensor SlopeTensor OutputTensor",
        f"5.1 1-8 FLOATS INT32 INT16 INT8{OF_FLOATS}",
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor SlopeTensor OutputTensor")

    @staticmethod
    @quiet
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        x, slope = map(real, inputs)
        result = np.where(x >= 0, x, slope * x)
        return [converted(result, desc.OutputTensor.data_type)]


@operator("ACTIVATION_RELU_GRAD")
class ReluGrad:
    support = uniform(
        "InputTensor InputGradientTensor OutputGradientTensor",
        "5.1 1-8 FLOATS INT32 INT16 INT8\n3.0 1-8 FLOATS",
    )

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same(tensors, "InputTensor InputGradientTensor OutputGradientTensor")

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Array]) -> list[Array]:
        x, gradient = inputs
        return [np.where(x > 0, gradient, gradient.dtype.type(0))]
