"""Measures which nodes an EP made for ONNX Runtime computes as ONNX defines them.

    python tools/measure_operators.py run EP --results FILE [--library PATH] [OP …]
    python tools/measure_operators.py table EP --results FILE --table FILE …

``run`` tries each variation of each node case that the library takes, and appends a
line of JSON for each; operators already in the file are skipped.  ``table`` writes the
allow-list from them, and prints the failures that the list would let through: there
must be none.  Lists in ``onnxplug_native/operators`` come with the distribution; others
are given to sessions with the option ``onnxplug.allow_list``.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from library import Library, add_arguments, named

import onnxplug
from onnxplug.errors import InvalidModel, UnassignedNode
from onnxplug_testing.measuring.learning import Subject, write_table
from onnxplug_testing.measuring.subjects import openvino_subject
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

KNOWN: Final = {"OpenVINOExecutionProvider": openvino_subject}
"""EPs on engines of which more is known than what is measured."""


def start(library: Library) -> Answer:
    """The EP alone, taken at its word."""
    library.register()
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    # it would compute by itself what does not depend on content, such as a shape
    disabled = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.graph_optimization_level = disabled
    trusted = [(library.ep, {"onnxplug.trust_library": "1"})]

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
                nodes = [(each.op_type, each.ep) for each in session.explain().nodes]
                if nodes != [(tried.node.op_type, library.ep)]:
                    raise Untaken("the host runs it itself, or as other nodes")
                return session.run(None, tried.feeds())

    return answer


def write(library: Library, results: Path, table: Path) -> None:
    """The allow-list."""
    library.register()
    device = library.device()
    about = {
        "ep": library.ep,
        "vendor": device.ep_vendor,
        "version": device.metadata["version"],
        "options": dict(device.default_options),
    }
    subject = KNOWN.get(library.ep, Subject)(about=about, refuses=True)
    write_table(results, subject, table)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table"])
    add_arguments(parser)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="what the list is written to")
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    given = parser.parse_intermixed_args()
    if given.command == "table" and given.table is None:
        parser.error("table needs --table")
    with named(given) as library:
        if given.command == "run":
            begin = functools.partial(start, library)
            run(begin, given.results, given.operators, given.kind)
        else:
            write(library, given.results, given.table)


if __name__ == "__main__":
    main()
