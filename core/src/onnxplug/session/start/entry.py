"""What is kept of a session for the next start."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.files import lasting_state
from onnxplug.authoring.record import Record
from onnxplug.authoring.source_state import state_of
from onnxplug.session.start.partition import KeptPartition
from onnxplug.session.start.weights import KeptWeights, Unkept
from onnxplug.weights import of_host

if TYPE_CHECKING:
    from onnxplug.ep import CompiledPartition


class KeptSession(Record):
    """A session of one partition, as plain values.

    Attributes:
        ep: the name of its EP.
        restore: the module and the name of the function that restores the partition.
        content: what that function needs.
        partition, weights: as of :mod:`~.start.partition` and :mod:`~.start.weights`.
        mapped: files that weights are in are mapped.
        files: paths and states of those of the model.
        sources: folders and states of what supplied operators of it.
        inputs, declared: names and types of the model's inputs and outputs.
        described: as callers see them.
        results: types of the partition's outputs.
        taken: which of the model's inputs the partition takes, in its order.
        given: which of the partition's outputs the model gives, in its order.
    """

    ep: str
    restore: tuple[str, str]
    content: bytes
    partition: tuple[Any, ...]
    weights: dict[str, tuple[Any, ...]]
    mapped: bool
    files: list[tuple[str, tuple[int, ...]]]
    sources: list[tuple[list[str], str]]
    inputs: list[tuple[str, Any]]
    declared: list[tuple[str, Any]]
    described: list[tuple[Any, ...]]
    results: list[Any]
    taken: list[int]
    given: list[int]

    @property
    def outputs(self) -> list[str]:
        """The names of the model's outputs."""
        return [name for name, _ in self.declared]

    def restored(self) -> CompiledPartition:
        """What the EP restores.

        Raises:
            Unkept: a file, or source, is not as it was; ``OSError`` if a file is not
                there.
            Exception: the EP cannot; whatever its function raises.
        """
        for path, state in self.files:
            if lasting_state(os.stat(path)) != state:
                raise Unkept(f"{path!r} is not as it was")
        for folders, source in self.sources:
            if state_of(*folders) != source:
                raise Unkept(f"source in {folders} is not as it was")
        module, name = self.restore
        weights = KeptWeights(self.weights, self.files, mapped=self.mapped)
        partition: Any = KeptPartition(self.partition, weights)
        restore = getattr(import_module(module), name)
        found: CompiledPartition = restore(partition, self.content, of_host)
        return found
