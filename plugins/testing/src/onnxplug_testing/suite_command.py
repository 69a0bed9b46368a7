"""The command line by which EPs count the ONNX backend suite's cases."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnxplug
from onnxplug_testing.backend_suite import Lineup, count_cases

_BEGIN: Final = "<!-- counts of cases -->"
_END: Final = "<!-- end of counts -->"
_WIDTH: Final = 100


def write_table(file: Path, found: Mapping[str, Any]) -> None:
    """State in a Markdown *file*, between marks, how many cases run wholly on the EP.

    Raises:
        ValueError: the file has no such marks.
    """
    text = file.read_text(encoding="utf-8")
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not begin or not end:
        raise ValueError(f"{file} has no {_BEGIN} with {_END} behind it")
    left = found["of these compute nothing on it"]
    head = (
        f"{found['pass wholly on the EP']} of the {found['cases']} cases of the ONNX "
        f"backend suite run wholly on the EP. In {left} of these it has nothing to "
        "compute on the device; of the others so many have an operator there:"
    )
    counts = ", ".join(
        f"`{name}` {count}" for name, count in found["of these by operator"].items()
    )
    stated = "\n\n".join(textwrap.fill(each, _WIDTH) for each in (head, f"{counts}."))
    file.write_text(f"{before}{begin}\n\n{stated}\n\n{end}{after}", encoding="utf-8")


def main(
    description: str | None, lineup: Lineup, words: Sequence[str] | None = None
) -> int:
    """Count, print, and write JSON if that is asked for.

    Args:
        description: the script's, for ``--help``.
        words: arguments, by default the command's.

    Returns:
        1 where the CPU EP passes a case that does not pass with the EP before it, or
        that the EP takes wholly and does not pass; else 0.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="where to write what is printed")
    parser.add_argument(
        "--table",
        type=Path,
        help="a Markdown file whose text between "
        f"{_BEGIN} and {_END} is to state how many cases run wholly on the EP",
    )
    parser.add_argument("--jobs", type=int, default=1, help="processes to run in")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="run every Nth case only"
    )
    parser.add_argument("cases", nargs="*")
    given = parser.parse_intermixed_args(words)
    try:
        found = count_cases(lineup, given.cases, every=given.every, jobs=given.jobs)
    except (onnxplug.errors.NotFound, onnxplug.errors.InvalidArgument) as error:
        parser.error(str(error))
    text = json.dumps(found, indent=2)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    if given.table:
        write_table(given.table, found)
    print(text)
    wrong = found["pass on the CPU EP only"] or found["fail on the EP alone only"]
    return 1 if wrong else 0
