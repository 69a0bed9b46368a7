"""How a pitfall is written down."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import onnx
from onnx import helper

OPSET: Final = 21


class Row(NamedTuple):
    """A node, and what it is fed.

    Attributes:
        node: an ``onnx.NodeProto``.
        opset: of the model.
        inputs: arrays by position; ``None`` where left out.
    """

    node: onnx.NodeProto
    opset: int
    inputs: tuple[Any, ...]


def row(
    operator: str,
    *inputs: Any,
    outputs: int | tuple[bool, ...] = 1,
    opset: int = OPSET,
    **attributes: Any,
) -> Row:
    """A node of *operator*.

    Args:
        outputs: how many, or of each whether anybody wants it.
    """
    wanted = (True,) * outputs if isinstance(outputs, int) else outputs
    names = ["" if array is None else f"i{place}" for place, array in enumerate(inputs)]
    made = [f"o{place}" if wants else "" for place, wants in enumerate(wanted)]
    node = helper.make_node(operator, names, made, **attributes)
    arrays = tuple(None if each is None else np.asarray(each) for each in inputs)
    return Row(node, opset, arrays)


def real(*shape: int, dtype: Any = np.float32) -> Any:
    """Numbers around 0, the same for each shape."""
    numbers = np.random.default_rng([17, *shape])
    return np.round(numbers.uniform(-3, 3, shape), 3).astype(dtype)


def whole(*shape: int, dtype: Any = np.int64, low: int = -9) -> Any:
    """Whole numbers from *low* to 9, and not 0, the same for each shape."""
    numbers = np.random.default_rng([18, *shape])
    found = numbers.integers(low, 10, shape)
    return np.where(found == 0, 4, found).astype(dtype)


def ints(*numbers: int) -> Any:
    """A list such as of axes or sizes."""
    return np.array(numbers, np.int64)
