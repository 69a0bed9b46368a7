"""In which types torch computes what it does not compute in the type itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def in_signed(torch: Any, function: Callable[..., Any], *tensors: Any) -> Any:
    """*function* of tensors of which torch lacks arithmetic of the type.

    torch has little for unsigned integers of more than a byte.  In int64 sums, products
    and bits of 64-bit ones are right, too, as they wrap.
    """
    dtype = tensors[0].dtype
    if dtype in (torch.uint16, torch.uint32, torch.uint64):
        return function(*(each.to(torch.int64) for each in tensors)).to(dtype)
    return function(*tensors)


def in_order(torch: Any, x: Any) -> Any:
    """*x* in a type that torch compares, in the same order."""
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    if x.dtype == torch.uint64:  # of which the upper half is above, not below 0
        return x.to(torch.int64) ^ torch.iinfo(torch.int64).min
    return x


def out_of_order(torch: Any, x: Any, dtype: Any) -> Any:
    """What :func:`in_order` was given, of *dtype*."""
    if dtype == torch.uint64:
        return (x ^ torch.iinfo(torch.int64).min).to(dtype)
    return x if x.dtype == dtype else x.to(dtype)


def as_carrier(torch: Any, x: Any) -> Any:
    """The elements of *x* in a type of the same size whose elements torch moves."""
    name = str(x.dtype)
    if name.startswith("torch.float8"):
        return x.view(torch.uint8)
    carriers = {
        torch.uint16: torch.int16,
        torch.uint32: torch.int32,
        torch.uint64: torch.int64,
    }
    return x.view(carriers[x.dtype]) if x.dtype in carriers else x


def moved(torch: Any, function: Callable[..., Any], *tensors: Any) -> Any:
    """*function*, which moves elements, of tensors of any type."""
    dtype = tensors[0].dtype
    result = function(*(as_carrier(torch, each) for each in tensors))
    return result if result.dtype == dtype else result.view(dtype)


def is_narrow(torch: Any, x: Any) -> bool:
    """Whether a formula of several steps is to be computed in float32."""
    return x.dtype in (torch.float16, torch.bfloat16)


def in_float32(torch: Any, function: Callable[..., Any], *tensors: Any) -> Any:
    """*function*, of several steps, so that only its result is rounded."""
    dtype = tensors[0].dtype
    if not is_narrow(torch, tensors[0]):
        return function(*tensors)
    wide = [None if each is None else each.float() for each in tensors]
    return function(*wide).to(dtype)


def within(torch: Any, index: Any, size: int) -> Any:
    """*index*, in int64, with negative ones counted from the end.

    Raises:
        IndexError: there are no elements to be named.
    """
    index = index.to(torch.int64)
    if index.device.type == "cpu":
        index = torch.where(index < 0, index + size, index)
    return guarded(torch, index, size)


def guarded(torch: Any, index: Any, size: int) -> Any:
    """*index* as it is on the host, where torch raises for what is outside.

    On a device that would end all work there for good, so an index that is outside
    comes in again at the other end.

    Raises:
        IndexError: there are no elements to be named.
    """
    if not size and index.numel():
        raise IndexError("an index of an axis without elements")
    if index.device.type == "cpu" or not size:
        return index
    return torch.remainder(index, size)
