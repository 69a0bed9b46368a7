"""How kernels are made from array functions that work element by element.

Also what such operators had before opset 7 and have no longer: ``consumed_inputs`` and
limited broadcasting.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeAlias

from onnxplug.authoring.bounds import normal_axis
from onnxplug_kernels.arrays import in_computing_dtype, require_extent
from onnxplug_kernels.registry import operator

Function: TypeAlias = Callable[..., Any]


def as_array(xp: Any, result: Any) -> Any:
    """*result* as an array: numpy makes a scalar of it when no operand has axes."""
    return result if result.ndim else xp.asarray(result)


def native(name: str) -> Function:
    """A kernel that calls the array function *name* of one array in its dtype."""

    def kernel(xp: Any, x: Any) -> Any:
        return as_array(xp, getattr(xp, name)(x))

    return kernel


def native_of_two(name: str) -> Function:
    """A kernel that calls the array function *name* of two arrays in their dtype."""

    def kernel(xp: Any, a: Any, b: Any) -> Any:
        return as_array(xp, getattr(xp, name)(a, b))

    return kernel


def widened(function: str | Function) -> Function:
    """A kernel that computes in float32 for floats narrower than that.

    *function* is the name of an array function of one array, or a function
    ``function(xp, x, **attributes)`` whose keyword-only parameters become the kernel's.
    """
    compute = _named(function) if isinstance(function, str) else function

    def kernel(xp: Any, x: Any, **attributes: Any) -> Any:
        if x.dtype in xp.wide_floats:
            return as_array(xp, compute(xp, x, **attributes))
        return as_array(xp, in_computing_dtype(compute, xp, x, **attributes))

    return _with_signature_of(compute, kernel)


def declare(
    op_type: str,
    kernel: Function,
    *,
    since: int,
    legacy: Callable[[Function], Function] | None = None,
) -> None:
    """Declare *kernel*; what *legacy* makes of it is the kernel up to opset 5 or 6.

    *legacy* is :func:`with_consumed_inputs` or :func:`with_limited_broadcasting`.
    """
    if legacy is None:
        operator(op_type, since=since)(kernel)
        return
    until = 6 if legacy is with_limited_broadcasting else 5
    operator(op_type, since=until + 1)(kernel)
    operator(op_type, since=1, until=until)(legacy(kernel))


def with_consumed_inputs(kernel: Function) -> Function:
    """*kernel* with the attribute ``consumed_inputs`` of opset 1, which is ignored.

    It said which inputs may be overwritten, and is no part of an operator's meaning.
    """

    def legacy(
        xp: Any, *inputs: Any, consumed_inputs: Any = None, **attributes: Any
    ) -> Any:
        return kernel(xp, *inputs, **attributes)

    return _with_signature_of(kernel, legacy, "consumed_inputs")


def with_limited_broadcasting(kernel: Function) -> Function:
    """Binary *kernel* with the broadcasting that ONNX had up to opset 6.

    Only the second operand is broadcast, only when ``broadcast`` is 1, and its axes are
    a run of the first operand's axes: one that starts at ``axis``, or the last ones.
    """

    def legacy(
        xp: Any,
        a: Any,
        b: Any,
        *,
        axis: int | None = None,
        broadcast: int = 0,
        consumed_inputs: Any = None,
    ) -> Any:
        if a.shape == b.shape:
            return kernel(xp, a, b)
        if not broadcast:
            raise ValueError(
                f"shapes {a.shape} and {b.shape} differ; before opset 7 that takes "
                "the attribute broadcast=1"
            )
        if xp.size(b) == 1:
            return kernel(xp, a, xp.reshape(b, ()))
        start = a.ndim - b.ndim if axis is None else normal_axis(axis, a.ndim)
        trailing = (1,) * (a.ndim - start - b.ndim)
        b = xp.reshape(b, (*b.shape, *trailing))
        require_extent(a.shape, b, what="the second operand")
        return kernel(xp, a, b)

    return legacy


def _named(name: str) -> Function:
    def function(xp: Any, x: Any) -> Any:
        return getattr(xp, name)(x)

    return function


def _with_signature_of(
    function: Function, wrapper: Function, *more_attributes: str
) -> Function:
    # the registry reads a kernel's attributes from its signature
    parameters = list(inspect.signature(function).parameters.values())
    parameters += [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in more_attributes
    ]
    signature = inspect.Signature(parameters)
    wrapper.__signature__ = signature  # type: ignore[attr-defined]
    return wrapper
