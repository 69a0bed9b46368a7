"""Which nodes are offered to TensorRT, whose parser has the last word.

What a node alone tells is said here; what the parser thinks of a partition is asked
when that is known, and the nodes that it does not take are given back with its reasons.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from onnxplug import ep
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.parsing import judge
from onnxplug_tensorrt.profiles import readers
from onnxplug_tensorrt.ranges import refuse_codes
from onnxplug_tensorrt.settings import Settings

_TYPES: Final = frozenset(
    {
        ep.DataType.FLOAT32,
        ep.DataType.FLOAT16,
        ep.DataType.BFLOAT16,
        ep.DataType.INT8,
        ep.DataType.UINT8,
        ep.DataType.INT32,
        ep.DataType.INT64,
        ep.DataType.BOOL,
        ep.DataType.FLOAT8_E4M3FN,
        ep.DataType.INT4,
        ep.DataType.FLOAT4_E2M1FN,
    }
)
"""Element types of TensorRT's tensors.  float64 its parser would round to float32."""


_WITHIN: Final = frozenset(
    {
        ep.DataType.FLOAT8_E4M3FN,
        ep.DataType.INT4,
        ep.DataType.FLOAT4_E2M1FN,
    }
)
"""Those of tensors that it has within a network only, as between quantising and
dequantising."""


def claims(
    graph: ep.Graph, excluded: frozenset[str], supports: Callable[[str], bool]
) -> ep.CapabilityReport:
    """Claim or refuse every node of *graph*.

    Args:
        excluded: operators that are left to others.
        supports: whether the parser may take an operator.
    """

    def check(node: ep.Node) -> ep.Reason | None:
        if node.op_type in excluded:
            return ep.Reason(
                ep.RefusalCode.OP, "option 'trt_op_types_to_exclude' leaves it out"
            )
        if node.domain:  # the parser looks at names alone, and takes it for ONNX's
            return ep.Reason(
                ep.RefusalCode.OP,
                f"TensorRT's parser has no operators of the domain {node.domain}",
            )
        if not supports(node.op_type):
            return ep.Reason(
                ep.RefusalCode.OP, "TensorRT's parser has no such operator"
            )
        return _check_types(graph, node)

    return ep.CapabilityReport.per_node(graph, check, keeps_constants=False)


def _check_types(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    for name in (*node.inputs, *node.outputs):
        if name is None:
            continue
        type = graph.value(name).type
        if not isinstance(type, ep.TensorType) or type.dtype not in _TYPES:
            return ep.Reason(
                ep.RefusalCode.DTYPE, f"{name!r} is {type}, which TensorRT has not"
            )
    return None


class Screening:
    """Asks TensorRT's parser what it takes of partitions, and gives back the rest.

    Args:
        library: TensorRT.
        settings: those of the session.
    """

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        self._settings = settings
        # nodes are told apart by identity, and live as long as they are here
        self._refused: dict[int, tuple[ep.Node, ep.Reason]] = {}
        self._taken: dict[tuple[int, ...], Sequence[ep.Node]] = {}
        self._rounds = 0

    def check(self, partition: ep.Partition) -> None:
        """See that the parser takes all of *partition*.

        Raises:
            Declined: it does not; names the nodes that it does not take for one of its
                reasons.
            SessionRefused: its tensors have ranges from a table and from itself.
        """
        self._give_back_known(partition)
        if self._settings.precision.ranges:
            refuse_codes(partition)
        smallest = self._settings.smallest
        if len(partition.nodes) < smallest:
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.COST,
                    f"of the {smallest} nodes that 'trt_min_subgraph_size' asks for "
                    f"there are {len(partition.nodes)}",
                )
            )
        _check_border(partition)
        key = tuple(map(id, partition.nodes))
        if key in self._taken:
            return
        if self._rounds >= self._settings.rounds:
            reason = ep.Reason(
                ep.RefusalCode.OTHER,
                f"TensorRT's parser was asked {self._rounds} times, as often as "
                "'trt_max_partition_iterations' allows, and did not take all of it",
            )
            raise ep.Declined(reason)
        self._rounds += 1
        for index, reason in judge(self._library, partition).items():
            node = partition.nodes[index]
            self._refused[id(node)] = node, reason
        self._give_back_known(partition)
        self._taken[key] = partition.nodes

    def _give_back_known(self, partition: ep.Partition) -> None:
        refused = [
            self._refused[id(node)]
            for node in partition.nodes
            if id(node) in self._refused
        ]
        if refused:
            reason = refused[0][1]
            nodes = [node for node, why in refused if why == reason]
            raise ep.Declined(reason, nodes=nodes)


def _check_border(partition: ep.Partition) -> None:
    """See that no value that goes in or out is of a type for values within.

    Raises:
        Declined: one is; names the nodes that read or make it.
    """
    for name in (*partition.inputs, *partition.outputs):
        dtype = partition.value(name).dtype
        if dtype in _WITHIN:
            detail = f"{name!r} is {dtype}, and neither goes in nor out of TensorRT"
            reason = ep.Reason(ep.RefusalCode.DTYPE, detail)
            nodes = [node for node in partition.nodes if name in node.outputs]
            raise ep.Declined(reason, nodes=nodes or readers(partition, [name]))
