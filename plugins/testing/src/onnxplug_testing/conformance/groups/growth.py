"""Whether making a session takes a time that grows with the graph, and waiting one that
the work takes.

What takes long for other reasons, on a machine that does much else, does so for any
number of nodes, and in whichever way it is waited for: only what differs is blamed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

import numpy as np
import onnx
from onnx import helper

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.device_streams import busy
from onnxplug_testing.conformance.laboratory import (
    Bench,
    asking,
    is_done,
    record,
    wait_for,
    wait_for_all,
)
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    WIDTH,
    Vocabulary,
    vocabulary,
)
from onnxplug_testing.conformance.specimens import BINARY, Specimen
from onnxplug_testing.conformance.trial import Trial

_LENGTHS: Final = tuple(range(8, 33, 2))
"""Nodes of the chains; each is at most four times as long in the making as the one
before, even if each node more doubles it."""

_LONG: Final = 0.2
_TOO_LONG: Final = 4.0
"""Seconds of the processor for a session: it is looked at, and no longer one tried."""

_GREW: Final = 1.8
_GROWS: Final = 2.5
"""So many times longer by two nodes more, and by two more again: no power of their
number up to the fourth grows so, nor what is another way from some number on."""


@check("speed", share=0.3)
def growth(trial: Trial) -> None:
    """A session of nodes in a row, each of which reads one value twice, takes not twice
    as long for each node more."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    operator = next((each for each in words.operators if each in BINARY), "")
    if not operator:
        trial.leave_out("the EP takes no node of two inputs")
        return
    cases = [_chain(words, operator, length) for length in _LENGTHS]
    seconds: list[float] = []
    for number, case in enumerate(trial.in_time(cases)):
        if not trial.attempt(case):
            return
        try:
            seconds.append(_of_the_processor(trial, case))
            if seconds[-1] >= _LONG and number >= 2:
                for before in range(
                    number - 2, number + 1
                ):  # which chance may lengthen
                    again = _of_the_processor(trial, cases[before])
                    seconds[before] = min(seconds[before], again)
        except Exception as error:  # noqa: BLE001 (told of by other groups)
            ep.raise_interruption(error)
            trial.take_back(f"no session could be made: {type(error).__name__}")
            return
        if _doubles(seconds):
            _tell(trial, case, operator, seconds)
            return
        if seconds[-1] > _TOO_LONG:
            break
    if seconds:
        figure = f"making a session of {_LENGTHS[len(seconds) - 1]} nodes, ms"
        trial.figures[figure] = seconds[-1] * 1e3


def _doubles(seconds: list[float]) -> bool:
    if len(seconds) < 3 or seconds[-1] < _LONG:
        return False
    before, then, now = seconds[-3:]
    return now > _GROWS * then and then > _GREW * before


def _tell(trial: Trial, case: Case, operator: str, seconds: list[float]) -> None:
    lengths = _LENGTHS[len(seconds) - 3 : len(seconds)]
    text = (
        f"compiling {lengths[0]}, {lengths[1]} and {lengths[2]} {operator} in a row, "
        "each of which reads one value twice, takes "
        f"{', '.join(f'{each:.2g}' for each in seconds[-3:])} seconds of the "
        "processor: exponentially more"
    )
    trial.find(said.COMPILED, text, case=case, kind="exponential")


def _of_the_processor(trial: Trial, case: Case) -> float:
    began = time.process_time()
    with trial.subject.session(case.model, checked=False) as session:
        session.run(None, dict(case.feeds))
    return time.process_time() - began


def _chain(words: Vocabulary, operator: str, length: int) -> Case:
    nodes = [
        helper.make_node(operator, [f"v{n}", f"v{n}"], [f"v{n + 1}"])
        for n in range(length)
    ]
    ends = [
        helper.make_tensor_value_info(name, words.element, [3, WIDTH])
        for name in ("v0", f"v{length}")
    ]
    graph = helper.make_graph(nodes, "twice", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 21)]
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=imports, ir_version=10
    )
    feed = np.zeros((3, WIDTH), words.dtype)
    name = f"{length} {operator} in a row, each of which reads one value twice"
    return Case(model.SerializeToString(), {"v0": feed}, name)


_SLEEPS: Final = 0.008
"""Seconds that waiting may take, at best, longer than the work."""

_SOME: Final = 1 << 20
"""Bytes that are copied before the host waits, in about a millisecond or less."""

_GIVEN_UP: Final = 1.0
"""Seconds for which an event is asked whether it is done."""


@check("speed", share=0.2)
def waiting(trial: Trial) -> None:
    """To wait for work, on a stream or an event, takes no longer than the work, as an
    event tells that is asked whether it is done."""
    for bench, specimen, case in busy(trial, "work that is waited for"):
        with asking(trial, said.SYNCHRONIZE, case):
            _wait_in_turn(trial, bench, specimen, case)


def _wait_in_turn(trial: Trial, bench: Bench, specimen: Specimen, case: Case) -> None:
    content = np.zeros(_SOME // specimen.dtype.numpy.itemsize, specimen.dtype.numpy)
    ways: dict[str, Callable[[ep.Stream], bool | None]] = {
        "asked": lambda stream: _asked(record(stream)),
        "Stream.synchronize": wait_for_all,
        "Event.synchronize": lambda stream: wait_for(record(stream)),
    }
    least = dict.fromkeys(ways, float("inf"))
    with bench.stream() as stream:
        source, target = bench.put(content), bench.put(content)
        for _ in range(8 if trial.quick else 20):
            for way, wait in ways.items():
                trial.count()
                for _each in range(4):
                    bench.copy(source, target, stream)
                began = time.perf_counter()
                if wait(stream) is False:
                    trial.leave_out("no event is done before somebody waits for it")
                    return
                least[way] = min(least[way], time.perf_counter() - began)
    for way, sentence in (
        ("Stream.synchronize", said.SYNCHRONIZE),
        ("Event.synchronize", said.EVENT_SYNCHRONIZE),
    ):
        if least[way] > least["asked"] + _SLEEPS:
            text = (
                f"{way} takes {least[way] * 1e3:.1f} ms at best, to wait for copies "
                f"that are done after {least['asked'] * 1e3:.1f} ms"
            )
            trial.find(sentence, text, case=case, kind=way)


def _asked(event: ep.Event) -> bool:
    """Ask until *event* is done; ``False``: it never is."""
    end = time.perf_counter() + _GIVEN_UP
    while not is_done(event):
        if time.perf_counter() > end:
            wait_for(event)
            return False
        time.sleep(0)  # for threads of Python's
    return True
