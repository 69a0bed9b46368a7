"""Whether two nodes in a row that rewrites usually merge keep their meaning, where the
attributes of both differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


@check("preferences", share=0.3)
def merged(trial: Trial) -> None:
    """What a rewrite makes of two nodes in a row computes as these did, whether others
    read what is between them or not."""
    order = list(PAIRS)
    trial.draw("order").shuffle(order)
    for is_seen, pair in trial.in_time([*itertools.product((False, True), order)]):
        shape, first, second = pair
        case = _case(trial, shape, first, second, is_seen=is_seen)
        if trial.attempt(case) and not _rewritten(trial, case, first, second):
            return


def _case(
    trial: Trial, shape: Shape, first: Step, second: Step, *, is_seen: bool
) -> Case:
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, Any] = {}
    for step, source, target in ((first, "x", "m"), (second, "m", "y")):
        names = [f"{target}{place}" for place, _ in enumerate(step.others)]
        weights |= dict(zip(names, step.others, strict=True))
        nodes.append(
            helper.make_node(step.op_type, [source, *names], [target], step.op_type)
        )
        nodes[-1].attribute.extend(
            helper.make_attribute(key, value) for key, value in step.attributes.items()
        )
    graph = helper.make_graph(
        nodes,
        "pair",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [
            helper.make_tensor_value_info(name, element, None)
            for name, element in _outputs(first, is_seen=is_seen)
        ],
        [numpy_helper.from_array(np.asarray(a), key) for key, a in weights.items()],
    )
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    x = trial.numbers(str(first), str(second)).uniform(-3, 3, shape)
    what = f"{first}, then {second}{', both seen' * is_seen}"
    return Case(model.SerializeToString(), {"x": x.astype(np.float32)}, what)


def _outputs(first: Step, *, is_seen: bool) -> Iterator[tuple[str, int]]:
    yield "y", _FLOAT
    if is_seen:
        yield "m", first.attributes.get("to", _FLOAT)


def _rewritten(trial: Trial, case: Case, first: Step, second: Step) -> bool:
    """Whether the EP rewrites at all; what is wrong is found."""
    node = f"{first.op_type}, {second.op_type}"
    with listening(trial.subject) as talk:
        try:
            with trial.subject.session(case.model, alone=False) as session:
                if talk.providers[0].preferences.rewrite is None:
                    trial.take_back("the EP rewrites nothing")
                    return False
                found = session.run(None, dict(case.feeds))
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever it is)
            if "runs no node" in str(error):
                trial.take_back("the EP takes nothing of the two")
            else:
                trial.find(said.REWRITE, in_words(error), node=node, case=case)
            return True
    wrong, _ = contradiction(found, case, trial.subject)
    if wrong:
        text = f"rewritten, {case.name}: {wrong}"
        trial.find(said.REWRITE, text, node=node, case=case)
    return True
