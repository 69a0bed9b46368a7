"""Mistakes in what the EP with a device computes, claims and says."""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import SPACE, DeviceArray, DeviceContext
from ..device_partition import Call, DevicePartition
from ..images import windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator, softmax_along, why_not

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""


# operators


def _padded_with_zeros(attributes: Mapping[str, Any], version: int) -> Any:
    windows = windows_of(attributes, attributes["kernel_shape"])

    def pool(x: Array) -> Any:
        along = tuple(range(x.ndim, x.ndim + len(windows.sizes)))
        return windows.of(x, 2, 0).max(axis=along)

    return pool


@planted(
    "maxima-of-padding-are-zero",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of MaxPool where what is at the border is negative",
    blames=("MaxPool", "padding", "pads"),
)
class MaximaOfPadding(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **OPERATORS,
        "MaxPool": OPERATORS["MaxPool"]._replace(make=_padded_with_zeros),
    }


@planted(
    "softmax-of-old-opsets-is-of-one-axis",
    "operators",
    breaks="The opset version at which the operator last changed, up to the model's.",
    source=SPI + "graph.py",
    finding="wrong numbers of Softmax before opset 13",
    blames=("Softmax", "since_version"),
)
class SoftmaxOfOldOpsets(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **OPERATORS,
        "Softmax": OPERATORS["Softmax"]._replace(
            make=lambda attributes, version: softmax_along(attributes.get("axis", -1))
        ),
    }


ARITHMETIC: Final = ("Abs", "Add", "Div", "Mul", "Neg", "Sub")


def _in_32_bits(name: str) -> Operator:
    operator = OPERATORS[name]

    def make(attributes: Mapping[str, Any], version: int) -> Any:
        kernel = operator.make(attributes, version)

        def narrow(*arrays: Array) -> Any:
            if arrays[0].dtype != np.int64:
                return kernel(*arrays)
            found = kernel(*(array.astype(np.int32) for array in arrays))
            return np.asarray(found).astype(np.int64)

        return narrow

    return operator._replace(make=make)


@planted(
    "computes-int64-in-32-bits",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of arithmetic on int64 beyond 32 bits",
    blames=("int64", *ARITHMETIC[1:]),
)
class ComputesInt64In32Bits(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        **OPERATORS,
        **{name: _in_32_bits(name) for name in ARITHMETIC},
    }


# claims


class _ByTheirNames(dict[str, Operator]):
    """Operators by what they are called, whoever's they are."""

    def get(self, name: str, default: Any = None) -> Any:
        domain, _, op_type = name.rpartition(".")
        operator = super().get(op_type, default)
        if operator is None or not domain:
            return operator
        # the host knows no version of it
        return operator._replace(versions=(0, operator.versions[1]))


@planted(
    "takes-operators-of-other-domains",
    "claims",
    breaks="The operator's domain; empty for ONNX's own operators.",
    source=SPI + "graph.py",
    finding="claims nodes of another domain whose operators are called like ONNX's",
    blames=("domain", "domains"),
)
class TakesOtherDomains(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = _ByTheirNames(OPERATORS)


@planted(
    "takes-shapes-that-are-fed",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as "
    "`OPERATORS` does, and no others.",
    source=ENGINE,
    finding="claims nodes whose sizes or axes are no constants, and fails when they "
    "are run",
    blames=("Reshape", "Expand", "ReduceSum", "ReduceMean"),
)
class TakesShapesThatAreFed(DeviceFactory):
    operators_taken: ClassVar[Mapping[str, Operator]] = {
        name: operator._replace(constants=frozenset())
        for name, operator in OPERATORS.items()
    }


# costs


class _Measuring(ep.CostModel):
    """Tries what it is asked for."""

    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = 0.0
        for node in nodes:
            given = [name and self._like(graph, name) for name in node.inputs]
            if any(each is None for each in given) or why_not(graph, node, OPERATORS):
                return None
            kernel = OPERATORS[node.op_type].make(node.attributes, node.since_version)
            start = time.perf_counter()
            with np.errstate(all="ignore"):
                kernel(*given)
            seconds += time.perf_counter() - start
        return seconds

    def _like(self, graph: ep.Graph, name: str) -> Array | None:
        value, content = graph.value(name), graph.constant(name)
        if content is not None or value.dtype is None or value.shape is None:
            return content
        sizes = [size for size in value.shape if isinstance(size, int)]
        if len(sizes) < len(value.shape):
            return None
        return np.zeros(sizes, value.dtype.numpy)


class _CostingByTrial(DeviceExecutionProvider):
    cost_model = _Measuring()


@planted(
    "runs-nodes-to-say-what-they-cost",
    "costs",
    breaks="Pure and quick: nothing is compiled or run.",
    source=SPI + "costs.py",
    finding="estimate runs the nodes, and says another time whenever it is asked",
    blames=("estimate", "cost_model", "CostModel"),
)
class RunsNodesForTheirCost(DeviceFactory):
    provider = _CostingByTrial


# memory


_Weights = weakref.WeakValueDictionary[tuple[str, tuple[int, ...], Any], DeviceArray]


class _SharingByName(DevicePartition):
    """Has a constant once on the device, for all sessions."""

    _shared: ClassVar[weakref.WeakKeyDictionary[DeviceContext, _Weights]] = (
        weakref.WeakKeyDictionary()
    )

    def _call(self, node: ep.Node, operators: Mapping[str, Operator]) -> Call:
        call = super()._call(node, operators)
        weights = self._shared.setdefault(self.context, weakref.WeakValueDictionary())
        for name in filter(None, node.inputs):
            if (array := self.constants.get(name)) is not None:
                key = name, array.shape, array.dtype
                self.constants[name] = weights.setdefault(key, array)
        return call


@planted(
    "sessions-share-weights-by-name",
    "memory",
    breaks="equal for two constants only if their bytes are.",
    source=SPI + "weights.py",
    finding="a session computes with the weights of another one that is open, whose "
    "names and shapes are the same",
    blames=("weights", "weight", "constants", "constant", "initializer", "shared"),
)
class SessionsShareWeightsByName(DeviceFactory):
    partition = _SharingByName


# options


@planted(
    "compares-an-option-with-a-text",
    "options",
    breaks="*options* has every option of :attr:`options`, typed and validated.",
    source=SPI + "factory.py",
    finding="enable_graph_capture has no effect",
    blames=("enable_graph_capture", "capture", "captured"),
)
class ComparesAnOptionWithAText(DeviceFactory):
    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        context: Any = session.context(ep.MemoryLocation(SPACE, 0))
        provider = self.provider(self, context)
        if options["enable_graph_capture"] == "1":
            provider.capture = self.graph_capture()
        return provider


# factory


@planted(
    "makes-a-context-to-list-its-device",
    "factory",
    breaks="Looks, does not initialise: no driver is loaded, no context made.",
    source=SPI + "factory.py",
    finding="supported_devices makes a context of the device",
    blames=("supported_devices", "context", "create_context", "initialises"),
)
class MakesAContextToList(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        # whether there is memory to be had, a byte at least
        assert self.memory_spaces is not None
        context = self.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))
        allocator = context.allocator(ep.MemoryKind.DEVICE)
        if allocator is not None:
            allocator.empty((1,), ep.DataType.UINT8)
            yield from super().supported_devices(devices)
        context.close()
