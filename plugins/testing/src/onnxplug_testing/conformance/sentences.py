"""What the contract says of memory, streams and failures, as findings quote it."""

from __future__ import annotations

from typing import Final

from onnxplug_testing.conformance.contract import ROBUSTNESS, STREAMS, Sentence

# of partitions

RESULTS: Final = Sentence(
    "CompiledPartition.run",
    "One array per output, of the element type and shape that the operators give",
)
COMPUTED: Final = Sentence(
    "CompiledPartition.run",
    "Compute the outputs, in the order of ``Partition.outputs``.",
)
INPUTS: Final = Sentence("CompiledPartition.run", "Never written to; may be read-only.")
WRITTEN_TO: Final = Sentence(
    "Outputs belong to you",
    "What `run` returns is the caller's: writing to it changes no weight, no input and "
    "no other output.",
    STREAMS,
)
STRIDES: Final = Sentence(
    "CompiledPartition.run",
    "numpy's, of the graph's element type in the machine's order of bytes, with any "
    "strides",
)
BOUND: Final = Sentence("CompiledPartition.run", "fill it and return it")
GIVEN_AWAY: Final = Sentence(
    "CompiledPartition.run",
    "the array then belongs to the host, and the EP never writes to it again",
)
VIEWS: Final = Sentence(
    "CompiledPartition.run",
    "An output may be an input itself or, on the host, a view of one, which is copied "
    "for the caller",
)
MISMATCH: Final = Sentence(
    "CompiledPartition.run",
    "a bound array has not the output's shape or dtype; raised before anything is "
    "written.",
)
QUEUED: Final = Sentence(
    "CompiledPartition.run",
    "With a stream, arrays of the EP's memory may still be computed by work queued on "
    "it, but have their final shape and dtype",
)
IN_PLACE: Final = Sentence(
    "CompiledPartition.in_place",
    "``run`` is given it, and fills it as if it had read all inputs before.",
)
CONCURRENT: Final = Sentence(
    "CompiledPartition.max_concurrent_runs",
    "``None``: ``run`` may be called from any number of threads at once",
)
OWN_OF_RUNS: Final = Sentence(
    "Many runs at once",
    "what is shared (plans, compiled partitions) is not written to",
    STREAMS,
)
CLOSE_PARTITION: Final = Sentence(
    "CompiledPartition.close", "Idempotent; before the EP's own ``close``."
)
LOCATIONS: Final = Sentence(
    "CompiledPartition.output_locations", "Where each output is left"
)
CANCELLED: Final = Sentence(
    "RunContext.cancelled", "an EP that looks raises ``RunCancelled``"
)
DEADLINE: Final = Sentence(
    "RunContext.deadline",
    "``time.monotonic()`` after which the result is no longer wanted.",
)
COMPILED: Final = Sentence(
    "ExecutionProvider.compile",
    "Make *partition* ready to run.  The partition may be kept.",
)

# of what an EP prefers

REWRITE: Final = Sentence(
    "Preferences",
    "What is not among the nodes has to stay as it is, and so do the types of what "
    "others read.",
)

# of memory

EMPTY: Final = Sentence(
    "Allocator.empty",
    "A new array of unspecified content, usable by work queued on *stream*.",
)
NO_MEMORY: Final = Sentence(
    "Allocator.empty", "MemoryError: there is not enough memory."
)
FREE_AGAIN: Final = Sentence(
    "Allocator",
    "An array's memory is free again when the array is destroyed, in any thread.",
)
HANDED_OUT: Final = Sentence(
    "Allocator",
    "That may be before work queued on *its* stream has run, so memory is handed out "
    "again in the order of that stream",
)
DATA_TYPE: Final = Sentence(
    "DeviceContext.data_type", "The element type of *array*, which is here."
)
PINNED: Final = Sentence("MemoryKind.PINNED", "its arrays are numpy's.")
ALLOCATOR: Final = Sentence(
    "DeviceContext.allocator", "What makes arrays here, always the same"
)
LIVE: Final = Sentence(
    "DeviceContext.live_bytes",
    "How much of the context's own memory is in use, in bytes.",
)
STACK: Final = Sentence(
    "DeviceContext.stack",
    "A new array of *arrays*, which are of one shape, along a new axis.",
)
TAKE: Final = Sentence(
    "DeviceContext.take", "The part of *array* at *index* of *axis*, without that axis."
)
OPEN_AGAIN: Final = Sentence(
    "MemorySpaces.create_context",
    "Called when the location is first used, and again when it is after the context "
    "was closed",
)
SHARED_WEIGHT: Final = Sentence("WeightStore.get", "Nobody writes to it any more.")
WEIGHT_LAYOUT: Final = Sentence(
    "WeightStore.get",
    "the EP's name, and whatever besides the source's bytes determines the result: "
    "element type, shape, and each parameter of the form.",
)
IMPORTED: Final = Sentence(
    "DeviceContext.from_dlpack",
    "An array that shares the memory of a DLPack capsule.",
)

# of copies

CAN_COPY: Final = Sentence(
    "DataTransfer.can_copy", "Whether :meth:`copy` works between these locations."
)
COPY: Final = Sentence(
    "DataTransfer.copy",
    "Fill the second array of each pair from the first, of equal shape and dtype.",
)
COPY_NOW: Final = Sentence(
    "DataTransfer.copy", "With ``None`` they are done when the call returns."
)
COPY_QUEUED: Final = Sentence(
    "DataTransfer.copy",
    "With a *stream* the copies are queued on it, and the arrays may be used before it "
    "is synchronised only by work on that stream",
)

# of streams

NEW_STREAM: Final = Sentence(
    "DeviceContext.create_stream", "A new stream, which the host closes."
)
IN_ORDER: Final = Sentence("Stream", "Work on one stream runs in order")
RECORD: Final = Sentence(
    "Stream.record", "The point after all work queued here until now."
)
WAIT: Final = Sentence(
    "Stream.wait", "Let work queued here from now on start only after *event*."
)
WAIT_FOREIGN: Final = Sentence(
    "Stream.wait",
    "*event* may be of another device context, and its stream may be closed.",
)
WAIT_FAILED: Final = Sentence(
    "Stream.wait",
    "When what it waits for has failed, so has the work queued here from now on.",
)
SYNCHRONIZE: Final = Sentence(
    "Stream.synchronize",
    "Block the calling thread until all work queued here is done.",
)
CLOSE_STREAM: Final = Sentence(
    "Stream.close", "Release the stream; events that it recorded stay valid."
)
ADOPT: Final = Sentence(
    "DeviceContext.adopt_stream",
    "A stream that the user made, by its native handle.",
)
ADOPTED_CLOSE: Final = Sentence(
    "DeviceContext.adopt_stream", "Its ``close`` leaves the user's stream open."
)
DONE: Final = Sentence(
    "Event.done", "Whether the work before the point is done, or has failed."
)
NEVER_BLOCKS: Final = Sentence(
    "Event.done", "Neither blocks nor raises what the work raised."
)
EVENT_SYNCHRONIZE: Final = Sentence(
    "Event.synchronize",
    "Block the calling thread until the work before the point is done.",
)
EVENT_ANYWHERE: Final = Sentence(
    "Event", "Used from any thread, and also when its stream is closed."
)
ANY_THREAD: Final = Sentence("DeviceContext", "Called from any thread.")
CAPTURE: Final = Sentence(
    "GraphCapture.end",
    "The work queued on *stream* since :meth:`begin`; ends the capture.",
)
CAPTURE_FAILED: Final = Sentence(
    "GraphCapture.end",
    "something that was queued cannot be captured; the stream captures no more, and "
    "nothing of it was done.",
)
CAPTURE_NOTES: Final = Sentence(
    "GraphCapture.begin",
    "let *stream*, of the EP's location, note work instead of doing it.",
)
LAUNCH: Final = Sentence(
    "CapturedGraph.launch", "Queue the work on *stream*, of the same device context."
)
CAPTURED_MEMORY: Final = Sentence(
    "CapturedGraph", "It reads and writes the same addresses whenever it is launched"
)

OF_THE_GRAPH: Final = Sentence(
    "Allocator.empty",
    "If it is capturing, the memory belongs to the captured graph until that is "
    "closed.",
)

# of failures

FORKED: Final = Sentence(
    "WeightStore", "It may be used from any thread, and in a child of a fork."
)
SERVES_CHILDREN: Final = Sentence(
    "What is promised",
    "a child can make and run sessions, whatever other threads were doing",
    ROBUSTNESS,
)
OUT_OF_MEMORY: Final = Sentence(
    "What is promised",
    "what cannot be had is `OutOfMemory`, also a `MemoryError`, with node and bytes; "
    "the session goes on",
    ROBUSTNESS,
)
GOES_ON: Final = Sentence(
    "Streams",
    "the streams that it happened on are closed, and the next run gets new ones.",
    STREAMS,
)
INTERRUPTED: Final = Sentence(
    "raise_interruption",
    "Raise what a signal handler raised, if *error* is that or came of it.",
)
RAISES_AGAIN: Final = Sentence(
    "Event.synchronize", "Raises what the work raised, however often it is called."
)
CLOSE_EP: Final = Sentence("ExecutionProvider.close", "Release resources.")
CLOSE_CONTEXT: Final = Sentence("DeviceContext.close", "Release the device.")
CLOSE_FACTORY: Final = Sentence(
    "EpFactory.close", "Release what sessions shared.  Idempotent; after all EPs."
)

# of factories and what they make

PAIRS: Final = Sentence(
    "EpFactory.supported_devices",
    "The pairs of this EP and those of *devices* it can drive.",
)
LOOKS: Final = Sentence(
    "EpFactory.supported_devices",
    "Looks, does not initialise: no driver is loaded, no context made.",
)
EACH_SESSION: Final = Sentence(
    "EpFactory.create",
    "An EP for one session on *devices* (at least one, all of this factory).",
)
SERIALISED: Final = Sentence(
    "Serialiser.serialise",
    "What the EP compiled or restored, as bytes for :meth:`restore`.",
)
DECLINED: Final = Sentence(
    "Serialiser.restore", "Declined: the data is not of use; says why."
)
DESCRIBED: Final = Sentence("Option", "one sentence: what it does, in which unit.")
FAILS: Final = Sentence(
    "ExecutionProvider.get_capability", "Raising is a failure of the EP."
)

_WORDS: Final = (
    ("wrote to a weight", SHARED_WEIGHT),
    ("wrote to", INPUTS),
    ("shares memory with", VIEWS),
    ("returned in an earlier run", GIVEN_AWAY),
    ("did not write to the array bound", BOUND),
    ("another array than the one that was bound", BOUND),
    ("Stream.wait", WAIT),
    ("DataTransfer.copy", COPY_QUEUED),
    ("Event.synchronize", EVENT_SYNCHRONIZE),
    ("Event.done", DONE),
    ("after an event recorded behind", RECORD),
    ("Stream.record", RECORD),
    ("Stream.synchronize", SYNCHRONIZE),
    ("Allocator.empty", EMPTY),
    ("DeviceContext.data_type", DATA_TYPE),
    ("Stream.close", CLOSE_STREAM),
    ("DeviceContext.close", CLOSE_CONTEXT),
    ("DeviceContext.stack", STACK),
    ("DeviceContext.take", TAKE),
    ("GraphCapture", CAPTURE),
    ("CapturedGraph", LAUNCH),
)


def broken_by(error: BaseException, otherwise: Sentence = RESULTS) -> Sentence:
    """The sentence that an EP broke of which the host says *error*."""
    text = str(error)
    return next((said for words, said in _WORDS if words in text), otherwise)
