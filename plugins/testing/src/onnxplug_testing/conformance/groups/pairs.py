"""Whether two nodes in a row that rewrites usually merge keep their meaning, where the
attributes of both differ."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.taps import listening
from onnxplug_testing.conformance.trial import Trial, in_words

Shape: TypeAlias = tuple[int, ...]


_SHORT: Final = 6
"""Numbers that are told; of more the shape is."""


class Step(Record):
    """One of two nodes in a row.

    Attributes:
        op_type: of the node, whose first input is what comes before.
        attributes: its own.
        others: its other inputs, as they are.
    """

    op_type: str
    attributes: Mapping[str, Any] = {}
    others: Sequence[Any] = ()

    def __str__(self) -> str:
        facts = [f"{key}={value}" for key, value in self.attributes.items()]
        for each in map(np.asarray, self.others):
            is_short = each.size <= _SHORT
            facts.append(str(each.tolist() if is_short else list(each.shape)))
        return f"{self.op_type}({', '.join(facts)})"


def _turn(*perm: int) -> Step:
    return Step("Transpose", {"perm": list(perm)})


def _sized(op_type: str, *sizes: int, **attributes: Any) -> Step:
    return Step(op_type, attributes, [np.array(sizes, np.int64)])


def _with(op_type: str, number: Any, **attributes: Any) -> Step:
    return Step(op_type, attributes, [np.array(number, np.float32)])


def _clip(least: float, most: float) -> Step:
    return Step("Clip", {}, [np.float32(least), np.float32(most)])


def _slice(start: int, end: int, axis: int, step: int = 1) -> Step:
    numbers = [np.array([each], np.int64) for each in (start, end, axis, step)]
    return Step("Slice", {}, numbers)


def _cast(to: int) -> Step:
    return Step("Cast", {"to": to})


_FLOAT, _HALF = int(TensorProto.FLOAT), int(TensorProto.FLOAT16)
_INT, _BOOL = int(TensorProto.INT32), int(TensorProto.BOOL)

_SQUARE: Final = (np.arange(16, dtype=np.float32).reshape(4, 4) - 7) / 8

PAIRS: Final[Sequence[tuple[Shape, Step, Step]]] = (
    ((2, 3, 4), _turn(1, 2, 0), _turn(1, 2, 0)),
    ((2, 3, 4), _turn(1, 0, 2), _turn(0, 2, 1)),
    ((2, 3, 4), _turn(2, 0, 1), _turn(1, 2, 0)),
    ((3, 3, 3), _turn(1, 2, 0), Step("Transpose")),
    ((2, 3, 4), _turn(0, 2, 1), _sized("Reshape", 2, -1)),
    ((4, 3, 4), _turn(1, 0, 2), Step("MatMul", {}, [_SQUARE])),
    ((3, 4, 4), _turn(0, 2, 1), Step("MatMul", {}, [_SQUARE])),
    ((3, 4), _cast(_INT), _cast(_FLOAT)),
    ((3, 4), _cast(_HALF), _cast(_FLOAT)),
    ((3, 4), _cast(_BOOL), _cast(_FLOAT)),
    ((2, 3, 4), _sized("Reshape", 4, 6), _sized("Reshape", 0, -1, 3)),
    ((2, 3, 4), Step("Flatten", {"axis": 2}), _sized("Reshape", 0, 2, 2)),
    ((1, 3, 4), _sized("Unsqueeze", 1), _sized("Squeeze", 0)),
    ((1, 3, 4), _sized("Squeeze", 0), _sized("Unsqueeze", 2)),
    ((3, 4), _clip(-0.5, 0.5), _clip(0.25, 2.0)),
    ((3, 4), _clip(0.75, 2.0), _clip(-0.5, 0.5)),
    ((3, 4), _clip(-0.5, 0.5), Step("Relu")),
    ((3, 4), Step("Relu"), _clip(-1.0, -0.25)),
    ((3, 4), Step("Relu"), Step("LeakyRelu", {"alpha": 0.5})),
    ((3, 4), Step("LeakyRelu", {"alpha": 0.5}), Step("LeakyRelu", {"alpha": 0.25})),
    ((3, 4), Step("Abs"), Step("Neg")),
    ((3, 4), Step("Neg"), Step("Abs")),
    ((3, 4), Step("Neg"), Step("Neg")),
    ((3, 4), Step("Exp"), Step("Neg")),
    ((6, 5), _slice(1, 6, 0), _slice(1, 4, 1)),
    ((6, 5), _slice(0, 6, 0, 2), _slice(1, 3, 0)),
    ((6, 5), _slice(5, -7, 0, -1), _slice(1, 4, 0)),
    ((3, 4), _with("Add", [1, 2, 3, 4]), _with("Add", [[1], [2], [3]])),
    ((3, 4), _with("Mul", [1, 2, 3, 4]), _with("Mul", [[1], [2], [3]])),
    ((3, 4), _with("Mul", 2), _with("Add", [[1], [2], [3]])),
    ((3, 4), _with("Add", 2), _with("Mul", [1, 2, 3, 4])),
    ((3, 4), _with("Sub", 2), _with("Add", 2)),
    ((3, 4), _with("Sub", 2), _with("Sub", 3)),
    ((3, 4), _with("Div", 2), _with("Div", 4)),
    ((3, 4), Step("MatMul", {}, [_SQUARE]), _with("Add", [[1], [2], [3]])),
    ((3, 4), Step("MatMul", {}, [_SQUARE]), _with("Add", [1, 2, 3, 4])),
    ((3, 4), Step("MatMul", {}, [_SQUARE]), _with("Add", [[[1]], [[2]]])),
    ((3, 4), Step("MatMul", {}, [_SQUARE]), _with("Mul", [[1], [2], [3]])),
    ((3, 4), Step("MatMul", {}, [_SQUARE]), Step("MatMul", {}, [_SQUARE])),
    ((3, 4), Step("Softmax", {"axis": 0}), Step("Log")),
    ((3, 4), Step("Softmax", {"axis": 0}), Step("Softmax", {"axis": 1})),
    ((2, 3, 4), _sized("ReduceSum", 1, keepdims=0), _sized("ReduceSum", 1, keepdims=1)),
    ((2, 3, 4), _sized("ReduceMean", 0), _sized("ReduceMean", 2, keepdims=0)),
    ((2, 3, 4), _sized("ReduceMax", 0, keepdims=0), _sized("ReduceMax", 0)),
    ((3, 4), Step("Sigmoid"), Step("Tanh")),
    ((3, 4), Step("Identity"), Step("Identity")),
)
"""Of which shape the input is, and both nodes."""


Pair: TypeAlias = tuple[Shape, Step, Step]

_TOGETHER: Final = 8
"""Pairs in one model; where that is wrong, each is tried by itself."""


UNSEEN, RESULT, READ, CAPTURED, WITHIN = WAYS = (
    "",
    "both seen",
    "another node reads what is between",
    "a body reads what is between",
    "within a body",
)
"""Who reads what is between the nodes of a pair, besides the second; or where both
are."""


@check("preferences", share=0.7)
def merged(trial: Trial) -> None:
    """What a rewrite makes of two nodes in a row computes as these did, whether others
    read what is between them or not, such as bodies, and in bodies, too."""
    order = list(PAIRS)
    trial.draw("order").shuffle(order)
    parts = [order[n : n + _TOGETHER] for n in range(0, len(order), _TOGETHER)]
    for way, part in trial.in_time([*itertools.product(WAYS, parts)]):
        case = _case(trial, part, way)
        if not trial.attempt(case):
            continue
        wrong = _rewritten(trial, case)
        if wrong is None:
            return
        alone = [_is_wrong_alone(trial, pair, way) for pair in part if wrong]
        if wrong and not any(alone):
            text = f"rewritten, {case.name}, each of which is right by itself: {wrong}"
            trial.find(said.REWRITE, text[:400], case=case, kind="together")


def _is_wrong_alone(trial: Trial, pair: Pair, way: str) -> bool:
    """Find what is wrong of *pair*; whether anything is."""
    case = _case(trial, [pair], way)
    if not trial.attempt(case):
        return True  # it ended a process, which is told of
    wrong = _rewritten(trial, case)
    if wrong:
        node = ", ".join(step.op_type for step in pair[1:])
        text = f"rewritten, {case.name}: {wrong}"
        trial.find(said.REWRITE, text[:400], node=node, case=case, kind=node)
    return bool(wrong)


class _Parts:
    """What a model is made of."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, Any] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def give(self, name: str, element: int) -> None:
        """Make *name* a result."""
        self.outputs.append(helper.make_tensor_value_info(name, element, None))


def _case(trial: Trial, pairs: Sequence[Pair], way: str) -> Case:
    """A model of *pairs*, which have nothing to do with each other."""
    parts, feeds = _Parts(), dict[str, Any]()
    for number, (shape, *steps) in enumerate(pairs):
        x = f"x{number}"
        parts.inputs.append(helper.make_tensor_value_info(x, _FLOAT, shape))
        numbers = trial.numbers(*map(str, steps))
        feeds[x] = numbers.uniform(-3, 3, shape).astype(np.float32)
        _add(parts, number, steps, way)
    if way in (CAPTURED, WITHIN):
        parts.inputs.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        feeds["c"] = np.array(len(pairs) % 2 == 0)
    weights = [
        numpy_helper.from_array(np.asarray(a), n) for n, a in parts.weights.items()
    ]
    graph = helper.make_graph(
        parts.nodes, "pairs", parts.inputs, parts.outputs, weights
    )
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    what = f"{len(pairs)} pairs of nodes"
    if len(pairs) == 1:
        what = f"{pairs[0][1]}, then {pairs[0][2]}"
    what += f", {way}" if way else ""
    return Case(model.SerializeToString(), feeds, what)


def _add(parts: _Parts, number: int, steps: Sequence[Step], way: str) -> None:
    """Add the nodes of a pair, and who reads their results."""
    x, middle, y, z = (f"{name}{number}" for name in "xmyz")
    element = int(steps[0].attributes.get("to", _FLOAT))
    last = int(steps[1].attributes.get("to", element))
    if way == WITHIN:
        bodies = {}
        for branch in ("then_branch", "else_branch"):
            given = [f"{branch}_{each}" for each in (middle, y)]
            end = helper.make_tensor_value_info(given[1], last, None)
            nodes = _pair_of(parts, steps, x, *given)
            bodies[branch] = helper.make_graph(nodes, branch, [], [end])
        parts.nodes.append(helper.make_node("If", ["c"], [y], **bodies))
        parts.give(y, last)
        return
    parts.nodes += _pair_of(parts, steps, x, middle, y)
    parts.give(y, last)
    # what there is of each type
    operator = "Not" if element == _BOOL else "Abs"
    if way == RESULT:
        parts.give(middle, element)
    elif way == READ:
        parts.nodes.append(helper.make_node(operator, [middle], [z]))
        parts.give(z, element)
    elif way == CAPTURED:
        bodies = {}
        for branch, reader in (("then_branch", operator), ("else_branch", "Identity")):
            name = f"{branch}_{z}"
            end = helper.make_tensor_value_info(name, element, None)
            node = helper.make_node(reader, [middle], [name])
            bodies[branch] = helper.make_graph([node], branch, [], [end])
        parts.nodes.append(helper.make_node("If", ["c"], [z], **bodies))
        parts.give(z, element)


def _pair_of(
    parts: _Parts, steps: Sequence[Step], x: str, middle: str, y: str
) -> list[onnx.NodeProto]:
    nodes = []
    for step, source, target in zip(steps, (x, middle), (middle, y), strict=True):
        names = [f"{target}_{place}" for place, _ in enumerate(step.others)]
        parts.weights |= dict(zip(names, step.others, strict=True))
        nodes.append(
            helper.make_node(
                step.op_type, [source, *names], [target], **step.attributes
            )
        )
    return nodes


def _rewritten(trial: Trial, case: Case) -> str | None:
    """What is wrong of *case*, empty if nothing is; ``None``: there are no rewrites."""
    with listening(trial.subject) as talk:
        try:
            with trial.subject.session(case.model, alone=False) as session:
                if talk.providers[0].preferences.rewrite is None:
                    trial.take_back("the EP rewrites nothing")
                    return None
                found = session.run(None, dict(case.feeds))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
            ep.raise_interruption(error)
            if "runs no node" in str(error):
                trial.take_back("the EP takes nothing of the nodes")
                return ""
            return in_words(error)
    wrong, _ = contradiction(found, case, trial.subject)
    return wrong
