"""What the dimensions of a model's inputs denote, such as ``DATA_BATCH``.

Read only for programs that fix sizes by them: types do not have them.
"""

from __future__ import annotations

from collections.abc import Iterator

from onnxplug.graph import tags
from onnxplug.graph.load import read_message
from onnxplug.graph.wire import Message


def read_denotations(source: str | memoryview) -> dict[tuple[str, int], str]:
    """The denotations in the model at a path, or in memory, by input and axis.

    Raises:
        ModelNotFound, ModelUnreadable, InvalidModel: as of ``load_model``.
    """
    with read_message(source) as model:
        return {
            (name, axis): denotation
            for graph in _children(model, tags.MODEL_GRAPH)
            for value in _children(graph, tags.GRAPH_INPUT)
            for name in _texts(value, tags.VALUE_INFO_NAME)
            for type in _children(value, tags.VALUE_INFO_TYPE)
            for tensor in _children(type, tags.TYPE_TENSOR)
            for shape in _children(tensor, tags.TENSOR_TYPE_SHAPE)
            for axis, size in enumerate(_children(shape, tags.SHAPE_DIM))
            for denotation in _texts(size, tags.DIMENSION_DENOTATION)
        }


def _children(message: Message, wanted: int) -> Iterator[Message]:
    for tag, start, end in message.fields():
        if tag == wanted:
            yield message.child(start, end)


def _texts(message: Message, wanted: int) -> Iterator[str]:
    for tag, start, end in message.fields():
        if tag == wanted:
            yield message.text(start, end)
