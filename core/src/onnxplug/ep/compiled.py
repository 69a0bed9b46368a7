"""What an EP compiles a partition to, and what it is told of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from onnxplug.authoring.record import Record

if TYPE_CHECKING:
    from onnxplug.ep.graph import Partition
    from onnxplug.ep.memory import MemoryLocation
    from onnxplug.ep.option import OptionValue
    from onnxplug.ep.profiler import Profiler
    from onnxplug.ep.report import PartitionReport
    from onnxplug.ep.streams import CapturePhase, Stream
    from onnxplug.ep.weights import WeightStore


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


class Prewarmer(ABC):
    """Makes ready, before a run, what a compiled partition makes by shapes in runs."""

    @abstractmethod
    def prewarm(self, partition: Partition) -> bool:
        """Make ready for runs of the input shapes that *partition* states.

        As ``InferenceSession.prepare`` asks for, from any thread, also while other
        threads run.

        Args:
            partition: the one that was compiled, specialised.

        Returns:
            Whether runs of these shapes find ready what they would have to make.
        """


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


class CompiledPartition(ABC):
    """A partition ready to run.

    An author writes ``run``.  The rest may be left as it is.
    """

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

    def close(self) -> None:
        """(optional) Release resources.  Idempotent; before the EP's own ``close``."""
        return None

    # what the host heeds in runs

    input_locations: Sequence[MemoryLocation] | None = None
    """Where each input is wanted; ``None``: all in the EP's location."""

    output_locations: Sequence[MemoryLocation] | None = None
    """Where each output is left; ``None``: all in the EP's location."""

    max_concurrent_runs: int | None = None
    """``None``: ``run`` may be called from any number of threads at once; otherwise
    by this many, and work that a call queues is ordered after that of the call so many
    before it.  The session's report says so."""

    in_place: bool = False
    """Whether an output may be bound to the very array of an input that nothing else in
    the model reads: ``run`` is given it, and fills it as if it had read all inputs
    before.  ``False``: the host has such an output filled when the run has ended."""

    # abilities

    report: PartitionReport | None = None
    """What is said of the partition.  It may change in runs; the host asks anew for
    each report."""

    restorable: Restorable | None = None
    """How it is restored without its graph, as when a process starts; ``None``: it is
    not.  Asked for once, before the first run."""

    prewarmer: Prewarmer | None = None
    """Makes ready what is made by shapes in runs; ``None``: nothing is."""
