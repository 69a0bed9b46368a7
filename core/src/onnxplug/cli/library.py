"""``--library``: EPs that are not installed, made known before a command runs."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path


def add_library_argument(parser: argparse.ArgumentParser) -> None:
    """Declare the option."""
    parser.add_argument(
        "--library",
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
    from onnxplug.plugins.target import is_path

    for target in targets:
        name = Path(target).stem if is_path(target) else target
        with contextlib.redirect_stdout(sys.stderr):
            registry.register_ep_library(name, target)
