"""Arrays of a device's own memory: bound outputs that are filled, and constants.

What :mod:`~onnxplug.authoring.arrays` has for arrays of numpy's, without an array of
the host in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxplug.ep.device_context import MemoryKind
from onnxplug.ep.types import DataType
from onnxplug.errors import OutputMismatch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug.ep.device_context import DeviceContext
    from onnxplug.ep.graph import Partition
    from onnxplug.ep.streams import Stream
    from onnxplug.ep.weights import WeightStore


def fill_bound(
    results: Sequence[Any],
    outputs: Sequence[Any | None],
    context: DeviceContext,
    stream: Stream | None,
) -> list[Any]:
    """*results*, each copied into the array bound for it, if one is, on the device.

    Called when all that reads the inputs is queued, it may fill the array of an input,
    such as a cache that is bound as past and as present.

    Args:
        results, outputs: arrays of *context*.
        stream: that the copies are queued on, as what makes *results* is; ``None``:
            they are done when this returns.

    Raises:
        OutputMismatch: a bound array differs in shape or element type; nothing was
            written.
    """
    pairs = []
    for position, (result, bound) in enumerate(zip(results, outputs, strict=True)):
        if bound is None or bound is result:
            continue
        made, given = (_described(array, context) for array in (result, bound))
        if made != given:
            raise OutputMismatch(
                f"output {position} is {made[0]}{made[1]}, and the array bound to it "
                f"is {given[0]}{given[1]}; bind one like the output"
            )
        pairs.append((result, bound))
    if pairs:
        context.transfer.copy(pairs, stream)
    return [
        result if bound is None else bound
        for result, bound in zip(results, outputs, strict=True)
    ]


def constant_on_device(
    partition: Partition,
    name: str,
    context: DeviceContext,
    weights: WeightStore | None = None,
) -> Any:
    """The constant *name* as an array of *context*; nobody writes to it.

    Args:
        weights: ``SessionContext.weights`` of the context's location: sessions whose
            constants have the same bytes then share the array, which has to be one
            that weak references can be made to.  ``None``: this one has its own.

    Raises:
        LookupError: it is no constant of *partition*, or one of texts.
        MemoryError: there is not enough memory.
    """
    content, dtype = partition.constant(name), partition.value(name).dtype
    if content is None or dtype is None or dtype is DataType.STRING:
        raise LookupError(f"{name!r} is no constant of numbers")

    def make() -> Any:
        allocator = context.allocator(MemoryKind.DEVICE)
        if allocator is None:
            raise LookupError(f"{context.location} has no allocator of its memory")
        array = allocator.empty(content.shape, dtype)
        context.transfer.copy([(content, array)], None)
        return array

    source = partition.weight(name) if weights is not None else None
    if weights is None or source is None:
        return make()
    return weights.get(source, f"plain({dtype},{tuple(content.shape)})", make)


def _described(array: Any, context: DeviceContext) -> tuple[DataType, list[int]]:
    return context.data_type(array), [int(size) for size in array.shape]
