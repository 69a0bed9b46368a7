"""Measures which nodes an EP made for ONNX Runtime computes as ONNX defines them.

    python tools/measure_operators.py run EP --results FILE [--library PATH] [OP …]
    python tools/measure_operators.py table EP --results FILE --table FILE …

EP is the name that the library gives it, and PATH the library's, unless a wheel called
``onnxruntime-ep-…`` has it.  ``run`` tries each variation of each node case that the
library takes, and appends a line of JSON for each; operators already in the file are
skipped.  ``table`` writes the allow-list from them, and prints the failures that the
list would let through: there must be none.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import onnxplug
from onnxplug.errors import InvalidModel, UnassignedNode
from onnxplug_testing.hardware import INTEL_CPU, presented
from onnxplug_testing.measuring.learning import Subject, write_table
from onnxplug_testing.measuring.subjects import openvino_subject
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

KNOWN: Final = {"OpenVINOExecutionProvider": openvino_subject}
"""EPs on engines of which more is known than what is measured."""


def register(library: Path | None) -> None:
    """Have the EPs of *library*, if it is not in a wheel that is found by itself."""
    if library is not None:
        onnxplug.register_ep_library("measured", library)


def start(name: str, library: Path | None) -> Answer:
    """The EP alone, taken at its word."""
    register(library)
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    trusted = [(name, {"onnxplug.trust_library": "1"})]

    def answer(tried: Variation) -> Sequence[Any]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                session = onnxplug.InferenceSession(
                    tried.model(), settings, providers=trusted
                )
            except (InvalidModel, UnassignedNode) as error:
                raise Untaken(str(error)) from error
            with session:
                nodes = session.explain().nodes
                if [(n.op_type, n.ep) for n in nodes] != [(tried.node.op_type, name)]:
                    raise Untaken("the host runs it itself, or as other nodes")
                return session.run(None, tried.feeds())

    return answer


def write(name: str, library: Path | None, results: Path, table: Path) -> None:
    """The allow-list."""
    register(library)
    device = next(each for each in onnxplug.get_ep_devices() if each.ep_name == name)
    about = {
        "ep": name,
        "vendor": device.ep_vendor,
        "version": device.metadata["version"],
    }
    subject = KNOWN.get(name, Subject)(about=about, refuses=True)
    write_table(results, subject, table)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    parser.add_argument("ep")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", type=Path)
    parser.add_argument("--library", type=Path)
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument(
        "--intel", action="store_true", help="say that the processor is Intel's"
    )
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.command == "table" and arguments.table is None:
        parser.error("table needs --table")
    with presented(INTEL_CPU) if arguments.intel else contextlib.nullcontext():
        if arguments.command == "run":
            begin = functools.partial(start, arguments.ep, arguments.library)
            run(begin, arguments.results, arguments.operators, arguments.kind)
        else:
            write(arguments.ep, arguments.library, arguments.results, arguments.table)


if __name__ == "__main__":
    main()
