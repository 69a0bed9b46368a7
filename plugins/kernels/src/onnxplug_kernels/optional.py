"""Operators on optional values: an element itself, or ``None`` where there is none."""

from __future__ import annotations

from typing import Any

from onnxplug_kernels.registry import operator


@operator("Optional", since=15)
def optional(xp: Any, element: Any = None, *, type: object = None) -> Any:
    # None stands for the empty optional of every type
    return element


@operator("OptionalGetElement", since=15)
def optional_get_element(xp: Any, value: Any) -> Any:
    if value is None:
        raise ValueError("OptionalGetElement of an empty optional; expected an element")
    return value


@operator("OptionalHasElement", since=15)
def optional_has_element(xp: Any, value: Any = None) -> Any:
    return xp.asarray(value is not None)
