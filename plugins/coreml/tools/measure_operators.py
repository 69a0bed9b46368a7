"""Measures which nodes Core AI's runtime for processors computes as ONNX defines them.

    python tools/measure_operators.py run --results FILE [OP …]
    python tools/measure_operators.py table --results FILE

``run`` tries each variation of each node case that the EP takes, and appends a line of
JSON for each; operators already in the file are skipped.  ``table`` writes what is
refused, ``onnxplug_coreml/wrong.json``, from them, and prints the failures that are let
through: there must be none.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnxplug
import onnxplug_coreml
from onnxplug.errors import UnassignedNode
from onnxplug_coreml.formats import COREAI, engine_version
from onnxplug_testing.measuring.learning import Subject, write_table
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

TABLE: Final = Path(onnxplug_coreml.__file__).with_name("operators.json")


def start() -> Answer:
    """The EP alone."""
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")

    def answer(tried: Variation) -> Sequence[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                session = onnxplug.InferenceSession(
                    tried.model(), settings, providers=["CoreMLExecutionProvider"]
                )
            except UnassignedNode as error:
                raise Untaken(str(error)) from error
            return session.run(None, tried.feeds())

    return answer


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.command == "run":
        run(start, arguments.results, arguments.operators, arguments.kind)
        return
    engine, version = engine_version(COREAI)
    write_table(arguments.results, Subject(name=engine, version=version), TABLE)


if __name__ == "__main__":
    main()
