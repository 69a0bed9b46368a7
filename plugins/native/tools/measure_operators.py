"""Measures which nodes an EP made for ONNX Runtime computes as ONNX defines them.

    python tools/measure_operators.py run EP --results FILE [--library PATH]
        [--option NAME=VALUE …] [OP …]
    python tools/measure_operators.py table EP --results FILE --table FILE …
    python tools/measure_operators.py run EP --kind whole --results MORE …
    python tools/measure_operators.py narrow EP --results MORE --table FILE …

``run`` tries each variation of each node case that the library takes, and appends a
line of JSON for each; operators already in the file are skipped.  ``table`` writes the
allow-list from them, and prints the failures that the list would let through: there
must be none.  Options are noted in it, and are the library's wherever the list is used.
``narrow`` takes from the list what trials of one kind, made later, show to be wrong.
Lists in ``onnxplug_native/operators`` come with the distribution; others
are given to sessions with the option ``onnxplug.allow_list``.
"""

from __future__ import annotations

import argparse
import functools
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from library import Library, add_arguments, named

import onnxplug
from onnxplug.errors import InvalidModel, UnassignedNode
from onnxplug_testing.measuring.learning import Subject, narrow_table, write_table
from onnxplug_testing.measuring.subjects import (
    ggml_subject,
    openvino_subject,
    webgpu_subject,
)
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

KNOWN: Final = {
    "OpenVINOExecutionProvider": openvino_subject,
    "WebGpuExecutionProvider": webgpu_subject,
    "ggml": ggml_subject,
}
"""EPs on engines of which more is known than what is measured."""


def start(library: Library) -> Answer:
    """The EP alone, taken at its word."""
    library.register()
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    # it would compute by itself what does not depend on content, such as a shape
    disabled = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.graph_optimization_level = disabled
    trusted = [(library.ep, {**library.options, "onnxplug.trust_library": "1"})]

    def answer(tried: Variation) -> Callable[[], Sequence[Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                session = onnxplug.InferenceSession(
                    tried.model(), settings, providers=trusted
                )
            except (InvalidModel, UnassignedNode) as error:
                raise Untaken(str(error)) from error
        nodes = session.explain().nodes
        if {each.ep for each in nodes} != {library.ep} or not _is_of_one(
            [each.op_type for each in nodes], tried.node.op_type
        ):
            session.close()
            raise Untaken("the host runs it itself, or as other nodes")

        def run_it() -> Sequence[Any]:
            with session, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return session.run(None, tried.feeds())

        return run_it

    return answer


def _is_of_one(operators: Sequence[str], wanted: str) -> bool:
    """Whether nodes of *operators* are that which is *wanted*, alone or, with its
    channels last, between what transposes for it."""
    around = [each for each in operators if each != "Transpose"]
    return list(operators) == [wanted] or around == [wanted]


def subject_of(library: Library) -> Subject:
    """What is known of the EP."""
    library.register()
    device = library.device()
    about = {
        "ep": library.ep,
        "vendor": device.ep_vendor,
        "version": device.metadata["version"],
        "options": {**device.default_options, **library.options},
    }
    return KNOWN.get(library.ep, Subject)(about=about, refuses=True)


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "table", "narrow"])
    add_arguments(parser)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--table", type=Path, help="what the list is written to")
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    given = parser.parse_intermixed_args()
    if given.command != "run" and given.table is None:
        parser.error(f"{given.command} needs --table")
    with named(given) as library:
        if given.command == "run":
            begin = functools.partial(start, library)
            bits = KNOWN.get(library.ep, Subject)(about={}).int64_bits
            run(begin, given.results, given.operators, given.kind, int64_bits=bits)
        elif given.command == "table":
            write_table(given.results, subject_of(library), given.table)
        else:
            narrow_table(given.results, subject_of(library), given.table)


if __name__ == "__main__":
    main()
