"""Calls that give the same in every run: quantised weights as floats.

The host computes what follows from constants, but for ``DequantizeLinear``: an EP may
run integers and their scale otherwise.  This one does not.
"""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np

from onnxplug import ep
from onnxplug_cpu.threads import on_arrays

FindFunction = Callable[[ep.Graph, ep.Node], "Callable[..., Any] | ep.Reason"]

NOTE: Final = "computed once, as it reads constants only"
"""What is said of a node that is settled."""

_PASSED: Final = frozenset(
    "Cast Concat Flatten Identity Reshape Squeeze Transpose Unsqueeze".split()
)
"""Operators between a weight's DequantizeLinear and what computes with it."""


_MOST_PASSED: Final = 8
"""How many of these one after the other: a chain is computed from its end."""


_PLAIN: Final = (int, float, str, tuple)
"""Attributes that are what their text says."""

_LOOKED_AT: Final = 1 << 16
"""Elements up to which constants are told from others by what they are."""


class SettledPartition(ep.Partition):
    """A partition whose settled calls are constants, computed when asked for.

    Args:
        partition: the whole.
        settled: functions of the nodes that are left out, by the node's index.
    """

    def __init__(
        self, partition: ep.Partition, settled: Mapping[int, Callable[..., Any]]
    ) -> None:
        self._partition = partition
        self._nodes = [node for node in partition.nodes if node.index not in settled]
        self._sources = {
            name: (node, settled[node.index], position)
            for node in partition.nodes
            if node.index in settled
            for position, name in enumerate(node.outputs)
            if name is not None
        }
        # what packs or copies a weight does not need it any more
        self._results: weakref.WeakValueDictionary[str, Any] = (
            weakref.WeakValueDictionary()
        )

    @property
    def graph(self) -> ep.Graph:
        """The graph that the nodes belong to."""
        return self._partition.graph

    @property
    def nodes(self) -> Sequence[ep.Node]:
        """What runs each time."""
        return self._nodes

    @property
    def inputs(self) -> Sequence[str]:
        """As the whole's."""
        return self._partition.inputs

    @property
    def outputs(self) -> Sequence[str]:
        """As the whole's."""
        return self._partition.outputs

    @property
    def label(self) -> str:
        """As the whole's."""
        return self._partition.label

    @property
    def fingerprint(self) -> str:
        """As the whole's."""
        return self._partition.fingerprint

    @property
    def covers_model(self) -> bool:
        """As the whole's."""
        return self._partition.covers_model

    @property
    def cancelled(self) -> bool:
        """As the whole's."""
        return self._partition.cancelled

    def value(self, name: str) -> ep.ValueInfo:
        """What is known of *name*."""
        value = self._partition.value(name)
        if name in self._sources:
            return dataclasses.replace(value, is_constant=True)
        return value

    def constant(self, name: str) -> Any | None:
        """The content of a constant, which may be computed for that.

        Raises:
            NodeError: computing it failed.
        """
        if name not in self._sources:
            return self._partition.constant(name)
        result = self._results.get(name)
        if result is None:
            node, function, position = self._sources[name]
            result = self._computed(node, function)[position]
            self._results[name] = result
        return result

    def weight(self, name: str) -> ep.WeightSource | None:
        """Where the bytes of a constant are from; of one that is computed: of what, and
        how."""
        if name not in self._sources:
            return self._partition.weight(name)
        node, _, position = self._sources[name]
        attributes = sorted(node.attributes.items())
        plain = all(isinstance(value, _PLAIN) for _, value in attributes)
        if not plain or node.domain not in ("", "com.microsoft"):
            return None
        read: list[Hashable] = []
        for each in node.inputs:
            if each is None:
                read.append(None)
                continue
            value, source = self.value(each), self.weight(each)
            if source is not None:
                read.append((value.dtype, value.shape, source.key))
            elif value.dtype is None or _size(value) > _LOOKED_AT:
                return None
            else:
                content = np.asarray(self.constant(each))
                read.append((value.dtype, value.shape, content.tobytes()))
        key = (
            *("onnxplug-cpu", node.domain, node.op_type),
            self.graph.opset(node.domain),
            *(repr(attributes), position, *read),
        )
        result = self.value(name)
        assert result.dtype is not None
        nbytes = -(-_size(result) * result.dtype.bits // 8)
        return ep.WeightSource(key, None, 0, nbytes)

    def _computed(self, node: ep.Node, function: Callable[..., Any]) -> tuple[Any, ...]:
        arguments = [name and self.constant(name) for name in node.inputs]
        try:
            with on_arrays(0):
                results = function(*arguments)
        except Exception as error:
            said = f"{ep.describe(node)} failed: {type(error).__name__}: {error}"
            raise ep.NodeError(said, node=node.name or ep.describe(node)) from error
        return results if isinstance(results, tuple) else (results,)

    def infer(
        self, node: ep.Node, inputs: Sequence[ep.TensorFacts | None]
    ) -> Sequence[ep.TensorFacts | None]:
        """As the whole's."""
        return self._partition.infer(node, inputs)

    def specialise(self, shapes: Mapping[str, tuple[int, ...]]) -> ep.Partition:
        """The whole, of which nothing is settled, with these shapes."""
        return self._partition.specialise(shapes)

    def to_model(
        self, weights: Literal["inline", "external"] = "inline"
    ) -> ep.ExportedModel:
        """The whole, as a model."""
        return self._partition.to_model(weights)


def settle(
    partition: ep.Partition, find_function: FindFunction
) -> tuple[ep.Partition, frozenset[int]]:
    """What of *partition* has to run each time, and the indices of the other nodes.

    Settled are the ``DequantizeLinear`` of a constant, and what only passes its result
    on, unless it is an output of the partition, or larger than all weights together.
    """
    settled: dict[int, Callable[..., Any]] = {}
    # how many nodes each value has been passed on by
    known: dict[str, int] = {}
    weights = 0
    for node in partition.nodes:
        if not _is_settled(partition, node, known):
            continue
        size = sum(_size(partition.value(name)) for name in node.outputs if name)
        if node.op_type == "DequantizeLinear":
            weights += size
            passed = 0
        else:
            passed = 1 + max(known.get(name or "", 0) for name in node.inputs)
        if size > weights or passed > _MOST_PASSED:
            continue
        function = find_function(partition.graph, node)
        if not isinstance(function, ep.Reason):
            settled[node.index] = function
            known.update((name, passed) for name in node.outputs if name)
    if not settled:
        return partition, frozenset()
    return SettledPartition(partition, settled), frozenset(settled)


def _is_settled(
    partition: ep.Partition, node: ep.Node, known: Mapping[str, int]
) -> bool:
    read = [name for name in node.inputs if name is not None]
    if node.op_type == "DequantizeLinear":
        settled = all(partition.value(name).is_constant for name in read)
    elif node.domain == "" and node.op_type in _PASSED:
        settled = not known.keys().isdisjoint(read) and all(
            name in known or partition.value(name).is_constant for name in read
        )
    else:
        return False
    return settled and all(
        name not in partition.outputs and _has_size(partition.value(name))
        for name in filter(None, node.outputs)
    )


def _has_size(value: ep.ValueInfo) -> bool:
    """Whether a value is known to be a tensor of a certain size."""
    return (
        value.dtype is not None
        and value.shape is not None
        and all(isinstance(size, int) for size in value.shape)
    )


def _size(value: ep.ValueInfo) -> int:
    return math.prod(size for size in value.shape or () if isinstance(size, int))
