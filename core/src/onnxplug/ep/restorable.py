"""What lets a compiled partition be restored without its graph.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug.ep.compiled import CompiledPartition
    from onnxplug.ep.graph import Partition
    from onnxplug.ep.weights import WeightStore


class Restorable(Record):
    """How a compiled partition is restored in another process, whose host has read no
    model.

    The host keeps it on disk for the same file of a model, in the same state, options,
    versions of Python and numpy, and sources of its own; what else it depends on, such
    as its own source or the processor, is the EP's to compare.

    Attributes:
        restore: a function of a module, which is imported by its name.  It is given a
            partition, *content*, and the store of the host's weights, and raises
            whatever it likes where it cannot restore; then the model is read and
            compiled.  So it is when a run of what it returned raises anything.

            Of the partition's nodes only the indices are there, but for those at
            *nodes*; of its values the types of those that these nodes name, of inputs
            and of outputs; its constants; and its opsets.  All else raises.
        content: what it needs to know.
        nodes: positions of nodes that are restored whole.
    """

    restore: Callable[[Partition, bytes, WeightStore], CompiledPartition]
    content: bytes
    nodes: Collection[int] = ()
