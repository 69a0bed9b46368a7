"""``--library``: EPs that are not installed, made known before a command runs."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path


def add_library_argument(
    parser: argparse.ArgumentParser, name: str = "library"
) -> None:
    """Declare the option.

    Args:
        name: of the attribute; libraries of another one than ``library`` are left to
            the command to register.
    """
    parser.add_argument(
        "--library",
        dest=name,
        metavar="FILE",
        action="append",
        default=[],
        help="register this library of EPs first, such as my_ep.py; may be repeated",
    )


def register_libraries(targets: list[str]) -> None:
    """Make the EPs of *targets* known to this process, as ``register_ep_library`` does.

    A library that is a file is registered by its name without the ending, another by
    what was written.  What they print goes to stderr: it is no result.

    Raises:
        PluginError: one cannot be loaded, or its name or that of an EP is taken.
    """
    from onnxplug.plugins import registry

    for target in targets:
        with contextlib.redirect_stdout(sys.stderr):
            registry.register_ep_library(handle_of(target), target)


def handle_of(target: str) -> str:
    """What the library *target* is registered as."""
    from onnxplug.plugins.target import is_path

    return Path(target).stem if is_path(target) else target
