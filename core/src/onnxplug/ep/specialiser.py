"""Compiling by input shapes.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug.ep.graph import Partition
    from onnxplug.ep.memory import MemoryLocation


class ValueLocations(Record):
    """Where what an EP compiles for any shapes has its values; see
    ``CompiledPartition.input_locations`` and ``output_locations``."""

    inputs: Sequence[MemoryLocation] | None = None
    outputs: Sequence[MemoryLocation] | None = None


class Specialiser:
    """Has partitions compiled for each set of input shapes.

    A partition whose inputs have sizes that are not known is not compiled when the
    session is made, but for each set of shapes in the first run that has it,
    specialised to these.  ``compile`` and the serialiser are called from any thread,
    several times at once, and never under a lock of the host's.  What was not used for
    longest is closed, once no run is in it and what it queued is done.
    """

    limit: int = 8
    """For how many sets of input shapes the host keeps what the EP compiles, for each
    partition; at least 1."""

    pads: bool = False
    """The host may pad what is compiled by input shapes, in dimensions that the user
    names (``session.pad_dimensions``) and whose positions the operators compute one by
    one.  So must the EP: if it quantises on its own account, say, then not by what is
    at other positions."""

    def examine(self, partition: Partition) -> ValueLocations | None:
        """(optional) Look at a partition that is to be compiled for shapes in runs.

        What no shapes would change is declined here, where other EPs can still take it:
        when a specialised partition is declined in a run, the run fails.

        Args:
            partition: has sizes that are not known.

        Returns:
            Where values are, whatever the shapes; ``None``: all in the EP's location.

        Raises:
            Declined, SessionRefused: as of ``ExecutionProvider.compile``.
        """
        return None
