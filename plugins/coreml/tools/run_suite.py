"""Counts the ONNX backend suite's cases through the CoreML EP.

    python tools/run_suite.py [--jobs N] [--every N] [--json FILE] [--format F] [CASE …]

The format CoreAI runs on its engine; MLProgram, where Core ML is not, by the
interpreter that the tests have.

It ends with 1 where the CPU EP passes a case that does not pass with the CoreML EP
before it, or that the CoreML EP takes wholly and does not pass.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from onnxplug_coreml.formats import COREAI, MLPROGRAM
from onnxplug_coreml.machine import this_machine
from onnxplug_testing.backend_suite import Lineup, count_cases

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # has the interpreter


def _engine(model_format: str) -> AbstractContextManager[Any]:
    if model_format == COREAI or this_machine().is_mac:
        return nullcontext()
    from mlprogram.simulation import simulated

    from onnxplug_coreml.mlprogram.installation import building

    with building():
        pass  # imported once, which takes seconds: the processes inherit it
    return simulated()


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="where to write what is printed")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run in")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="run every Nth case only"
    )
    parser.add_argument("--format", default=COREAI, choices=[COREAI, MLPROGRAM])
    parser.add_argument("cases", nargs="*")
    given = parser.parse_intermixed_args(arguments)
    lineup = Lineup("CoreMLExecutionProvider", {"ModelFormat": given.format})
    with _engine(given.format):
        found = count_cases(lineup, given.cases, every=given.every, jobs=given.jobs)
    text = json.dumps(found, indent=2)
    if given.json:
        given.json.write_text(text + "\n", encoding="utf-8")
    print(text)
    faults = found["pass on the CPU EP only"] or found["fail on the EP alone only"]
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
