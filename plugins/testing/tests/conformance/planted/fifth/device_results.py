"""Eleven mistakes in the EP with a device: what it takes, computes and keeps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import SPACE, DeviceArray, DeviceContext, DeviceTransfer, content
from ..device_partition import Call, DevicePartition
from ..device_streams import do
from ..images import Windows, average_pool, convolution, max_pool, windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator

SPI: Final = "core/src/onnxplug/ep/"
DOCS: Final = "docs/explanation/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"

OF_OPERATORS: Final = (
    "**Results** are one array for each of the partition's outputs, in order, with the "
    "element type and the shape that the operators give."
)
"""What every wrong number breaks."""


def changed(**operators: Any) -> Mapping[str, Operator]:
    """The operators, of which some are made otherwise."""
    return {
        **OPERATORS,
        **{
            name: OPERATORS[name]._replace(make=make)
            for name, make in operators.items()
        },
    }


# operators


def _of_powers(attributes: Mapping[str, Any], version: int) -> Any:
    axis = attributes.get("axis", -1 if version >= 13 else 1)

    def softmax(x: Array) -> Any:
        powers = np.exp(x)
        along = axis if version >= 13 else tuple(range(axis % x.ndim, x.ndim))
        return powers / powers.sum(axis=along, keepdims=True)

    return softmax


@planted(
    "takes-powers-of-large-numbers",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Softmax of large numbers is NaN",
    blames=("Softmax", "overflow"),
)
class TakesPowersOfLargeNumbers(DeviceFactory):
    operators_taken = changed(Softmax=_of_powers)


def _in_32_bits(function: Callable[[Array, Array], Array]) -> Any:
    def compute(a: Array, b: Array) -> Array:
        if a.dtype != np.int64:
            return function(a, b)
        # the device has no integers of 64 bits
        return function(a.astype(np.int32), b.astype(np.int32)).astype(np.int64)

    return lambda attributes, version: compute


@planted(
    "adds-int64-in-32-bits",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Add, Mul and Sub of int64 beyond 32 bits",
    blames=("Add", "Mul", "Sub", "int64"),
)
class ComputesInt64In32Bits(DeviceFactory):
    operators_taken = changed(
        Add=_in_32_bits(np.add),
        Mul=_in_32_bits(np.multiply),
        Sub=_in_32_bits(np.subtract),
    )


def _same(attributes: Mapping[str, Any], sizes: Sequence[int]) -> Windows:
    windows = windows_of(attributes, sizes)
    if windows.auto_pad.startswith("SAME"):
        windows = windows._replace(auto_pad="SAME_UPPER")
    return windows


@planted(
    "pads-the-lower-same-as-the-upper",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Conv and pools with auto_pad SAME_LOWER, where an odd "
    "number is padded",
    blames=("Conv", "MaxPool", "AveragePool", "auto_pad", "SAME_LOWER"),
)
class PadsTheLowerSameAsTheUpper(DeviceFactory):
    operators_taken = changed(
        AveragePool=average_pool(2, _same),
        Conv=convolution(_same),
        MaxPool=max_pool(2, _same),
    )


# claims


def _of_any_sizes() -> Mapping[str, Operator]:
    return {
        name: operator._replace(constants=frozenset())
        for name, operator in OPERATORS.items()
    }


@planted(
    "takes-sizes-that-are-not-known",
    "claims",
    breaks="Whether an EP can have a partition must be known when the session is made: "
    "then its nodes can still go to others.",
    source=DOCS + "specialisation.md",
    finding="it claims Reshape, Expand and reductions whose sizes or axes are no "
    "constants, and fails in the run",
    blames=("Reshape", "Expand", "ReduceSum", "ReduceMean", "not constant"),
)
class TakesSizesThatAreNotKnown(DeviceFactory):
    operators_taken = _of_any_sizes()


# preferences


def _without_casts(editor: Any, nodes: Sequence[ep.Node]) -> Sequence[str]:
    """Let what is cast there and back be what it was."""
    graph = editor.graph
    casts = {node.outputs[0]: node for node in nodes if node.op_type == "Cast"}
    instead: dict[int, ep.Node] = {}
    for node in casts.values():
        there = casts.get(node.inputs[0])
        if there is None:
            continue
        (source,) = there.inputs
        dtype = graph.value(source).dtype
        if dtype is ep.DataType.from_onnx(node.attributes["to"]):
            instead[node.index] = editor.make_node("Identity", [source], node.outputs)
    if not instead:
        return []
    editor.replace_nodes([instead.get(node.index, node) for node in graph.nodes])
    return [f"{len(instead)} casts there and back"]


class WithoutCasts(DeviceExecutionProvider):
    preferences = ep.Preferences(rewrite=_without_casts)


@planted(
    "drops-casts-there-and-back",
    "preferences",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="its rewrite drops a Cast to integers and back: fractions are kept",
    blames=("Cast", "rewrite", "rewritten"),
)
class DropsCastsThereAndBack(DeviceFactory):
    provider = WithoutCasts


# specialisation


class PlanningByTheFirst(DevicePartition):
    def _plan(
        self, shapes: tuple[tuple[int, ...], ...]
    ) -> Mapping[str, ep.TensorFacts]:
        # it is the batch that changes, of all inputs alike
        plan = self._plans.get(shapes[:1])
        if plan is None:
            plan = self._plans[shapes[:1]] = super()._plan(shapes)
        return plan


@planted(
    "plans-by-the-shape-of-the-first-input",
    "specialisation",
    breaks="one compiled partition is for all shapes.",
    source=SPI + "provider.py",
    finding="a run in which only the second input has another shape than before fails",
    blames=(
        "shapes of the inputs",
        "another shape",
        "other shapes",
        "second input",
        "shapes",
    ),
)
class PlansByTheFirstInput(DeviceFactory):
    partition = PlanningByTheFirst


# memory


class SharingByName(DevicePartition):
    shared: ClassVar[weakref.WeakValueDictionary[str, DeviceArray]] = (
        weakref.WeakValueDictionary()
    )
    """Weights on the device, which sessions of one model have together."""

    def _call(self, node: ep.Node, operators: Mapping[str, Operator]) -> Call:
        call = super()._call(node, operators)
        for name in call.inputs:
            if name in self.constants:
                mine = self.constants[name]
                self.constants[name] = self.shared.setdefault(name, mine)
        return call


@planted(
    "keeps-weights-by-their-names",
    "memory",
    breaks="What must never happen is that a session gets another one's weights.",
    source=DOCS + "weights.md",
    finding="a session computes with the weights of another model that is open, where "
    "they have the same name",
    blames=("weight", "constant", "another session", "another model"),
)
class SharesWeightsByName(DeviceFactory):
    partition = SharingByName


class KeepingBuffers(DevicePartition):
    def __init__(
        self,
        partition: ep.Partition,
        context: DeviceContext,
        operators: Mapping[str, Operator],
    ) -> None:
        super().__init__(partition, context, operators)
        self._buffers: dict[Any, Any] = {}

    def result(
        self,
        call: Call,
        facts: ep.TensorFacts,
        bound: Mapping[str, Any],
        stream: ep.Stream | None,
    ) -> Any:
        if call.output in bound:
            return bound[call.output]
        key = call.output, facts.shape
        if key not in self._buffers:
            self._buffers[key] = super().result(call, facts, bound, stream)
        return self._buffers[key]


@planted(
    "returns-its-buffers-again",
    "memory",
    breaks="allocate it; the array then belongs to the host, and the EP never writes "
    "to it again",
    source=SPI + "compiled.py",
    finding="what a run returned on the device is overwritten by the next run",
    blames=("earlier run", "overwr", "returned again", "same array", "next run"),
)
class ReturnsItsBuffersAgain(DeviceFactory):
    partition = KeepingBuffers


class CopyingAsItLies(DeviceTransfer):
    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        for source, target in pairs:
            if isinstance(source, DeviceArray):
                super().copy([(source, target)], stream)
                continue
            if source.shape != target.shape or source.dtype != target.dtype:
                raise ValueError(f"cannot copy {source.shape} to {target.shape}")
            # as many bytes as it has, as they follow one another
            flat = source.ravel(order="K")
            do(partial(np.copyto, content(target).reshape(-1), flat), stream)


@planted(
    "copies-arrays-as-they-lie",
    "memory",
    breaks="an EP that hands its address to native code makes it contiguous first.",
    source=SPI + "memory.py",
    finding="an array of the host that is transposed arrives on the device with its "
    "elements in the order of memory",
    blames=("contiguous", "strides", "transposed", "copy"),
)
class CopiesArraysAsTheyLie(DeviceFactory):
    transfer = CopyingAsItLies


# failure


def _clamped(attributes: Mapping[str, Any], version: int) -> Any:
    axis = attributes.get("axis", 0)

    def gather(x: Array, indices: Array) -> Any:
        size = x.shape[axis]
        indices = np.where(indices < 0, indices + size, indices)
        return np.take(x, np.clip(indices, 0, size - 1), axis=axis)

    return gather


@planted(
    "clamps-indices-out-of-range",
    "failure",
    breaks="one that is out of range at run time is an error, also in compiled code",
    source=DOCS + "robustness.md",
    finding="Gather with an index that is out of range gives numbers and no error",
    blames=("Gather", "out of range"),
)
class ClampsIndices(DeviceFactory):
    operators_taken = changed(Gather=_clamped)


# factory


@planted(
    "tries-the-device-to-list-it",
    "factory",
    breaks="Looks, does not initialise: no driver is loaded, no context made.",
    source=SPI + "factory.py",
    finding="supported_devices makes a context and a stream of the device, with its "
    "thread",
    blames=("supported_devices", "initialis", "thread", "create_context"),
)
class TriesTheDevice(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        assert self.memory_spaces is not None
        try:
            context = self.memory_spaces.create_context(ep.MemoryLocation(SPACE, 0))
        except LookupError:
            return
        stream = context.create_stream()
        assert stream is not None
        stream.synchronize()
        stream.close()
        context.close()
        yield from super().supported_devices(devices)
