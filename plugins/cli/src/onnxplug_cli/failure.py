"""What ends a command early, apart from the library's own errors."""

from __future__ import annotations


class CommandFailed(Exception):
    """The command cannot do what it was asked; the text is shown.  Exit code 1."""


class UsageError(CommandFailed):
    """What was written on the command line does not fit.  Exit code 2."""


class BadCommandLine(UsageError):
    """What was written does not fit what a command declares.  Exit code 2.

    Attributes:
        command: as it is called, ``onnxplug run``.
        usage: how it is used.
    """

    def __init__(self, message: str, *, command: str, usage: str) -> None:
        super().__init__(message)
        self.command = command
        self.usage = usage
