"""What TensorRT's own parser of ONNX makes of partitions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
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
        _, _, parser = _new_parser(library)
        exported = partition.to_model("external")
        if sum(each.nbytes for each in exported.weights.values()) > _MOST_INLINE:
            if _parsed(parser, exported):
                return {}
            return _errors(parser, partition)
        model = partition.to_model("inline").model.SerializeToString()
        if parser.supports_model_v2(model):
            return {}
        errors = _errors(parser, partition)
        taken: set[int] = set()
        for index in range(parser.num_subgraphs):
            if parser.is_subgraph_supported(index):
                taken |= set(parser.get_subgraph_nodes(index))
    unexplained = ep.Reason(ep.RefusalCode.OTHER, "TensorRT's parser does not take it")
    left = [index for index in range(len(partition.nodes)) if index not in taken]
    # it takes no more than groups of nodes, or says so of none
    return {index: errors.get(index, unexplained) for index in left} or errors


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
    """The model, whose large tensors have no content, and that by their names."""
    weights: dict[str, np.ndarray[Any, Any]] = {}
    for tensor in exported.model.graph.initializer:
        if tensor.data_location == tensor.EXTERNAL:
            places = {entry.key: entry.value for entry in tensor.external_data}
            weights[tensor.name] = exported.weights[places["location"]]
            del tensor.external_data[:]
            tensor.ClearField("data_location")
    return exported.model, weights


def _errors(parser: Any, partition: ep.Partition) -> Verdict:
    """What the parser says of nodes."""
    found: Verdict = {}
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        node = error.node()
        if 0 <= node < len(partition.nodes):
            code = _CODES.get(error.code().name, ep.RefusalCode.OTHER)
            found.setdefault(node, ep.Reason(code, f"TensorRT: {_words(error)}"))
    return found


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
