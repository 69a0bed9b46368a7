"""Partitions as bytes, in models that are compiled and in caches on disk."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_compiler.gpu.execution.artefact import read, write
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.context import GpuContext
from onnxplug_compiler.gpu.execution.partition import GpuPartition
from onnxplug_compiler.gpu.execution.program import Weights
from onnxplug_compiler.gpu.execution.restored import RestoredPartition


class GpuSerialiser(ep.Serialiser):
    """Keeps kernels, places and weights of partitions whose sizes are known.

    Only of dialects whose kernels may be anybody's; see :mod:`~.artefact`.

    Args:
        caches: whether it keeps them on disk, too.
    """

    def __init__(
        self, context: GpuContext, weights: Weights, backend: Backend, *, caches: bool
    ) -> None:
        self.caches = caches
        self._context = context
        self._weights = weights
        self._backend = backend

    def serialise(self, compiled: ep.CompiledPartition) -> bytes:
        """The partition as bytes.

        Raises:
            Declined: it cannot be, as sizes are not known, or nodes are on the host.
        """
        if isinstance(compiled, RestoredPartition):
            artefact = compiled.artefact
        else:
            assert isinstance(compiled, GpuPartition)
            artefact = compiled.artefact()
        shapes = self._backend.target.shapes
        return write(artefact, self._context.device, shapes)

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """The partition from its bytes.

        Raises:
            Declined: they are damaged, or were written by another version, or for
                another device or driver, or other shapes of workgroups.
        """
        try:
            shapes = self._backend.target.shapes
            artefact = read(data, self._context.device, shapes)
            return RestoredPartition(
                partition, artefact, self._context, self._weights, self._backend.mode
            )
        except ValueError as error:
            ep.raise_interruption(error)
            if isinstance(error, ep.OnnxplugError):
                raise
            raise ep.Declined(
                f"the compiled partition is of no use: {error}"
            ) from error
