"""What an EP costs besides what it computes: figures, and what is absurd of them.

Beside it :mod:`.growth` and :mod:`.steadiness` compare one with another, and
:mod:`.side_by_side` looks who waits for whom.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups import growth, side_by_side, steadiness
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    Unfit,
    asking,
    laboratory,
)
from onnxplug_testing.conformance.makings import noting
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    WIDTH,
    Vocabulary,
    vocabulary,
)
from onnxplug_testing.conformance.partitions import settled
from onnxplug_testing.conformance.specimens import several, taken, takes
from onnxplug_testing.conformance.taps import listening, replaced
from onnxplug_testing.conformance.trial import Trial

__all__ = ["growth", "side_by_side", "steadiness"]

CONSTANTS: Final = Sentence(
    "ComputeCapability", "the EP copies what it needs of constants in ``compile``"
)

_ABSURD_NODE: Final = 0.005
_ABSURD_RUN: Final = 0.1
"""Seconds for a few elements, at best, that no device needs."""

_IDLE: Final = 0.005
"""Seconds for which nothing is waited for where the processor does the work."""

_SEVERAL: Final = 5
"""Runs in which nothing is to be made any more."""

_LONG: Final = 40
"""Nodes of the longer chain."""


@check("speed", share=0.8)
def overheads(trial: Trial) -> None:
    """The fixed costs of a session, a run, a node and a bound run; what runs copy."""
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
                    trial.find(said.COMPILED, text, case=case, kind="again")
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
        trial.find(said.COMPILED, text, case=long, kind="slow node")
    if clock[0] > _ABSURD_RUN:
        text = f"a run of {3 * WIDTH} elements takes {clock[0] * 1e3:.0f} ms at best"
        trial.find(said.COMPILED, text, case=short, kind="slow run")
    waits = clock[0] - used[0]
    if waits > _IDLE and trial.subject.factory.memory_spaces is None:
        text = f"a run of {3 * WIDTH} elements takes {clock[0] * 1e3:.1f} ms at best, "
        text += f"of which the processor has nothing to do for {waits * 1e3:.1f} ms"
        trial.find(said.COMPILED, text, case=short, kind="idle run")
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
                f"{_SEVERAL} runs of one shape, run before, {what} {count} times, in "
                f"each run anew; each takes {seconds * 1e6:.0f} µs of the processor"
            )
            trial.find(said.COMPILED, text, case=case, kind=what)


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
    """Whether runs copy from the host what the device has, such as weights."""
    if trial.subject.factory.memory_spaces is None:
        trial.leave_out("the EP has no memory of its own to copy to")
        return
    has = taken(trial)
    if has is None:
        return
    specimen = several(has)
    if not takes(trial.subject, specimen):
        trial.leave_out(f"the EP does not take all of {specimen.name}")
        return
    feeds = specimen.feeds(trial.numbers("copies"))
    case = specimen.case(feeds, "run with all its inputs on the device")
    if not trial.attempt(case):
        return
    with asking(trial, CONSTANTS, case), laboratory(trial.subject, specimen) as lab:
        transfer = lab.on_device.context.transfer
        copy, copied = transfer.copy, list[Any]()

        def noted(pairs: Sequence[tuple[Any, Any]], stream: ep.Stream | None) -> None:
            copied.extend(source for source, _ in pairs)
            copy(pairs, stream)

        try:
            taps = replaced(transfer, "copy", noted)
            taps.__enter__()
        except TypeError:
            raise Unfit("copies of the EP cannot be heard of") from None
        try:
            counts = [len(_from_the_host(lab, feeds, copied)) for _ in range(_SEVERAL)]
        finally:
            taps.__exit__(None, None, None)
        if min(counts[1:]):
            text = f"{counts[-1]} array(s) to the device, though its inputs are there"
            trial.find(CONSTANTS, f"each run copies {text}", case=case)


def _from_the_host(
    lab: Laboratory, feeds: Mapping[str, Array], copied: list[Any]
) -> list[Any]:
    """What a run, whose inputs are on the device, copies from the host."""
    with settled(lab) as stream:
        inputs = lab.put(feeds, stream)
        copied.clear()
        lab.run(inputs, None, stream)
    return [each for each in copied if isinstance(each, np.ndarray)]


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
