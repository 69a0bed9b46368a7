"""An EP in one session, and what it compiles a partition to."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from onnxplug.authoring.record import Record
from onnxplug.ep.capability import CapabilityReport, Reason, RefusalCode
from onnxplug.ep.graph import Graph, Node, Partition
from onnxplug.ep.memory import HOST, MemoryLocation
from onnxplug.ep.option import OptionValue
from onnxplug.ep.preferences import Preferences
from onnxplug.ep.profiler import Profiler
from onnxplug.errors import Declined

if TYPE_CHECKING:
    from onnxplug.ep.editor import GraphEditor
    from onnxplug.ep.streams import CapturePhase, Stream


class RunContext(Protocol):
    """One run, as the host describes it to the EPs.  May gain attributes."""

    @property
    def options(self) -> Mapping[str, OptionValue]:
        """Every one of the EP's ``run_options``, typed and validated.

        EPs written for an SPI before (0, 4) are given all of the run's config entries,
        as written.
        """

    @property
    def stream(self) -> Stream | None:
        """The stream of the EP's location to queue work on; ``None`` if it has none.

        Partitions of all EPs at that location queue on the same one."""

    @property
    def capture(self) -> CapturePhase | None:
        """What the run is for, in a session that captures; else ``None``."""

    @property
    def deadline(self) -> float | None:
        """``time.monotonic()`` after which the result is no longer wanted."""

    @property
    def cancelled(self) -> bool:
        """The run was cancelled; an EP that looks raises ``RunCancelled``."""

    @property
    def profiler(self) -> Profiler | None:
        """Records what the EP does; ``None`` in a run that is not profiled."""


class CompiledPartition(ABC):
    """A partition ready to run."""

    input_locations: Sequence[MemoryLocation] | None = None
    """Where each input is wanted; ``None``: all in the EP's location."""

    output_locations: Sequence[MemoryLocation] | None = None
    """Where each output is left; ``None``: all in the EP's location."""

    max_concurrent_runs: int | None = None
    """``None``: ``run`` may be called from any number of threads at once; otherwise
    by this many, and work that a call queues is ordered after that of the call so many
    before it.  The session's report says so."""

    tiers: Mapping[str, int] = {}
    """(optional) How many nodes run in which of the EP's tiers, for reports."""

    node_tiers: Mapping[int, str] = {}
    """(optional) The tier of a node, by its position in ``Partition.nodes``."""

    notes: Mapping[int, str] = {}
    """(optional) What is to be said of a node, such as why it is in no faster tier, by
    its position in ``Partition.nodes``.  Like the tiers it may change in runs; the host
    asks anew for each report."""

    counts: Mapping[str, int] = {}
    """(optional) How many of what it has made for the shapes that it met, by a word in
    the plural such as ``plans``, for reports.  It may change in runs."""

    @abstractmethod
    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Compute the outputs, in the order of ``Partition.outputs``.

        The host calls it by position, binds it once, and accepts any callable of this
        signature in its place.

        Args:
            inputs: arrays in the order of ``Partition.inputs``, at
                :attr:`input_locations`.  Never written to; may be read-only.  Those
                on the host are numpy's, of the graph's element type in the machine's
                order of bytes, with any strides; what the caller of the session feeds
                is C-contiguous and aligned.
            outputs: for each output ``None`` (allocate it; the array then belongs to
                the host, and the EP never writes to it again) or an array that the
                caller bound: fill it and return it.
            context: ``None`` when the session has no streams and the run was
                given no options.

        Returns:
            One array per output, of the element type and shape that the operators
            give; on the host numpy's.  An output may be an input itself or, on the
            host, a view of one, which is copied for the caller; a new array that owns
            its memory need not be.
            With a stream, arrays of the EP's memory may still be computed by work
            queued on it, but have their final shape and dtype; host arrays are ready.

        Raises:
            OutputMismatch: a bound array has not the output's shape or dtype; raised
                before anything is written.
        """

    def serialize(self) -> bytes | memoryview | None:
        """(optional) Itself as bytes, for :meth:`ExecutionProvider.restore`.

        The host calls it after ``compile`` and before the first run, and stores the
        bytes with a checksum, the EP's options and what
        ``EpFactory.compatibility_info`` says.

        Returns:
            ``None``: the EP serialises nothing.

        Raises:
            Declined: this one cannot be; says why.
        """
        return None

    def prepare(self, partition: Partition) -> bool:
        """(optional) Make ready for runs of the input shapes that *partition* states.

        For what is made by shapes in runs, as ``InferenceSession.prepare`` asks for.
        From any thread, also while other threads run.

        Args:
            partition: the one that this was compiled from, specialised.

        Returns:
            Whether runs of these shapes find ready what they would have to make.
        """
        return False

    def close(self) -> None:
        """(optional) Release resources.  Idempotent; before the EP's own ``close``."""
        return None


class ValueLocations(Record):
    """Where what an EP compiles for any shapes has its values; see
    :attr:`CompiledPartition.input_locations` and ``output_locations``."""

    inputs: Sequence[MemoryLocation] | None = None
    outputs: Sequence[MemoryLocation] | None = None


class ExecutionProvider(ABC):
    """An EP as one session sees it.

    Used from the thread that creates the session, but for ``compile`` where
    :attr:`specialises` says so.
    """

    location: MemoryLocation = HOST
    """The default place of inputs and outputs."""

    captures: bool = False
    """Runs on bound values are captured and replayed, as the EP's options ask for.  The
    host refuses the session if another EP or the host has a part in it, and so does
    the EP, by ``SessionRefused``, if it claimed what cannot be captured."""

    caches: bool = False
    """What is compiled is kept on disk for other processes, and restored there: the
    same partition for the same devices, options, system and versions, of which those of
    engine and driver are ``EpFactory.engine_versions``.  Worth it where restoring is
    much sooner done than compiling."""

    preferences: Preferences = Preferences()
    """In what form it wants the nodes that it gets.

    For EPs that do not keep quantised weights the last EP that works on the host
    computes them when their content is asked for: its ``get_capability`` and
    ``compile`` are then called for a node by itself, from the thread that asks.
    """

    specialises: int = 0
    """For how many sets of input shapes the host keeps what the EP compiles, for each
    partition; 0: one compiled partition is for all shapes.

    A partition whose inputs have sizes that are not known is then not compiled when the
    session is made, but for each set of shapes in the first run that has it,
    specialised to these.  ``compile``, ``restore`` and ``serialize`` are called from
    any thread, several times at once, and never under a lock of the host's.  What was
    not used for longest is closed, once no run is in it and what it queued is done.
    Before, :meth:`examine` is asked."""

    pads: bool = False
    """The host may pad what is compiled by input shapes, in dimensions that the user
    names (``session.pad_dimensions``) and whose positions the operators compute one by
    one.  So must the EP: if it quantises on its own account, say, then not by what is
    at other positions."""

    @abstractmethod
    def get_capability(self, graph: Graph) -> CapabilityReport:
        """Claim or refuse every node of *graph*, each refusal with a reason.

        Pure: the host asks again for bodies of control flow, after expanding functions
        and after a partition was given back.  Raising is a failure of the EP.
        """

    def expands(self, graph: Graph, node: Node) -> bool:
        """(optional) Whether it would rather have the function body of *node*.

        Asked for the nodes that it gets, whose place the bodies take if there are any
        and EPs, whichever, run all of their nodes.  Pure.
        """
        return False

    def estimate(self, graph: Graph, nodes: Sequence[Node]) -> float | None:
        """(optional) How long *nodes* of *graph* take, in seconds, without copies.

        Asked where a partition may not be worth its copies: the EP that has it, and
        those that would have its nodes instead.  Pure and quick: nothing is compiled
        or run.

        Returns:
            finite and not less than 0; ``None`` if that is not known, such as without
            the shapes.  Unless all know, the pair's :class:`Costs` decide.
        """
        return None

    def rewrite(self, editor: GraphEditor, nodes: Sequence[Node]) -> Sequence[str]:
        """(optional) Replace some of *nodes*, which it gets, by others that it takes.

        Asked once for each graph of which it gets nodes, after bodies were expanded and
        quantised weights became constants.  The host takes all of it back where
        some new node is not claimed.

        Args:
            editor: of the graph; what is not among *nodes* has to stay as it is, and so
                do the types of what others read.

        Returns:
            What was replaced, in words; nothing, if nothing was.
        """
        return ()

    @abstractmethod
    def compile(self, partition: Partition) -> CompiledPartition:
        """Make *partition* ready to run.  The partition may be kept.

        Raises:
            Declined: gives the nodes, or those that it names, to the next EP that
                claimed them.
            SessionRefused: the session must not be created.
        """

    def restore(self, partition: Partition, data: memoryview) -> CompiledPartition:
        """(optional) What :meth:`CompiledPartition.serialize` gave, ready to run.

        The host has compared checksum and options, and asked ``EpFactory.check``.  Who
        wrote the model wrote the data, which may be hostile with a checksum that is
        right.

        Args:
            partition: that which was compiled, or a single node of operator
                ``EPContext`` that stands for it: inputs and outputs, their order and
                their types are the same.
            data: the bytes, read-only, which may be mapped from a file.  They stay as
                long as this object does.

        Raises:
            Declined: the data is not of use; says why.
        """
        reason = Reason(
            RefusalCode.OTHER, f"{type(self).__name__} restores no compiled partitions"
        )
        raise Declined(reason)

    def examine(self, partition: Partition) -> ValueLocations | None:
        """(optional) Look at a partition that is to be compiled for shapes in runs.

        What no shapes would change is declined here, where other EPs can still take it:
        when a specialised partition is declined in a run, the run fails.

        Args:
            partition: has sizes that are not known.

        Returns:
            Where values are, whatever the shapes; ``None``: all in the EP's location.

        Raises:
            Declined, SessionRefused: as of :meth:`compile`.
        """
        return None

    def close(self) -> None:
        """(optional) Release resources.  Idempotent; after all its partitions."""
        return None
