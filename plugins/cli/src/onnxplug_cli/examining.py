"""``onnxplug test``: puts to an EP what the contract asks of it.

The checks are those of ``onnxplug-testing``, which need not be installed.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from onnxplug_cli.failure import CommandFailed, UsageError
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.names import name_to_write
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import print_json, say
from onnxplug_cli.values import assignment, names

if TYPE_CHECKING:
    from onnxplug_testing.conformance import Report

_EPILOG: Final = """\
examples:
  onnxplug test acme --quick
  onnxplug test acme --device gpu --html report.html
  onnxplug test acme --library src/acme_ep/plugin.py --only operators,claims
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "test",
        parents=[common],
        help="find an EP's mistakes: put to it what the contract asks of EPs",
        description="Put to an EP what the contract asks of EPs. Says what was tried, "
        "what was not and why, and what was found.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("ep", metavar="EP", help="the EP's name, such as acme")
    parser.add_argument(
        "--device",
        default="",
        help="which of its devices: a number, a type such as gpu, or a part of how it "
        "is called (default: the first)",
    )
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        type=assignment,
        action="append",
        default=[],
        help="an option of the EP in all sessions; may be repeated",
    )
    parser.add_argument(
        "--only",
        metavar="GROUP[,GROUP]",
        type=names,
        default=[],
        help="groups, or checks as in claims/reasons (default: all)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="half a minute, instead of up to five"
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of all that is drawn (default: 0)"
    )
    parser.add_argument(
        "--html", metavar="FILE", type=Path, help="write the report as a page, too"
    )
    parser.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        help="where to write what reproduces findings (default: a folder "
        "conformance-EP here)",
    )
    parser.add_argument(
        "--in-process",
        action="store_true",
        help="no process for each check: one that crashes or hangs ends the command",
    )
    add_library_argument(parser)
    parser.set_defaults(command=examine_ep)


def examine_ep(arguments: argparse.Namespace) -> int:
    """Examine, and print what came of it; 1 if something was found.

    Raises:
        CommandFailed: ``onnxplug-testing`` is not installed.
        UsageError: there is no such group, check or device.
        PluginError: the EP cannot be used.
    """
    from onnxplug.errors import InvalidArgument, NotFound
    from onnxplug.plugins import registry

    try:
        from onnxplug_testing import conformance
    except ImportError as error:
        raise CommandFailed(
            "the checks are in onnxplug-testing, which cannot be imported "
            f"({error}); `pip install onnxplug-testing` installs it"
        ) from error
    name = registry.resolve(arguments.ep).name
    short = name_to_write(name)
    settings = conformance.Settings(
        seed=arguments.seed,
        quick=arguments.quick,
        folder=arguments.folder or Path(f"conformance-{short}"),
        isolated=not arguments.in_process,
    )
    try:
        checks = conformance.chosen_checks(arguments.only)
        whole = sum(check.share for check in checks)
        with Progress(f"testing {short} …") as shown:

            def tell(check: conformance.Check) -> None:
                before = checks[: checks.index(check)]
                done = sum(each.share for each in before) / whole
                shown.tell(f"testing {short}: {check.full_name} …", done)

            report = conformance.examine(
                name,
                device=arguments.device,
                options=dict(arguments.option),
                only=arguments.only,
                settings=settings,
                progress=tell,
            )
    except (InvalidArgument, NotFound) as error:
        raise UsageError(str(error)) from error
    _show(report, arguments)
    return 1 if report.findings else 0


def _show(report: Report, arguments: argparse.Namespace) -> None:
    from onnxplug_testing.conformance.html import as_html
    from onnxplug_testing.conformance.text import as_text

    if arguments.html is not None:
        arguments.html.write_text(as_html(report), encoding="utf-8")
    if arguments.json:
        print_json(json.loads(json.dumps(report.as_json(), default=str)))
    else:
        say(as_text(report), end="")
