"""An EP in one session."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from onnxplug.ep.capability import CapabilityReport
from onnxplug.ep.compiled import CompiledPartition
from onnxplug.ep.graph import Graph, Partition
from onnxplug.ep.memory import HOST, MemoryLocation
from onnxplug.ep.preferences import Preferences

if TYPE_CHECKING:
    from onnxplug.ep.costs import CostModel
    from onnxplug.ep.dynamic import DynamicOptions
    from onnxplug.ep.serialiser import Serialiser
    from onnxplug.ep.specialiser import Specialiser
    from onnxplug.ep.streams import GraphCapture


class ExecutionProvider(ABC):
    """An EP as one session sees it.

    An author writes the two methods that are abstract.  The rest may be left as it is:
    an ability that the EP has not is ``None``, and one that it has is an object, of a
    class of its own.

    Used from the thread that creates the session, but for ``compile`` where
    :class:`onnxplug.ep.Specialiser` says so.
    """

    location: MemoryLocation = HOST
    """The default place of inputs and outputs."""

    @abstractmethod
    def get_capability(self, graph: Graph) -> CapabilityReport:
        """Claim or refuse every node of *graph*, each refusal with a reason.

        Pure: the host asks again for bodies of control flow, after expanding functions
        and after a partition was given back.  Raising is a failure of the EP.
        """

    @abstractmethod
    def compile(self, partition: Partition) -> CompiledPartition:
        """Make *partition* ready to run.  The partition may be kept.

        Raises:
            Declined: gives the nodes, or those that it names, to the next EP that
                claimed them.
            SessionRefused: the session must not be created.
        """

    def close(self) -> None:
        """(optional) Release resources.  Idempotent; after all its partitions."""
        return None

    # abilities

    preferences: Preferences = Preferences()
    """In what form it wants the nodes that it gets.

    For EPs that do not keep quantised weights the last EP that works on the host
    computes them when their content is asked for: its ``get_capability`` and
    ``compile`` are then called for a node by itself, from the thread that asks.
    """

    serialiser: Serialiser | None = None
    """Makes bytes of what is compiled, and restores it."""

    specialiser: Specialiser | None = None
    """Has partitions compiled by input shapes; ``None``: one compiled partition is for
    all shapes."""

    capture: GraphCapture | None = None
    """Has runs on bound values captured and replayed, as the EP's options ask for."""

    cost_model: CostModel | None = None
    """Tells how long nodes take."""

    dynamic_options: DynamicOptions | None = None
    """Takes options that change while the session lives."""
