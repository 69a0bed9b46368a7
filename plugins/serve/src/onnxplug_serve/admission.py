"""What a server takes on at once: bytes of requests, before memory is taken."""

from __future__ import annotations

from onnxplug_serve.errors import Overloaded, TooLarge
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.settings import Limits


class Admission:
    """Counts bytes of requests that are read, wait or run; used in one event loop."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.held = 0
        metrics.watch_held(lambda: self.held)

    def hold(self) -> Held:
        """A request of no bytes yet."""
        return Held(self)

    def change(self, by: int) -> None:
        """Count *by* bytes more.

        Raises:
            Overloaded: that would be too many.
        """
        if by > 0 and self.held + by > self.limits.held_bytes:
            raise Overloaded(
                f"requests of {self.held} bytes are being answered already, of "
                f"{self.limits.held_bytes} at most; ask again later"
            )
        self.held += by


class Held:
    """The bytes of one request, until it is answered."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.size = 0

    def grow(self, to: int) -> None:
        """Count *to* bytes from now on, if these are more.

        Raises:
            TooLarge: no request may have so many.
            Overloaded: there are too many with those of others.
        """
        limit = self._admission.limits.request_bytes
        if to > limit:
            raise TooLarge(f"the request has more than {limit} bytes")
        if to > self.size:
            self._admission.change(to - self.size)
            self.size = to

    def keep(self, size: int) -> None:
        """Count *size* bytes of the answer, and no more those of the request.

        Raises:
            TooLarge: no answer may have so many.
            Overloaded: there are too many with those of others.
        """
        limit = self._admission.limits.held_bytes
        if size > limit:
            raise TooLarge(f"the answer has {size} bytes, of {limit} at most")
        self._admission.change(size - self.size)
        self.size = size

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """It is answered."""
        self._admission.change(-self.size)
        self.size = 0
