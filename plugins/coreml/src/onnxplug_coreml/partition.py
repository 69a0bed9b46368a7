"""A partition ready to run: a loaded model, and its border with the host's arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound, fill_bound, usual_form
from onnxplug_coreml.artefact import Artefact, Manifest
from onnxplug_coreml.engine import Runner

_INT32: Final = np.iinfo(np.int32)


class CoreMLPartition(ep.CompiledPartition):
    """A model that the engine has loaded.

    Args:
        artefact: where the model is; deleted when the partition is closed.
        units: on which unit each node is computed, by its position; as far as the
            engine says.
    """

    def __init__(
        self,
        partition: ep.Partition,
        manifest: Manifest,
        runner: Runner,
        artefact: Artefact,
        units: Mapping[int, str],
    ) -> None:
        self._inputs: Final = tuple(zip(partition.inputs, manifest.inputs, strict=True))
        self._outputs: Final = tuple(
            zip(partition.outputs, manifest.outputs, strict=True)
        )
        self._checks: Final = manifest.checks
        self._types: Final = [partition.value(name).dtype for name in partition.outputs]
        self._runner: Runner | None = runner
        self._artefact = artefact
        self.report = ep.PartitionReport(tiers=units)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Predict; the engine lets other threads run meanwhile."""
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before the model was called")
        runner = self._runner
        if runner is None:
            raise RuntimeError("the partition was closed")
        feed = {
            border.name: narrowed(name, array, border.dtype)
            for (name, border), array in zip(self._inputs, inputs, strict=True)
        }
        found = runner(feed)
        for name, message in self._checks:
            if found[name]:
                raise ep.NodeError(message)
        results = [
            np.asarray(found[border.name], None if dtype is None else dtype.numpy)
            for (_, border), dtype in zip(self._outputs, self._types, strict=True)
        ]
        for (name, _), result, bound in zip(
            self._outputs, results, outputs, strict=True
        ):
            if bound is not None:
                check_bound(f"output {name!r}", result, bound)
        return fill_bound(results, outputs)

    def pack(self) -> bytes:
        """The files of the model."""
        return self._artefact.pack()

    def close(self) -> None:
        """Release the model, then delete its files."""
        self._runner = None
        self._artefact.close()


class EmptyPartition(ep.CompiledPartition):
    """A partition whose outputs have no elements, of which engines know nothing.

    Args:
        results: what it gives.
    """

    def __init__(self, results: Sequence[Any]) -> None:
        self._results: Final = results

    @staticmethod
    def of(partition: ep.Partition) -> EmptyPartition | None:
        """What there is to run of *partition*; ``None`` if it gives elements."""
        results = []
        for value in map(partition.value, partition.outputs):
            shape = value.shape or ()
            sizes = [size for size in shape if isinstance(size, int)]
            if value.dtype is None or 0 not in sizes or len(sizes) != len(shape):
                return None
            results.append(np.empty(sizes, value.dtype.numpy))
        return EmptyPartition(results)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Arrays without elements."""
        return fill_bound(self._results, outputs)


def narrowed(name: str, array: Any, dtype: ep.DataType) -> Any:
    """*array*, the input *name*, as the engine takes it: C-contiguous, of *dtype*.

    Raises:
        ValueError: a number does not fit.
    """
    if array.dtype == np.int64 and dtype is ep.DataType.INT32:
        if array.size and (array.min() < _INT32.min or array.max() > _INT32.max):
            wide = array[(array < _INT32.min) | (array > _INT32.max)].flat[0]
            raise ValueError(
                f"{name!r} has {wide}, and the model computes integers in 32 bits; run "
                "it on another EP"
            )
        return np.ascontiguousarray(array, np.int32)
    return usual_form(array, dtype.numpy)
