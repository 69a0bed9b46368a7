"""``onnxplug doctor``: what is installed, whether it works, and what to do if not."""

from __future__ import annotations

import argparse
from typing import Any, Final

from onnxplug_cli.failure import UsageError
from onnxplug_cli.library import add_library_argument, register_libraries
from onnxplug_cli.opening import add_ep_option_argument
from onnxplug_cli.text import print_json
from onnxplug_cli.values import seconds

_TIMEOUT: Final = 60.0


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "doctor",
        parents=[common],
        help="check what is installed: load each plugin, compute on each device",
        description="Check what is installed: load each plugin, compute on each "
        "device. The exit code is 1 if something installed is not usable.",
    )
    parser.add_argument(
        "--isolate",
        action="store_true",
        help="check each plugin in a process of its own, which may crash or hang",
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=seconds,
        help="with --isolate: how long a plugin may take "
        f"(default: {_TIMEOUT:g}); implies --isolate",
    )
    parser.add_argument(
        "--verify",
        metavar="EP",
        help="only compare what this EP computes on each device with the CPU EP, "
        "by the probes that it supplies, however long they take",
    )
    add_library_argument(parser, "libraries")
    add_ep_option_argument(parser)
    parser.set_defaults(command=_doctor)


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.verify is not None:
        register_libraries(arguments.libraries)
        return _verify(arguments)
    from onnxplug_cli.doctor.report import examine_all
    from onnxplug_cli.doctor.show import data, print_report

    timeout = arguments.timeout
    if arguments.isolate and timeout is None:
        timeout = _TIMEOUT
    report = examine_all(timeout, arguments.libraries, arguments.ep_option)
    if arguments.json:
        print_json(data(report))
    else:
        print_report(report)
    return 1 if report.problems else 0


def _verify(arguments: argparse.Namespace) -> int:
    if arguments.isolate or arguments.timeout is not None:
        raise UsageError(
            "--verify runs in this process and has no limit of time; leave out "
            "--isolate and --timeout"
        )
    if arguments.ep_option:
        raise UsageError(
            "--verify computes with the options that the EP has by itself, as sessions "
            "that ask for nothing else; leave out --ep-option"
        )
    from onnxplug_cli.doctor.verify import verify_ep

    return 0 if verify_ep(arguments.verify, as_json=arguments.json) else 1
