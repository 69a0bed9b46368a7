"""``onnxplug new-ep``: writes a distribution of an EP that works, to start from."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any, Final

from onnxplug.escape import escape
from onnxplug_cli.new_ep.styles import STYLES
from onnxplug_cli.text import plural, print_json, say

_EPILOG: Final = """\
examples:
  onnxplug new-ep acme-ep --style kernels
  onnxplug new-ep onnxplug-acme --style compile --ep-name AcmeNPUExecutionProvider
"""


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    styles = "; ".join(f"{name}: {each.summary}" for name, each in STYLES.items())
    parser = commands.add_parser(
        "new-ep",
        parents=[common],
        help="write a distribution of an EP that works, to start your own from",
        description="Write a distribution of an EP that works, with its tests, to "
        "start your own from. Nothing that exists is overwritten.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        metavar="NAME",
        help="of the distribution, in lower case with hyphens: acme-ep",
    )
    parser.add_argument(
        "--style", choices=STYLES, required=True, help=f"how the EP works; {styles}"
    )
    parser.add_argument(
        "--ep-name",
        metavar="EP",
        help="the EP's name (default: from NAME, AcmeExecutionProvider of acme-ep)",
    )
    parser.add_argument(
        "--folder",
        metavar="DIR",
        type=Path,
        help="where to write it (default: a folder NAME here)",
    )
    parser.set_defaults(command=_new_ep)


def _new_ep(arguments: argparse.Namespace) -> None:
    from onnxplug_cli.new_ep.distribution import files, write
    from onnxplug_cli.new_ep.names import names_of, require_new

    names = names_of(arguments.name, arguments.ep_name)
    require_new(names)
    folder = arguments.folder or Path(names.distribution)
    written = write(files(arguments.style, names), folder)
    if arguments.json:
        print_json(
            {
                "distribution": names.distribution,
                "module": names.module,
                "ep": names.ep,
                "style": arguments.style,
                "folder": str(folder),
                "files": written,
            }
        )
        return
    shown = escape(folder)
    say(f"wrote {names.ep} to {shown} ({plural(len(written), 'file')})")
    for path in written:
        say(f"  {path}")
    say("next:")
    say(f"  cd {shlex.quote(shown)}")
    say("  pip install -e '.[test]'")
    say("  pytest")
    say(f"  onnxplug eps {names.short}")
