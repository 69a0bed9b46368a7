"""Puts the weights that an exported model leaves out where its files are to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from onnxplug.graph.weight import Weight

if TYPE_CHECKING:
    import numpy as np
    import onnx

Place: TypeAlias = tuple[str, int, int]
"""Where the bytes of an initializer are: location, offset, length."""

_ALIGNMENT: Final = 4096
"""What offsets are multiples of, so that the file can be mapped."""


class WeightsFile:
    """One file of initializers, one after the other.

    Attributes:
        location: its path, relative to the model.
        parts: its content.
    """

    def __init__(self, location: str) -> None:
        self.location = location
        self.parts: list[bytes | memoryview] = []
        self._end = 0

    def add(
        self, tensor: onnx.TensorProto, content: np.ndarray[Any, Any]
    ) -> Place | None:
        """The place of an initializer, which is put at the end."""
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self.parts += [bytes(start - self._end), content.data]
        self._end = start + content.nbytes
        return self.location, start, content.nbytes


def place(
    graph: onnx.GraphProto,
    weights: Mapping[str, Weight],
    where: Callable[[onnx.TensorProto, np.ndarray[Any, Any]], Place | None],
) -> None:
    """Say in *graph*, as exported with external *weights*, where each of them is.

    Args:
        where: called with a tensor and its bytes; ``None``: they go into the model.
    """
    for tensor in _external(graph):
        content = weights[tensor.external_data[0].value].raw()
        found = where(tensor, content)
        del tensor.external_data[:]
        if found is None:
            tensor.data_location = tensor.DEFAULT
            tensor.raw_data = content.tobytes()
            continue
        names = ("location", "offset", "length")
        for key, value in zip(names, found, strict=True):
            tensor.external_data.add(key=key, value=str(value))


def _external(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    for tensor in graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            yield tensor
    for node in graph.node:
        for attribute in node.attribute:
            for body in (attribute.g, *attribute.graphs):
                yield from _external(body)
