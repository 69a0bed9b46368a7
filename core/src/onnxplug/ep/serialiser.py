"""What an EP compiled as bytes, and back.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from onnxplug.ep.compiled import CompiledPartition
    from onnxplug.ep.graph import Partition


class Serialiser(ABC):
    """Makes bytes of an EP's compiled partitions, for later sessions and processes.

    What these depend on is the factory's to say: ``EpFactory.compatibility``.
    """

    caches: bool = False
    """What is compiled is kept on disk for other processes, and restored there: the
    same partition for the same devices, options, system and versions, of which those of
    engine and driver are ``EpFactory.engine_versions``.  Worth it where restoring is
    much sooner done than compiling."""

    @abstractmethod
    def serialise(self, compiled: CompiledPartition) -> bytes | memoryview:
        """What the EP compiled or restored, as bytes for :meth:`restore`.

        The host calls it before the first run, and stores the bytes with a checksum,
        the EP's options and what ``EpFactory.compatibility`` says.

        Raises:
            Declined: this one cannot be; says why.
        """

    @abstractmethod
    def restore(self, partition: Partition, data: memoryview) -> CompiledPartition:
        """What :meth:`serialise` gave, ready to run.

        The host has compared checksum and options, and had ``EpFactory.compatibility``
        check.  Who wrote the model wrote the data, which may be hostile with a checksum
        that is right.  Called as ``ExecutionProvider.compile`` is.

        Args:
            partition: that which was compiled, or a single node of operator
                ``EPContext`` that stands for it: inputs and outputs, their order and
                their types are the same.
            data: the bytes, read-only, which may be mapped from a file.  They stay as
                long as this object does.

        Raises:
            Declined: the data is not of use; says why.
        """
