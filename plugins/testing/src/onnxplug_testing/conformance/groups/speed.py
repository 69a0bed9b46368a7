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

_ABSURD: Final = 0.05
"""Processor time in s of a node of a few elements that no device needs."""

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
        makes = _median(lambda: trial.subject.session(short.model).close(), 3)
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
                seconds.append(_median(run, times))
                if len(talk.compiled) > made:
                    text = f"{times} runs of one shape compiled again"
                    trial.find(ONCE, text, case=case, kind="again")
                if case is short:
                    _bound(trial, session, case, times)
        each = max(seconds[1] - seconds[0], 0.0) / (_LONG - 1)
    trial.figures["a run of 1 node, µs of processor time"] = seconds[0] * 1e6
    trial.figures["a node more, µs of processor time"] = each * 1e6
    if each > _ABSURD:
        text = f"a node of {3 * WIDTH} elements takes {each * 1e3:.0f} ms"
        trial.find(ONCE, text, case=long, kind="slow")
    _copies(trial)


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
    seconds = _median(lambda: session.run_with_iobinding(binding), times)
    trial.count()
    trial.figures["a bound run of 1 node, µs of processor time"] = seconds * 1e6


def _copies(trial: Trial) -> None:
    """To the EP's memory and back, by the clock, as devices copy by themselves."""
    spaces = trial.subject.factory.memory_spaces
    if spaces is None:
        trial.leave_out("the EP has no memory of its own to copy to")
        return
    trial.leave_out("copies of devices are measured with their memory")


def _median(call: Callable[[], object], times: int) -> float:
    """Processor time of *call*, in s."""
    call()
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found)
