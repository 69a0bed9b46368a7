"""Tells what went wrong: a line for people, JSON for programs, tracebacks on demand.

Invariant: the traceback of an exception is shown once, however often it is reported.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, Final, TextIO

from onnxplug.errors import EpError, NodeError, OnnxplugError, PluginError
from onnxplug_cli.text import print_json, say

_ATTRIBUTES: Final = ("ep", "stage", "plugin", "node", "input")
"""Attributes of errors for programs, where they are text."""

_OF_PLUGINS: Final = (EpError, NodeError, PluginError)
"""Errors that may have a plugin's exception behind them."""


class ErrorReporter:
    """What goes wrong while a command runs.

    Attributes:
        debug: show tracebacks.
    """

    def __init__(self, command: str, *, debug: bool = False) -> None:
        self.debug = debug
        self._command = command
        self._noted: list[BaseException] = []
        self._is_a_plugins = False

    def note(self, error: BaseException | None) -> None:
        """Take *error* down, and show its traceback if that is wanted."""
        if error is None:
            return
        chain = list(_chain(error))
        if any(chain[-1] is known for known in self._noted):
            return
        self._noted.append(chain[-1])
        self._is_a_plugins |= _is_of_a_plugin(chain)
        if self.debug:
            _say("".join(traceback.format_exception(error)).rstrip("\n"))

    def fail(self, errors: Sequence[BaseException], *, as_json: bool) -> None:
        """Tell the *errors* that ended the command."""
        for error in errors:
            self.note(error)
        if as_json:
            print_json(failure_data(errors))
            return
        for error in errors:
            _say(f"onnxplug {self._command}: {message(error)}")

    def close(self) -> None:
        """Say how tracebacks are had, if a plugin raised and none was shown."""
        if self._is_a_plugins and not self.debug:
            _say(
                f"onnxplug {self._command}: --debug shows the traceback of what the "
                "plugin raised"
            )

    def show_warning(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        """In place of ``warnings.showwarning``."""
        if isinstance(message, Warning):
            self.note(message.__cause__)
        _say(f"onnxplug: {message}")


class LogHandler(logging.StreamHandler[TextIO]):
    """Shows the log on stderr, and collects the errors that it is about."""

    def __init__(self, reporter: ErrorReporter) -> None:
        super().__init__()
        self._reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Show *record*."""
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, BaseException):
                self._reporter.note(argument)
        super().emit(record)


def message(error: BaseException) -> str:
    """What *error* says, with its notes."""
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def failure_data(errors: Sequence[BaseException]) -> dict[str, Any]:
    """The *errors* that ended a command, for JSON."""
    first, *others = map(_data, errors)
    return {"error": first | ({"others": others} if others else {})}


def _data(error: BaseException) -> dict[str, Any]:
    stated = {name: getattr(error, name, None) for name in _ATTRIBUTES}
    _, *causes = _chain(error)
    return {
        "type": type(error).__name__,
        "message": message(error),
        **{
            name: text
            for name, text in stated.items()
            if text and isinstance(text, str)
        },
        "causes": [
            {"type": type(cause).__name__, "message": message(cause)}
            for cause in causes
        ],
    }


def _chain(error: BaseException) -> Iterator[BaseException]:
    """*error*, what caused it, and so on."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and not any(cause is each for each in seen):
        seen.append(cause)
        yield cause
        cause = cause.__cause__


def _is_of_a_plugin(chain: Sequence[BaseException]) -> bool:
    ours = [each for each in chain if isinstance(each, _OF_PLUGINS)]
    return bool(ours) and not isinstance(chain[-1], OnnxplugError)


def _say(text: str) -> None:
    say(text, file=sys.stderr)
