"""Ten mistakes of the EP with a device: in what it takes, computes and keeps."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import (
    DeviceAllocator,
    DeviceArray,
    DeviceSpaces,
    DeviceTransfer,
)
from ..device_partition import DevicePartition
from ..device_streams import own
from ..images import average_pool, convolution, windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array, Operator, why_not

SPI: Final = "core/src/onnxplug/ep/"
ENGINE: Final = "docs/tutorials/put-an-engine-behind-an-ep.md"
DEVICE: Final = "docs/tutorials/write-a-device-ep.md"

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


def _narrow(name: str, wide: Any, narrow: Any) -> Any:
    """The operator on *narrow* numbers where it is asked for *wide* ones."""

    def make(attributes: Any, version: int) -> Any:
        kernel = OPERATORS[name].make(attributes, version)

        def compute(*arrays: Array | None) -> Any:
            (first, *_) = arrays
            if first is None or first.dtype != wide:
                return kernel(*arrays)
            given = [None if each is None else each.astype(narrow) for each in arrays]
            return kernel(*given).astype(wide)

        return compute

    return make


@planted(
    "again-computes-int64-in-32-bits",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Add, Mul and Sub of int64 beyond 32 bits",
    blames=("int64", "int32", "32 bits", "overflow"),
)
class ComputesInt64In32Bits(DeviceFactory):
    operators_taken = changed(
        **{name: _narrow(name, np.int64, np.int32) for name in ("Add", "Mul", "Sub")}
    )


@planted(
    "multiplies-doubles-as-floats",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="MatMul and Gemm of float64 are as exact as of float32 only",
    blames=("float64", "double", "MatMul", "Gemm"),
)
class MultipliesDoublesAsFloats(DeviceFactory):
    operators_taken = changed(
        **{name: _narrow(name, np.float64, np.float32) for name in ("Gemm", "MatMul")}
    )


def _counting_all(attributes: Any, version: int) -> Any:
    return average_pool(2)({**attributes, "count_include_pad": 1}, version)


@planted(
    "averages-over-the-padding",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of AveragePool at borders: it counts what is padded, "
    "without count_include_pad",
    blames=("AveragePool", "count_include_pad", "pads", "padding"),
)
class AveragesOverThePadding(DeviceFactory):
    operators_taken = changed(AveragePool=_counting_all)


def _same(attributes: Any, sizes: Sequence[int]) -> Any:
    if attributes.get("auto_pad") == "SAME_LOWER":
        attributes = {**attributes, "auto_pad": "SAME_UPPER"}
    return windows_of(attributes, sizes)


@planted(
    "takes-all-same-padding-for-upper",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="wrong numbers of Conv where auto_pad is SAME_LOWER and padding is odd",
    blames=("Conv", "auto_pad", "SAME_LOWER"),
)
class TakesAllSamePaddingForUpper(DeviceFactory):
    operators_taken = changed(Conv=convolution(_same))


# claims

MOVES: Final = frozenset(
    {"Concat", "Expand", "Gather", "Identity", "Reshape", "Transpose"}
)
"""What only moves elements, whatever these are."""


def _has_its_sizes(graph: ep.Graph, node: ep.Node) -> bool:
    positions = OPERATORS[node.op_type].constants
    return all(graph.value(node.inputs[each] or "").is_constant for each in positions)


class MovingProvider(DeviceExecutionProvider):
    """Takes what only moves elements, without a look at their type."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        def check(node: ep.Node) -> ep.Reason | None:
            reason = why_not(graph, node, OPERATORS)
            if (
                reason is not None
                and reason.code is ep.RefusalCode.DTYPE
                and node.op_type in MOVES
                and _has_its_sizes(graph, node)
            ):
                return None
            return reason

        return ep.CapabilityReport.per_node(graph, check, keeps_constants=True)


@planted(
    "takes-texts-where-elements-only-move",
    "claims",
    breaks="So claim the operators that you have tested on your engine, as `OPERATORS` "
    "does, and no others.",
    source=ENGINE,
    finding="Identity, Reshape, Transpose, Gather … of strings are claimed, and fail "
    "as the device holds no texts",
    blames=("string", "strings", "STRING", "texts"),
)
class TakesTextsWhereElementsOnlyMove(DeviceFactory):
    provider = MovingProvider


# memory


class ReservedAllocator(DeviceAllocator):
    """Says how much it has got from the system."""

    @property
    def live_bytes(self) -> int:
        live = super().live_bytes
        with self._lock:
            return live + sum(free.memory.nbytes for free in self._free)


@planted(
    "counts-memory-that-it-keeps",
    "memory",
    breaks="That of arrays which are not garbage, and of what EPs and captured graphs "
    "hold besides; not what is kept to be handed out again.",
    source=SPI + "device_context.py",
    finding="live_bytes does not go back when arrays are gone",
    blames=("live_bytes", "leak", "still in use"),
)
class CountsMemoryThatItKeeps(DeviceFactory):
    allocator = ReservedAllocator


class BytesTransfer(DeviceTransfer):
    """Copies the bytes of an array of the host, from its first to its last."""

    def copy(self, pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
        super().copy([(_in_memory(a), b) for a, b in pairs], stream)


def _in_memory(array: Any) -> Any:
    if isinstance(array, DeviceArray) or not array.ndim:
        return array
    return array.ravel(order="K").reshape(array.shape)


@planted(
    "copies-bytes-as-they-lie",
    "memory",
    breaks="Arrays of the host may have any strides, and any of ONNX's element types, "
    "for some of which numpy has no name.",
    source=DEVICE,
    finding="copy to the device puts elements of arrays that are not C-contiguous, "
    "such as transposed ones, in another order",
    blames=("strides", "contiguous", "transposed", "C order"),
)
class CopiesBytesAsTheyLie(DeviceFactory):
    transfer = BytesTransfer


class ForgetfulAllocator(DeviceAllocator):
    """Makes arrays alike, whether their stream captures or not."""

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> DeviceArray:
        if dtype is ep.DataType.STRING:
            raise TypeError("the device holds no texts; keep them on the host")
        nbytes = dtype.numpy.itemsize
        for size in shape:
            nbytes *= size
        memory = self.memory(nbytes, stream)
        array = DeviceArray(memory.view(dtype.numpy).reshape(tuple(shape)))
        of = None if stream is None else weakref.ref(own(stream))
        weakref.finalize(array, self._give_back, memory, of).atexit = False
        return array


@planted(
    "gives-memory-of-captured-graphs-away",
    "memory",
    breaks="If it is capturing, the memory belongs to the captured graph until that is "
    "closed.",
    source=SPI + "memory.py",
    finding="a launch writes to arrays that were made after the capture, in memory of "
    "the graph",
    blames=("capture", "captured", "capturing", "CapturedGraph", "launch"),
)
class GivesMemoryOfCapturedGraphsAway(DeviceFactory):
    allocator = ForgetfulAllocator


# speed


class UploadingPartition(DevicePartition):
    """Copies constants to the device where they are needed: at the start of a run."""

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = None if context is None else context.stream
        pairs = [
            (self.partition.constant(name), array)
            for name, array in self.constants.items()
        ]
        self.context.transfer.copy(pairs, stream)
        return super().run(inputs, outputs, context)


@planted(
    "again-copies-constants-in-each-run",
    "speed",
    breaks="the EP copies what it needs of constants in ``compile``; the host may drop "
    "its own reference afterwards.",
    source=SPI + "capability.py",
    finding="each run asks for constants, and copies them to the device again",
    blames=("constant", "constants", "weights", "keeps_constants"),
)
class CopiesConstantsInEachRun(DeviceFactory):
    partition = UploadingPartition


# factory


class OneSpace(DeviceSpaces):
    """There is one device, so nobody has to say which."""

    def create_context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
        context: ep.DeviceContext = self._make(location)
        return context


@planted(
    "has-a-device-of-any-number",
    "factory",
    breaks="LookupError: there is no such device.",
    source=SPI + "device_context.py",
    finding="create_context makes a context of a device that there is not",
    blames=("create_context", "LookupError", "ordinal", "no such device"),
)
class HasADeviceOfAnyNumber(DeviceFactory):
    def __init__(self) -> None:
        self.memory_spaces = OneSpace(self.make_context)
