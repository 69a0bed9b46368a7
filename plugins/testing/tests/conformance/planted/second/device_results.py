"""Mistakes in the EP with a device: in what it computes, claims and keeps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import (
    DeviceAllocator,
    DeviceArray,
    DeviceContext,
    DeviceTransfer,
)
from ..device_mistakes import ENGINE, OF_OPERATORS, SPI, changed
from ..device_partition import Call, DevicePartition
from ..device_streams import DeviceStream
from ..mistake import planted
from ..operators import ANY, Array, Kernel, Operator, why_not

# operators


def _without_nan(attributes: Any, version: int) -> Any:
    # as fmax of C does, of two of which one is no number
    return lambda x: np.fmax(x, 0)


@planted(
    "loses-nan-in-relu",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Relu of NaN is 0, not NaN",
    blames=("Relu",),
)
class LosesNanInRelu(DeviceFactory):
    operators_taken = changed(Relu=_without_nan)


def _clipped(attributes: Any, version: int) -> Any:
    axis = attributes.get("axis", 0)
    return lambda x, indices: np.take(x, indices, axis=axis, mode="clip")


@planted(
    "clips-indices",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Gather takes the first for an index that counts from the end, or gives "
    "numbers for one that is out of range",
    blames=("Gather",),
)
class ClipsIndices(DeviceFactory):
    operators_taken = changed(Gather=_clipped)


def _inverse(attributes: Any, version: int) -> Any:
    perm = attributes.get("perm")
    return lambda x: np.transpose(x, None if perm is None else np.argsort(perm))


@planted(
    "transposes-the-other-way",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Transpose by a permutation that is not its own inverse is wrong, or fails",
    blames=("Transpose",),
)
class TransposesTheOtherWay(DeviceFactory):
    operators_taken = changed(Transpose=_inverse)


BLOCK: Final = 256
"""Elements that one block of threads computes."""

UNARY: Final = frozenset({"Abs", "Exp", "LeakyRelu", "Neg", "Relu", "Sqrt", "Tanh"})


class LaunchesWholeBlocks(DevicePartition):
    """Rounds down how many blocks an element-wise kernel has, to one at least."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        if call.node.op_type not in UNARY:
            return super().work(call, arguments, result)
        (x,) = arguments
        return partial(_by_blocks, call.kernel, x.content, result.content)


def _by_blocks(kernel: Kernel, x: Array, result: Array) -> None:
    blocks = max(result.size // BLOCK, 1)
    with np.errstate(all="ignore"):
        part = kernel(x.reshape(-1)[: blocks * BLOCK])
    np.copyto(result.reshape(-1)[: blocks * BLOCK], part)


@planted(
    "launches-whole-blocks-only",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="the last elements of what an operator of one input gives are not written, "
    "where there are more than 256, and no multiple of that",
    blames=tuple(UNARY),
)
class LaunchesWholeBlocksOnly(DeviceFactory):
    partition = LaunchesWholeBlocks


# claims


class ClaimsAllCasts(DeviceExecutionProvider):
    """Looks what a Cast is of, and not what it is to."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        operators = self._factory.operators_taken

        def check(node: ep.Node) -> ep.Reason | None:
            reason = why_not(graph, node, operators)
            if reason is None or reason.code is not ep.RefusalCode.DTYPE:
                return reason
            (x, *_) = filter(None, node.inputs)
            is_cast = not node.domain and node.op_type == "Cast"
            return None if is_cast and graph.value(x).dtype in ANY else reason

        return ep.CapabilityReport.per_node(graph, check, keeps_constants=True)


@planted(
    "claims-casts-to-any-type",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as `OPERATORS` "
    "does, and no others.",
    source=ENGINE,
    finding="Cast to strings fails, and to float8 is wrong where it has to saturate",
    blames=("Cast",),
)
class ClaimsCastsToAnyType(DeviceFactory):
    provider = ClaimsAllCasts


class ClaimsByIndex(DeviceExecutionProvider):
    """Looks at each node once, which it knows by its index."""

    def __init__(self, factory: DeviceFactory, context: Any) -> None:
        super().__init__(factory, context)
        self._reasons: dict[int, ep.Reason | None] = {}

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        operators = self._factory.operators_taken
        for node in graph.nodes:
            if node.index not in self._reasons:
                self._reasons[node.index] = why_not(graph, node, operators)
        return ep.CapabilityReport.per_node(
            graph, lambda node: self._reasons[node.index], keeps_constants=True
        )


@planted(
    "remembers-claims-by-the-index",
    "claims",
    breaks="Pure: the host asks again for bodies of control flow, after expanding "
    "functions and after a partition was given back.",
    source=f"{SPI}provider.py",
    finding="what is claimed of one graph is what was claimed of another, or of the "
    "body of If, by the same positions",
    blames=("get_capability", "pure", "body", "bodies", "asked again"),
)
class RemembersClaimsByTheIndex(DeviceFactory):
    provider = ClaimsByIndex


# memory


class GivesBackTwice(DeviceAllocator):
    """Gives memory back with its array, and with the array's place on its stream."""

    def _give_back(
        self, memory: Array, stream: weakref.ref[DeviceStream] | None
    ) -> None:
        super()._give_back(memory, stream)
        if stream is not None:
            super()._give_back(memory, stream)


@planted(
    "gives-memory-back-twice",
    "memory",
    breaks="An array's memory is free again when the array is gone.",
    source="docs/explanation/memory-and-streams.md",
    finding="two arrays have the same memory, or fewer bytes are live than there are",
    blames=("Allocator", "empty", "live_bytes", "same memory", "share"),
)
class GivesMemoryBackTwice(DeviceFactory):
    allocator = GivesBackTwice


class CopiesBytes(DeviceTransfer):
    """Copies from the host as many bytes as there are, as they are in memory."""

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        super().copy([(_in_order(source), target) for source, target in pairs], stream)


def _in_order(source: Any) -> Any:
    if not isinstance(source, np.ndarray) or source.flags.c_contiguous:
        return source
    return source.ravel(order="K").reshape(source.shape)


@planted(
    "copies-in-the-order-of-memory",
    "memory",
    breaks="An *array* is a numpy array on the host, of native byte order and of any "
    "layout that numpy allows: an EP that hands its address to native code makes it "
    "contiguous first.",
    source=f"{SPI}memory.py",
    finding="DataTransfer.copy of an array of the host that is not in C order is wrong",
    blames=("copy", "DataTransfer", "strides", "contiguous"),
)
class CopiesInTheOrderOfMemory(DeviceFactory):
    transfer = CopiesBytes


class SharesByName(DevicePartition):
    """Shares weights among sessions, by what they are called, and their shapes."""

    shared: ClassVar[weakref.WeakValueDictionary[Any, DeviceArray]] = (
        weakref.WeakValueDictionary()
    )

    def _call(self, node: ep.Node, operators: Mapping[str, Operator]) -> Call:
        call = super()._call(node, operators)
        for name, array in self.constants.items():
            key = name, array.shape, array.dtype
            self.constants[name] = self.shared.setdefault(key, array)
        return call


@planted(
    "shares-weights-by-their-names",
    "memory",
    breaks="What must never happen is that a session gets another one's weights.",
    source="docs/explanation/weights.md",
    finding="a session computes with the weights of another one that is open, whose "
    "weights have the same names and shapes",
    blames=("weight", "constant"),
)
class SharesWeightsByTheirNames(DeviceFactory):
    partition = SharesByName


class StacksFirst(DeviceContext):
    """Puts what is stacked one behind the other, whichever axis is asked for."""

    def stack(self, arrays: Sequence[Any], axis: int, stream: ep.Stream | None) -> Any:
        stacked = super().stack(arrays, 0, stream)
        shape = list(arrays[0].shape)
        shape.insert(axis, len(arrays))
        stacked.content = stacked.content.reshape(shape)
        stacked.shape = tuple(shape)
        return stacked


@planted(
    "stacks-along-the-first-axis",
    "memory",
    breaks="A new array of *arrays*, which are of one shape, along a new axis.",
    source=f"{SPI}device_context.py",
    finding="DeviceContext.stack along another axis than the first has elements in the "
    "wrong places",
    blames=("stack", "Scan"),
)
class StacksAlongTheFirstAxis(DeviceFactory):
    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        return StacksFirst(location, self.allocator(), self.transfer(), self.stream)


class FillsInPlace(DevicePartition):
    """Lets outputs be bound to inputs, as each of its kernels can work in place."""

    in_place = True


@planted(
    "fills-in-place-what-it-reads-later",
    "memory",
    breaks="``run`` is given it, and fills it as if it had read all inputs before.",
    source=f"{SPI}compiled.py",
    finding="wrong numbers where an output is bound to the array of an input that a "
    "later node reads",
    blames=("in_place", "in place", "bound to", "overlap"),
)
class FillsInPlaceWhatItReadsLater(DeviceFactory):
    partition = FillsInPlace
