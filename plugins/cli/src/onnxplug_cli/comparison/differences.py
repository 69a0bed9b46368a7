"""How one value differs from another: element by element, and in what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from onnxplug.ep import SparseTensor
from onnxplug.escape import escape
from onnxplug.tolerances import EXACT, Tolerance

ToleranceOf = Callable[[str], Tolerance]
"""The tolerance for the elements of a type, by its name in numpy."""

_IN_ULPS: Final = frozenset({"float16", "bfloat16", "float32", "float64"})

_TEXT: Final = "OSUT"


@dataclass(frozen=True, slots=True)
class Difference:
    """What is found where an array is compared with the reference's.

    Attributes:
        name: of the value; ``name[2]`` of a part of a sequence.
        dtype, shape: what is compared; the reference's, too, unless *unlike* says so.
        tolerance: what was allowed.
        elements: how many there are.
        beyond: how many are farther away than *tolerance*, or are NaN or infinite where
            the reference is not, or the other way round.
        unequal: how many are not equal, NaN being equal to NaN.
        largest_absolute: between elements that are finite in both.
        largest_relative: to the reference's, where that is neither 0 nor infinite.
        largest_ulps: in representable numbers between the two; ``None`` where these
            are not counted: integers, text, complex numbers and floats of 8 bits.
        nan: in how many places one of the two is NaN.
        infinite: in how many places one is infinite, and the other is not the same.
        place: where the two are farthest apart beyond tolerance, if they are.
        found, expected: what is there, and what the reference has.
        unlike: in which way the values cannot be compared; empty as a rule.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] = ()
    tolerance: Tolerance = EXACT
    elements: int = 0
    beyond: int = 0
    unequal: int = 0
    largest_absolute: float = 0.0
    largest_relative: float = 0.0
    largest_ulps: int | None = None
    nan: int = 0
    infinite: int = 0
    place: tuple[int, ...] | None = None
    found: str = ""
    expected: str = ""
    unlike: str = ""

    @property
    def agrees(self) -> bool:
        """Whether nothing is beyond tolerance."""
        return not (self.unlike or self.beyond)

    def __str__(self) -> str:
        name = escape(self.name)
        if self.unlike:
            return f"{name}: {escape(self.unlike)}"
        if self.agrees:
            return f"{name}: within tolerance"
        assert self.place is not None
        text = (
            f"{name}{list(self.place)}: {escape(self.found)} against "
            f"{escape(self.expected)}; {self.beyond} of {self.elements} elements differ"
        )
        if self.tolerance != EXACT:
            text += f" by more than {self.tolerance}"
        for count, what in ((self.nan, "NaN"), (self.infinite, "infinite")):
            if count:
                text += f"; {what} on one side only: {count}"
        return text


def differences(
    name: str, found: Any, expected: Any, tolerance_of: ToleranceOf
) -> list[Difference]:
    """How *found* differs from *expected*, for each array in them.

    Sequences, maps and sparse tensors are compared part by part.
    """
    return list(_differences(name, found, expected, tolerance_of))


def _differences(
    name: str, found: Any, expected: Any, tolerance_of: ToleranceOf
) -> Iterator[Difference]:
    if found is None and expected is None:
        yield Difference(name)
        return
    kind, other = _kind(found), _kind(expected)
    if kind != other:
        yield Difference(name, unlike=f"{kind} against {other}")
    elif isinstance(expected, SparseTensor):
        if found.shape != expected.shape:
            yield Difference(name, unlike=f"{found.shape} against {expected.shape}")
            return
        for part in ("indices", "values"):
            mine, its = getattr(found, part), getattr(expected, part)
            yield from _differences(f"{name}.{part}", mine, its, tolerance_of)
    elif isinstance(expected, Mapping):
        if list(found) != list(expected):
            yield Difference(name, unlike="a map with other keys")
            return
        for key in expected:
            yield from _differences(
                f"{name}[{key!r}]", found[key], expected[key], tolerance_of
            )
    elif _is_sequence(expected):
        if len(found) != len(expected):
            yield Difference(name, unlike=f"{len(found)} parts against {len(expected)}")
            return
        for index, (mine, its) in enumerate(zip(found, expected, strict=True)):
            yield from _differences(f"{name}[{index}]", mine, its, tolerance_of)
    else:
        yield _difference(name, np.asarray(found), np.asarray(expected), tolerance_of)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, SparseTensor):
        return "a sparse tensor"
    if isinstance(value, Mapping):
        return "a map"
    return "a sequence" if _is_sequence(value) else "a tensor"


def _difference(
    name: str,
    found: NDArray[Any],
    expected: NDArray[Any],
    tolerance_of: ToleranceOf,
) -> Difference:
    dtype, its = _type_name(found), _type_name(expected)
    if dtype != its or found.shape != expected.shape:
        unlike = f"{dtype}{list(found.shape)} against {its}{list(expected.shape)}"
        return Difference(name, dtype, found.shape, unlike=unlike)
    tolerance = tolerance_of(dtype)
    unequal = np.asarray(found != expected)
    if dtype in ("string", "bool"):
        beyond, distance = unequal, unequal.astype(np.float64)
        return Difference(
            name, dtype, found.shape, EXACT, found.size,
            beyond=int(beyond.sum()), unequal=int(unequal.sum()),
            **_farthest(found, expected, beyond, distance),
        )  # fmt: skip
    wide = np.complex128 if found.dtype.kind == "c" else np.float64
    one, other = found.astype(wide), expected.astype(wide)
    nan_one, nan_other = np.isnan(one), np.isnan(other)
    unequal &= ~(nan_one & nan_other)
    finite = np.isfinite(one) & np.isfinite(other)
    with np.errstate(all="ignore"):
        size = np.abs(other)
        distance = np.where(finite, np.abs(one - other), np.inf)
        if found.dtype.kind in "iu":
            # what is unequal is at least 1 apart, even if float64 cannot tell it
            distance = np.where(unequal, np.maximum(distance, 1.0), 0.0)
        allowed = tolerance.absolute + tolerance.relative * size
        beyond = unequal & ~(finite & (distance <= allowed))
        relative = np.where(finite & (size > 0), distance / size, 0.0)
    infinite = unequal & (np.isinf(one) | np.isinf(other)) & ~nan_one & ~nan_other
    return Difference(
        name, dtype, found.shape, tolerance, found.size,
        beyond=int(beyond.sum()),
        unequal=int(unequal.sum()),
        largest_absolute=float(np.max(distance, initial=0.0, where=finite)),
        largest_relative=float(np.max(relative, initial=0.0)),
        largest_ulps=_ulps(found, expected, finite) if dtype in _IN_ULPS else None,
        nan=int((nan_one ^ nan_other).sum()),
        infinite=int(infinite.sum()),
        **_farthest(found, expected, beyond, distance),
    )  # fmt: skip


def _type_name(array: NDArray[Any]) -> str:
    return "string" if array.dtype.kind in _TEXT else array.dtype.name


def _farthest(
    found: NDArray[Any],
    expected: NDArray[Any],
    beyond: NDArray[Any],
    distance: NDArray[Any],
) -> dict[str, Any]:
    if not beyond.any():
        return {}
    at = np.unravel_index(int(np.argmax(np.where(beyond, distance, -1))), found.shape)
    place = tuple(map(int, at))
    return {
        "place": place,
        "found": str(found[place]),
        "expected": str(expected[place]),
    }


def _ulps(found: NDArray[Any], expected: NDArray[Any], finite: NDArray[Any]) -> int:
    """How many representable numbers two elements are apart at most.

    The bits of floats, read as integers, are in the order of the numbers' magnitudes.
    """
    one, other = _ordered(found), _ordered(expected)
    apart = np.maximum(one, other) - np.minimum(one, other)
    return int(np.max(apart, initial=0, where=finite))


def _ordered(array: NDArray[Any]) -> NDArray[np.uint64]:
    bits = 8 * array.dtype.itemsize
    unsigned = np.dtype(f"uint{bits}")
    codes = np.ascontiguousarray(array).view(unsigned).reshape(array.shape)
    codes = codes.astype(np.uint64)
    sign = np.uint64(1 << (bits - 1))
    magnitude = codes & (sign - np.uint64(1))
    # both zeros are in the middle
    return np.where(codes & sign != 0, sign - magnitude, sign + magnitude)
