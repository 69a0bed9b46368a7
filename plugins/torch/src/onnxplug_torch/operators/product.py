"""Products of matrices."""

from __future__ import annotations

from typing import Any

from onnxplug.ep import DataType
from onnxplug_torch.dtypes import FLOATS, NUMBERS
from onnxplug_torch.operators.computing import in_signed
from onnxplug_torch.operators.registry import operator

_BYTES = frozenset({DataType.INT8, DataType.UINT8})


@operator("MatMul", since=1, types=NUMBERS)
def matmul(torch: Any, x: Any, y: Any) -> Any:
    if x.dtype.is_floating_point:
        if x.dtype == torch.float16 and x.device.type == "cpu":
            # where torch may add up in float16
            return torch.matmul(x.float(), y.float()).to(x.dtype)
        return torch.matmul(x, y)
    return in_signed(torch, lambda x, y: integer_product(torch, x, y), x, y)


def integer_product(torch: Any, x: Any, y: Any) -> Any:
    """A product of integers; torch multiplies them on the host only."""
    if x.device.type == "cpu":
        return torch.matmul(x, y)
    return (
        (x.unsqueeze(-1) * y.unsqueeze(-3)).sum(-2) if y.ndim > 1 else (x * y).sum(-1)
    )


@operator("Gemm", since=7, types=NUMBERS)
def gemm(
    torch: Any,
    a: Any,
    b: Any,
    c: Any | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    a = a.t() if transA else a
    b = b.t() if transB else b
    if not a.dtype.is_floating_point:
        return integer_gemm(torch, a, b, c, alpha, beta)
    if c is None:
        found = torch.mm(a, b)
        return found if alpha == 1 else found * alpha
    return torch.addmm(c, a, b, beta=beta, alpha=alpha)


def integer_gemm(
    torch: Any, a: Any, b: Any, c: Any | None, alpha: float, beta: float
) -> Any:
    """Factors that are not whole make float64 of the sum, which is truncated."""

    def whole(a: Any, b: Any, *added: Any) -> Any:
        found = integer_product(torch, a, b) * int(alpha)
        return found + added[0] * int(beta) if added else found

    if alpha.is_integer() and beta.is_integer():
        return in_signed(torch, whole, a, b, *([] if c is None else [c]))
    found = in_signed(torch, lambda a, b: integer_product(torch, a, b), a, b)
    wide = found.to(torch.float64) * alpha
    if c is not None:
        wide = wide + c.to(torch.float64) * beta
    return wide.to(a.dtype)


@operator("Einsum", since=12, types=FLOATS)
def einsum(torch: Any, *tensors: Any, equation: str) -> Any:
    return torch.einsum(equation, *tensors)


@operator("Det", since=11, types=frozenset({DataType.FLOAT32, DataType.FLOAT64}))
def determinant(torch: Any, x: Any) -> Any:
    return torch.linalg.det(x)


@operator("MatMulInteger", since=10, types=_BYTES)
def matmul_integer(
    torch: Any, a: Any, b: Any, a_zero: Any | None = None, b_zero: Any | None = None
) -> Any:
    left, right = a.to(torch.float64), b.to(torch.float64)
    if a_zero is not None:
        zero = a_zero.to(torch.float64)
        left = left - (zero.unsqueeze(-1) if zero.ndim == 1 and a.ndim > 1 else zero)
    if b_zero is not None:
        right = right - b_zero.to(torch.float64)
    # products of bytes are whole numbers below 2**53, which float64 has exactly
    return torch.matmul(left, right).to(torch.int32)
