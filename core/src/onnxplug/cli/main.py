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
from typing import TextIO

from onnxplug import __version__
from onnxplug.cli import devices, eps, explain, run
from onnxplug.cli.failure import CommandFailed, UsageError
from onnxplug.errors import OnnxplugError

_COMMANDS = (run, explain, devices, eps)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that *argv* names (``sys.argv`` by default); its exit code."""
    try:
        arguments = build_parser().parse_args(argv)
    except SystemExit as stop:  # argparse has printed help, the version, or the fault
        return stop.code if isinstance(stop.code, int) else 2
    if isinstance(sys.stdout, io.TextIOWrapper):
        # a terminal that lacks a character shows '?' rather than a traceback
        sys.stdout.reconfigure(errors="replace")
    with _diagnostics(verbose=arguments.debug):
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    try:
        arguments.command(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader, such as `head`, has seen enough; nothing more can be written,
        # not even by the flush at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (OnnxplugError, CommandFailed, OSError) as error:
        if arguments.debug:
            traceback.print_exc()
        print(f"onnxplug {arguments.command_name}: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    return 0


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = argparse.ArgumentParser(
        prog="onnxplug",
        description="Run ONNX models, and see on which execution provider and why.",
    )
    parser.add_argument(
        "--version", action="version", version=f"onnxplug {__version__}"
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--json", action="store_true", help="print JSON")
    common.add_argument(
        "--debug", action="store_true", help="show the log, and tracebacks of errors"
    )
    commands = parser.add_subparsers(
        metavar="COMMAND", dest="command_name", required=True
    )
    for command in _COMMANDS:
        command.add_parser(commands, common)
    return parser


@contextmanager
def _diagnostics(*, verbose: bool) -> Iterator[None]:
    """Send the library's log and warnings to stderr, one line each."""
    logger = logging.getLogger("onnxplug")
    before = logger.level
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("onnxplug: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
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
    print(f"onnxplug: {message}", file=sys.stderr)
