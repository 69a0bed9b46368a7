"""One operator call, with its attributes as the model states them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from onnxplug.escape import escape
from onnxplug.graph.weight import Weight

if TYPE_CHECKING:
    from onnxplug.graph.graph import Graph


class AttributeType(IntEnum):
    """``AttributeProto.AttributeType`` of the ONNX IR specification."""

    UNDEFINED = 0
    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    GRAPHS = 10
    SPARSE_TENSOR = 11
    SPARSE_TENSORS = 12
    TYPE_PROTO = 13
    TYPE_PROTOS = 14


# asked for at every node, and looking an enum's member up is slow
_GRAPH: Final = AttributeType.GRAPH
_GRAPHS: Final = AttributeType.GRAPHS


class Attribute(NamedTuple):
    """A typed attribute.

    Attributes:
        type: ONNX's type of the attribute, which an empty tuple would not show.
        value: int, float, str (bytes when not UTF-8), ``Weight``, ``SparseTensor`` of
            arrays, ``Graph``, ``ValueType``, or a tuple of one of these; ``None``
            with a reference.
        reference: inside a function, the name of the function's attribute that gives
            the value; empty otherwise.
    """

    type: AttributeType
    value: Any
    reference: str = ""


class Node:
    """One operator call; see :class:`onnxplug.ep.Node`.

    Attributes:
        typed_attributes: the attributes with their ONNX types.
        overload: which overload of a model-local function is called; usually empty.
    """

    __slots__ = (
        "_attributes",
        "_since_version",
        "domain",
        "graph",
        "index",
        "inputs",
        "name",
        "op_type",
        "outputs",
        "overload",
        "typed_attributes",
    )

    def __init__(
        self,
        op_type: str,
        inputs: tuple[str | None, ...],
        outputs: tuple[str | None, ...],
        attributes: Mapping[str, Attribute] | None = None,
        *,
        domain: str = "",
        name: str = "",
        overload: str = "",
    ) -> None:
        self.op_type = op_type
        self.domain = domain
        self.name = name
        self.overload = overload
        self.inputs = inputs
        self.outputs = outputs
        self.typed_attributes: dict[str, Attribute] = dict(attributes or {})
        self.index = -1
        self.graph: Graph | None = None
        self._attributes: dict[str, Any] | None = None
        self._since_version: int | None = None

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The values of the attributes, tensors as read-only arrays."""
        if self._attributes is None:
            self._attributes = {
                name: _plain(attribute.value)
                for name, attribute in self.typed_attributes.items()
            }
        return self._attributes

    @property
    def subgraphs(self) -> Mapping[str, Graph]:
        """The attributes that are graphs; those in a list as ``name[index]``."""
        bodies: dict[str, Graph] = {}
        if not self.typed_attributes:
            return bodies
        for name, attribute in self.typed_attributes.items():
            if attribute.value is None:
                continue  # given by the function that is called
            # compared, as the hash of an enum's member is computed in Python
            if attribute.type is _GRAPH:
                bodies[name] = attribute.value
            elif attribute.type is _GRAPHS:
                for index, body in enumerate(attribute.value):
                    bodies[f"{name}[{index}]"] = body
        return bodies

    @property
    def captures(self) -> tuple[str, ...]:
        """Names that the node's subgraphs take from outside, in order of first use."""
        if not self.typed_attributes or not (bodies := self.subgraphs):
            return ()
        names: dict[str, None] = {}
        for body in bodies.values():
            names.update(dict.fromkeys(body.captures()))
        return tuple(names)

    @property
    def since_version(self) -> int:
        """The opset version at which the operator last changed; 0 when not ONNX's."""
        if self._since_version is None:
            version = self.graph.opset(self.domain) if self.graph else 0
            self._since_version = _since_version(self.domain, self.op_type, version)
        return self._since_version

    def __repr__(self) -> str:
        return (
            f"Node({escape(self.op_type)} {self.name!r} {self.inputs} -> "
            f"{self.outputs})"
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Weight):
        return value.array
    if isinstance(value, tuple) and value and isinstance(value[0], Weight):
        return tuple(weight.array for weight in value)
    return value


@functools.cache
def _since_version(domain: str, op_type: str, version: int) -> int:
    import onnx.defs

    try:
        return int(onnx.defs.get_schema(op_type, version, domain).since_version)
    except onnx.defs.SchemaError:
        return 0
