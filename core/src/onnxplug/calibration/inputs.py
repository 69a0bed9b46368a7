"""Draws what a model is fed while it is timed, where nobody gives that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.ep import DataType, TensorType
from onnxplug.errors import OptionError

if TYPE_CHECKING:
    from onnxplug.ep import ValueType


def draw(
    dtype: np.dtype[Any], sizes: Sequence[int], seed: int, position: int
) -> np.ndarray[Any, Any] | None:
    """Normally distributed numbers; integers are 0 or 1.

    Those are valid where integers most often are inputs: indices, tokens, masks.

    Args:
        position: of the input among the model's; each has numbers of its own, whichever
            others are drawn too.

    Returns:
        ``None`` if there are no numbers of *dtype*.
    """
    rng = np.random.default_rng([seed, position])
    if dtype.kind in "biu":
        return rng.integers(0, 2, sizes).astype(dtype)
    if dtype.kind in "fcV":
        return rng.standard_normal(sizes).astype(dtype)
    return None


def draw_all(
    types: Mapping[str, ValueType | None], sizes: Mapping[str, int] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """A value for each input.

    Args:
        types: those of the inputs.
        sizes: of dimensions by their names; others that are not fixed are of size 1.

    Raises:
        OptionError: of an input there are no values at random, or no shape.
    """
    given = sizes or {}
    found: dict[str, np.ndarray[Any, Any]] = {}
    for position, (name, type) in enumerate(types.items()):
        if not isinstance(type, TensorType) or type.shape is None:
            raise OptionError(
                f"input {name!r} is {type or 'of unknown type'}, for which no value "
                "can be drawn; give one in inputs="
            )
        shape = [
            size if isinstance(size, int) else given.get(str(size), 1)
            for size in type.shape
        ]
        dtype, array = type.dtype, None
        if dtype is not None and dtype is not DataType.STRING:
            array = draw(dtype.numpy, shape, 0, position)
        if array is None:
            raise OptionError(
                f"input {name!r} is of {dtype}, of which no value can be drawn; "
                "give one in inputs="
            )
        found[name] = array
    return found


def shape_in_words(array: Any) -> str:
    """The type and shape of what is fed."""
    dtype = getattr(array, "dtype", None)
    if dtype is None:
        return type(array).__name__
    return f"{dtype}[{'×'.join(map(str, array.shape))}]"
