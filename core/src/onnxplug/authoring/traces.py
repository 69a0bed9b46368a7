"""Facts of arrays as traces of runs have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

_names: Final[dict[Any, str]] = {}
"""Names of dtypes as ONNX Runtime's traces have them; numpy takes long to tell them."""


def type_shapes(values: Iterable[Any]) -> list[dict[str, list[int]]]:
    """The type and shape of each array, as ONNX Runtime's traces have them."""
    return [
        {_name(value.dtype): list(value.shape)}
        for value in values
        if hasattr(value, "dtype") and hasattr(value, "shape")
    ]


def _name(dtype: Any) -> str:
    try:
        known = _names.get(dtype)
    except TypeError:  # a device's own, which need not be hashable
        return str(dtype)
    if known is not None:
        return known
    others = {"float32": "float", "float64": "double", "object": "string"}
    name = str(dtype)
    return _names.setdefault(dtype, others.get(name, name))
