"""Engines for the shapes that runs bring: one for all until now, built anew to grow.

The host compiles for each set of shapes that it meets, in the background while another
EP serves where the user wants that.  Here it finds the engine that is there already, if
that takes them, and has one built for these shapes and all before them if not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_tensorrt.engine import Engine, EngineSource
from onnxplug_tensorrt.profiles import Shape, covers, grown
from onnxplug_tensorrt.workshop import Workshop

_PATIENCE: Final = 0.1
"""Seconds after which it is asked again whether an engine is wanted."""


class Family:
    """The engines of one partition with inputs whose sizes are open.

    Args:
        partition: with open sizes.
        workshop: makes them.
    """

    def __init__(self, partition: ep.Partition, workshop: Workshop) -> None:
        self._partition = partition
        self._workshop = workshop
        self._building = new_lock()
        self._changing = new_lock()
        self._engine: Engine | None = None
        self._has_looked = False
        self._open = open_inputs(partition)

    def has(self, partition: ep.Partition) -> bool:
        """Whether *partition* is this one, specialised to some shapes."""
        own = self._partition
        if (own.inputs, own.outputs, len(own.nodes)) != (
            partition.inputs,
            partition.outputs,
            len(partition.nodes),
        ):
            return False
        try:
            same = own.specialise(self.shapes(partition))
        except (ValueError, ep.InvalidModel):
            return False
        # names alone may be those of another body's
        return same.graph is partition.graph or (
            same.fingerprint == partition.fingerprint
        )

    def shapes(self, partition: ep.Partition) -> dict[str, Shape]:
        """The shapes of the inputs whose sizes were open.

        Raises:
            ValueError: they are in *partition*, too.
        """
        found = {}
        for name in self._open:
            shape = partition.value(name).shape or ()
            sizes = tuple(size for size in shape if isinstance(size, int))
            if len(sizes) != len(shape):
                raise ValueError(f"the sizes of {name!r} are open")
            found[name] = sizes
        return found

    def prepare(
        self, shapes: dict[str, Shape], is_unwanted: Callable[[], bool]
    ) -> None:
        """Have an engine that takes inputs of these *shapes*, and of all before.

        Raises:
            Declined: TensorRT does not build it.
            LoadCancelled: nobody wants it any more.
        """
        while not self._building.acquire(timeout=_PATIENCE):
            if is_unwanted():
                raise ep.LoadCancelled("an engine for shapes of a run was not wanted")
        try:
            if not self._has_looked:
                self._has_looked = True
                self._keep(self._workshop.kept_for_runs(self._partition))
            before = self._engine
            if before is None or not covers(before.profile, shapes):
                profile = grown(None if before is None else before.profile, shapes)
                self._keep(
                    self._workshop.new_for_runs(self._partition, profile, is_unwanted)
                )
        finally:
            self._building.release()

    def open(self) -> Engine:
        """The engine that takes the most shapes until now, for whoever asks."""
        with self._changing:
            assert self._engine is not None
            return self._engine.open()

    def _keep(self, engine: Engine | None) -> None:
        """Have *engine* for runs that begin from now on."""
        if engine is not None:
            engine.open()
        with self._changing:
            before, self._engine = self._engine, engine
        if before is not None:
            before.close()

    def close(self) -> None:
        """Release the engine."""
        self._keep(None)


class Member(EngineSource):
    """What a partition of a family, specialised to some shapes, runs."""

    def __init__(self, family: Family) -> None:
        self._family = family

    def open(self) -> Engine:
        return self._family.open()

    def close(self) -> None:
        """The family has the engine for others."""


def open_inputs(partition: ep.Partition) -> tuple[str, ...]:
    """The inputs of which sizes are not known."""
    return tuple(
        name for name in partition.inputs if not _is_static(partition.value(name).shape)
    )


def _is_static(shape: tuple[ep.Dimension, ...] | None) -> bool:
    return shape is not None and all(isinstance(size, int) for size in shape)
