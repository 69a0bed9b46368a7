"""What is answered when a request cannot be."""

from __future__ import annotations

from typing import ClassVar, Final

from onnxplug.errors import OnnxplugError

_LONGEST: Final = 1000
"""Characters of an answer: as trailers of gRPC they would not arrive if they were
many."""


class RequestError(OnnxplugError):
    """A request that is refused, or failed; its text is the answer.

    Attributes:
        status: of HTTP (RFC 9110).
        code: the name of gRPC's status code.
    """

    status: ClassVar[int] = 500
    code: ClassVar[str] = "INTERNAL"

    @property
    def told(self) -> str:
        """Its text, shortened where what was asked made it long."""
        text = str(self)
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class BadRequest(RequestError, ValueError):
    """It is not of the protocol, or not what the model takes."""

    status = 400
    code = "INVALID_ARGUMENT"


class Unauthenticated(RequestError, PermissionError):
    """It has not the token that the server asks for."""

    status = 401
    code = "UNAUTHENTICATED"


class Forbidden(RequestError, PermissionError):
    """A page of another site has a browser ask, whose user did not."""

    status = 403
    code = "PERMISSION_DENIED"


class NoSuchModel(RequestError, LookupError):
    """There is no model of that name or version."""

    status = 404
    code = "NOT_FOUND"


class TooSlow(RequestError, TimeoutError):
    """What is to be read did not come in time."""

    status = 408
    code = "DEADLINE_EXCEEDED"


class TooLarge(RequestError, ValueError):
    """It is larger than the server takes."""

    status = 413
    code = "RESOURCE_EXHAUSTED"


class UnknownEncoding(RequestError, ValueError):
    """Its body is encoded in a way that the server does not decode."""

    status = 415
    code = "INVALID_ARGUMENT"


class Overloaded(RequestError):
    """The server has as much to do as it takes on; the same may be asked later."""

    status = 429
    code = "RESOURCE_EXHAUSTED"


class RunFailed(RequestError):
    """The model could not be run on what it was fed."""


class NotReady(RequestError):
    """The model is being loaded, or the server ends."""

    status = 503
    code = "UNAVAILABLE"


class TooLate(RequestError, TimeoutError):
    """The time that the request has was over before it was answered."""

    status = 504
    code = "DEADLINE_EXCEEDED"


class Abandoned(RequestError):
    """Nobody waits for the answer any more."""

    status = 499
    code = "CANCELLED"
