"""``onnxplug <command>``: reads the command line and turns errors to exit codes.

0 is success, 1 a failure, 2 a command line that does not fit.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from onnxplug import __version__
from onnxplug.errors import OnnxplugError, PluginError
from onnxplug.escape import escape, escape_lines
from onnxplug_cli import (
    bench,
    cache,
    calibrating,
    comparing,
    compiling,
    devices,
    doctor,
    eps,
    examining,
    explain,
    new_ep,
    ops,
    prepare,
    run,
    serving,
)
from onnxplug_cli.error_reporter import ErrorReporter, LogHandler, failure_data
from onnxplug_cli.failure import BadCommandLine, CommandFailed, UsageError
from onnxplug_cli.library import register_libraries
from onnxplug_cli.progress import showing_log
from onnxplug_cli.text import print_json, say

_COMMANDS = (
    run, bench, calibrating, comparing, prepare, explain, compiling, devices, eps, ops,
    doctor, examining, serving, cache, new_ep,
)  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* names (``sys.argv`` by default); its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        arguments = build_parser().parse_args(words)
    except SystemExit as stop:  # argparse has printed help, or the version
        return stop.code if isinstance(stop.code, int) else 2
    except BadCommandLine as error:
        if "--json" in words:
            print_json(failure_data([error]))
        else:
            say(f"{error.usage}{error.command}: error: {error}", file=sys.stderr)
        return 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a character shows '?' rather than a traceback
        sys.stdout.reconfigure(errors="replace")
    level = (
        logging.DEBUG
        if arguments.debug or arguments.verbose > 1
        else (logging.WARNING, logging.INFO)[arguments.verbose]
    )
    reporter = ErrorReporter(arguments.command_name, debug=arguments.debug)
    # the checks have a line of their own
    shown = level if arguments.command_name != "doctor" else logging.INFO
    with _diagnostics(level, reporter), showing_log(shown):
        return _run(arguments, reporter)


def _run(arguments: argparse.Namespace, reporter: ErrorReporter) -> int:
    try:
        register_libraries(getattr(arguments, "library", []))
        code: int | None = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; nothing more can be written,
        # not even by the flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OnnxplugError, CommandFailed, OSError) as error:
        reporter.fail([error], as_json=arguments.json)
        return 2 if isinstance(error, UsageError) else 1
    except ExceptionGroup as group:  # ONNXPLUG_STRICT=1: all broken plugins at once
        if group.split(PluginError)[1] is not None:
            raise
        reporter.fail(group.exceptions, as_json=arguments.json)
        return 1
    finally:
        reporter.close()
    return code or 0


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="onnxplug",
        description="Run ONNX models, and see on which execution provider and why.",
    )
    parser.add_argument(
        "--version", action="version", version=f"onnxplug {__version__}"
    )
    _add_common(parser)
    common = argparse.ArgumentParser(add_help=False)
    # what is said before the command holds unless it is said after it, too
    _add_common(common, default=argparse.SUPPRESS)
    commands = parser.add_subparsers(
        metavar="COMMAND", dest="command_name", required=True
    )
    for command in _COMMANDS:
        command.add_parser(commands, common)
    return parser


def _add_common(parser: argparse.ArgumentParser, **default: Any) -> None:
    """Declare what may stand before a command and after it."""
    parser.add_argument("--json", action="store_true", help="print JSON", **default)
    parser.add_argument(
        "-v",
        "--verbose",
        action="count",
        help="show the log; twice: all of it",
        **{"default": 0, **default},
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="as -vv, and show tracebacks of errors, plugins' too",
        **default,
    )


class _Parser(argparse.ArgumentParser):
    """Raises what does not fit, for it to be reported as any other failure."""

    def error(self, message: str) -> NoReturn:
        # what was written on the command line may have come from files
        text = escape(message)
        raise BadCommandLine(text, command=self.prog, usage=self.format_usage())


class _Formatter(logging.Formatter):
    """Formats what EPs and their libraries log, too."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record))


@contextmanager
def _diagnostics(level: int, reporter: ErrorReporter) -> Iterator[None]:
    """Send the library's log and warnings to stderr, one line each."""
    logger = logging.getLogger("onnxplug")
    before = logger.level
    handler = LogHandler(reporter)
    handler.setFormatter(_Formatter("onnxplug: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = reporter.show_warning
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)
