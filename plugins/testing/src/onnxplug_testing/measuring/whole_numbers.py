"""Whole numbers that no float of their size has, and those at the ends of their types.

An engine that computes whole numbers in floating point, or in fewer bits, gets small
ones right.  Beyond 2**24, and 2**53 in 64 bits, it rounds them; where a result is
beyond its type, it gives the nearest number of the type, say, and not the lowest bits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np
from onnx import defs, helper

from onnxplug.authoring.operators import having
from onnxplug_testing.measuring.variations import DTYPES, Variation, element_types

_TYPES: Final = {name: dtype for name, dtype in DTYPES.items() if dtype.kind in "iu"}

_LEFT_OUT: Final = frozenset(
    {
        "BlackmanWindow", "Bernoulli", "ConstantOfShape", "DequantizeLinear",
        "GridSample", "HammingWindow", "HannWindow", "ImageDecoder", "MelWeightMatrix",
        "Multinomial", "OneHot", "QuantizeLinear", "ReduceL2", "ReduceLogSum",
        "ReduceLogSumExp", "Resize", "RoiAlign", "TfIdfVectorizer",
    }
)  # fmt: skip
"""Operators whose inputs are sizes, or whose results are rounded to whole numbers, of
which ONNX does not say how."""

_FIRST_VALUES: Final = {"Where": 1}
"""Operator → the first input that is a value, where it is another than the first."""

_MEANS: Final = frozenset({"Mean", "ReduceMean"})
_DIVISIONS: Final = frozenset({"Div", "Mod"})
_SHIFTS: Final = frozenset({"BitShift"})
_NOT_THE_LOWEST: Final = frozenset({"Abs", "Neg", "ReduceL1"})
"""Operators whose result of the lowest number is beyond its type by one."""

_OTHERS: Final = 16
"""Of so many cases of an operator the commonest types are tried."""


def whole_numbers(
    case: Variation, position: int, *, int64_bits: int = 64
) -> Iterator[Variation]:
    """*case*, the one at *position* of its operator, fed with such numbers.

    The kinds are ``whole digits``: the first input alone, and results within the type;
    ``whole near``: all inputs, so that comparing asks for each digit, and products are
    beyond the type; and ``whole ends``.

    Args:
        int64_bits: of the engine; if 32, 64 bits are given what 32 bits can hold.
    """
    operator = case.node.op_type
    if operator in _LEFT_OUT or operator in having("control_flow"):
        return
    if position >= _OTHERS or any(
        array is not None and array.dtype.kind in "OSUT" for array in case.inputs
    ):
        return
    makers = {"whole digits": _digits, "whole near": _near, "whole ends": _ends}
    for typed in _typed(case, position):
        places = _value_places(typed)
        bits = int64_bits if typed.inputs[places[0]].dtype.itemsize == 8 else 64
        for number, (kind, make) in enumerate(makers.items()):
            generator = np.random.default_rng([position, number])
            values = make(typed, places, bits, generator)
            if values is None:
                continue
            inputs = list(typed.inputs)
            for place, array in zip(places, values, strict=True):
                inputs[place] = array
            made = replace(typed, kind=kind, inputs=tuple(inputs), expected=None)
            yield from _modes(made, position)


def _typed(case: Variation, position: int) -> Iterator[Variation]:
    """*case* in each type of whole numbers."""
    for typed in (case, *element_types(case)):
        places = _value_places(typed)
        if not places:
            continue
        dtype = typed.inputs[places[0]].dtype.name
        if position >= 2 and typed is not case and dtype not in ("int32", "int64"):
            continue
        if typed.node.op_type == "Gemm":
            # which round
            yield typed.with_attributes(alpha=None, beta=None)
        elif typed.node.op_type == "Cast":
            yield from _casts(typed)
        elif typed.node.op_type == "Pow":
            powers = np.resize([1, 2], typed.inputs[1].shape)
            powers = powers.astype(typed.inputs[1].dtype)
            yield replace(typed, inputs=(typed.inputs[0], powers))
        else:
            yield typed


def _value_places(case: Variation) -> list[int]:
    """The inputs that are values of one type of whole numbers, and no positions."""
    schema = defs.get_schema(case.node.op_type, case.opset, case.node.domain)
    first = _FIRST_VALUES.get(case.node.op_type, 0)

    def written(place: int) -> str:
        return str(schema.inputs[min(place, len(schema.inputs) - 1)].type_str)

    places = [
        place
        for place, array in enumerate(case.inputs)
        if array is not None and place >= first and written(place) == written(first)
    ]
    if case.node.op_type == "Pow":
        places = places[:1]  # powers are not as large
    if first not in places or case.inputs[first].dtype.name not in _TYPES:
        return []
    return places


def _casts(case: Variation) -> Iterator[Variation]:
    """*case* to every whole number, of which the lowest bits are kept, and float32."""
    for dtype in (*_TYPES.values(), DTYPES["float32"]):
        number = helper.np_dtype_to_tensor_dtype(dtype)
        made = case.with_attributes(to=number)
        yield replace(made, output_types=(number,))


def _modes(case: Variation, position: int) -> Iterator[Variation]:
    yield case
    if position >= 2:
        return
    fed = [place for place, array in enumerate(case.inputs) if array is not None]
    if len(fed) > 1:
        yield replace(case, constants=frozenset(fed[1:]))
    if position == 0:
        yield replace(case, dynamic=True)
        if len(fed) > 1 and fed[0] == 0:
            yield replace(case, constants=frozenset({0}))


def _beyond(dtype: Any, bits: int) -> int:
    """From where on a float of as many bits has not all whole numbers; 0: it has."""
    return {4: 2**24, 8: 2 ** (53 if bits == 64 else 24)}.get(dtype.itemsize, 0)


def _digits(
    case: Variation, places: list[int], bits: int, generator: Any
) -> list[Any] | None:
    """The first input beyond what floats have; the others small, so that results stay
    within the type."""
    arrays = [case.inputs[place] for place in places]
    dtype = arrays[0].dtype
    base = _beyond(dtype, bits)
    if not base:
        return None
    operator = case.node.op_type
    if operator == "Range":  # start, limit and step
        return [np.asarray(n, dtype) for n in (base + 1, base + 14, 3)]
    if operator in _MEANS:  # of the same number there is but one mean
        return [np.full(array.shape, base + 1, dtype) for array in arrays]
    odd = 2 * generator.integers(0, 512, arrays[0].shape) + 1
    values = [base + odd]
    if operator == "Pow":
        values = [math.isqrt(base) + odd]
    for array in arrays[1:]:
        values.append(generator.integers(1, 4, array.shape))
    if operator == "Clip":
        values[1:] = [base + n for n in (101, 801)][: len(values) - 1]
    if dtype.kind == "i" and operator not in ("Clip", "Pow", *_SHIFTS):
        values = [v * generator.choice([-1, 1], np.shape(v)) for v in values]
    return _as_arrays(values, arrays)


def _near(
    case: Variation, places: list[int], bits: int, generator: Any
) -> list[Any] | None:
    """Numbers that differ in their last digits, in all inputs."""
    arrays = [case.inputs[place] for place in places]
    base = _beyond(arrays[0].dtype, bits)
    operator = case.node.op_type
    if not base or operator in {"Clip", "Pow", "Range"} | _MEANS | _SHIFTS:
        return None
    return _as_arrays(
        [base + generator.integers(0, 4, array.shape) for array in arrays], arrays
    )


def _ends(
    case: Variation, places: list[int], bits: int, generator: Any
) -> list[Any] | None:
    """The lowest and the greatest numbers, in all inputs."""
    arrays = [case.inputs[place] for place in places]
    operator, dtype = case.node.op_type, arrays[0].dtype
    if operator in {"Pow", "Range"} | _MEANS:
        return None
    low, high = _limits(dtype, bits)
    if operator in _NOT_THE_LOWEST:
        low += low < 0
    if dtype.kind == "i":
        ends = [low, low + 1, -1, 0, 1, high - 1, high]
    else:
        ends = [0, 1, 2, high // 2, high // 2 + 1, high - 1, high]
    wide = np.array(ends, object)
    values = [wide[generator.integers(0, len(ends), array.shape)] for array in arrays]
    if operator in _DIVISIONS:
        divisors = np.array([1, 2, 3, high], object)
        values[1:] = [divisors[generator.integers(0, 4, a.shape)] for a in arrays[1:]]
    elif operator in _SHIFTS:
        most = 8 * dtype.itemsize
        values[1:] = [generator.integers(0, most, array.shape) for array in arrays[1:]]
    elif operator == "Clip":
        values[1:] = [low + 1, high - 1][: len(values) - 1]
    return _as_arrays(values, arrays)


def _limits(dtype: Any, bits: int) -> tuple[int, int]:
    if dtype.itemsize == 8 and bits == 32:
        dtype = _TYPES[f"{'u' * (dtype.kind == 'u')}int32"]
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _as_arrays(values: list[Any], like: list[Any]) -> list[Any]:
    return [
        np.asarray(value, array.dtype).reshape(array.shape)
        for value, array in zip(values, like, strict=True)
    ]
