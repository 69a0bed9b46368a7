"""What an EP costs besides what it computes: figures, and what is absurd of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Final

import numpy as np
import onnx
from onnx import helper

import onnxplug
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.makings import noting
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    WIDTH,
    Vocabulary,
    vocabulary,
)
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial

ONCE: Final = Sentence(
    "ExecutionProvider.compile",
    "Make *partition* ready to run.  The partition may be kept.",
)

_ABSURD_NODE: Final = 0.005
_ABSURD_RUN: Final = 0.1
"""Seconds for a few elements, at best, that no device needs."""

_SEVERAL: Final = 5
"""Runs in which nothing is to be made any more."""

_LONG: Final = 40
"""Nodes of the longer chain."""


@check("speed", share=0.8)
def overheads(trial: Trial) -> None:
    """The fixed costs of a session, a run, a node, a copy and a bound run."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    try:
        _measure(trial, words)
    except Exception as error:  # noqa: BLE001 (what raises here is told of by others)
        trial.leave_out(f"a run failed: {type(error).__name__}")


def _measure(trial: Trial, words: Vocabulary) -> None:
    short, long = _chain(trial, words, 1), _chain(trial, words, _LONG)
    times = 5 if trial.quick else 25
    with listening(trial.subject) as talk:
        makes, _ = _times(lambda: trial.subject.session(short.model).close(), 3)
        trial.figures["making a session of 1 node, ms of processor time"] = makes * 1e3
        seconds = []
        for case in (short, long):
            if not trial.attempt(case):
                return
            # checks of results take longer than a node
            with trial.subject.session(case.model, checked=False) as session:
                run = _runner(session, case)
                run()
                made = len(talk.compiled)
                seconds.append(_times(run, times))
                if len(talk.compiled) > made:
                    text = f"{times} runs of one shape compiled again"
                    trial.find(ONCE, text, case=case, kind="again")
                _look_for_makings(trial, run, case, seconds[-1][0])
                if case is short:
                    _bound(trial, session, case, times)
    used, clock = ([each[kind] for each in seconds] for kind in (0, 1))
    trial.figures["a run of 1 node, µs of processor time"] = used[0] * 1e6
    more = max(used[1] - used[0], 0.0) / (_LONG - 1)
    trial.figures["a node more, µs of processor time"] = more * 1e6
    each = max(clock[1] - clock[0], 0.0) / (_LONG - 1)
    if each > _ABSURD_NODE:
        text = f"a node of {3 * WIDTH} elements takes {each * 1e3:.0f} ms at best"
        trial.find(ONCE, text, case=long, kind="slow node")
    if clock[0] > _ABSURD_RUN:
        text = f"a run of {3 * WIDTH} elements takes {clock[0] * 1e3:.0f} ms at best"
        trial.find(ONCE, text, case=short, kind="slow run")
    _copies(trial)


def _look_for_makings(
    trial: Trial, run: Callable[[], object], case: Case, seconds: float
) -> None:
    """Whether each of some runs, of a shape that was run before, makes anew what there
    is to be made once.

    Args:
        seconds: what one of them takes of the processor.
    """
    with noting() as made:
        for _ in range(_SEVERAL):
            run()
    for what, count in made.items():
        if count >= _SEVERAL:
            text = (
                f"{_SEVERAL} runs of one shape, run before, {what} {count} times; each "
                f"takes {seconds * 1e6:.0f} µs of the processor"
            )
            trial.find(ONCE, text, case=case, kind=what)


def _chain(trial: Trial, words: Vocabulary, count: int) -> Case:
    """*count* nodes that read each other."""
    unary = ("Relu", "Neg", "Abs", "Tanh", "Sigmoid", "Identity")
    operator = next((op for op in unary if op in words.operators), words.operators[0])
    inputs = 1 if operator in (*unary, "Softmax") else 2
    nodes = [
        helper.make_node(operator, [f"v{n}"] * inputs, [f"v{n + 1}"])
        for n in range(count)
    ]
    ends = [
        helper.make_tensor_value_info(name, words.element, [3, WIDTH])
        for name in ("v0", f"v{count}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    imports = [helper.make_opsetid("", 21)]
    model: onnx.ModelProto = helper.make_model(
        graph, opset_imports=imports, ir_version=10
    )
    feed = trial.numbers(count).integers(0, 2, (3, WIDTH)).astype(words.dtype)
    return Case(model.SerializeToString(), {"v0": feed}, f"{count} {operator}")


def _runner(session: onnxplug.InferenceSession, case: Case) -> Callable[[], object]:
    feeds = dict(case.feeds)
    return lambda: session.run(None, feeds)


def _bound(
    trial: Trial, session: onnxplug.InferenceSession, case: Case, times: int
) -> None:
    """A run whose input and output stay where the EP has them."""
    (name, array), *_ = case.feeds.items()
    (output,) = session.get_outputs()
    value = onnxplug.OrtValue.ortvalue_from_numpy(array)
    result = onnxplug.OrtValue.ortvalue_from_numpy(np.zeros_like(array))
    binding = session.io_binding()
    binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output(output.name, result)
    seconds, _ = _times(lambda: session.run_with_iobinding(binding), times)
    trial.count()
    trial.figures["a bound run of 1 node, µs of processor time"] = seconds * 1e6


def _copies(trial: Trial) -> None:
    """To the EP's memory and back, by the clock, as devices copy by themselves."""
    spaces = trial.subject.factory.memory_spaces
    if spaces is None:
        trial.leave_out("the EP has no memory of its own to copy to")
        return
    trial.leave_out("copies of devices are measured with their memory")


def _times(call: Callable[[], object], times: int) -> tuple[float, float]:
    """Processor time of *call*, of several the median, and by the clock the shortest;
    in s."""
    call()
    used, clock = [], []
    for _ in range(times):
        began = time.process_time(), time.perf_counter()
        call()
        used.append(time.process_time() - began[0])
        clock.append(time.perf_counter() - began[1])
    return statistics.median(used), min(clock)
