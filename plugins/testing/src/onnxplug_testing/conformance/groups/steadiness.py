"""Whether a run takes what it took before: after many others, after one of another
shape, and beside constants of which it reads little; and a longer graph not so much
longer than a shorter one.

A busy machine makes runs longer, and not the later ones of many again and again: only
what differs each time is blamed.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.makings import noting
from onnxplug_testing.conformance.networks import (
    NO_WORDS,
    WIDTH,
    Vocabulary,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.specimens import BINARY
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial

_BLOCKS: Final = 4
_BLOCK: Final = 40
_BETWEEN: Final = 0.02
_FEWEST: Final = 100
_MOST: Final = 1500
"""So often runs are compared with later ones, how many are, and for how many seconds
there are others between them, or how many of these."""

_SESSIONS: Final = 3
_ENOUGH: Final = 2
"""In each of which they have to, and in how many where there is no more time."""

_SUSPECT: Final = 1.2
_GROWN: Final = 1.5
_MORE: Final = 8e-6
"""So many times longer than at first, and in seconds: what is looked at again, and what
is told."""

_TURNS: Final = 6
_SLOWER: Final = 0.010
"""Seconds that a run of a shape that was run before may take longer after another."""

_MANY: Final = 6_000_000
_COPIED: Final = 0.002
"""Elements of a constant, and seconds in which they are not copied."""

_LENGTHS: Final = (40, 80, 160, 320)
_SQUARED: Final = 3.1
_LONG: Final = 0.4
_TOO_LONG: Final = 3.0
"""Nodes; so many times longer by twice as many, twice in a row; seconds of the
processor that are looked at, and that are enough."""


@check("speed", share=0.4)
def again_and_again(trial: Trial) -> None:
    """The hundredth run takes no longer than the first, nor one of a shape that was run
    before, after another."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    network = draw_network(words, trial.draw(), nodes=3)
    cases = [network.case(trial.numbers(rows), rows) for rows in (2, 3, 5)]
    try:
        if trial.attempt(cases[0]):
            _in_a_row(trial, network.model, cases[0])
        if trial.attempt(cases[1]):
            with listening(trial.subject) as talk:
                session = trial.subject.session(network.model, checked=False)
                with session:
                    _in_turn(trial, session, cases, talk)
    except Exception as error:  # noqa: BLE001 (what raises here is told of by others)
        ep.raise_interruption(error)
        trial.leave_out(f"a run failed: {type(error).__name__}")


def _seconds(run: Callable[[], object]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _in_a_row(trial: Trial, model: bytes, case: Case) -> None:
    """Whether the later of many runs take longer, in each of some sessions."""
    least, whole = [float("inf")] * _BLOCKS, 0
    for _ in range(_SESSIONS):
        with trial.subject.session(model, checked=False) as session:
            blocks = _blocks(trial, session, case)
        if len(blocks) < _BLOCKS:  # no time was left
            break
        whole += 1
        # what else the machine does makes some longer, and none shorter
        least = [min(each) for each in zip(least, blocks, strict=True)]
        if least[-1] < _SUSPECT * least[0]:
            return
    if whole < _ENOUGH:
        return
    grows = all(b > a for a, b in itertools.pairwise(least))
    if grows and least[-1] > _GROWN * least[0] and least[-1] - least[0] > _MORE:
        times = ", ".join(f"{each * 1e6:.0f}" for each in least)
        text = "of many runs of one shape the later take longer and longer of the "
        text += f"processor: {times} µs at best"
        trial.find(said.COMPILED, text, case=case, kind="longer")


def _blocks(
    trial: Trial, session: onnxplug.InferenceSession, case: Case
) -> list[float]:
    """What runs take of the processor at best, now and then, in s."""
    feeds = dict(case.feeds)
    blocks: list[float] = []
    for _ in range(_BLOCKS):
        least = float("inf")
        for _ in range(_BLOCK):
            began = time.process_time()
            session.run(None, feeds)
            least = min(least, time.process_time() - began)
        blocks.append(least)
        if not trial.has_time:
            break
        for _ in range(int(min(max(_BETWEEN / blocks[0], _FEWEST), _MOST))):
            session.run(None, feeds)
    return blocks


def _in_turn(
    trial: Trial, session: onnxplug.InferenceSession, cases: Sequence[Case], talk: Any
) -> None:
    """Runs of some shapes, one after the other, all of which were run before."""
    runs = [functools.partial(session.run, None, dict(c.feeds)) for c in cases]
    specialiser = talk.providers[0].specialiser
    if specialiser is not None and specialiser.limit < len(cases):
        trial.leave_out("the host keeps fewer shapes than are run in turn")
        return
    same: list[float] = []
    for run in runs:
        run()
        same.append(min(_seconds(run) for _ in range(_TURNS)))
    made = len(talk.compiled)
    turned = [float("inf")] * len(runs)
    with noting() as makings:
        for _ in range(_TURNS):
            for place, run in enumerate(runs):
                turned[place] = min(turned[place], _seconds(run))
    number = _TURNS * len(runs)
    for what, count in makings.items():
        if count >= number - len(runs):
            text = (
                f"{number} runs of {len(runs)} shapes in turn, all run before, {what} "
                f"{count} times, in each run anew"
            )
            trial.find(said.COMPILED, text, case=cases[1], kind=what)
    if len(talk.compiled) > made:
        text = f"{number} runs of {len(runs)} shapes in turn, all run before, compiled "
        trial.find(said.COMPILED, f"{text}again", case=cases[1], kind="compiled")
    for before, after in zip(same, turned, strict=True):
        if after > before + _SLOWER:
            text = f"a run takes {after * 1e3:.1f} ms at best after one of another "
            text += f"shape, and {before * 1e3:.1f} ms after one of its own"
            trial.find(said.COMPILED, text, case=cases[1], kind="turns")


@check("speed", share=0.4)
def large_constants(trial: Trial) -> None:
    """A run that reads a few elements of a constant takes no longer where that has many
    more."""
    seconds = []
    for rows in (8, _MANY // WIDTH):
        case = _gathering(rows)
        if not trial.attempt(case):
            return
        try:
            with trial.subject.session(case.model, checked=False) as session:
                run = functools.partial(session.run, None, dict(case.feeds))
                run()
                times = range(5 if trial.quick else 15)
                seconds.append(min(_seconds(run) for _ in times))
        except Exception as error:  # noqa: BLE001 (told of by other groups)
            ep.raise_interruption(error)
            trial.take_back("the EP does not take Gather of a constant")
            return
    few, many = seconds
    trial.figures["a run that reads 2 rows of a large constant, µs"] = many * 1e6
    if many > 3 * few + _COPIED:
        text = (
            f"Gather of 2 rows of a constant takes {many * 1e3:.1f} ms at best where "
            f"that has {_MANY:,} elements, and {few * 1e3:.2f} ms where it has few"
        )
        trial.find(said.COMPILED, text, node="Gather", case=case, kind="constant")


def _gathering(rows: int) -> Case:
    weight = np.zeros((rows, WIDTH), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["w", "i"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, WIDTH])],
        [numpy_helper.from_array(weight, "w")],
    )
    feeds = {"i": np.array([0, rows - 1])}
    return Case(_written(graph), feeds, f"2 of {rows} rows")


def _written(graph: onnx.GraphProto) -> bytes:
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


@check("speed", share=0.4)
def long_graphs(trial: Trial) -> None:
    """A session of twice as many nodes takes about twice as long in the making."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    seconds: dict[int, float] = {}
    for length in trial.in_time(_LENGTHS):
        case = _row(words, length)
        if not trial.attempt(case):
            return
        try:
            seconds[length] = min(_making(trial, case) for _ in range(2))
        except Exception as error:  # noqa: BLE001 (told of by other groups)
            ep.raise_interruption(error)
            trial.take_back(f"no session could be made: {type(error).__name__}")
            return
        if _is_squared(seconds):
            text = "; ".join(
                f"{each} nodes in {s:.2g} s" for each, s in seconds.items()
            )
            text = (
                f"making sessions takes four times as long for twice the nodes: {text}"
            )
            trial.find(said.COMPILED, text, case=case, kind="squared")
            return
        if seconds[length] > _TOO_LONG:
            break
    for length, each in seconds.items():
        trial.figures[f"making a session of {length} nodes, ms"] = each * 1e3


def _making(trial: Trial, case: Case) -> float:
    began = time.process_time()
    with trial.subject.session(case.model, checked=False) as session:
        session.run(None, dict(case.feeds))
    return time.process_time() - began


def _is_squared(seconds: Mapping[int, float]) -> bool:
    if len(seconds) < 3:
        return False
    before, then, now = list(seconds.values())[-3:]
    return now > _LONG and now > _SQUARED * then and then > _SQUARED * 0.8 * before


def _row(words: Vocabulary, length: int) -> Case:
    """*length* nodes in a row, with a constant each if they have two inputs."""
    operator = next((each for each in words.operators if each in BINARY), "")
    nodes, weights = [], []
    for number in range(length):
        source = [f"v{number}"]
        if operator:
            source.append(f"w{number}")
            weight = np.full((WIDTH,), number % 3, words.dtype)
            weights.append(numpy_helper.from_array(weight, f"w{number}"))
        node = helper.make_node(
            operator or words.operators[0], source, [f"v{number + 1}"]
        )
        nodes.append(node)
    ends = [
        helper.make_tensor_value_info(name, words.element, [3, WIDTH])
        for name in ("v0", f"v{length}")
    ]
    graph = helper.make_graph(nodes, "row", ends[:1], ends[1:], weights)
    feed = np.zeros((3, WIDTH), words.dtype)
    return Case(_written(graph), {"v0": feed}, f"{length} nodes in a row")
