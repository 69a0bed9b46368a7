"""The command line by which EPs count the ONNX backend suite's cases."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import onnxplug
from onnxplug_testing.backend_suite import Lineup, count_cases


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
    print(text)
    wrong = found["pass on the CPU EP only"] or found["fail on the EP alone only"]
    return 1 if wrong else 0
