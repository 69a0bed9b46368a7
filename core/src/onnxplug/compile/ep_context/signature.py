"""The types of what comes into a compiled partition and out of it, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from onnxplug.ep import TensorType, ValueInfo, ValueType


class Bordered(Protocol):
    """What has inputs and outputs: a partition."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def value(self, name: str) -> ValueInfo:
        """What is known of a value."""


def signature(partition: Bordered) -> list[Any]:
    """For inputs and for outputs a list of types; of a tensor ``[dtype, shape]``."""
    return [
        [_described(partition.value(name).type) for name in names]
        for names in (partition.inputs, partition.outputs)
    ]


def difference(written: Sequence[Any], partition: Bordered) -> str:
    """How *partition* differs from the one that *written* is of; empty if it can be
    that.  Where one of the two does not say, nothing differs."""
    found = signature(partition)
    if not _is_signature(written):
        return "the types that it was compiled for cannot be read"
    sides = (("input", partition.inputs), ("output", partition.outputs))
    for (side, names), before, now in zip(sides, written, found, strict=True):
        if len(before) != len(now):
            return (
                f"it was compiled with {len(before)} {side}s, and the node has "
                f"{len(now)}"
            )
        for name, there, here in zip(names, before, now, strict=True):
            if not _agree(there, here):
                return f"it was compiled with {side} {name!r} as {there}, not {here}"
    return ""


def _described(type: ValueType | None) -> Any:
    if isinstance(type, TensorType):
        dtype = None if type.dtype is None else str(type.dtype)
        return [dtype, None if type.shape is None else list(type.shape)]
    return None if type is None else str(type)


def _is_signature(written: Sequence[Any]) -> bool:
    return len(written) == 2 and all(
        isinstance(side, list) and all(map(_is_type, side)) for side in written
    )


def _is_type(type: Any) -> bool:
    if isinstance(type, list):
        return len(type) == 2 and isinstance(type[1], list | None)
    return isinstance(type, str | None)


def _agree(there: Any, here: Any) -> bool:
    if there is None or here is None:
        return True
    if isinstance(there, str) or isinstance(here, str):
        return bool(there == here)
    if None not in (there[0], here[0]) and there[0] != here[0]:
        return False
    if there[1] is None or here[1] is None:
        return True
    return len(there[1]) == len(here[1]) and all(
        one == other
        for one, other in zip(there[1], here[1], strict=True)
        if isinstance(one, int) and isinstance(other, int)
    )
