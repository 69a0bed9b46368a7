"""Operators called as the stand-in calls them, with arrays for tensors."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest

from ..standin import operators
from ..standin.operators import OPERATORS, Desc, Meaning, Rejected, Tensor

for family in pkgutil.iter_modules(operators.__path__):  # each registers its operators
    importlib.import_module(f"{operators.__name__}.{family.name}")

Array = np.ndarray[Any, Any]


def f32(values: Any) -> Array:
    """An array of FLOAT32."""
    return np.array(values, np.float32)


def u32(values: Any) -> Array:
    """An array of UINT32."""
    return np.array(values, np.uint32)


def i32(values: Any) -> Array:
    """An array of INT32."""
    return np.array(values, np.int32)


def union(value: Any) -> bytes:
    """A ``DML_SCALAR_UNION`` that has a number of numpy's in front."""
    return np.asarray(value).tobytes().ljust(8, b"\0")


def tensor(value: Any) -> Any:
    """What a field has in a `Desc` for an array, or for arrays, or None."""
    if isinstance(value, list):
        return tuple(map(tensor, value))
    if isinstance(value, np.ndarray):
        value.flags.writeable = False
        return Tensor(value.dtype, value.shape)
    return value


def described(name: str, level: tuple[int, int], fields: dict[str, Any]) -> Desc:
    """The `Desc` of fields, of which tensors are arrays; what is left out is null."""
    table = OPERATORS[name].supported(level)
    decoded = dict.fromkeys(table) | fields
    for field, support in table.items():
        if decoded[field] is None and not support.optional:
            raise Rejected(f"{field} is null")
        decoded[field] = tensor(decoded[field])
        several = decoded[field]
        for each in several if isinstance(several, tuple) else (several,):
            if each is None:
                continue
            if len(each.sizes) not in support.dimension_counts:
                raise Rejected(f"{field} has {len(each.sizes)} dimensions")
            if each.type_name not in support.data_types:
                raise Rejected(f"{field} is {each.type_name}")
    return Desc(name, decoded)


def flat(values: list[Any]) -> list[Any]:
    """Fields that are arrays of tensors have as many places as tensors."""
    result: list[Any] = []
    for value in values:
        result.extend(value if isinstance(value, list | tuple) else [value])
    return result


def evaluate(name: str, level: tuple[int, int] = (6, 4), **fields: Any) -> list[Any]:
    """The outputs of an operator, whose output fields tell types and sizes."""
    meaning: Meaning = OPERATORS[name]
    desc = described(name, level, fields)
    table = meaning.supported(level)
    tensors = {f: getattr(desc, f) for f in table if getattr(desc, f) is not None}
    meaning.check(desc, tensors)
    meaning.check_level(desc, tensors, level)
    inputs = flat([fields.get(f) for f, each in table.items() if each.is_input])
    outputs = meaning.evaluate(desc, inputs)
    expected = flat(
        [getattr(desc, f) for f, each in table.items() if not each.is_input]
    )
    assert len(outputs) == len(expected)
    for output, of in zip(outputs, expected, strict=True):
        if of is None:
            assert output is None
        else:
            assert (output.dtype, output.shape) == (of.data_type, of.sizes)
    return outputs


def assert_documented(
    name: str, level: tuple[int, int] = (6, 4), **fields: Any
) -> None:
    """An operator gives the arrays that stand in its output fields."""
    outputs = evaluate(name, level, **fields)
    table = OPERATORS[name].supported(level)
    expected = flat([fields.get(f) for f, each in table.items() if not each.is_input])
    for output, array in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(output, array)


def assert_rejected(
    name: str, reason: str, level: tuple[int, int] = (6, 4), **fields: Any
) -> None:
    """An operator is rejected with a reason, of which a regular expression matches."""
    with pytest.raises(Rejected, match=reason):
        evaluate(name, level, **fields)
