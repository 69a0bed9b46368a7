"""MatMul and Gemm as products of matrices in at most two batch axes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

from onnxplug_compiler.frontend.call import (
    Call,
    NotCompiled,
    broadcast_shape,
    broadcasts_to,
)
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    computed,
    given,
    register,
)

_BROADCAST_SINCE: Final = 7
"""The opset before which Gemm broadcast its addend by an attribute."""


class Product(NamedTuple):
    """A product before its axes are folded.

    Attributes:
        a: [*batch, M, K].
        b: [*batch, K, N], or [K, N].
        shape: [*batch, M, N], the result with the axes that a vector lacks.
        alpha: a factor of the product.
        beta: a factor of what is added.
        addend: the name of what is added, broadcast to the result.
    """

    a: View
    b: View
    shape: tuple[int, ...]
    alpha: float = 1.0
    beta: float = 1.0
    addend: str | None = None


class Folding(NamedTuple):
    """How the leading axes of a product become two batch axes and rows."""

    batch0: int
    batch1: int
    rows: int

    def fold(self, view: View) -> View | None:
        """A view of the result's shape as [batch0, batch1, rows, N]."""
        return view.reshape((*self, view.shape[-1]))


def product_of(plan: Plan, call: Call) -> Product:
    """The product that *call* computes."""
    first, second = call.inputs[0], call.inputs[1]
    assert first is not None and second is not None
    a, b = plan.view(first), plan.view(second)
    if call.op_type == "Gemm":
        a = a.transpose((1, 0)) if call.attributes["transA"] else a
        b = b.transpose((1, 0)) if call.attributes["transB"] else b
        return Product(
            a,
            b,
            (a.shape[0], b.shape[1]),
            float(call.attributes["alpha"]),
            float(call.attributes["beta"]),
            call.input(2),
        )
    if len(a.shape) == 1:
        a = a.reshape((1, *a.shape)) or a
    if len(b.shape) == 1:
        b = View(b.buffer, b.offset, b.dtype, (*b.shape, 1), (*b.strides, 1))
    lead = broadcast_shape([a.shape[:-2], b.shape[:-2]])
    return Product(a, b, (*lead, a.shape[-2], b.shape[-1]))


def foldings(product: Product) -> Iterator[tuple[Folding, View, View]]:
    """The ways to fold a product's axes, the best first, with its folded factors."""
    *lead, rows, columns = product.shape
    a, b = product.a, product.b
    inner = a.shape[-1]
    full_a = a.broadcast_to((*lead, rows, inner))
    if len(b.shape) == 2 or math.prod(b.shape[:-2]) == 1:
        folded = full_a.reshape((1, 1, math.prod(lead) * rows, inner))
        if folded is not None:
            matrix = View(b.buffer, b.offset, b.dtype, b.shape[-2:], b.strides[-2:])
            yield (
                Folding(1, 1, math.prod(lead) * rows),
                folded,
                matrix.broadcast_to((1, 1, inner, columns)),
            )
    full_b = b.broadcast_to((*lead, inner, columns))
    for cut in range(len(lead) + 1):
        batch = math.prod(lead[:cut]), math.prod(lead[cut:])
        folded_a = full_a.reshape((*batch, rows, inner))
        folded_b = full_b.reshape((*batch, inner, columns))
        if folded_a is not None and folded_b is not None:
            yield Folding(*batch, rows), folded_a, folded_b


def _check_matmul(call: Call, inputs: Inputs, results: Results) -> None:
    a, b = given(inputs).shape, given(inputs, 1).shape
    if a[-1] != (b[-2] if len(b) > 1 else b[-1]):
        raise NotCompiled(f"{a} and {b} do not multiply", call)
    if len(a) > 2 or len(b) > 2:
        lead = given(results).shape
        lead = lead[: len(lead) - (len(a) > 1) - (len(b) > 1)]
        if not (broadcasts_to(a[:-2], lead) and broadcasts_to(b[:-2], lead)):
            raise NotCompiled(f"{a} and {b} do not broadcast", call)


def _check_gemm(call: Call, inputs: Inputs, results: Results) -> None:
    a, b, shape = given(inputs).shape, given(inputs, 1).shape, given(results).shape
    if len(a) != 2 or len(b) != 2:
        raise NotCompiled(f"Gemm of {a} and {b}", call)
    inner = a[0 if call.attributes["transA"] else 1]
    if inner != b[1 if call.attributes["transB"] else 0]:
        raise NotCompiled(f"{a} and {b} do not multiply", call)
    addend = inputs[2] if len(inputs) > 2 else None
    if addend is not None and not (
        addend.shape == shape
        if call.version < _BROADCAST_SINCE
        else broadcasts_to(addend.shape, shape)
    ):
        raise NotCompiled(f"{addend.shape} does not broadcast to {shape}", call)


def _accepts_gemm(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    first = dtypes[0]
    factors = call.attributes["alpha"], call.attributes["beta"]
    if first is not None and first.kind in "iu" and factors not in ((1, 1), (1, 0)):
        return "Gemm of integers is not compiled with factors"
    return computed(call, dtypes, target)


def _record(plan: Plan, call: Call) -> None:
    raise AssertionError("products are recorded with their chains")


register("MatMul", Operation(_record, computed, _check_matmul))
register("Gemm", Operation(_record, _accepts_gemm, _check_gemm))
