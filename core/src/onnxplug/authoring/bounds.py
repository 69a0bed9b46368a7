"""Checks of the numbers that say which elements an operator reads and writes.

Axes, permutations and sizes come from attributes, constants and feeds, none of which
can be trusted.  Each function returns its numbers in their usual form, or raises
:class:`OutOfBounds`; whoever computes addresses from such numbers has them from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import index
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fractions import Fraction

MOST_ELEMENTS: Final = (1 << 63) - 1
"""The largest int64, in which ONNX counts elements, and engines bytes."""

MOST_AXES: Final = 64
"""The highest rank of numpy's arrays."""


class OutOfBounds(ValueError):
    """A number of an operator's attribute or input that ONNX does not allow there."""


def normal_axis(axis: int, rank: int, what: str = "axis") -> int:
    """*axis*, which may count from the back, counted from the front.

    Raises:
        OutOfBounds: a tensor of *rank* has no such axis.
    """
    axis = index(axis)
    if not -rank <= axis < rank:
        allowed = f"from {-rank} to {rank - 1}" if rank else "none, as it is a scalar"
        raise OutOfBounds(
            f"{what} is {axis}, but a tensor of rank {rank} has the axes: {allowed}"
        )
    return axis + rank if axis < 0 else axis


def normal_axes(axes: Iterable[int], rank: int, what: str = "axes") -> tuple[int, ...]:
    """*axes*, each counted from the front, in the order given.

    Raises:
        OutOfBounds: an axis is not there, or is named twice.
    """
    given = list(map(index, axes))
    normal = tuple(normal_axis(axis, rank, f"one of {what}") for axis in given)
    if len(set(normal)) != len(normal):
        raise OutOfBounds(f"{what} {given} name an axis twice, of a rank of {rank}")
    return normal


def permutation(perm: Iterable[int], rank: int, what: str = "perm") -> tuple[int, ...]:
    """*perm* as the order in which *rank* axes are to be.

    Raises:
        OutOfBounds: it is not a permutation of 0 to *rank* - 1.
    """
    order = tuple(map(index, perm))
    if sorted(order) != list(range(rank)):
        raise OutOfBounds(
            f"{what} is {list(order)}, but for an input of rank {rank} it has to have "
            f"each of 0 to {rank - 1} once"
            if rank
            else f"{what} is {list(order)}, but the input is a scalar"
        )
    return order


def sizes(
    shape: Iterable[int], *, itemsize: int = 1, what: str = "the shape"
) -> tuple[int, ...]:
    """*shape* of an array whose elements take *itemsize* bytes.

    Raises:
        OutOfBounds: a size is negative, or their product is beyond int64, sizes of 0
            not counted.
    """
    result = tuple([size if isinstance(size, int) else index(size) for size in shape])
    if any(size < 0 for size in result):
        raise OutOfBounds(f"{what} {list(result)} has a negative size")
    if math.prod(filter(None, result)) * itemsize > MOST_ELEMENTS:
        raise OutOfBounds(
            f"{what} {list(result)} has more elements than int64 can count bytes of"
        )
    return result


def at_least(
    minimum: int, values: Iterable[int], what: str, *, count: int | None = None
) -> tuple[int, ...]:
    """*values*, such as strides, which are all *minimum* or more.

    Args:
        count: how many there have to be.

    Raises:
        OutOfBounds: one is smaller or beyond int64, or there are more or fewer.
    """
    result = tuple([each if isinstance(each, int) else index(each) for each in values])
    if not all(minimum <= each <= MOST_ELEMENTS for each in result):
        raise OutOfBounds(f"{what} is {list(result)}; expected {minimum} or more")
    if count is not None and len(result) != count:
        raise OutOfBounds(
            f"{what} has {len(result)} values {list(result)}; expected {count}"
        )
    return result


def per_axis(name: str, values: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """The attribute *name*, a number for each of *rank* axes; ones if left out.

    Raises:
        OutOfBounds: one is less than 1, or there are more or fewer.
    """
    return at_least(1, values, name, count=rank) if values else (1,) * rank


def split_pads(
    pads: Sequence[int] | None, rank: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ONNX's ``pads`` [x1_begin, x2_begin, …, x1_end, x2_end, …] as (begins, ends).

    Raises:
        OutOfBounds: one is negative, or there are not two for each of *rank* axes.
    """
    if not pads:
        return (0,) * rank, (0,) * rank
    checked = at_least(0, pads, "pads", count=2 * rank)
    return checked[:rank], checked[rank:]


def sliced_range(size: int, start: int, end: int, step: int) -> range:
    """The positions that a Slice takes of an axis of *size* elements.

    As ONNX has it (Slice-13), a slice backwards that begins before the first element
    has that element, where Python's has none.
    """
    if step < 0 and start < -size:
        start = -size
    return range(*slice(start, end, step).indices(size))


def resized_lengths(
    lengths: Sequence[int], sizes: Sequence[int], policy: str
) -> list[tuple[int, Fraction]]:
    """The lengths that Resize gives axes of *lengths* for *sizes*, and their scales.

    Args:
        sizes: what is asked for, one for each axis, not negative.
        policy: Resize's *keep_aspect_ratio_policy*; by any but ``stretch`` all axes
            have one scale, and lengths are rounded, halves up.

    Raises:
        OutOfBounds: there is no such *policy*.
    """
    # few models need it, and it takes milliseconds to import
    from fractions import Fraction

    scales = [
        Fraction(size, length) if length else Fraction(1)
        for size, length in zip(sizes, lengths, strict=True)
    ]
    match policy:
        case "stretch":
            return list(zip(sizes, scales, strict=True))
        case "not_larger":
            scale = min(scales, default=Fraction(1))
        case "not_smaller":
            scale = max(scales, default=Fraction(1))
        case _:
            raise OutOfBounds(
                f"keep_aspect_ratio_policy is {policy!r}, expected 'stretch', "
                f"'not_larger' or 'not_smaller'"
            )
    return [(math.floor(scale * length + Fraction(1, 2)), scale) for length in lengths]
