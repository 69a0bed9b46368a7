"""What tells a partition, and how it is compiled, from all others: the name of what is
kept of it."""

from __future__ import annotations

import marshal
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import onnxplug
import onnxplug_kernels
from onnxplug import ep
from onnxplug.authoring.entries import MARSHAL, fingerprint
from onnxplug.authoring.number_list import NumberList
from onnxplug.authoring.source_state import state_of
from onnxplug_compiler.schedule.constants import LARGE


def identity_of(partition: ep.Partition, how: tuple[Any, ...]) -> str | None:
    """Equal for two partitions only if all that planning looks at is.

    That is the nodes with their attributes, what is known of values, and the contents
    of constants but large ones; how they are compiled; and the code that plans.

    Args:
        how: what else the plans depend on, as plain values.

    Returns:
        ``None`` if a node has what no plain value stands for, such as a body.
    """
    host, kernels = (
        os.path.dirname(each.__file__ or "") for each in (onnxplug, onnxplug_kernels)
    )
    rules = [os.path.join(host, room) for room in ("shapes", "authoring", "layout")]
    whole: Any = (
        how,
        onnxplug.__version__,
        state_of(*rules, kernels),
        np.__version__,
        sys.hexversion,
        tuple(partition.inputs),
        tuple(partition.outputs),
    )
    try:
        whole = *whole, tuple(_nodes(partition)), tuple(_values(partition))
        return fingerprint(marshal.dumps(whole, MARSHAL)).hex()
    except (ValueError, TypeError) as error:
        ep.raise_interruption(error)
        return None


def _nodes(partition: ep.Partition) -> Iterator[tuple[Any, ...]]:
    for node in partition.nodes:
        yield (
            node.index,
            node.domain,
            node.op_type,
            partition.graph.opset(node.domain),
            node.inputs,
            node.outputs,
            [(name, _plain(value)) for name, value in node.attributes.items()],
        )


def _values(partition: ep.Partition) -> Iterator[tuple[Any, ...]]:
    names: dict[str | None, None] = dict.fromkeys(partition.inputs)
    for node in partition.nodes:
        names |= dict.fromkeys(node.inputs)
        names |= dict.fromkeys(node.outputs)
    names.pop(None, None)
    for name in names:
        assert name is not None
        value = partition.value(name)
        content = None
        if value.is_constant and _is_looked_at(value):
            content = _plain(partition.constant(name))
        yield name, str(value.type), value.is_constant, content


def _is_looked_at(value: ep.ValueInfo) -> bool:
    """Whether planning knows the content of a constant."""
    if value.dtype is None or value.shape is None:
        return True
    sizes = [size for size in value.shape if isinstance(size, int)]
    return len(sizes) < len(value.shape) or math.prod(sizes) <= LARGE


def _plain(value: Any) -> Any:
    """*value* as one that is written by its content.

    Raises:
        TypeError: there is none.
    """
    if isinstance(value, NumberList):
        value = value.array
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return value.shape, value.tolist()
        return value.dtype.name, value.shape, value.tobytes()
    if isinstance(value, (tuple, list)):
        if value and isinstance(value[0], np.ndarray):
            return [_plain(each) for each in value]
        return value
    if value is None or isinstance(value, (int, float, str, bytes)):
        return value
    raise TypeError(f"{type(value).__name__} has no plain value")
