"""Queues of work on a device, points in them, and work that was captured from them.

Who makes a stream closes it: the host those of sessions and bindings, the user those
that a session adopted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import StrEnum


class Event(ABC):
    """A point in the work of a stream.

    Used from any thread, and also when its stream is closed.  One that was recorded
    while its stream captured is for work that was captured with it only; to ask or wait
    for it fails the capture.
    """

    @abstractmethod
    def done(self) -> bool:
        """Whether the work before the point is done, or has failed.

        Neither blocks nor raises what the work raised.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until the work before the point is done.

        Raises what the work raised, however often it is called.
        """


class Stream(ABC):
    """An ordered queue of work on a device.

    Work on one stream runs in order; work on two runs in any order unless one waits.
    A stream is used by one thread at a time.
    """

    native_handle: int = 0
    """What the device's own API calls the stream, such as a ``cudaStream_t``; 0 for
    none."""

    @abstractmethod
    def record(self) -> Event:
        """The point after all work queued here until now."""

    @abstractmethod
    def wait(self, event: Event) -> bool:
        """Let work queued here from now on start only after *event*.

        *event* may be of another device context, and its stream may be closed.  When
        what it waits for has failed, so has the work queued here from now on.

        Returns:
            Whether it will; ``False``: the host has to wait for *event* instead.
        """

    @abstractmethod
    def synchronize(self) -> None:
        """Block the calling thread until all work queued here is done.

        Raises what the work raised.  The host then queues nothing more here.
        """

    def close(self) -> None:
        """Release the stream; events that it recorded stay valid.

        Called once, when all its work is done.  An adopted one is left as it is, with
        the work that is queued, to who made it.
        """
        return None


class CapturedGraph(ABC):
    """Work that was captured from a stream, and the memory it needs.

    It reads and writes the same addresses whenever it is launched, so the host keeps
    the arrays that the captured run was bound to.
    """

    @abstractmethod
    def launch(self, stream: Stream) -> None:
        """Queue the work on *stream*, of the same device context."""

    def close(self) -> None:
        """(optional) Release the work and its memory; called once, when launched work
        is done."""
        return None


class GraphCapture(ABC):
    """Captures the work that runs on bound values queue, to have it launched again.

    The host captures for a whole model: it refuses the session if another EP or the
    host has a part in it, and so does the EP, by ``SessionRefused``, if it claimed what
    cannot be captured.  Runs tell what they are for: ``RunContext.capture``.
    """

    @abstractmethod
    def begin(self, stream: Stream) -> None:
        """From here to :meth:`end`, let *stream*, of the EP's location, note work
        instead of doing it."""

    @abstractmethod
    def end(self, stream: Stream) -> CapturedGraph:
        """The work queued on *stream* since :meth:`begin`; ends the capture.

        Raises:
            Exception: something that was queued cannot be captured; the stream
                captures no more, and nothing of it was done.
        """


class CapturePhase(StrEnum):
    """What a run of a partition is for when its session captures graphs."""

    WARM_UP = "warm-up"
    """An ordinary run, the first on these arrays: what is made once is made now."""

    CAPTURE = "capture"
    """The stream notes what is queued.  Nothing may be waited for."""
