"""Records what happens in a session, as a trace that Chrome and Perfetto show.

The format is the *JSON Array Format* of "Trace Event Format" (Google, 2016), with names
and arguments of ONNX Runtime's traces where there is the like.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug.errors import OnnxplugError, OptionError
from onnxplug.guard import blaming

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.events import OwnedEvent

MAX_EVENTS: Final = 1_000_000
"""Events that a trace has at most, as in ONNX Runtime; later ones are only counted."""

PENDING_AT_RUN_END: Final = 8192
"""Events in memory from which on the end of a run writes them to the file."""

MAX_PENDING: Final = 65_536
"""Events in memory from which on they are written at once, in the midst of a run."""

FIRST_ROW: Final = 1 << 30
"""Of what devices do, above the numbers of threads that systems give."""

_NOTHING: Final[Mapping[str, object]] = {}


class _Event(Record):
    name: str
    category: str
    start_ns: int
    duration_ns: int
    thread: int
    details: Mapping[str, object]


class _Report(Record):
    """What an EP tells of queued work when that is done.

    Attributes:
        row: of the trace, instead of a thread: of the stream, whose work is in order.
    """

    event: OwnedEvent
    tell: Callable[[], None]
    row: int


class Profile:
    """A trace that is being recorded, from any number of threads.

    The file is there from the beginning; a process that is killed leaves what was
    written until then, which can be loaded too.  A forked child records nothing.

    Args:
        prefix: what the file's name begins with; a folder in it must exist.

    Attributes:
        path: the file: ``<prefix>_<date>_<time>_<milliseconds>.json``.
        start_time_ns: when it began, in ns since 1970; ``ts`` 0 in the file.

    Raises:
        OptionError: the file cannot be written.
    """

    def __init__(self, prefix: str) -> None:
        self.start_time_ns = time.time_ns()
        self._started = time.perf_counter_ns()
        self._process = os.getpid()
        self._lock = new_lock()
        self._writing = new_lock()
        self._pending: list[_Event] = []
        self._reports: deque[_Report] = deque()
        self._rows: dict[tuple[str, int], int] = {}
        self._telling = threading.local()
        self._threads: dict[int, str] = {}
        self._count = 0
        self._dropped = 0
        self._written = 0
        self._open = True
        self._ended = False
        self._error: OSError | OnnxplugError | None = None
        self.path = _new_file(prefix, self.start_time_ns)

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        details: Mapping[str, object],
    ) -> None:
        """Record one event; see :meth:`onnxplug.ep.Profiler.record`."""
        if self._process != os.getpid():
            return
        row: int | None = getattr(self._telling, "row", None)
        thread = threading.get_native_id() if row is None else row
        with self._lock:
            if not self._open:
                return
            if self._count >= MAX_EVENTS:
                self._dropped += 1
                return
            self._count += 1
            if thread not in self._threads:
                self._threads[thread] = threading.current_thread().name
            self._pending.append(
                _Event(name, category, start_ns, duration_ns, thread, details)
            )
            full = len(self._pending) >= MAX_PENDING
        if full:
            self._write_out()

    @contextlib.contextmanager
    def stage(
        self,
        name: str,
        category: str = "Session",
        details: Mapping[str, object] = _NOTHING,
    ) -> Iterator[None]:
        """Record how long the ``with`` block takes, even if it raises."""
        began = time.perf_counter_ns()
        try:
            yield
        finally:
            self.record(
                name,
                category=category,
                start_ns=began,
                duration_ns=time.perf_counter_ns() - began,
                details=details,
            )

    @contextlib.contextmanager
    def run(self) -> Iterator[None]:
        """Record a run; between runs is the time to write."""
        try:
            with self.stage("model_run"):
                yield
        finally:
            self.hear(wait=False)
            if len(self._pending) >= PENDING_AT_RUN_END:
                self._write_out()

    def of(self, ep: str, stream: Stream | None, *, is_noting: bool) -> EpProfiler:
        """What an EP records with in a run.

        Args:
            stream: of the EP's in the run.
            is_noting: it captures.
        """
        return EpProfiler(self, ep, stream, is_noting=is_noting)

    def when_done(
        self, event: OwnedEvent, stream: Stream, tell: Callable[[], None]
    ) -> None:
        """Have *tell* called after *event*, which *stream* recorded; see
        :meth:`onnxplug.ep.Profiler.when_done`."""
        with self._lock:
            if self._ended:
                return
            row = self._rows.setdefault(
                (event.ep, id(stream)), FIRST_ROW + len(self._rows)
            )
            self._threads[row] = f"{event.ep} on its device"
            self._reports.append(_Report(event, tell, row))

    def hear(self, *, wait: bool) -> None:
        """Call what is to be called after events that are done, or, with *wait*, all.

        A later one whose event is done sooner has its turn when those before had.
        A forked child calls nothing: the events are of its parent's devices.
        """
        while self._reports and self._process == os.getpid():
            with self._lock:
                if not self._reports:
                    return
                report = self._reports.popleft()
            event = report.event
            try:
                if not wait and not event.done():
                    with self._lock:
                        self._reports.appendleft(report)
                    return
                try:
                    event.synchronize()
                except OnnxplugError:  # told to who waits for the results
                    continue
                self._telling.row = report.row
                with blaming(event.ep, "run", "Profiler.when_done"):
                    report.tell()
            except OnnxplugError as error:
                # a run does not fail because it cannot be recorded; end() raises this
                self._error = self._error or error
            finally:
                self._telling.row = None

    def end(self) -> str:
        """Write what is left; the file's path, and nothing when called again.

        Raises:
            OSError: the file could not be written.
            EpError: an EP failed in what it had called when its work was done.
        """
        if self._process != os.getpid():
            return ""
        with self._lock:
            if self._ended:
                return ""
            self._ended = True
        self.hear(wait=True)
        with self._lock:
            self._open = False
        if not isinstance(self._error, OSError):
            self._write_out(last=True)
        if self._error is not None:
            raise self._error
        return self.path

    def discard(self) -> None:
        """End it without a file."""
        with self._lock:
            self._ended, self._open = True, False
            self._reports.clear()
        with contextlib.suppress(OSError):
            os.unlink(self.path)

    def _write_out(self, *, last: bool = False) -> None:
        """Append the events in memory to the file.

        The file is opened each time, so that a forked child has no share in it.
        """
        import json

        with self._writing:
            with self._lock:
                batch, self._pending = self._pending, []
            lines = [json.dumps(self._as_json(event)) for event in batch]
            if last:
                lines += [json.dumps(event) for event in self._metadata()]
            separator = ",\n" if self._written else "[\n"
            text = "".join(
                (separator if not number else ",\n") + line
                for number, line in enumerate(lines)
            )
            self._written += len(lines)
            try:
                with open(self.path, "a", encoding="utf-8") as file:
                    file.write(text + "\n]\n" * last)
            # a run does not fail because it cannot be recorded; end() raises this
            except OSError as error:
                self._error = error
                with self._lock:
                    self._open = False

    def _as_json(self, event: _Event) -> dict[str, Any]:
        # what nests in ns does so in µs too, as they are written to the last digit
        return {
            "cat": event.category,
            "pid": self._process,
            "tid": event.thread,
            "dur": event.duration_ns / 1000,
            "ts": (event.start_ns - self._started) / 1000,
            "ph": "X",
            "name": f"{event.name}_kernel_time" * (event.category == "Node")
            or event.name,
            "args": {key: _plain(value) for key, value in event.details.items()},
        }

    def _metadata(self) -> Iterator[dict[str, Any]]:
        from onnxplug import __version__

        def fact(event: str, thread: int, **values: Any) -> dict[str, Any]:
            # programs that read traces look for the same keys in each event
            return {
                "cat": "__metadata",
                "pid": self._process,
                "tid": thread,
                "dur": 0,
                "ts": 0,
                "ph": "M",
                "name": event,
                "args": values,
            }

        yield fact("process_name", self._process, name=f"onnxplug {__version__}")
        for thread, name in self._threads.items():
            yield fact("thread_name", thread, name=name)
        yield fact(
            "trace_info",
            self._process,
            producer=f"onnxplug {__version__}",
            start_time_ns=self.start_time_ns,
            events=self._count,
            max_events=MAX_EVENTS,
            events_left_out=self._dropped,
        )


class EpProfiler:
    """A trace as one EP sees it; see :class:`onnxplug.ep.Profiler`."""

    __slots__ = ("_ep", "_is_noting", "_profile", "_stream")

    def __init__(
        self, profile: Profile, ep: str, stream: Stream | None, *, is_noting: bool
    ) -> None:
        self._profile = profile
        self._ep = ep
        self._stream = stream
        self._is_noting = is_noting

    def record(
        self,
        name: str,
        *,
        category: str,
        start_ns: int,
        duration_ns: int,
        details: Mapping[str, object],
    ) -> None:
        """Record one event of the EP."""
        self._profile.record(
            name,
            category=category,
            start_ns=start_ns,
            duration_ns=duration_ns,
            details={"provider": self._ep, **details},
        )

    def when_done(self, report: Callable[[], None]) -> None:
        """Have *report* called once what was queued on the run's stream is done."""
        if self._stream is None:
            report()
        elif not self._is_noting:
            from onnxplug.run.events import record  # few runs are profiled

            event = record(self._stream, self._ep)
            self._profile.when_done(event, self._stream, report)


def stage(
    profile: Profile | None,
    name: str,
    details: Mapping[str, object] = _NOTHING,
    category: str = "Session",
) -> AbstractContextManager[None]:
    """A stage of making a session, recorded if there is a profile."""
    if profile is None:
        return contextlib.nullcontext()
    return profile.stage(name, category, details)


def _new_file(prefix: str, start_time_ns: int) -> str:
    seconds, fraction = divmod(start_time_ns, 1_000_000_000)
    when = time.strftime("%Y-%m-%d_%H-%M-%S", time.localtime(seconds))
    number = fraction // 1_000_000
    while True:
        path = f"{prefix}_{when}_{number:03}.json"
        try:
            with open(path, "x", encoding="utf-8"):
                return path
        except FileExistsError:  # another session's, of the same millisecond
            number += 1
        except OSError as error:
            raise OptionError(
                f"the trace cannot be written to {path!r}: {error.strerror}; let "
                "SessionOptions.profile_file_prefix begin with a folder that exists "
                "and can be written to"
            ) from error


def _plain(value: object) -> object:
    """*value* as JSON can hold it; infinity and NaN become text."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value)
