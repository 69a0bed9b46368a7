"""What TensorRT's own parser of ONNX makes of partitions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.settings import STRONG

Verdict = dict[int, ep.Reason]
"""Why nodes are not taken, by their positions in a partition."""

_MOST_INLINE: Final = 2_000_000_000
"""Bytes of weights that a model may have within: protobuf's limit is 2 GiB."""

_CODES: Final = {
    "UNSUPPORTED_NODE": ep.RefusalCode.OP,
    "UNSUPPORTED_NODE_ATTR": ep.RefusalCode.ATTRIBUTE,
    "UNSUPPORTED_NODE_INPUT": ep.RefusalCode.NOT_CONSTANT,
    "UNSUPPORTED_NODE_DATATYPE": ep.RefusalCode.DTYPE,
    "UNSUPPORTED_NODE_DYNAMIC": ep.RefusalCode.DYNAMIC_SHAPE,
    "UNSUPPORTED_NODE_SHAPE": ep.RefusalCode.DYNAMIC_SHAPE,
}


_UNEXPLAINED: Final = ep.Reason(
    ep.RefusalCode.OTHER, "TensorRT's parser does not take it"
)


class Network(Record):
    """A partition as TensorRT's network.

    Attributes:
        builder, network, parser: TensorRT's.
        weights: whose memory the network uses.
    """

    builder: Any
    network: Any
    parser: Any
    weights: Sequence[np.ndarray[Any, Any]]

    @property
    def shape_inputs(self) -> tuple[str, ...]:
        """Inputs that are shapes, whose values TensorRT wants to know."""
        inputs = map(self.network.get_input, range(self.network.num_inputs))
        return tuple(each.name for each in inputs if each.is_shape_tensor)


def judge(library: Library, partition: ep.Partition) -> Verdict:
    """Which nodes of *partition* the parser does not take, and why; empty: it takes
    all."""
    with library.current:
        exported = partition.to_model("external")
        if sum(each.nbytes for each in exported.weights.values()) > _MOST_INLINE:
            _, _, parser = _new_parser(library)
            if _parsed(parser, exported):
                return {}
            return _verdict(parser, partition, [])
        model = partition.to_model("inline").model
        _, _, parser = _new_parser(library)
        if parser.supports_model_v2(model.SerializeToString()):
            return {}
        taken: list[int] = []
        for index in range(parser.num_subgraphs):
            if parser.is_subgraph_supported(index):
                taken += parser.get_subgraph_nodes(index)
        if not taken and not _names_nodes(parser) and len(partition.nodes) > 1:
            found = _judged_alone(library, partition, model)
            if found:
                return found
        return _verdict(parser, partition, taken)


def _judged_alone(library: Library, partition: ep.Partition, model: Any) -> Verdict:
    """Which nodes the parser does not take by themselves, and why.

    For want of better: of some errors it does not say which node they are of, and then
    takes none.
    """
    found: Verdict = {}
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    for index, node in enumerate(model.graph.node):
        alone = type(model)(ir_version=model.ir_version)
        alone.opset_import.extend(model.opset_import)
        graph = alone.graph
        graph.name = "node"
        graph.node.append(node)
        captures = partition.nodes[index].captures
        for name in dict.fromkeys((*filter(None, node.input), *captures)):
            if name in constants:
                graph.initializer.append(constants[name])
            else:
                _add_value(graph.input, partition.value(name))
        for name in filter(None, node.output):
            _add_value(graph.output, partition.value(name))
        _, _, parser = _new_parser(library)
        if not parser.supports_model_v2(alone.SerializeToString()):
            reasons = list(_reasons(parser)) or [_UNEXPLAINED]
            found[index] = reasons[0]
    return found


def _add_value(values: Any, value: ep.ValueInfo) -> None:
    """Add *value* to inputs or outputs of a graph of protobuf's."""
    made = values.add(name=value.name).type.tensor_type
    if value.dtype is not None:
        made.elem_type = value.dtype.onnx
    if value.shape is not None:
        made.shape.SetInParent()
        for size in value.shape:
            dim = made.shape.dim.add()
            if isinstance(size, int):
                dim.dim_value = size
            elif size is not None:
                dim.dim_param = size


def parse(
    library: Library, exported: ep.ExportedModel, *, chooses_types: bool = False
) -> Network:
    """The network of a model, on the memory of its weights.

    Within the library's context.

    Args:
        chooses_types: TensorRT does, which it can before 11, as flags allow.

    Raises:
        Declined: the parser does not take it.
    """
    builder, network, parser = _new_parser(library, chooses_types=chooses_types)
    if not _parsed(parser, exported):
        errors = [parser.get_error(index) for index in range(parser.num_errors)]
        text = "; ".join(_words(error) for error in errors)
        raise ep.Declined(
            ep.Reason(
                ep.RefusalCode.OTHER,
                f"TensorRT's parser does not take it: {text or library.log.taken()}",
            )
        )
    return Network(builder, network, parser, tuple(exported.weights.values()))


def load_weights(parser: Any, exported: ep.ExportedModel) -> bool:
    """Give a parser, or a refitter, a model without weights, and then the weights, in
    whose memory it reads them; whether it took them."""
    model, weights = _without_weights(exported)
    if not parser.load_model_proto(model.SerializeToString()):
        return False
    return all(
        parser.load_initializer(name, raw.ctypes.data, raw.nbytes)
        for name, raw in weights.items()
    )


def _new_parser(
    library: Library, *, chooses_types: bool = False
) -> tuple[Any, Any, Any]:
    tensorrt = library.tensorrt
    builder = tensorrt.Builder(library.messages)
    flags = 0
    if library.version < STRONG and not chooses_types:
        # as from 11 on: types are the model's, and no flags change them
        flags = 1 << int(tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(flags)
    return builder, network, tensorrt.OnnxParser(network, library.messages)


def _parsed(parser: Any, exported: ep.ExportedModel) -> bool:
    return load_weights(parser, exported) and bool(parser.parse_model_proto())


def _without_weights(
    exported: ep.ExportedModel,
) -> tuple[Any, Mapping[str, np.ndarray[Any, Any]]]:
    """The model, whose large tensors have no content, and that by their names.

    Those of bodies, whose names are not the model's alone, have theirs.
    """
    graph = exported.model.graph
    weights = {
        tensor.name: _taken_out(tensor, exported)
        for tensor in graph.initializer
        if tensor.data_location == tensor.EXTERNAL
    }
    for tensor in _tensors_of_bodies(graph):
        if tensor.data_location == tensor.EXTERNAL:
            tensor.raw_data = _taken_out(tensor, exported).tobytes()
    return exported.model, weights


def _taken_out(tensor: Any, exported: ep.ExportedModel) -> np.ndarray[Any, Any]:
    """The content of *tensor*, which does not say any more where that is."""
    places = {entry.key: entry.value for entry in tensor.external_data}
    del tensor.external_data[:]
    tensor.ClearField("data_location")
    content: np.ndarray[Any, Any] = exported.weights[places["location"]]
    return content


def _tensors_of_bodies(graph: Any) -> Iterator[Any]:
    for node in graph.node:
        for attribute in node.attribute:
            own = [attribute.g] if attribute.HasField("g") else []
            for body in (*own, *attribute.graphs):
                yield from body.initializer
                yield from _tensors_of_bodies(body)


def _verdict(parser: Any, partition: ep.Partition, taken: Sequence[int]) -> Verdict:
    """Why nodes are not taken, by what the parser says.

    Errors of a node that it could not read name it, and nothing is said of others then.
    Those of nodes that it knows not to support name none.

    Args:
        taken: positions of the nodes that it takes.
    """
    found: Verdict = {}
    others: list[ep.Reason] = []
    count = len(partition.nodes)
    for index, reason in enumerate(_reasons(parser)):
        node = parser.get_error(index).node()
        if 0 <= node < count:
            found.setdefault(node, reason)
        else:
            others.append(reason)
    if found and not taken:
        return found
    left = sorted(set(range(count)) - set(taken) - found.keys())
    if len(others) != len(left):
        words = "; ".join(dict.fromkeys(reason.detail for reason in others))
        reason = ep.Reason(ep.RefusalCode.OTHER, words) if words else _UNEXPLAINED
        others = [reason] * len(left)
    return found | dict(zip(left, others, strict=True))


def _names_nodes(parser: Any) -> bool:
    """Whether the parser says of some error which node it is of."""
    errors = map(parser.get_error, range(parser.num_errors))
    return any(error.node() >= 0 for error in errors)


def _reasons(parser: Any) -> Iterator[ep.Reason]:
    """What the parser says, error by error."""
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        code = _CODES.get(error.code().name, ep.RefusalCode.OTHER)
        yield ep.Reason(code, f"TensorRT: {_words(error)}")


def _words(error: Any) -> str:
    return " ".join(error.desc().split())[:300]


def named(nodes: Sequence[ep.Node]) -> str:
    """Nodes in words."""
    first = describe(nodes[0])
    return first if len(nodes) == 1 else f"{len(nodes)} nodes from {first} on"


def supported_operators(library: Library) -> Callable[[str], bool]:
    """What tells whether the parser has an operator, in some form."""
    with library.current:
        _, _, parser = _new_parser(library)
    return functools.cache(lambda operator: bool(parser.supports_operator(operator)))
