"""The CUDA EP in one session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug_compiler.gpu.execution.partition import GpuPartition
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.provider import GpuProvider
from onnxplug_cuda.backend import BACKEND
from onnxplug_cuda.context import CudaContext
from onnxplug_cuda.external import ExternalSource
from onnxplug_cuda.options import UNLIMITED, MemorySettings, Settings
from onnxplug_cuda.streams import CudaStream
from onnxplug_cuda.target import CudaTarget

_SHARED: Final = MemorySettings()
"""How memory is taken where sessions share an arena."""


class CudaProvider(GpuProvider):
    """Runs partitions as kernels of one GPU.

    Args:
        context: of the GPU, whose libraries were opened.
        weights: where constants on the GPU are shared, unless memory is limited, or
            the user's.
    """

    _context: CudaContext

    def __init__(
        self, context: CudaContext, weights: ep.WeightStore, settings: Settings
    ) -> None:
        target = CudaTarget(context.device, settings)
        arena = _arena(context, settings.memory)
        has_own = settings.memory.has_own_weights
        own = Weights(
            context.device,
            None if has_own else weights,
            BACKEND.distribution,
            arena if has_own else "",
        )
        super().__init__(context, own, BACKEND._replace(mode=arena, target=target))
        self._arena = arena
        self._settings = settings
        self._is_closed = False
        self.capture = context.capture if settings.captures else None

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """Programs by the shapes of inputs.

        Raises:
            Declined: some nodes are not computed after all, or cannot be captured,
                which the session asks for.
            OutOfMemory: there is no memory for weights.
        """
        compiled = CudaPartition(
            partition,
            self._context,
            self._weights,
            self._backend,
            copies_apart=self._settings.memory.copies_apart,
        )
        if self._settings.captures and compiled.waits:
            why = "; ".join(dict.fromkeys(compiled.waits.values()))
            nodes = [node for node in partition.nodes if node.index in compiled.waits]
            compiled.close()
            raise ep.Declined(
                f"{why}, which a run that is captured cannot wait for; turn "
                "enable_cuda_graph off",
                nodes=nodes,
            )
        return compiled

    def close(self) -> None:
        """Give up constants, and memory."""
        if not self._is_closed:
            self._is_closed = True
            super().close()
            self._context.device.close_arena(self._arena)


class CudaPartition(GpuPartition):
    """A partition whose copies may have a stream of their own."""

    def __init__(self, *given: Any, copies_apart: bool) -> None:
        super().__init__(*given)
        self._copies_apart = copies_apart

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """As of any; the stream, which is the session's, is told how to copy."""
        stream = None if context is None else context.stream
        if isinstance(stream, CudaStream):
            stream.copies_beside = self._copies_apart
        return super().run(inputs, outputs, context)


def _arena(context: CudaContext, settings: MemorySettings) -> str:
    """The word of the arena that a session takes memory of."""
    if settings._replace(copies_apart=False) == _SHARED:
        return ""
    external = settings.allocator
    source = None
    if external.alloc:
        source = ExternalSource(external.alloc, external.free, external.empty_cache)
    return context.device.open_arena(
        None if settings.limit == UNLIMITED else settings.limit,
        doubles=settings.doubles and source is None,
        source=source,
    )
