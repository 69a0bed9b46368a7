"""``onnxplug eps``: the installed EPs, and what became of their plugins."""

from __future__ import annotations

import argparse
from typing import Any

from onnxplug.cli.text import (
    print_json,
    print_table,
    say,
)


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "eps",
        parents=[common],
        help="list the installed EPs",
        description="List the installed EPs, and the state of their plugins.",
    )
    parser.add_argument(
        "--load",
        action="store_true",
        help="import each plugin first, to see whether that works",
    )
    parser.set_defaults(command=_eps)


def _eps(arguments: argparse.Namespace) -> None:
    from onnxplug import get_ep_devices, get_plugins

    if arguments.load:
        get_ep_devices()
    records = get_plugins()
    if arguments.json:
        keys = ("name", "distribution", "version", "state", "reason")
        print_json(
            {"eps": [{key: str(getattr(r, key)) for key in keys} for r in records]}
        )
        return
    if not records:
        say("No EP is installed.  onnxplug-cpu, for one, supplies the CPU's.")
        return
    print_table(
        ("EP", "STATE", "DISTRIBUTION", "VERSION"),
        [(r.name, str(r.state), r.distribution, r.version) for r in records],
    )
    for record in records:
        if record.reason:
            say(f"\n{record.reason}")
