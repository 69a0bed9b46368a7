"""``GraphProto``, ``NodeProto``, ``AttributeProto`` and ``FunctionProto``.

Owns: that in every graph each value has one producer, and that each value used has
one, in the graph or around it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import numpy as np

from onnxplug.authoring.number_list import NumberList
from onnxplug.ep import Dimension, TensorType, ValueType
from onnxplug.errors import InvalidModel
from onnxplug.escape import escape
from onnxplug.graph import tags
from onnxplug.graph.attribute import Attribute, AttributeType
from onnxplug.graph.external import ExternalData
from onnxplug.graph.graph import Function, Graph, Node
from onnxplug.graph.tensor import read_sparse_tensor, read_tensor
from onnxplug.graph.value_type import read_type, read_value_info
from onnxplug.graph.weight import Weight
from onnxplug.graph.wire import Message, signed

_FLOAT: Final = struct.Struct("<f")

# Types of attributes are plain numbers until the end: the hash of an enum's member is
# computed in Python, which would be felt at every attribute.
_KINDS: Final = {int(kind): kind for kind in AttributeType}
_FLOATS: Final = int(AttributeType.FLOATS)
_INTS: Final = int(AttributeType.INTS)
_STRINGS: Final = int(AttributeType.STRINGS)
_REPEATED: Final = frozenset(
    int(kind) for kind in AttributeType if kind.name.endswith("S")
)
# What protobuf says of a single value that is not on the wire.
_DEFAULTS: Final[Mapping[int, Any]] = {
    int(AttributeType.FLOAT): 0.0,
    int(AttributeType.INT): 0,
    int(AttributeType.STRING): "",
}


class GraphParser:
    """Reads graphs and functions of one model.

    Args:
        external: where external data is read from.
        overridable: initializers that are also inputs are defaults of those inputs
            (IR version 4 and later), not constants.
    """

    def __init__(self, external: ExternalData, *, overridable: bool = True) -> None:
        self._external: Final = external
        self._overridable: Final = overridable
        self._opset_imports: Mapping[str, int] = {}

    def main_graph(self, message: Message, opset_imports: Mapping[str, int]) -> Graph:
        """The graph of a model.

        Raises:
            InvalidModel: it is not a valid graph.
        """
        self._opset_imports = opset_imports
        graph = self._graph(message)
        _require_complete(graph)
        return graph

    def function(self, message: Message, opset_imports: Mapping[str, int]) -> Function:
        """A function; *opset_imports* apply if it has none of its own.

        Raises:
            InvalidModel: it is not a valid function.
        """
        parts = _Parts()
        domain = overload = ""
        attributes: list[str] = []
        own_imports: list[Message] = []
        nodes: list[Message] = []
        defaults: list[Message] = []
        for tag, start, end in message.fields():
            match tag:
                case tags.FUNCTION_NAME:
                    parts.name = message.text(start, end)
                case tags.FUNCTION_DOMAIN:
                    domain = normal_domain(message.text(start, end))
                case tags.FUNCTION_OVERLOAD:
                    overload = message.text(start, end)
                case tags.FUNCTION_INPUT:
                    parts.inputs.append(message.text(start, end))
                case tags.FUNCTION_OUTPUT:
                    parts.outputs.append(message.text(start, end))
                case tags.FUNCTION_VALUE_INFO:
                    name, value_type = read_value_info(message.child(start, end))
                    parts.inferred[name] = value_type
                case tags.FUNCTION_ATTRIBUTE:
                    attributes.append(message.text(start, end))
                case tags.FUNCTION_ATTRIBUTE_PROTO:
                    defaults.append(message.child(start, end))
                case tags.FUNCTION_OPSET_IMPORT:
                    own_imports.append(message.child(start, end))
                case tags.FUNCTION_NODE:
                    nodes.append(message.child(start, end))
                case tags.FUNCTION_DOC_STRING:
                    parts.doc_string = message.text(start, end, errors="replace")
        # bodies of nodes inherit the imports, which come after the nodes
        self._opset_imports = read_opset_imports(own_imports) or opset_imports
        parts.nodes.extend(map(self._node, nodes))
        body = parts.graph(self._opset_imports)
        # ONNX's own functions may leave outputs out, which not every call wants
        _require_complete(body, outputs=False)
        return Function(
            domain=domain,
            name=parts.name,
            overload=overload,
            attributes=tuple(attributes),
            attribute_defaults=dict(map(self._attribute, defaults)),
            body=body,
        )

    def tensor(self, message: Message) -> Weight:
        """A tensor of an attribute."""
        return read_tensor(message, self._external)[1]

    def sparse_tensor(self, message: Message) -> Any:
        """A sparse tensor of an attribute."""
        return read_sparse_tensor(message, self._external)[1].tensor()

    def body(self, message: Message) -> Graph:
        """A graph of an attribute."""
        return self._graph(message)

    def _graph(self, message: Message) -> Graph:
        parts = _Parts()
        for tag, start, end in message.fields():
            match tag:
                case tags.GRAPH_NODE:
                    parts.nodes.append(self._node(message.child(start, end)))
                case tags.GRAPH_INITIALIZER:
                    child = message.child(start, end)
                    parts.add_initializer(*read_tensor(child, self._external))
                case tags.GRAPH_VALUE_INFO:
                    value, value_type = read_value_info(message.child(start, end))
                    parts.inferred[value] = value_type
                case tags.GRAPH_INPUT:
                    value, value_type = read_value_info(message.child(start, end))
                    parts.inputs.append(value)
                    parts.declare(value, value_type)
                case tags.GRAPH_OUTPUT:
                    value, value_type = read_value_info(message.child(start, end))
                    parts.outputs.append(value)
                    parts.declare(value, value_type)
                case tags.GRAPH_SPARSE_INITIALIZER:
                    child = message.child(start, end)
                    value, sparse = read_sparse_tensor(child, self._external)
                    dtype = sparse.values.dtype
                    weight = Weight(dtype, sparse.shape, sparse.dense)
                    parts.add_initializer(value, weight)
                case tags.GRAPH_NAME:
                    parts.name = message.text(start, end)
                case tags.GRAPH_DOC_STRING:
                    parts.doc_string = message.text(start, end, errors="replace")
        return parts.graph(self._opset_imports, overridable=self._overridable)

    def _node(self, message: Message) -> Node:
        op_type = domain = name = overload = ""
        inputs: list[str | None] = []
        outputs: list[str | None] = []
        attributes: dict[str, Attribute] = {}
        for tag, start, end in message.fields():
            match tag:
                case tags.NODE_INPUT:
                    inputs.append(message.text(start, end) or None)
                case tags.NODE_OUTPUT:
                    outputs.append(message.text(start, end) or None)
                case tags.NODE_NAME:
                    name = message.text(start, end, errors="replace")
                case tags.NODE_OP_TYPE:
                    op_type = message.text(start, end)
                case tags.NODE_ATTRIBUTE:
                    key, attribute = self._attribute(message.child(start, end))
                    if key in attributes:
                        raise InvalidModel(
                            f"byte {start}: node {name or op_type!r} has two "
                            f"attributes named {key!r}"
                        )
                    attributes[key] = attribute
                case tags.NODE_DOMAIN:
                    domain = normal_domain(message.text(start, end))
                case tags.NODE_OVERLOAD:
                    overload = message.text(start, end)
        if not op_type:
            raise InvalidModel(
                f"byte {message.start}: node {name!r} names no operator (op_type)"
            )
        while inputs and inputs[-1] is None:
            inputs.pop()
        while outputs and outputs[-1] is None:
            outputs.pop()
        return Node(
            op_type,
            tuple(inputs),
            tuple(outputs),
            attributes,
            domain=domain,
            name=name,
            overload=overload,
        )

    def _attribute(self, message: Message) -> tuple[str, Attribute]:
        name = reference = ""
        number = 0
        values: dict[int, Any] = {}
        ints: list[int] = []
        floats: list[float] = []
        many: dict[int, np.ndarray[Any, Any]] = {}
        if message.end - message.start < _MANY:
            fields = message.fields()
        else:
            fields, varints, numbers, pieces = message.split(
                tags.ATTRIBUTE_INTS, tags.ATTRIBUTE_FLOATS, tags.ATTRIBUTE_STRINGS
            )
            many = {_INTS: varints.view("i8"), _FLOATS: numbers.astype(np.float64)}
            if pieces:
                # most are alike, as the modes of nodes
                known = {piece: _decoded(piece) for piece in set(pieces)}
                values[_STRINGS] = [*map(known.__getitem__, pieces)]
        for tag, start, end in fields:
            match tag:
                case tags.ATTRIBUTE_NAME:
                    name = message.text(start, end)
                case tags.ATTRIBUTE_INTS:
                    ints.append(signed(start))
                case tags.ATTRIBUTE_TYPE:
                    number = start
                case _ if tag in _READERS:
                    held, read = _READERS[tag]
                    values.setdefault(held, []).append(read(self, message, start, end))
                case tags.ATTRIBUTE_INTS_PACKED:
                    ints.extend(map(signed, message.varints(start, end).tolist()))
                case tags.ATTRIBUTE_FLOATS | tags.ATTRIBUTE_FLOATS_PACKED:
                    floats.extend(_floats(message, start, end))
                case tags.ATTRIBUTE_REF_ATTR_NAME:
                    reference = message.text(start, end)
        if ints:
            values[_INTS] = ints
        if floats:
            values[_FLOATS] = floats
        for held, array in many.items():
            if array.size:
                after = values.get(held)
                values[held] = [*array.tolist(), *after] if after else NumberList(array)
        if reference and not number:
            # the type comes with the value that a call gives
            return name, Attribute(AttributeType.UNDEFINED, None, reference)
        if not number and not values:
            raise InvalidModel(
                f"byte {message.start}: attribute {name!r} has neither type nor value"
            )
        # models of IR version 1 do not say the type
        number = number or next(iter(values))
        kind = _KINDS.get(number)
        if kind is None:
            raise InvalidModel(
                f"byte {message.start}: attribute {name!r} has type {number}; "
                f"ONNX defines 1 to {max(_KINDS)}"
            )
        if reference:
            return name, Attribute(kind, None, reference)
        if number in _REPEATED:
            listed = values.get(number, ())
            is_whole = isinstance(listed, NumberList)
            return name, Attribute(kind, listed if is_whole else tuple(listed))
        if number in values:
            return name, Attribute(kind, values[number][-1])
        if number in _DEFAULTS:
            return name, Attribute(kind, _DEFAULTS[number])
        raise InvalidModel(
            f"byte {message.start}: attribute {name!r} has no value of its type, "
            f"{kind.name}"
        )


_MANY: Final = 1 << 12
"""Bytes of an attribute whose numbers are read at once."""


class _Parts:
    """What has been read of a graph.

    Attributes:
        inputs: all of them, those with an initializer included.
        declared: the types of inputs and outputs, as far as known.
        inferred: the types that the model's writer found out, which count less.
    """

    def __init__(self) -> None:
        self.name = ""
        self.doc_string = ""
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self.nodes: list[Node] = []
        self.initializers: dict[str, Weight] = {}
        self.declared: dict[str, ValueType] = {}
        self.inferred: dict[str, ValueType | None] = {}

    def declare(self, name: str, value_type: ValueType | None) -> None:
        # a value may be declared twice: as an input and an output, or as two outputs
        if value_type is not None:
            self.declared.setdefault(name, value_type)

    def add_initializer(self, name: str, weight: Weight) -> None:
        if name in self.initializers:
            raise InvalidModel(
                f"graph {self.name!r} has two initializers named {name!r}"
            )
        self.initializers[name] = weight

    def graph(
        self, opset_imports: Mapping[str, int], *, overridable: bool = False
    ) -> Graph:
        """The graph of these parts, each value of which has one producer."""
        _require_single_assignment(self)
        fed = set(self.inputs) if overridable else set()
        types = self.inferred | self.declared
        constants: dict[str, Weight] = {}
        defaults: dict[str, Weight] = {}
        for name, weight in self.initializers.items():
            stored = TensorType(weight.dtype, weight.shape)
            if name in fed:
                defaults[name] = weight
                # sparse ones are made dense, and so are the inputs they are for
                declared = types.get(name)
                if not isinstance(declared, TensorType):
                    types[name] = stored
                elif declared.dtype not in (None, weight.dtype):
                    raise InvalidModel(
                        f"input {name!r} is declared as {declared.dtype}, and its "
                        f"initializer is {weight.dtype}; give both the same type"
                    )
                elif not _can_have(declared.shape, weight.shape):
                    raise InvalidModel(
                        f"input {name!r} is declared with shape "
                        f"{list(declared.shape or ())}, and its initializer has "
                        f"{list(weight.shape)}; give both the same shape"
                    )
            else:
                constants[name] = weight
                types[name] = stored
        # A name without a type is listed too: in a body it hides an outer constant.
        for name in self.inputs:
            types.setdefault(name, None)
        for node in self.nodes:
            for output in filter(None, node.outputs):
                types.setdefault(output, None)
        return Graph(
            self.name,
            inputs=[name for name in self.inputs if name not in self.initializers],
            outputs=self.outputs,
            nodes=self.nodes,
            constants=constants,
            defaults=defaults,
            types=types,
            opset_imports=opset_imports,
            doc_string=self.doc_string,
        )


def _can_have(stated: tuple[Dimension, ...] | None, shape: tuple[int, ...]) -> bool:
    """Whether what is of *shape* can be of the shape that is *stated*."""
    return stated is None or (
        len(stated) == len(shape)
        and all(
            size == fixed
            for size, fixed in zip(shape, stated, strict=True)
            if isinstance(fixed, int)
        )
    )


def normal_domain(domain: str) -> str:
    """*domain*, with the two spellings of ONNX's own domain made one."""
    return "" if domain == "ai.onnx" else domain


def read_opset_imports(messages: list[Message]) -> dict[str, int]:
    """Domain to version; of several versions of a domain, the highest.

    Raises:
        InvalidModel: a version is missing.
    """
    imports: dict[str, int] = {}
    for message in messages:
        domain = ""
        version = 0
        for tag, start, end in message.fields():
            match tag:
                case tags.OPSET_DOMAIN:
                    domain = normal_domain(message.text(start, end))
                case tags.OPSET_VERSION:
                    version = signed(start)
        if version < 1:
            raise InvalidModel(
                f"byte {message.start}: the opset of domain {domain or 'ai.onnx'!r} is "
                f"version {version}; versions start at 1"
            )
        imports[domain] = max(version, imports.get(domain, 0))
    return imports


def _require_single_assignment(parts: _Parts) -> None:
    graph = parts.name
    made = set(parts.inputs)
    if len(made) != len(parts.inputs):
        counts = Counter(parts.inputs).items()
        twice = next(name for name, count in counts if count > 1)
        raise InvalidModel(f"graph {graph!r} has two inputs named {twice!r}")
    made.update(parts.initializers)
    if "" in made:
        raise InvalidModel(f"graph {graph!r} has an input or initializer with no name")
    for node in parts.nodes:
        for name in filter(None, node.outputs):
            if name in made:
                raise InvalidModel(
                    f"{_named(node)} in graph {graph!r} makes value "
                    f"{name!r}, which is an input, an initializer or another node's "
                    "output already; every value has one producer"
                )
            made.add(name)


def _require_complete(graph: Graph, *, outputs: bool = True) -> None:
    """Nothing around the model's graph, or a function's, can be captured."""
    for name in graph.captures():
        user = _user(graph, name)
        if user is None and outputs:
            user = f"graph {graph.name!r}, as its output,"
        if user is not None:
            raise InvalidModel(
                f"{user} uses value {name!r}, which is no input, initializer or "
                "output of a node in its graph or those around it"
            )


def _user(graph: Graph, name: str) -> str | None:
    """The first node that uses *name* without its being made around it."""
    for node in graph.nodes:
        for position, used in enumerate(node.inputs):
            if used == name:
                return f"{_named(node)} in graph {graph.name!r} (its input {position})"
        for body in node.subgraphs.values():
            if name in body.captures():
                return (
                    _user(body, name)
                    or f"body {body.name!r} of {_named(node)}, as its output,"
                )
    return None


def _named(node: Node) -> str:
    return f"{escape(node.op_type)} {node.name!r}"


def _float(parser: GraphParser, message: Message, start: int, end: int) -> float:
    value: float = _FLOAT.unpack_from(message.data, start)[0]
    return value


def _int(parser: GraphParser, message: Message, value: int, offset: int) -> int:
    return signed(value)


def _string(parser: GraphParser, message: Message, start: int, end: int) -> str | bytes:
    return _decoded(bytes(message.data[start:end]))


def _decoded(content: bytes) -> str | bytes:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _type(
    parser: GraphParser, message: Message, start: int, end: int
) -> ValueType | None:
    return read_type(message.child(start, end))


def _tensor(parser: GraphParser, message: Message, start: int, end: int) -> Weight:
    return parser.tensor(message.child(start, end))


def _sparse_tensor(parser: GraphParser, message: Message, start: int, end: int) -> Any:
    return parser.sparse_tensor(message.child(start, end))


def _body(parser: GraphParser, message: Message, start: int, end: int) -> Graph:
    return parser.body(message.child(start, end))


def _floats(message: Message, start: int, end: int) -> Iterator[float]:
    if (end - start) % _FLOAT.size:
        raise InvalidModel(
            f"byte {start}: {end - start} bytes are no whole number of floats"
        )
    return (value for (value,) in _FLOAT.iter_unpack(message.data[start:end]))


_Reader = Callable[[GraphParser, Message, int, int], Any]

# By the tag of a field of an attribute: the type of attribute that has it, and what
# reads it.
_READERS: Final[Mapping[int, tuple[int, _Reader]]] = {
    tag: (int(kind), read)
    for tag, kind, read in (
        (tags.ATTRIBUTE_F, AttributeType.FLOAT, _float),
        (tags.ATTRIBUTE_I, AttributeType.INT, _int),
        (tags.ATTRIBUTE_S, AttributeType.STRING, _string),
        (tags.ATTRIBUTE_T, AttributeType.TENSOR, _tensor),
        (tags.ATTRIBUTE_G, AttributeType.GRAPH, _body),
        (tags.ATTRIBUTE_STRINGS, AttributeType.STRINGS, _string),
        (tags.ATTRIBUTE_TENSORS, AttributeType.TENSORS, _tensor),
        (tags.ATTRIBUTE_GRAPHS, AttributeType.GRAPHS, _body),
        (tags.ATTRIBUTE_TP, AttributeType.TYPE_PROTO, _type),
        (tags.ATTRIBUTE_TYPE_PROTOS, AttributeType.TYPE_PROTOS, _type),
        (tags.ATTRIBUTE_SPARSE_TENSOR, AttributeType.SPARSE_TENSOR, _sparse_tensor),
        (tags.ATTRIBUTE_SPARSE_TENSORS, AttributeType.SPARSE_TENSORS, _sparse_tensor),
    )
}
