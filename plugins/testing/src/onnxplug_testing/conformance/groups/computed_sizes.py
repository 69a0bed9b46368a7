"""Whether networks that compute with their own sizes have those of each run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.groups.sizes import EACH
from onnxplug_testing.conformance.opinions import contradiction
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.trial import Trial, in_words

_SHAPES: Final = (
    (2, 3), (3, 2), (6, 1), (1, 6), (2, 3), (4, 5), (5, 4), (0, 3), (1, 1), (20, 1),
    (2, 3), (64, 2), (2, 64), (3, 2), (7, 7), (8, 2), (2, 8), (2, 3),
)  # fmt: skip
"""Of the input in runs, more than are kept by default, some of them again."""

_WEIGHTS: Final[Mapping[str, Any]] = {
    "zero": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "two": np.array(2, np.int64),
    "first": np.array([0], np.int64),
    "second": np.array([1], np.int64),
    "all": np.array([-1], np.int64),
    "step": np.array([1, 2], np.float32),
    "half": np.array(0.5, np.float32),
}


def _node(operator: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


_FLOAT: Final = int(TensorProto.FLOAT)

_SIZE: Final = (
    _node("Shape", "x", "s"),
    _node("Gather", "s zero", "rows"),
    _node("Gather", "s one", "columns"),
    _node("Cast", "rows", "many", to=_FLOAT),
)

NETWORKS: Final = {
    "a mean by the size, ReduceSum and Div": (
        *_SIZE,
        _node("ReduceSum", "x first", "t", keepdims=0),
        _node("Div", "t many", "y"),
    ),
    "ReduceMean along each axis": (
        _node("ReduceMean", "x first", "a"),
        _node("ReduceMean", "x second", "b"),
        _node("Mul", "a b", "y"),
    ),
    "Reshape to sizes that are turned": (
        *_SIZE,
        _node("Unsqueeze", "rows first", "r"),
        _node("Unsqueeze", "columns first", "c"),
        _node("Concat", "c r", "turned", axis=0),
        _node("Reshape", "x turned", "y"),
    ),
    "Reshape to one row more, of one size that follows": (
        *_SIZE,
        _node("Unsqueeze", "columns first", "c"),
        _node("Concat", "all c second", "shape", axis=0),
        _node("Reshape", "x shape", "y"),
    ),
    "Expand to the shape of the input": (
        _node("Shape", "x", "s"),
        _node("Expand", "half s", "e"),
        _node("Add", "x e", "y"),
    ),
    "ConstantOfShape of the shape of the input": (
        _node("Shape", "x", "s"),
        _node("ConstantOfShape", "s", "e"),
        _node("Sub", "e x", "y"),
    ),
    "positions by Range": (
        *_SIZE,
        _node("Range", "zero columns one", "r"),
        _node("Cast", "r", "p", to=_FLOAT),
        _node("Mul", "x p", "y"),
    ),
    "half of the rows by Slice": (
        *_SIZE,
        _node("Div", "rows two", "h"),
        _node("Unsqueeze", "h first", "end"),
        _node("Slice", "x first end first", "y"),
    ),
    "Softmax along each axis, and MatMul of both": (
        _node("Softmax", "x", "a", axis=0),
        _node("Softmax", "x", "b", axis=1),
        _node("Transpose", "b", "t", perm=[1, 0]),
        _node("MatMul", "a t", "y"),
    ),
    "the scale of attention": (
        *_SIZE,
        _node("Cast", "columns", "d", to=_FLOAT),
        _node("Sqrt", "d", "root"),
        _node("Transpose", "x", "t"),
        _node("MatMul", "x t", "m"),
        _node("Div", "m root", "y"),
    ),
    "Concat with itself, and Relu": (
        _node("Concat", "x x", "c", axis=0),
        _node("Concat", "c c", "d", axis=1),
        _node("Relu", "d", "y"),
    ),
    "Flatten, and what the size is": (
        _node("Flatten", "x", "f", axis=0),
        _node("Size", "x", "n"),
        _node("Cast", "n", "m", to=_FLOAT),
        _node("Mul", "f m", "y"),
    ),
}


def _model(nodes: Sequence[onnx.NodeProto]) -> bytes:
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        list(nodes),
        "of sizes",
        [helper.make_tensor_value_info("x", _FLOAT, ["n", "m"])],
        [helper.make_tensor_value_info("y", _FLOAT, None)],
        [numpy_helper.from_array(a, n) for n, a in _WEIGHTS.items() if n in used],
    )
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


@check("specialisation", share=0.5)
def computed_sizes(trial: Trial) -> None:
    """Networks that compute with their own sizes, in one session of many shapes."""
    names = list(NETWORKS)
    trial.draw("order").shuffle(names)
    for name in trial.in_time(names):
        cases = list(_cases(trial, name))
        try:
            session = trial.subject.session(cases[0].model, alone=False)
        except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
            if refusal(error) is None:
                trial.find(EACH, in_words(error), node=name, case=cases[0], kind=name)
            else:
                trial.leave_out("the EP takes no node of a network")
            continue
        with session:
            for case in cases:
                if not trial.attempt(case):
                    continue
                text = _wrong(trial, session, case)
                if text:
                    trial.find(EACH, text, node=name, case=case, kind=name)


def _cases(trial: Trial, name: str) -> Iterator[Case]:
    model = _model(NETWORKS[name])
    for number, shape in enumerate(_SHAPES):
        numbers = trial.numbers(name, number)
        feed = numbers.uniform(-2, 2, shape).astype(np.float32)
        yield Case(model, {"x": feed}, f"{name}, of the shape {list(shape)}")


def _wrong(trial: Trial, session: Any, case: Case) -> str:
    try:
        found = session.run(None, dict(case.feeds))
    except (Exception, SystemExit) as error:  # noqa: BLE001 (whatever an EP raises)
        if contradiction([], case, trial.subject)[1]:
            return f"after other shapes, it {in_words(error)}"
        trial.take_back("nobody else computes it")
        return ""
    text, _ = contradiction(found, case, trial.subject)
    return f"after other shapes, {text}" if text else ""
