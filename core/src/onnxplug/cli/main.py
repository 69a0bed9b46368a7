"""``onnxplug <command>``: reads the command line and turns errors to exit codes.

0 is success, 1 a failure, 2 a command line that does not fit.
"""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TextIO

from onnxplug import __version__
from onnxplug.cli import bench, cache, devices, doctor, eps, explain, ops, run
from onnxplug.cli.failure import CommandFailed, UsageError
from onnxplug.cli.text import say
from onnxplug.errors import OnnxplugError, PluginError
from onnxplug.escape import escape, escape_lines

_COMMANDS = (run, bench, explain, devices, eps, ops, doctor, cache)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* names (``sys.argv`` by default); its exit code."""
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed help, the version, or the fault
        return stop.code if isinstance(stop.code, int) else 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a character shows '?' rather than a traceback
        sys.stdout.reconfigure(errors="replace")
    level = (
        logging.DEBUG
        if arguments.debug or arguments.verbose > 1
        else (logging.WARNING, logging.INFO)[arguments.verbose]
    )
    with _diagnostics(level):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        code: int | None = arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; nothing more can be written,
        # not even by the flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OnnxplugError, CommandFailed, OSError) as error:
        _tell(arguments, error)
        return 2 if isinstance(error, UsageError) else 1
    except ExceptionGroup as group:  # ONNXPLUG_STRICT=1: all broken plugins at once
        if group.split(PluginError)[1] is not None:
            raise
        _tell(arguments, *group.exceptions)
        return 1
    return code or 0


def _tell(arguments: argparse.Namespace, *errors: BaseException) -> None:
    if arguments.debug:
        say(traceback.format_exc(), end="", file=sys.stderr)
    for error in errors:
        say(f"onnxplug {arguments.command_name}: {error}", file=sys.stderr)


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="onnxplug",
        description="Run ONNX models, and see on which execution provider and why.",
    )
    parser.add_argument(
        "--version", action="version", version=f"onnxplug {__version__}"
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="show the log; twice: all of it",
    )
    common.add_argument(
        "--debug", action="store_true", help="as -vv, and show tracebacks of errors"
    )
    commands = parser.add_subparsers(
        metavar="COMMAND", dest="command_name", required=True
    )
    for command in _COMMANDS:
        command.add_parser(commands, common)
    return parser


class _Parser(argparse.ArgumentParser):
    """Shows what was written on the command line, which may have come from files."""

    def error(self, message: str) -> NoReturn:
        super().error(escape(message))


class _Formatter(logging.Formatter):
    """Formats what EPs and their libraries log, too."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_lines(super().format(record))


@contextmanager
def _diagnostics(level: int) -> Iterator[None]:
    """Send the library's log and warnings to stderr, one line each."""
    logger = logging.getLogger("onnxplug")
    before = logger.level
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("onnxplug: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    say(f"onnxplug: {message}", file=sys.stderr)
