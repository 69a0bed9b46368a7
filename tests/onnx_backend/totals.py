"""Prints what passes of the ONNX backend suite, engine by engine.

    python tests/onnx_backend/totals.py [--engine NAME] [--failures] [--json] [CASE …]

The engines are onnxplug on the CPU EP, the same with ``onnx.reference`` made to raise,
and those of ONNX Runtime, OpenVINO and ``onnx.reference`` that are installed.  All run
the same cases, compared by the suite itself with its own tolerances.

Cases run in child processes, a batch in each: one that crashes or hangs is counted as
such, and the next case goes on in a new process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import unittest
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from engines import ENGINES, Engine
from suite import load_cases

_BATCH: Final = 500
"""How many cases a process runs: what they leak is gone after them."""

_PATIENCE: Final = 120.0
"""Seconds that a case may take."""

_RANDOM: Final = "test_bernoulli"
"""How the names begin of cases that compare with draws, right only by chance."""

_OF_VALUES: Final = "Not equal to tolerance"
"""What numpy says when shapes and types are right."""


class Total(NamedTuple):
    """How the cases went on one engine.

    Attributes:
        failures: what was raised, by case, with the cases that crashed.
        crashes: how many of them ended the process, or took too long.
        drawn: of the cases that compare with draws those that fail by their numbers
            alone: shape and element type are right.
        refused: how many models the engine refused for being newer than it claims to
            know.
    """

    engine: Engine
    cases: int
    failures: dict[str, str]
    crashes: int
    drawn: int
    refused: int

    @property
    def passed(self) -> int:
        """How many cases passed."""
        return self.cases - len(self.failures)


class _Chosen:
    """The backend that the suite knows: whichever engine the process runs."""

    engine: Engine

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> _Chosen:
        chosen = cls()
        # an attribute of the instance: the suite calls it with the inputs alone
        chosen.run = cls.engine.prepare(model)  # type: ignore[attr-defined]
        return chosen

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def measure(engine: Engine, names: Sequence[str]) -> Total:
    """Run the cases named on one engine."""
    _cases()  # before any fork
    outcomes: dict[str, str] = {}
    crashes = 0
    waiting = list(names)
    while waiting:
        done, end = _run_batch(engine, waiting[:_BATCH])
        outcomes.update(done)
        waiting = waiting[len(done) :]
        if end:
            crashes += 1
            outcomes[waiting.pop(0)] = end
    failures = {name: outcome for name, outcome in outcomes.items() if outcome}
    drawn = [
        name
        for name, outcome in failures.items()
        if name.startswith(_RANDOM) and _OF_VALUES in outcome
    ]
    refused = [
        name
        for name, outcome in failures.items()
        if any(refusal in outcome for refusal in engine.refusals)
    ]
    return Total(engine, len(names), failures, crashes, len(drawn), len(refused))


def _run_batch(engine: Engine, names: Sequence[str]) -> tuple[dict[str, str], str]:
    """What each case raised, and how the process ended if it did so before the last."""
    context = multiprocessing.get_context(_start_method())
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(engine, list(names), sender))
    child.start()
    sender.close()
    done: dict[str, str] = {}
    end = ""
    try:
        while len(done) < len(names):
            if not receiver.poll(_PATIENCE):
                end = f"it took longer than {_PATIENCE:.0f} s"
                break
            name, outcome = receiver.recv()
            done[name] = outcome
    except EOFError:
        child.join(_PATIENCE)
        end = f"the process ended with code {child.exitcode}"
    finally:
        if end:
            child.kill()
        child.join()
        receiver.close()
    return done, end


def _start_method() -> str:
    # a fork has the suite loaded already, which takes longer than most batches
    return "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"


def _child(engine: Engine, names: Sequence[str], sender: Connection) -> None:
    cases = _cases()
    _Chosen.engine = engine
    with engine.context():
        for name in names:
            sender.send((name, _outcome(cases[name])))
    sender.close()


def _outcome(run: Callable[[], None]) -> str:
    """What a case raised; empty if it passed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run()
    except unittest.SkipTest as skipped:
        return f"skipped: {skipped}"
    except Exception as error:  # noqa: BLE001 (whatever a case raises)
        return f"{type(error).__name__}: {str(error).strip()[:400]}"
    return ""


_loaded: dict[str, Callable[[], None]] = {}


def _cases() -> dict[str, Callable[[], None]]:
    if not _loaded:
        _loaded.update(load_cases(_Chosen))
    return _loaded


def table(totals: Sequence[Total]) -> Iterator[str]:
    """The totals for people, a line for each engine."""
    titles = [f"{total.engine.title} {total.engine.version}" for total in totals]
    # as wide as if all engines were there: lines are printed one by one
    known = [f"{engine.title} {engine.version}" for engine in ENGINES.values()]
    width = max(map(len, [*known, *titles]))
    for title, total in zip(titles, totals, strict=True):
        remarks = []
        if total.refused:
            claimed = total.cases - total.refused
            remarks.append(f"{total.passed} of the {claimed} not too new for it")
        if total.drawn:
            remarks.append(f"{total.drawn} more compare random draws")
        if total.crashes:
            remarks.append(f"{total.crashes} crashed")
        remark = f"  ({'; '.join(remarks)})" if remarks else ""
        yield f"{title.ljust(width)}  {total.passed:5} of {total.cases}{remark}"


def as_data(total: Total) -> dict[str, Any]:
    """A total for JSON."""
    return {
        "engine": total.engine.title,
        "version": total.engine.version,
        "cases": total.cases,
        "passed": total.passed,
        "crashed": total.crashes,
        "random draws": total.drawn,
        "refused as too new": total.refused,
        "failures": total.failures,
    }


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--engine", action="append", choices=ENGINES, help="only these; may be repeated"
    )
    parser.add_argument(
        "--failures", action="store_true", help="show on stderr what fails, and how"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="default: all")
    arguments = parser.parse_intermixed_args()
    names = list(_cases())
    unknown = sorted(set(arguments.cases) - set(names))
    if unknown:
        parser.error(f"the suite has no case {', '.join(unknown)}")
    names = arguments.cases or names
    totals: list[Total] = []
    for key in arguments.engine or ENGINES:
        engine = ENGINES[key]
        if not engine.version:
            print(f"{engine.title} is not installed: left out", file=sys.stderr)
            continue
        totals.append(measure(engine, names))
        if arguments.failures:
            for name, reason in totals[-1].failures.items():
                print(f"{engine.title}: {name}: {reason}", file=sys.stderr)
        if not arguments.json:
            # each as soon as it is known: all of them take minutes
            print(*table(totals[-1:]), sep="\n", flush=True)
    if arguments.json:
        print(json.dumps([as_data(total) for total in totals], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
