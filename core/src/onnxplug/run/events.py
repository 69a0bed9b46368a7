"""Events as the host uses them: what goes wrong in one is its EP's failure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from onnxplug.ep import Event
from onnxplug.guard import FAILURES, blame, malformed

if TYPE_CHECKING:
    from onnxplug.ep import Stream


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


def record(stream: Stream, ep: str) -> OwnedEvent:
    """The point after what is queued on *stream*, which *ep* queues on.

    Raises:
        EpError: *stream* gives none.
    """
    try:
        event = stream.record()
    except FAILURES as error:
        blame(ep, "run", error, "Stream.record")
    # the abstract class is asked last, as that takes a short run longer
    if Event not in type(event).__mro__ and not isinstance(event, Event):
        raise malformed(ep, "run", "Stream.record", event, "an Event")
    return OwnedEvent(event, ep)


def truth(found: object, ep: str, method: str) -> bool:
    """What *method* of *ep*'s returned, which has to be true or false.

    Raises:
        EpError: it is neither.
    """
    if isinstance(found, bool | np.bool_):
        return bool(found)
    raise malformed(ep, "run", method, found, "True or False")
