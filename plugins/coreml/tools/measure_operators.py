"""Measures which nodes Core AI's runtime for processors computes as ONNX defines them.

    python tools/measure_operators.py run --results FILE [OP …]
    python tools/measure_operators.py failures --results FILE

``run`` tries each variation of each node case that the EP takes, and appends a line of
JSON for each; operators already in the file are skipped.  ``failures`` counts them, and
prints those that the EP takes and does not compute as the CPU EP does: there must be
none.  What the engine gets wrong is written in another way, or refused, where the
operator is lowered.
"""

from __future__ import annotations

import argparse
import collections
import functools
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import onnxplug
from onnxplug.errors import InvalidModel, UnassignedNode
from onnxplug_coreml.lowering import lower  # noqa: F401 - declares the rules
from onnxplug_coreml.lowering.call import RULES
from onnxplug_testing.measuring.learning import read_results
from onnxplug_testing.measuring.trials import Answer, Untaken, run
from onnxplug_testing.measuring.variations import Variation

UNTAKEN: Final = frozenset({"refused", "no answer", "harness"})


def start() -> Answer:
    """The EP alone."""
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")

    def answer(tried: Variation) -> Callable[[], Sequence[Any]]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                session = onnxplug.InferenceSession(
                    tried.model(),
                    settings,
                    providers=[("CoreMLExecutionProvider", {"ModelFormat": "CoreAI"})],
                )
            except (InvalidModel, UnassignedNode) as error:
                raise Untaken(str(error)) from error
        return functools.partial(session.run, None, tried.feeds())

    return answer


def is_left_open(trial: Mapping[str, Any]) -> bool:
    """Whether ONNX does not say what is right: which integer infinity and NaN become.

    The suite's cases of ``CastLike`` have them, and variations ask for integers.
    """
    return trial["op"] == "CastLike" and trial["types"][1] in ("int32", "int64")


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["run", "failures"])
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--kind", default="", help="try only this kind of variation")
    parser.add_argument("operators", nargs="*")
    arguments = parser.parse_intermixed_args()
    if arguments.command == "run":
        names = arguments.operators or sorted(RULES)
        run(start, arguments.results, names, arguments.kind)
        return
    trials = list(read_results(arguments.results))
    taken = [trial for trial in trials if trial["result"] not in UNTAKEN]
    wrong = [trial for trial in taken if trial["result"] != "right"]
    print(dict(collections.Counter(trial["result"] for trial in trials)))
    failures = [trial for trial in wrong if not is_left_open(trial)]
    for trial in failures:
        print(trial)
    print(
        f"{len(taken)} trials of {len({trial['op'] for trial in taken})} operators "
        f"are taken; {len(wrong) - len(failures)} of them ONNX leaves open, and "
        f"{len(failures)} are wrong"
    )
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
