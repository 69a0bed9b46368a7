"""Mistakes in the EP with a device: in what it computes, claims and keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from onnxplug import ep

from ..device_ep import DeviceExecutionProvider, DeviceFactory
from ..device_memory import (
    SPACE,
    DeviceAllocator,
    DeviceArray,
    DeviceContext,
    DeviceTransfer,
)
from ..device_mistakes import ENGINE, OF_OPERATORS, SPI, changed
from ..device_partition import Call, DevicePartition, compute
from ..images import Windows, average_pool, convolution, max_pool, windows_of
from ..mistake import planted
from ..operators import OPERATORS, Array

# operators


def _by_exponentials(attributes: Any, version: int) -> Any:
    def tanh(x: Array) -> Any:
        power = np.expm1(2 * x)
        return power / (power + 2)

    return tanh


@planted(
    "divides-infinities-in-tanh",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Tanh of a large number, such as 100, is NaN and not 1",
    blames=("Tanh",),
)
class DividesInfinitiesInTanh(DeviceFactory):
    operators_taken = changed(Tanh=_by_exponentials)


def _evenly(attributes: Any, sizes: Sequence[int]) -> Windows:
    # the library is told how much is padded, and not where
    windows = windows_of(attributes, sizes)
    pads = [(sum(pair) // 2, sum(pair) - sum(pair) // 2) for pair in windows.pads]
    return windows._replace(pads=tuple(pads))


@planted(
    "pads-both-ends-alike",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Conv and pools are wrong where more is padded before than behind, or by "
    "two more behind",
    blames=("Conv", "MaxPool", "AveragePool", "pads"),
)
class PadsBothEndsAlike(DeviceFactory):
    operators_taken = changed(
        AveragePool=average_pool(2, _evenly),
        Conv=convolution(_evenly),
        MaxPool=max_pool(2, _evenly),
    )


class ClosesUp(DevicePartition):
    """Hands a kernel the inputs that there are, one after the other."""

    def work(self, call: Call, arguments: Sequence[Any], result: Any) -> Any:
        contents = [each.content for each in arguments if each is not None]
        return partial(compute, call.kernel, contents, result.content)


@planted(
    "closes-up-inputs-that-are-left-out",
    "operators",
    breaks="Names of the inputs; ``None`` for one that is left out.",
    source=f"{SPI}graph.py",
    finding="Clip without a least value takes the greatest for it",
    blames=("Clip",),
)
class ClosesUpInputsThatAreLeftOut(DeviceFactory):
    partition = ClosesUp


BINDINGS: Final = 8
"""Inputs that a kernel of the device can have."""


def _of_eight(attributes: Any, version: int) -> Any:
    concatenate = OPERATORS["Concat"].make(attributes, version)

    def of(*parts: Array) -> Any:
        rest = [np.zeros_like(each) for each in parts[BINDINGS:]]
        return concatenate(*parts[:BINDINGS], *rest)

    return of


@planted(
    "concatenates-eight-at-most",
    "operators",
    breaks=OF_OPERATORS,
    source=ENGINE,
    finding="Concat of more than eight inputs leaves out those after the eighth",
    blames=("Concat",),
)
class ConcatenatesEightAtMost(DeviceFactory):
    operators_taken = changed(Concat=_of_eight)


# claims


class ClaimsSums(DeviceExecutionProvider):
    """Claims MatMul with the Add behind it, and what is left, one by one."""

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        report = super().get_capability(graph)
        taken = [index for claim in report.claims for index in claim.nodes]
        pairs = []
        for index in taken:
            product = graph.nodes[index]
            readers = [
                node.index
                for node in graph.nodes
                if product.outputs[0] in node.inputs and node.op_type == "Add"
            ]
            is_product = not product.domain and product.op_type == "MatMul"
            if is_product and len(readers) == 1 and readers[0] in taken:
                pairs.append((index, readers[0]))
        fused = {product for product, _sum in pairs}
        single = tuple(index for index in taken if index not in fused)
        claims = [
            ep.ComputeCapability(nodes=pair, atomic=True, keeps_constants=True)
            for pair in pairs
        ]
        if single:
            claims.append(ep.ComputeCapability(nodes=single, keeps_constants=True))
        return ep.CapabilityReport(claims=tuple(claims), refusals=report.refusals)


@planted(
    "claims-sums-of-products-twice",
    "claims",
    breaks="Every node of a graph is in exactly one claim or one refusal",
    source=f"{SPI}capability.py",
    finding="an Add behind a MatMul is in two claims",
    blames=("claim", "Add", "get_capability"),
)
class ClaimsSumsOfProductsTwice(DeviceFactory):
    provider = ClaimsSums


# memory


class TakesViews(DeviceContext):
    """Gives a part of an array as it lies there."""

    def take(self, array: Any, axis: int, index: int, stream: ep.Stream | None) -> Any:
        return DeviceArray(np.moveaxis(array.content, axis, 0)[index, ...])


@planted(
    "takes-parts-of-what-goes",
    "memory",
    breaks="For inputs that Scan goes through; a view or a copy.",
    source=f"{SPI}device_context.py",
    finding="what DeviceContext.take gave changes when the array that it is of is gone "
    "and its memory is handed out again",
    blames=("take", "Scan"),
)
class TakesPartsOfWhatGoes(DeviceFactory):
    def make_context(self, location: ep.MemoryLocation) -> DeviceContext:
        return TakesViews(location, self.allocator(), self.transfer(), self.stream)


class CountsAll(DeviceAllocator):
    """Counts all that it has from the system."""

    @property
    def live_bytes(self) -> int:
        live = super().live_bytes
        with self._lock:
            return live + sum(free.memory.nbytes for free in self._free)


@planted(
    "counts-free-memory-as-live",
    "memory",
    breaks="not what is kept to be handed out again",
    source=f"{SPI}device_context.py",
    finding="live_bytes is no less when arrays are gone",
    blames=("live_bytes",),
)
class CountsFreeMemoryAsLive(DeviceFactory):
    allocator = CountsAll


class CopiesAnywhere(DeviceTransfer):
    """Says that it copies wherever the device is one of the two."""

    def can_copy(self, source: ep.MemoryLocation, target: ep.MemoryLocation) -> bool:
        return SPACE in (source.space, target.space)


@planted(
    "says-that-it-copies-to-any-device",
    "memory",
    breaks="Whether :meth:`copy` works between these locations.",
    source=f"{SPI}memory.py",
    finding="DataTransfer.can_copy is true between this device and others, of which it "
    "knows nothing",
    blames=("can_copy",),
)
class SaysThatItCopiesToAnyDevice(DeviceFactory):
    transfer = CopiesAnywhere


# failure


class CountsIn32Bits(DeviceAllocator):
    """Has the number of bytes in 32 bits."""

    def memory(self, nbytes: int, stream: ep.Stream | None) -> Array:
        return super().memory(nbytes & 0xFFFFFFFF, stream)


@planted(
    "counts-bytes-in-32-bits",
    "failure",
    breaks="MemoryError: there is not enough memory.",
    source=f"{SPI}memory.py",
    finding="Allocator.empty of 4 GiB raises something else than MemoryError",
    blames=("MemoryError", "OutOfMemory", "empty", "Allocator"),
)
class CountsBytesIn32Bits(DeviceFactory):
    allocator = CountsIn32Bits


class ForgetsOnSuccess(DevicePartition):
    """Keeps the arrays of a run until it has queued all of it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._held: list[list[Any]] = []

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        self._held.append([])
        results = super().run(inputs, outputs, context)
        self._held.pop()
        return results

    def result(self, *arguments: Any) -> Any:
        result = super().result(*arguments)
        self._held[-1].append(result)
        return result


@planted(
    "leaks-in-runs-that-fail",
    "failure",
    breaks="An array's memory is free again when the array is gone.",
    source="docs/explanation/memory-and-streams.md",
    finding="memory of the device grows with each run that fails, as where memory for "
    "a later result is not to be had",
    blames=("live_bytes", "leak", "memory", "OutOfMemory"),
)
class LeaksInRunsThatFail(DeviceFactory):
    partition = ForgetsOnSuccess


# costs


@planted(
    "takes-forever-by-its-costs",
    "costs",
    breaks="All are finite and not less than 0.",
    source=f"{SPI}costs.py",
    finding="Costs.seconds_per_byte is infinite, as the bandwidth is said to be 0",
    blames=("Costs", "seconds_per_byte", "costs"),
)
class TakesForeverByItsCosts(DeviceFactory):
    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        for pair in super().supported_devices(devices):
            bandwidth = float(pair.device.metadata.get("Bandwidth", 0))
            seconds = 1 / bandwidth if bandwidth else math.inf
            yield ep.EpDevice(
                ep_name=pair.ep_name,
                device=pair.device,
                metadata=pair.metadata,
                costs=ep.Costs(seconds_per_copy=0, seconds_per_byte=seconds),
                by_name_only=True,
            )
