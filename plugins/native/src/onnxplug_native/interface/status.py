"""Statuses: how either side of the interface says that something failed."""

from __future__ import annotations

import logging

from onnxplug import ep
from onnxplug_native.causes import cause_and_remedy, explained
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find

_logger = logging.getLogger("onnxplug.plugin.onnxplug_native")


class Status(Handle):
    """Something that failed.

    Attributes:
        code: one of :class:`Code`, or whatever a library chose.
        message: what it says.
        cause: what was raised in an entry of ours, if that is where it failed.
    """

    def __init__(
        self, code: int, message: str, cause: BaseException | None = None
    ) -> None:
        super().__init__()
        self.code = code
        self.message = message
        self.cause = cause


def status_of(error: BaseException, entry: str) -> int:
    """The address of a status that says what *entry* failed of."""
    code, cause = Code.FAIL, error
    if isinstance(error, InterfaceError):
        code = error.code
    elif not isinstance(error, ep.OnnxplugError | MemoryError):
        try:
            ep.raise_interruption(error)
        # through the library it cannot go
        except BaseException as passing:  # noqa: BLE001
            cause = passing
        else:
            if isinstance(error, Exception):
                _logger.exception("%s failed", entry)
    return Status(code, f"{entry}: {error or type(error).__name__}", cause).address


def raise_status(address: int | None, what: str) -> None:
    """Raise what a status says, which is released.

    Args:
        address: what a library returned; ``None`` if all is well.
        what: who failed in what, in words.

    Raises:
        OnnxplugError: of the class that belongs to the status's code.
        BaseException: what interrupted an entry of ours, such as KeyboardInterrupt.
    """
    if not address:
        return
    status = find(Status, address, quiet=True)
    if status is None:
        raise ep.EPFail(
            f"{what} failed, and returned as its status {address:#x}, which is none"
        )
    status.release()
    if status.cause is not None and not isinstance(status.cause, Exception):
        raise status.cause
    kind = ep.status_class(status.code)
    try:
        code = Code(status.code).name
    except ValueError:
        code = str(status.code)
    said = status.message or "it says nothing"
    error = kind(f"{what} failed ({code}): {explained(said)}")
    _, error.remedy = cause_and_remedy(said)
    raise error from status.cause
