"""Events as the host uses them: what goes wrong in one is its EP's failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.guard import FAILURES, blame, in_words, malformed

if TYPE_CHECKING:
    from onnxplug.ep import Event, Stream


class OwnedEvent:
    """An event, and the EP whose it is.

    Attributes:
        event: what the EP's stream recorded.
        ep: the name of the EP.
    """

    __slots__ = ("ep", "event")

    def __init__(self, event: Event, ep: str) -> None:
        self.event = event
        self.ep = ep

    def done(self) -> bool:
        """Whether the work before the point is done, or has failed.

        Raises:
            EpError: the event does not say.
        """
        try:
            done = self.event.done()
        except FAILURES as error:
            blame(self.ep, "run", error, "Event.done")
        return done if type(done) is bool else truth(done, self.ep, "Event.done")

    def synchronize(self) -> None:
        """Wait on the host.

        Raises:
            EpError: the work before the point failed.
        """
        try:
            self.event.synchronize()
        except FAILURES as error:
            blame(self.ep, "run", error, "Event.synchronize")


def recorded(stream: Stream) -> Event:
    """The point after what is queued on *stream*.

    Raises:
        TypeError: *stream* gives none.
    """
    from onnxplug.ep import Event

    event = stream.record()
    if not isinstance(event, Event):
        raise TypeError(
            f"Stream.record() returned {in_words(event)}; expected an Event"
        )
    return event


def truth(found: object, ep: str, method: str) -> bool:
    """What *method* of *ep*'s returned, which has to be true or false.

    Raises:
        EpError: it is neither.
    """
    import numpy as np

    if isinstance(found, bool | np.bool_):
        return bool(found)
    raise malformed(ep, "run", method, found, "True or False")
