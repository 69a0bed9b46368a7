"""Kernels in OpenCL C, and how they are launched for some shapes.

Sizes and steps are arguments, so a kernel is built once for each rank.  All of them are
64 bits wide, and an item of work beyond the last element does nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

Shape: TypeAlias = tuple[int, ...]


class Launch(NamedTuple):
    """How a kernel is launched.

    Attributes:
        name: the kernel's.
        source: its program.
        size: how many items of work.
        numbers: the arguments behind the arrays, of which the result comes first.
    """

    name: str
    source: str
    size: tuple[int, ...]
    numbers: tuple[Any, ...]


def elementwise(
    expression: str, shape: Shape, strides: Sequence[Sequence[int]]
) -> Launch:
    """Each element of the result of *shape* by *expression*, in C.

    Args:
        expression: of the elements ``a``, ``b`` … of the inputs.
        strides: of each input along the result's axes, in elements; 0 repeats it.
    """
    names = "abcdefgh"[: len(strides)]
    axes = range(len(shape))
    sizes = "".join(f", long size{axis}" for axis in axes)
    steps = "".join(f", long {name}{axis}" for name in names for axis in axes)
    inputs = "".join(f", global const float *in_{name}" for name in names)
    walk = "".join(
        f"    place = rest % size{axis}; rest /= size{axis};"
        + "".join(f" at_{name} += place * {name}{axis};" for name in names)
        + "\n"
        for axis in reversed(axes)
    )
    source = (
        f"kernel void elementwise(global float *y{inputs}, long count{sizes}{steps})\n"
        "{\n"
        "    long i = get_global_id(0), rest = i, place = 0;\n"
        "    if (i >= count) return;\n"
        + "".join(f"    long at_{name} = 0;\n" for name in names)
        + walk
        + "".join(f"    float {name} = in_{name}[at_{name}];\n" for name in names)
        + f"    y[i] = {expression};\n"
        "}\n"
    )
    count = _count(shape)
    numbers = [count, *shape, *(step for each in strides for step in each)]
    return Launch("elementwise", source, (count,), _longs(numbers))


def matmul(a: Shape, b: Shape, y: Shape) -> Launch:
    """The products of matrices [.., M, K] and [.., K, N], broadcast before those."""
    axes = range(len(y) - 2)
    walk = "".join(
        f"    place = rest % size{axis}; rest /= size{axis};"
        f" a += place * a{axis}; b += place * b{axis};\n"
        for axis in reversed(axes)
    )
    more = "".join(f", long size{axis}" for axis in axes)
    more += "".join(f", long {name}{axis}" for name in "ab" for axis in axes)
    source = (
        "kernel void matmul(global float *y, global const float *a,\n"
        f"    global const float *b, long m, long n, long k{more})\n"
        "{\n"
        "    long column = get_global_id(0), row = get_global_id(1);\n"
        "    long batch = get_global_id(2), rest = batch, place = 0;\n"
        "    if (column >= n || row >= m) return;\n"
        f"{walk}"
        "    float sum = 0;\n"
        "    for (long i = 0; i < k; ++i)\n"
        "        sum = fma(a[row * k + i], b[i * n + column], sum);\n"
        "    y[(batch * m + row) * n + column] = sum;\n"
        "}\n"
    )
    (m, k), n, batch = a[-2:], b[-1], y[:-2]
    numbers = [m, n, k, *batch]
    for shape in (a, b):
        size = shape[-2] * shape[-1]
        numbers += [step * size for step in broadcast_strides(shape[:-2], batch)]
    return Launch("matmul", source, (n, m, _count(batch)), _longs(numbers))


SOFTMAX = """
kernel void softmax(global float *y, global const float *x, long rows, long width)
{
    long row = get_global_id(0);
    if (row >= rows) return;
    x += row * width; y += row * width;
    float most = x[0], sum = 0;
    for (long i = 1; i < width; ++i)
        most = x[i] > most || isnan(x[i]) ? x[i] : most;
    for (long i = 0; i < width; ++i)
        sum += y[i] = exp(x[i] - most);
    for (long i = 0; i < width; ++i)
        y[i] /= sum;
}
"""


def softmax(shape: Shape) -> Launch:
    """Softmax along the last axis."""
    rows = _count(shape[:-1])
    return Launch("softmax", SOFTMAX, (rows,), _longs([rows, shape[-1]]))


def strides_of(shape: Shape) -> list[int]:
    """How far elements are apart along each axis, in C order."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def broadcast_strides(shape: Shape, target: Shape) -> list[int]:
    """The strides of an array of *shape* that is repeated to have *target*.

    Raises:
        ValueError: it is not repeated so, and a kernel would read beyond it.
    """
    fits = len(shape) <= len(target) and all(
        size in (1, wanted)
        for size, wanted in zip(shape[::-1], target[::-1], strict=False)
    )
    if not fits:
        raise ValueError(
            f"an array of {list(shape)} is not broadcast to {list(target)}"
        )
    strides = [
        0 if size == 1 else step
        for size, step in zip(shape, strides_of(shape), strict=True)
    ]
    return [0] * (len(target) - len(shape)) + strides


def _count(shape: Shape) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _longs(numbers: Sequence[int]) -> tuple[Any, ...]:
    return tuple(np.int64(number) for number in numbers)
