"""The EP in one session: what it takes, and how its runs queue work on the device."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from onnxplug import ep
from onnxplug.authoring.device_arrays import constant_on_device, fill_bound

from .memory import AcmeContext, DeviceArray
from .operators import OPERATORS, Operator
from .streams import do


class AcmeExecutionProvider(ep.ExecutionProvider):
    """Runs nodes of float32 on the device."""

    def __init__(self, context: AcmeContext, weights: ep.WeightStore) -> None:
        self.location = context.location
        self._context = context
        self._weights = weights

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take the nodes whose operators the device has; constants are copied there."""
        return ep.CapabilityReport.per_node(
            graph, partial(_why_not, graph), keeps_constants=True
        )

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The calls in order, and constants on the device."""
        return AcmePartition(partition, self._context, self._weights)


def _why_not(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """What was found in the way of *node*, and what is taken; ``None`` if nothing."""
    operator = None if node.domain else OPERATORS.get(node.op_type)
    if operator is None:
        known = ", ".join(OPERATORS)
        return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; takes {known}")
    if node.since_version not in operator.versions:
        known = ", ".join(map(str, sorted(operator.versions)))
        detail = f"version {node.since_version}; takes {known}"
        return ep.Reason(ep.RefusalCode.OPSET, detail)
    if node.attributes:
        detail = f"{min(node.attributes)}, which it does not heed"
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
    for value in map(graph.value, filter(None, node.inputs)):
        if value.dtype is not ep.DataType.FLOAT32:
            detail = f"{value.name!r} is {value.dtype or 'of unknown type'}"
            return ep.Reason(ep.RefusalCode.DTYPE, f"{detail}; takes float32")
        rank = None if value.shape is None else len(value.shape)
        if operator.least_rank and (rank is None or rank < operator.least_rank):
            detail = f"{value.name!r} is of rank {'unknown' if rank is None else rank}"
            return ep.Reason(
                ep.RefusalCode.RANK, f"{detail}; takes {operator.least_rank} or more"
            )
    return None


class _Call(NamedTuple):
    operator: Operator
    inputs: tuple[str, ...]
    output: str


class AcmePartition(ep.CompiledPartition):
    """Calls, which each run queues on its stream."""

    def __init__(
        self,
        partition: ep.Partition,
        context: AcmeContext,
        weights: ep.WeightStore,
    ) -> None:
        self._context = context
        self._inputs = partition.inputs
        self._outputs = partition.outputs
        self._constants: dict[str, DeviceArray] = {}
        self._calls: list[_Call] = []
        for node in partition.nodes:
            names = tuple(name for name in node.inputs if name is not None)
            (output,) = (name for name in node.outputs if name is not None)
            self._calls.append(_Call(OPERATORS[node.op_type], names, output))
            for name in names:
                is_constant = partition.value(name).is_constant
                if is_constant and name not in self._constants:
                    # sessions of one model have it once
                    self._constants[name] = constant_on_device(
                        partition, name, context, weights
                    )

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue the calls; what is returned is ready when the stream has done them."""
        stream = None if context is None else context.stream
        values = {**self._constants, **dict(zip(self._inputs, inputs, strict=True))}
        for call in self._calls:
            arguments = [values[name] for name in call.inputs]
            shape = call.operator.shape(*[array.shape for array in arguments])
            result = self._context.device_memory.empty(
                shape, ep.DataType.FLOAT32, stream
            )
            do(partial(_compute, call.operator, arguments, result), stream)
            values[call.output] = result
        results = [values[name] for name in self._outputs]
        return fill_bound(results, outputs, self._context, stream)


def _compute(
    operator: Operator, inputs: Sequence[DeviceArray], output: DeviceArray
) -> None:
    # infinities and NaNs are results like others
    with np.errstate(all="ignore"):
        operator.compute(*[array.content for array in inputs], out=output.content)
