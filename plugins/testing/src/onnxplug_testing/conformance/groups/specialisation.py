"""Whether an EP computes right for shapes that come and go.

Beside it :mod:`.sizes` asks of each operator, :mod:`.computed_sizes` of networks that
compute with sizes, and :mod:`.unknown_sizes` of each element type, and of many
operators in threads.
"""

from __future__ import annotations

import threading
from typing import Final

import onnxplug
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import computed_sizes
from onnxplug_testing.conformance.groups.sizes import EACH
from onnxplug_testing.conformance.groups.unknown_sizes import AT_ONCE, EARLY, THREADS
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    Network,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial, in_words

__all__ = ["computed_sizes"]

LIMIT: Final = Sentence(
    "Specialiser.limit",
    "For how many sets of input shapes the host keeps what the EP compiles, for each "
    "partition; at least 1.",
)


@check("specialisation", share=1.0)
def changing_shapes(trial: Trial) -> None:
    """One session, runs of many shapes in random order, 0 and 1 among them."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(4 if trial.quick else 25)):
        draw = trial.draw(number)
        network = draw_network(words, draw, nodes=draw.randint(1, 7))
        rows = [3, 1, 0, 5, 3, 2, 64, 1, 17, 3, 0, 4, 6, 8, 9, 10, 11, 12, 3]
        draw.shuffle(rows)
        try:
            session = trial.subject.session(network.model)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            if refusal(error) is None:
                text = f"making a session {in_words(error)}"
                trial.find(
                    said.RESULTS, text, case=network.case(trial.numbers(number), 3)
                )
            else:
                trial.leave_out("the EP refuses the network")
            continue
        with session:
            for position, many in enumerate(rows):
                numbers = trial.numbers(number, position)
                case = network.case(numbers, many)
                if trial.attempt(case):
                    before = rows[position - 1] if position else None
                    _run(trial, session, case, before)


def _run(
    trial: Trial,
    session: onnxplug.InferenceSession,
    case: Case,
    before: int | None,
) -> None:
    after = "" if before is None else f", after one of {before}"
    try:
        found = session.run(None, dict(case.feeds))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        sentence = EARLY if "declined" in str(error).lower() else said.RESULTS
        text = f"a run{after} {in_words(error)}"
        group = "" if sentence is EARLY or _is_right_alone(trial, case) else "operators"
        kind = f"{type(error).__name__} {group}"
        trial.find(sentence, text, case=case, kind=kind, group=group)
        return
    wrong, _ = contradiction(found, case, trial.subject)
    if wrong:
        group = "" if _is_right_alone(trial, case) else "operators"
        text = f"in a run{after} {wrong}"
        trial.find(said.RESULTS, text, case=case, kind=f"wrong {group}", group=group)


def _is_right_alone(trial: Trial, case: Case) -> bool:
    """Whether a session of its own gives the right result."""
    try:
        found = trial.subject.run(case.model, case.feeds)
    except (Exception, SystemExit):  # noqa: BLE001 (whatever an EP raises)
        return False
    return not contradiction(found, case, trial.subject)[0]


@check("specialisation", share=0.3)
def specialised(trial: Trial) -> None:
    """What is compiled by shapes is compiled once for each, for as many as is said,
    and from several threads at once."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    network = draw_network(words, trial.draw(), nodes=5)
    with listening(trial.subject) as talk:
        try:
            session = trial.subject.session(network.model)
        except Exception:  # noqa: BLE001 (told of by others)
            trial.leave_out("no session could be made")
            return
        with session:
            specialiser = talk.providers[0].specialiser
            if specialiser is None:
                trial.leave_out(AT_ONCE)
                return
            limit = specialiser.limit
            if not isinstance(limit, int) or limit < 1:
                trial.find(LIMIT, f"limit is {limit!r}")
                return
            if talk.compiled:
                trial.find(EACH, "a partition of unknown sizes was compiled at once")
            for rows in (2, 3, 2, 3):
                case = network.case(trial.numbers(rows), rows)
                if trial.attempt(case):
                    _run(trial, session, case, None)
            for partition, _ in talk.compiled:
                for name in partition.inputs:
                    shape = partition.value(name).shape
                    if shape is None or not all(isinstance(s, int) for s in shape):
                        trial.leave_out("a partition was compiled for any shapes")
            _at_once(trial, session, network)


def _at_once(
    trial: Trial, session: onnxplug.InferenceSession, network: Network
) -> None:
    """Threads run shapes that none has run before."""
    cases = [network.case(trial.numbers("at once", n), 20 + n) for n in range(6)]
    results: list[object] = [None] * len(cases)

    def run(number: int) -> None:
        try:
            results[number] = session.run(None, dict(cases[number].feeds))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it raises)
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(len(cases))]
    for case in cases:
        trial.attempt(case)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for case, result in zip(cases, results, strict=True):
        if isinstance(result, BaseException):
            trial.find(THREADS, in_words(result), case=case, kind="raised")
        elif isinstance(result, list):
            wrong, _ = contradiction(result, case, trial.subject)
            if wrong:
                trial.find(
                    THREADS, f"in threads at once {wrong}", case=case, kind="wrong"
                )
