"""What an EPContext node says, as ONNX Runtime documents its attributes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.errors import ContextError
from onnxplug.graph import Attribute, AttributeType

if TYPE_CHECKING:
    from onnxplug.graph import Node

_DEFAULTS: Final[dict[str, int | str]] = {
    "source": "",
    "partition_name": "",
    "main_context": 1,
    "embed_mode": 1,
    "ep_cache_context": "",
}
_TYPES: Final = {int: AttributeType.INT, str: AttributeType.STRING}


class ContextNode(Record):
    """The attributes that decide where a compiled partition is.

    Attributes:
        source: the EP's name.
        partition: the name of the entry.
        is_main: the node says where the bytes are; others use a main one's.
        payload: the container itself, or where its file is.
        in_words: the node, for messages.
    """

    source: str
    partition: str
    is_main: bool
    payload: bytes | str
    in_words: str

    @classmethod
    def read(cls, node: Node) -> ContextNode:
        """What *node* says.

        Raises:
            ContextError: an attribute is of another type than ONNX Runtime's.
        """
        found: dict[str, Any] = dict(_DEFAULTS)
        for name, default in _DEFAULTS.items():
            attribute = node.typed_attributes.get(name)
            if attribute is None:
                continue
            if attribute.type is not _TYPES[type(default)] or attribute.value is None:
                raise ContextError(
                    f"{describe(node)} has an attribute {name!r} of type "
                    f"{attribute.type.name}; expected {_TYPES[type(default)].name}"
                )
            found[name] = attribute.value
        payload = found["ep_cache_context"]
        if found["embed_mode"]:
            payload = _encoded(payload)
        elif isinstance(payload, bytes):
            raise ContextError(
                f"{describe(node)} has an 'ep_cache_context' that is no path; expected "
                "one, as its 'embed_mode' is 0"
            )
        return cls(
            _text(found["source"]),
            _text(found["partition_name"]),
            bool(found["main_context"]),
            payload,
            describe(node),
        )

    @property
    def where(self) -> str:
        """Where its bytes are, in words."""
        if isinstance(self.payload, bytes):
            return "within the model"
        return f"in {self.payload!r}"


def attributes(**values: int | str | bytes) -> dict[str, Attribute]:
    """Attributes of a node, whose types follow from *values*."""
    return {
        name: Attribute(_TYPES[int if isinstance(value, int) else str], value)
        for name, value in values.items()
    }


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")


def _encoded(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()
