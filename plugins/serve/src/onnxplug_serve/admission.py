"""What a server takes on at once: bytes of requests, before memory is taken."""

from __future__ import annotations

from onnxplug_serve.errors import Overloaded, TooLarge
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.settings import Limits


class Admission:
    """Counts bytes of requests that are read, wait or run; used in one event loop."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self._metrics = metrics
        self._held = 0

    def hold(self) -> Held:
        """A request of no bytes yet."""
        return Held(self)

    def change(self, by: int) -> None:
        """Count *by* bytes more.

        Raises:
            Overloaded: that would be too many.
        """
        if by > 0 and self._held + by > self.limits.held_bytes:
            raise Overloaded(
                f"requests of {self._held} bytes are being answered already, of "
                f"{self.limits.held_bytes} at most; ask again later"
            )
        self._held += by
        self._metrics.held(self._held)


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

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *_: object) -> None:
        self._admission.change(-self.size)
        self.size = 0
