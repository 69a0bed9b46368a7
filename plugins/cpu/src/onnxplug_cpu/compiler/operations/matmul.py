"""MatMul and Gemm as products of matrices in at most two batch axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from onnxplug_cpu.compiler.call import Abstract, Call, NotCompiled, broadcast_shape
from onnxplug_cpu.compiler.operations.registry import (
    Inputs,
    Operation,
    Plan,
    only_f32,
    register,
)
from onnxplug_cpu.compiler.record import View


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


def _matmul(call: Call, inputs: Inputs) -> list[Abstract]:
    a, b = inputs[0], inputs[1]
    assert a is not None and b is not None
    if not a.shape or not b.shape:
        raise NotCompiled("MatMul of a scalar", call)
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    if left[-1] != right[-2]:
        raise NotCompiled(f"{a.shape} and {b.shape} do not multiply", call)
    lead = broadcast_shape([left[:-2], right[:-2]])
    shape = (
        *lead,
        *(left[-2:-1] if len(a.shape) > 1 else ()),
        *(right[-1:] if len(b.shape) > 1 else ()),
    )
    return [Abstract(a.dtype, shape)]


def _gemm(call: Call, inputs: Inputs) -> list[Abstract]:
    a, b = inputs[0], inputs[1]
    assert a is not None and b is not None
    left: Sequence[int] = a.shape
    right: Sequence[int] = b.shape
    if len(left) != 2 or len(right) != 2:
        raise NotCompiled(f"Gemm of {a.shape} and {b.shape}", call)
    if call.attributes["transA"]:
        left = left[::-1]
    if call.attributes["transB"]:
        right = right[::-1]
    if left[1] != right[0]:
        raise NotCompiled(f"{a.shape} and {b.shape} do not multiply", call)
    shape = (left[0], right[1])
    if (
        len(inputs) > 2
        and inputs[2] is not None
        and (
            (call.version < 7 and inputs[2].shape != shape)
            or broadcast_shape([shape, inputs[2].shape]) != shape
        )
    ):
        raise NotCompiled(f"{inputs[2].shape} does not broadcast to {shape}", call)
    return [Abstract(a.dtype, shape)]


def _record(plan: Plan, call: Call) -> None:
    raise AssertionError("products are recorded with their chains")


register("MatMul", Operation(_matmul, _record, only_f32))
register("Gemm", Operation(_gemm, _record, only_f32))
