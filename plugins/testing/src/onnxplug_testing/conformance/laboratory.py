"""A partition of the EP and its device, used as a host may, step by step.

A session of the host's has them made; then nothing is run by it.  So arrays are let go,
streams are busy and results are kept just where a check wants them.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

import numpy as np

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.sentences import broken_by
from onnxplug_testing.conformance.specimens import Specimen
from onnxplug_testing.conformance.subject import Subject
from onnxplug_testing.conformance.taps import Talk, listening
from onnxplug_testing.conformance.trial import Trial, in_words

Array: TypeAlias = np.ndarray[Any, Any]

BURDEN_SECONDS: Final = 0.02
"""For about how long a device is kept busy before what is to be late."""

_BURDEN_BYTES: Final = 1 << 23
_MOST_COPIES: Final = 256


class Unfit(Exception):
    """What a check asks for is not to be had of this EP; says why."""


class Breach(Exception):
    """The EP broke a sentence in a call.

    Attributes:
        sentence: which.
    """

    def __init__(self, sentence: Sentence, what: str) -> None:
        super().__init__(what)
        self.sentence = sentence


def call(sentence: Sentence, function: Callable[..., Any], *args: Any) -> Any:
    """What *function* of the EP returns.

    Raises:
        Breach: it raises, which breaks *sentence*.
    """
    try:
        return function(*args)
    except (Exception, SystemExit) as error:
        ep.raise_interruption(error)
        if isinstance(error, Breach | Unfit):
            raise
        raise Breach(sentence, in_words(error)) from error


def _must_be(kind: type, found: Any, sentence: Sentence) -> Any:
    if not isinstance(found, kind):
        raise Breach(sentence, f"returned {found!r}; expected of {kind.__name__}")
    return found


# what a host says to streams and events, and what it makes of the answers


def record(stream: ep.Stream) -> ep.Event:
    """The point after what is queued."""
    found = call(said.RECORD, stream.record)
    return cast("ep.Event", _must_be(ep.Event, found, said.RECORD))


def wait(stream: ep.Stream, event: ep.Event) -> bool:
    """Let *stream* wait for *event*; whether it does."""
    found = call(said.WAIT, stream.wait, event)
    return bool(_must_be(bool, found, said.WAIT))


def let_wait(stream: ep.Stream, event: ep.Event) -> None:
    """Let *stream* wait for *event*, or the host, if the stream does not."""
    if not wait(stream, event):
        wait_for(event)


def is_done(event: ep.Event) -> bool:
    """Whether the work before *event* is done."""
    found = call(said.NEVER_BLOCKS, event.done)
    return bool(_must_be(bool, found, said.DONE))


def wait_for(event: ep.Event) -> None:
    """Wait on the host for *event*."""
    call(said.EVENT_SYNCHRONIZE, event.synchronize)


def wait_for_all(stream: ep.Stream) -> None:
    """Wait on the host for all work on *stream*."""
    call(said.SYNCHRONIZE, stream.synchronize)


def _settle(stream: ep.Stream) -> None:
    """Wait for *stream*, whatever comes of it."""
    try:
        stream.synchronize()
    except Exception as error:  # noqa: BLE001 (of what is told already)
        ep.raise_interruption(error)


def close(stream: ep.Stream) -> None:
    """Close *stream*, whose work is done."""
    call(said.CLOSE_STREAM, stream.close)


class RunNow:
    """See :class:`onnxplug.ep.RunContext`."""

    def __init__(
        self,
        stream: ep.Stream | None,
        options: Mapping[str, ep.OptionValue],
        *,
        cancelled: bool = False,
        capture: ep.CapturePhase | None = None,
    ) -> None:
        self.stream = stream
        self.options = options
        self.cancelled = cancelled
        self.capture = capture
        self.deadline: float | None = None
        self.profiler: ep.Profiler | None = None


class Bench:
    """The device that an EP works on, as a host uses it.

    Attributes:
        location: where it is.
        context: what the EP, or another that owns the memory, made.
        device: what makes arrays there.
    """

    def __init__(self, location: ep.MemoryLocation) -> None:
        self.location = location
        self._owned = registry.contexts.at(location)
        self.context: ep.DeviceContext = self._owned.context
        device = self.context.allocator(ep.MemoryKind.DEVICE)
        if device is None:
            raise Unfit(f"{location} has no allocator of its memory")
        self.device = device
        self._ballast: tuple[Any, int] | None = None
        self._sources: list[Array] = []

    @property
    def owner(self) -> str:
        """The EP that owns the memory."""
        return self._owned.owner

    @property
    def live_bytes(self) -> int | None:
        """What is in use; ``None``: nobody counts."""
        found = call(said.LIVE, getattr, self.context, "live_bytes")
        if found is None:
            return None
        return int(_must_be(int, found, said.LIVE))

    def weights(self) -> list[Any]:
        """What EPs made of weights here, and is in use."""
        return list(self._owned.weights.values())

    def empty(
        self, shape: Sequence[int], dtype: ep.DataType, stream: ep.Stream | None = None
    ) -> Any:
        """A new array of the device's."""
        array = call(said.EMPTY, self.device.empty, tuple(shape), dtype, stream)
        if isinstance(array, np.ndarray) and not self.location.host_accessible:
            raise Breach(said.EMPTY, "returned an array of the host")
        try:
            found = tuple(map(int, array.shape))
        except (AttributeError, TypeError) as error:
            raise Breach(said.EMPTY, f"returned {array!r}, no array") from error
        held = self.data_type(array)
        if found != tuple(shape) or held is not dtype:
            # of the two that contradict each other, the array itself may know
            is_right = getattr(array, "dtype", None) == dtype.numpy
            lies = is_right and found == tuple(shape)
            raise Breach(
                said.DATA_TYPE if lies else said.EMPTY,
                f"{held}{list(found)}, as data_type and shape say; asked for "
                f"{dtype}{list(shape)}",
            )
        return array

    def data_type(self, array: Any) -> ep.DataType:
        """The element type of *array*, which is here."""
        found = call(said.DATA_TYPE, self.context.data_type, array)
        return cast("ep.DataType", _must_be(ep.DataType, found, said.DATA_TYPE))

    def new_stream(self) -> ep.Stream | None:
        """A stream, to be closed; ``None`` if the device has none."""
        found = call(said.NEW_STREAM, self.context.create_stream)
        if found is None:
            return None
        return cast("ep.Stream", _must_be(ep.Stream, found, said.NEW_STREAM))

    def put(self, array: Array, stream: ep.Stream | None = None) -> Any:
        """A copy of *array* on the device; queued if there is a *stream*."""
        if stream is not None:  # it is to be kept until that is done
            self._sources.append(array)
        made = self.empty(array.shape, ep.DataType.from_numpy(array.dtype), stream)
        self.copy(array, made, stream)
        return made

    def get(self, array: Any) -> Array:
        """What is in *array*, now."""
        found = np.zeros(tuple(array.shape), self.data_type(array).numpy)
        self.copy(array, found, None)
        return found

    def copy(self, source: Any, target: Any, stream: ep.Stream | None) -> None:
        """Copy one array."""
        call(said.COPY, self.context.transfer.copy, [(source, target)], stream)

    @contextmanager
    def stream(self) -> Iterator[ep.Stream]:
        """A stream, which is waited for and closed in the end.

        Raises:
            Unfit: the device has none.
        """
        made = self.new_stream()
        if made is None:
            raise Unfit(f"{self.location} has no streams: its work is done at once")
        try:
            yield made
            wait_for_all(made)
        except BaseException:  # which matters more than what waiting raises
            _settle(made)
            raise
        finally:
            self._sources.clear()
            close(made)

    @contextmanager
    def streams(self, count: int) -> Iterator[list[ep.Stream]]:
        """Some of them."""
        with ExitStack() as ends:
            yield [ends.enter_context(self.stream()) for _ in range(count)]

    def burden(self, stream: ep.Stream) -> None:
        """Queue copies that keep *stream* busy for a while, so that what follows is
        late."""
        source, count = self._ballast or self._measured(stream)
        # one of the stream's own: nothing orders what others write
        dtype = self.data_type(source)
        target = self.empty(tuple(source.shape), dtype, stream)
        for _ in range(count):
            self.copy(source, target, stream)

    def _measured(self, stream: ep.Stream) -> tuple[Any, int]:
        content = np.full(_BURDEN_BYTES, 7, np.uint8)
        try:
            source, target = self.put(content), self.put(content)
        except Breach:  # there may be no bytes
            content = content.view(np.float32)
            source, target = self.put(content), self.put(content)
        self.copy(
            source, target, stream
        )  # the first may touch memory for the first time
        wait_for_all(stream)
        began = time.perf_counter()
        for _ in range(4):
            self.copy(source, target, stream)
        wait_for_all(stream)
        each = (time.perf_counter() - began) / 4
        count = int(min(max(BURDEN_SECONDS / max(each, 1e-6), 2), _MOST_COPIES))
        self._ballast = source, count
        return self._ballast


def poison(shape: Sequence[int], dtype: ep.DataType) -> Array:
    """What no specimen gives: NaN, or a large number."""
    content = np.empty(tuple(shape), dtype.numpy)
    if content.dtype.kind == "b":
        content[...] = True
    elif content.dtype.kind in "iu":
        content[...] = np.iinfo(content.dtype).max // 3
    else:
        content[...] = np.nan
    return content


class Laboratory:
    """A partition that is a specimen, on its device.

    Attributes:
        subject: the EP.
        specimen: the model.
        provider: the EP in the session.
        partition: what was compiled.
        compiled: what it was compiled to.
        bench: the device; ``None``: the EP works in the host's memory.
    """

    def __init__(
        self, subject: Subject, specimen: Specimen, talk: Talk, session: Any
    ) -> None:
        self.subject = subject
        self.specimen = specimen
        self.session = session
        if len(talk.compiled) < 1:
            raise Unfit("what the EP compiled cannot be heard of")
        self.partition, self.compiled = talk.compiled[-1]
        self.provider = talk.providers[-1]
        location = self.provider.location
        self.bench = None if location == ep.HOST else Bench(location)
        inputs, outputs = set(self.partition.inputs), set(self.partition.outputs)
        if inputs - set(specimen.shapes) or outputs != set(specimen.outputs):
            raise Unfit(f"{specimen.name} is not one partition of the EP's")
        self.run_options = MappingProxyType(
            {name: each.default for name, each in subject.factory.run_options.items()}
        )

    @property
    def on_device(self) -> Bench:
        """The device.

        Raises:
            Unfit: there is none.
        """
        if self.bench is None:
            raise Unfit("the EP works in the host's memory")
        return self.bench

    def location_of_output(self, name: str) -> ep.MemoryLocation:
        """Where an output is left."""
        locations = self.compiled.output_locations
        if locations is None:
            return self.provider.location
        return locations[list(self.partition.outputs).index(name)]

    def location_of_input(self, name: str) -> ep.MemoryLocation:
        """Where an input is wanted."""
        locations = self.compiled.input_locations
        if locations is None:
            return self.provider.location
        return locations[list(self.partition.inputs).index(name)]

    def put(self, feeds: Mapping[str, Array], stream: Any = None) -> dict[str, Any]:
        """*feeds* where the partition wants them; those of the host as they are."""
        placed: dict[str, Any] = {}
        for name in self.partition.inputs:
            if self.location_of_input(name) == ep.HOST or self.bench is None:
                placed[name] = feeds[name]
            else:
                placed[name] = self.bench.put(feeds[name], stream)
        return placed

    def room(self, name: str, like: Array, stream: Any = None) -> Any:
        """An array for an output, full of poison, where the partition leaves it."""
        content = poison(like.shape, ep.DataType.from_numpy(like.dtype))
        if self.location_of_output(name) == ep.HOST or self.bench is None:
            return content
        return self.bench.put(content, stream)

    def get(self, name: str, array: Any) -> Array:
        """What is in an output, now."""
        if self.location_of_output(name) == ep.HOST or self.bench is None:
            return np.array(array)
        return self.bench.get(array)

    def run(
        self,
        inputs: Mapping[str, Any],
        bound: Mapping[str, Any] | None = None,
        stream: ep.Stream | None = None,
        *,
        cancelled: bool = False,
        capture: ep.CapturePhase | None = None,
        context: RunNow | None = None,
    ) -> dict[str, Any]:
        """What the EP returns, by name.

        Args:
            context: what it is told of the run; by default that which the other
                arguments say.
        """
        needs = stream is not None or cancelled or self.bench is not None
        if context is None and (needs or self.run_options):
            context = RunNow(
                stream, self.run_options, cancelled=cancelled, capture=capture
            )
        results = self.compiled.run(
            [inputs[name] for name in self.partition.inputs],
            [(bound or {}).get(name) for name in self.partition.outputs],
            context,
        )
        names = self.partition.outputs
        if not isinstance(results, Sequence) or len(results) != len(names):
            raise Breach(
                said.RESULTS, f"returned {results!r} for {len(names)} outputs"[:300]
            )
        return dict(zip(names, results, strict=True))

    @contextmanager
    def stream(self) -> Iterator[ep.Stream | None]:
        """A stream of the device's; ``None`` if it has none, or the EP no device."""
        if self.bench is None or not has_streams(self.bench):
            yield None
            return
        with self.bench.stream() as stream:
            yield stream


def in_use(bench: Bench | None) -> int | None:
    """What ``live_bytes`` says, garbage aside; ``None`` if it says nothing."""
    if bench is None:
        return None
    gc.collect()
    return bench.live_bytes


def has_streams(bench: Bench) -> bool:
    """Whether work on the device is queued."""
    made = bench.new_stream()
    if made is not None:
        close(made)
    return made is not None


@contextmanager
def laboratory(
    subject: Subject,
    specimen: Specimen,
    *,
    feeds: Mapping[str, Array] | None = None,
    **session: Any,
) -> Iterator[Laboratory]:
    """A session of *specimen*, whose partition is used by hand.

    Args:
        feeds: what it is run with once, if it is compiled by the shapes of a run; by
            default any numbers.
        session: see :meth:`Subject.session`.

    Raises:
        Unfit: the EP does not compile it to one partition.
    """
    with listening(subject) as talk:
        opened = subject.session(specimen.model, checked=False, **session)
        if not talk.compiled:  # it may be by shapes, in runs
            if feeds is None:
                feeds = specimen.feeds(np.random.default_rng(0))
            # which an EP might write to
            opened.run(None, {name: np.array(each) for name, each in feeds.items()})
    with opened:
        yield Laboratory(subject, specimen, talk, opened)


@contextmanager
def asking(
    trial: Trial, sentence: Sentence, case: Case | None = None, node: str = ""
) -> Iterator[None]:
    """A context in which whatever is raised breaks *sentence*, or another that the
    host names; what is :class:`Unfit` is left out.

    Args:
        node: see :class:`~onnxplug_testing.conformance.finding.Finding`.
    """
    try:
        yield
    except Unfit as why:
        trial.leave_out(str(why))
    except Breach as error:
        trial.find(error.sentence, str(error), case=case, node=node)
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        ep.raise_interruption(error)
        what = in_words(error)
        trial.find(broken_by(error, sentence), what, case=case, node=node)


@contextmanager
def device_of(subject: Subject, specimen: Specimen) -> Iterator[Bench]:
    """The device, as long as a session of *specimen* is open.

    Raises:
        Unfit: there is none.
    """
    with listening(subject) as talk:
        opened = subject.session(specimen.model, checked=False)
    with opened:
        location = talk.providers[-1].location
        if location == ep.HOST:
            raise Unfit("the EP works in the host's memory")
        yield Bench(location)
