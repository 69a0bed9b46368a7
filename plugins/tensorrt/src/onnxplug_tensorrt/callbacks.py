"""What TensorRT calls back, in whatever thread: its log, and the progress of builds.

Nothing may be raised through TensorRT, so what is raised here is kept, and TensorRT is
told to stop.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

_LEVELS: Final = {
    "INTERNAL_ERROR": logging.ERROR,
    "ERROR": logging.ERROR,
    # with both of which it is very free
    "WARNING": logging.INFO,
    "INFO": logging.DEBUG,
    "VERBOSE": logging.DEBUG,
}

_SECONDS: Final = 2.0
"""Between two messages of how far a build is."""

_PATIENCE: Final = 0.1
"""Seconds after which it is looked whether a build is done."""


class SessionLog:
    """What TensorRT says of the work of one session.

    Args:
        logger: the session's.
        detailed: also what helps only those who know TensorRT from within.
    """

    def __init__(self, logger: logging.Logger, *, detailed: bool = False) -> None:
        self._logger = logger
        self._detailed = detailed
        self._errors: deque[str] = deque(maxlen=8)

    def note(self, severity: str, text: str) -> None:
        """Log what TensorRT says."""
        level = _LEVELS.get(severity, logging.DEBUG)
        if level == logging.ERROR:
            self._errors.append(text.strip())
            level = logging.DEBUG  # whoever fails raises it, if it matters
        elif severity == "VERBOSE" and not self._detailed:
            return
        elif self._detailed:
            level = max(level, logging.INFO)
        self._logger.log(level, "TensorRT: %s", text)

    def taken(self) -> str:
        """The errors since this was asked last, in words."""
        found = list(self._errors)
        self._errors.clear()
        return "; ".join(dict.fromkeys(found)) or "it does not say why"


class Messages:
    """TensorRT's log, of which it has one in a process.

    What it says in a thread goes to the session that the thread works for, and what it
    says in threads of its own to the one that began last.
    """

    def __init__(self) -> None:
        super().__init__()
        self._here = threading.local()
        self._last: SessionLog | None = None

    def log(self, severity: Any, msg: str) -> None:
        """What TensorRT says."""
        try:
            stack = getattr(self._here, "stack", None)
            log = stack[-1] if stack else self._last
            if log is not None:
                log.note(severity.name, msg)
        except Exception:  # noqa: BLE001 nothing may go through TensorRT
            return

    @contextlib.contextmanager
    def to(self, log: SessionLog) -> Iterator[None]:
        """Have what TensorRT says in this thread go to *log*, within."""
        if not hasattr(self._here, "stack"):
            self._here.stack = []
        self._here.stack.append(log)
        self._last = log
        try:
            yield
        finally:
            self._here.stack.pop()


class Progress:
    """How far a build is, and whether it is to go on.

    Args:
        logger: gets to know.
        what: is built, in words.
        is_unwanted: whether nobody wants it any more.

    Attributes:
        failure: what was raised, for whoever waits for the build.
        is_stopped: the build ends as soon as TensorRT asks.
    """

    def __init__(
        self, logger: logging.Logger, what: str, is_unwanted: Callable[[], bool]
    ) -> None:
        super().__init__()
        self._logger = logger
        self._what = what
        self._is_unwanted = is_unwanted
        self._steps: dict[str, int] = {}
        self._said = time.monotonic()
        self.failure: BaseException | None = None
        self.is_stopped = False

    def phase_start(
        self, phase_name: str, parent_phase: str | None, num_steps: int
    ) -> None:
        """A part of the build begins."""
        self._steps[phase_name] = num_steps

    def phase_finish(self, phase_name: str) -> None:
        """It ends."""
        self._steps.pop(phase_name, None)

    def step_complete(self, phase_name: str, step: int) -> bool:
        """Whether the build is to go on."""
        try:
            self._say(phase_name, step)
            if self._is_unwanted():
                self.is_stopped = True
        # which may be what a signal's handler raised
        except BaseException as error:  # noqa: BLE001
            self.failure, self.is_stopped = error, True
        return not self.is_stopped

    def _say(self, phase: str, step: int) -> None:
        now = time.monotonic()
        if now - self._said >= _SECONDS:
            self._said = now
            self._logger.info(
                "TensorRT builds %s: %s, %d of %d",
                self._what, phase, step + 1, self._steps.get(phase, step + 1),
            )  # fmt: skip


class OutputMemory:
    """Memory for an output whose shape is known when it was computed.

    Args:
        allocate: gives the address of so many bytes, on the stream of the run.

    Attributes:
        shape: of the output; ``None``: it is not known.
        failure: what was raised, for the run.
    """

    def __init__(self, allocate: Callable[[int], int]) -> None:
        super().__init__()
        self._allocate = allocate
        self.shape: tuple[int, ...] | None = None
        self.failure: BaseException | None = None

    def begin(self) -> None:
        """Forget the run before."""
        self.shape = self.failure = None

    def reallocate_output(
        self, tensor_name: str, memory: int, size: int, alignment: int
    ) -> int:
        """The address of *size* bytes; 0: there are none."""
        try:
            return self._allocate(size)
        except BaseException as error:  # noqa: BLE001 nothing may go through TensorRT
            self.failure = error
            return 0

    def reallocate_output_async(
        self, tensor_name: str, memory: int, size: int, alignment: int, stream: int
    ) -> int:
        """As above; the memory is used on *stream*, the run's."""
        return self.reallocate_output(tensor_name, memory, size, alignment)

    def notify_shape(self, tensor_name: str, shape: Any) -> None:
        """The output's shape, which it has from now on."""
        try:
            self.shape = tuple(int(size) for size in shape)
        except BaseException as error:  # noqa: BLE001
            self.failure = error


@functools.cache
def _bound(callbacks: type, base: type) -> type:
    return type(callbacks.__name__, (callbacks, base), {})


def messages_of(tensorrt: Any) -> Any:
    """The :class:`Messages` that TensorRT logs to in this process."""
    return _messages(tensorrt.ILogger)


@functools.cache
def _messages(base: type) -> Any:
    return _bound(Messages, base)()


def new_progress(
    tensorrt: Any, logger: logging.Logger, what: str, is_unwanted: Callable[[], bool]
) -> Any:
    """:class:`Progress` that TensorRT can report to."""
    return _bound(Progress, tensorrt.IProgressMonitor)(logger, what, is_unwanted)


def new_output_memory(tensorrt: Any, allocate: Callable[[int], int]) -> Any:
    """:class:`OutputMemory` that TensorRT can ask."""
    return _bound(OutputMemory, tensorrt.IOutputAllocator)(allocate)


def wait_for(build: Callable[[], None], progress: Any) -> None:
    """Build in a thread, which a signal's handler cannot raise in.

    Raises:
        BaseException: what was raised while it was waited for, when the build ended.
    """
    failures: list[BaseException] = []
    done = threading.Event()

    def work() -> None:
        try:
            build()
        except BaseException as error:  # noqa: BLE001 it is raised where it is waited for
            failures.append(error)
        finally:
            done.set()

    name = "onnxplug-tensorrt-build"
    thread = threading.Thread(target=work, name=name, daemon=True)
    try:
        thread.start()
        # not by Thread.join(), which an interrupt has believe that the thread ended
        while not done.wait(_PATIENCE):
            pass
    except BaseException as error:
        # a thread that has no identity yet may start all the same
        progress.failure, progress.is_stopped = error, True
        if thread.ident is None:
            raise
        while not done.is_set():
            with contextlib.suppress(KeyboardInterrupt):  # it is being ended already
                done.wait(_PATIENCE)
    for failure in (progress.failure, *failures):
        if failure is not None:
            raise failure
