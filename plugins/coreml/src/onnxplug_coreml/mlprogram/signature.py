"""A model's inputs and outputs, and arrays as it takes and gives them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_coreml.lowering.program import Program, Value
from onnxplug_coreml.mlprogram.sizes import bounds

_FILE: Final = "border.json"


def border_dtype(dtype: ep.DataType) -> Any:
    """NumPy's type of a model's input or output for *dtype*: models have no bools."""
    return np.dtype(np.int32) if dtype is ep.DataType.BOOL else dtype.numpy


class Side(Record):
    """An input or output.

    Attributes:
        dtype: the program's.
        sizes: of each dimension the least and the greatest size; none for rank 0,
            which is a vector of one element in the model.
    """

    name: str
    dtype: ep.DataType
    sizes: tuple[tuple[int, int], ...]

    def enter(self, array: Any) -> Any:
        """*array* as the model takes it.

        Raises:
            ValueError: a size is not one that the model was made for.
        """
        fits = array.ndim == len(self.sizes) and all(
            low <= size <= high
            for (low, high), size in zip(self.sizes, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(
                f"{self.name!r} is of shape {list(array.shape)}; the model is for "
                f"[{', '.join(map(_shown, self.sizes))}]"
            )
        wanted = border_dtype(self.dtype)
        return np.ascontiguousarray(np.atleast_1d(array).astype(wanted, copy=False))

    def leave(self, array: Any) -> Any:
        """What the model gave, as the program has it.

        Raises:
            RuntimeError: it is nothing like it.
        """
        if not isinstance(array, np.ndarray) or array.ndim != max(len(self.sizes), 1):
            raise RuntimeError(
                f"Core ML gave {type(array).__name__} of shape "
                f"{list(np.shape(array))} as {self.name!r}, which has rank "
                f"{len(self.sizes)}"
            )
        result = array.astype(self.dtype.numpy, copy=False)
        return result if self.sizes else result.reshape(())


class Signature(Record):
    """All inputs and outputs of a model."""

    inputs: tuple[Side, ...]
    outputs: tuple[Side, ...]

    @staticmethod
    def of(program: Program) -> Signature:
        """The model's that is built of *program*."""

        def sides(values: Sequence[Value]) -> tuple[Side, ...]:
            return tuple(
                Side(
                    value.name,
                    value.dtype,
                    tuple(bounds(size, program.ranges) for size in value.shape),
                )
                for value in values
            )

        return Signature(
            sides([port.value for port in program.inputs]), sides(program.results)
        )

    def write(self, folder: Path) -> None:
        """Keep it in *folder*."""
        text = json.dumps([[list(side) for side in sides] for sides in self])
        (folder / _FILE).write_text(text, encoding="utf-8")

    @staticmethod
    def read(folder: Path) -> Signature:
        """What :meth:`write` wrote.

        Raises:
            ValueError: it is damaged.
            OSError: it cannot be read.
        """
        text = (folder / _FILE).read_text(encoding="utf-8")
        try:
            inputs, outputs = (
                tuple(_side(row) for row in sides) for sides in json.loads(text)
            )
        except (RecursionError, TypeError) as error:
            raise ValueError(f"{_FILE} is damaged: {error!r}") from error
        return Signature(inputs, outputs)

    def enter(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """*feeds* as the model takes them."""
        return {side.name: side.enter(feeds[side.name]) for side in self.inputs}

    def leave(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """What the model gave, as the program has it."""
        return {side.name: side.leave(found.get(side.name)) for side in self.outputs}


def _side(row: Any) -> Side:
    name, dtype, sizes = row
    pairs = tuple((int(low), int(high)) for low, high in sizes)
    return Side(str(name), ep.DataType(dtype), pairs)


def _shown(bounds: tuple[int, int]) -> str:
    low, high = bounds
    return str(low) if low == high else f"{low} to {high}"
