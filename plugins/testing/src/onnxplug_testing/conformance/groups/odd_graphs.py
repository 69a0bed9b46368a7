"""Whether an EP has an answer to whatever graph there may be, however little is known
of it, and the same one whatever things are called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from onnxplug import errors
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.cases import describe, load_suite
from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.networks import (
    NAMES,
    NO_WORDS,
    draw_network,
    vocabulary,
)
from onnxplug_testing.conformance.subject import refusal
from onnxplug_testing.conformance.survey import ask, joined
from onnxplug_testing.conformance.taps import Asked
from onnxplug_testing.conformance.trial import OUT_OF_TIME, Trial, in_words
from onnxplug_testing.measuring.variations import Variation
from onnxplug_testing.random_models import draw_model

NAMED: Final = Sentence(
    "Node.name", "The node's name; may be empty, need not be unique."
)

_FEW: Final = 3
"""Cases of an operator that are asked about at once."""

_FOREIGN: Final = "com.example.conformance"


@check("claims", share=0.4)
def any_graph(trial: Trial) -> None:
    """An EP has an answer to any graph: of no node, of values that are no tensors or
    of which nothing is known, with inputs left out, and bodies."""
    for name, model in _odd_models():
        if trial.attempt(Case(model, {}, name)):
            _tell(trial, model, name)
    for number in range(2 if trial.quick else 6):
        drawn = draw_model(trial.draw(number).getrandbits(31))
        name = f"a network with bodies, {number}"
        if trial.attempt(Case(drawn.model.SerializeToString(), {}, name)):
            _tell(trial, drawn.model.SerializeToString(), name)
    by_opset: dict[int, list[Variation]] = {}
    for cases in load_suite().values():
        for case in cases[:_FEW]:
            by_opset.setdefault(case.opset, []).append(case)
    for opset, cases in sorted(by_opset.items(), key=lambda each: -len(each[1])):
        for known in (False, True):
            _find_raising(trial, opset, cases, known=known)


def _raised_by(trial: Trial, model: bytes) -> errors.EpError | None:
    """What ``get_capability`` raises of *model*."""
    try:
        trial.subject.session(model, alone=False).close()
    except errors.EpError as error:
        is_raised = error.stage == "get_capability" and refusal(error) is None
        return error if is_raised else None
    except (Exception, SystemExit):  # noqa: BLE001 (whatever else is wrong with it)
        return None
    return None


def _tell(trial: Trial, model: bytes, name: str, node: str = "") -> None:
    error = _raised_by(trial, model)
    if error is not None:
        text = f"get_capability, asked about {name}, {in_words(error)}"
        trial.find(said.FAILS, text[:400], node=node, case=Case(model, {}, name))


def _find_raising(
    trial: Trial, opset: int, cases: Sequence[Variation], *, known: bool
) -> None:
    """Find those of *cases* that the EP has no answer to.

    Args:
        known: shapes are; else nothing is, but for constants and element types of what
            is fed.
    """
    if not trial.has_time:
        trial.leave_out(OUT_OF_TIME, len(cases))
        return
    try:
        model = joined(opset, cases)
    except Exception:  # noqa: BLE001 (what ONNX cannot write)
        return
    if not known:
        model = _without_shapes(model)
    about = "all shapes" if known else "no shape"
    if not trial.attempt(Case(model, {}, f"{len(cases)} nodes, {about} known")):
        return
    trial.tried += len(cases) - 1
    asked = ask(trial.subject, model, alone=False)
    if asked is not None:
        return
    if len(cases) == 1:
        node = describe(cases[0])
        _tell(trial, model, f"{node}, {about} known", node)
        return
    half = len(cases) // 2
    _find_raising(trial, opset, cases[:half], known=known)
    _find_raising(trial, opset, cases[half:], known=known)


def _without_shapes(model: bytes) -> bytes:
    proto = onnx.load_model_from_string(model)
    for value in proto.graph.input:
        value.type.tensor_type.ClearField("shape")
    for value in proto.graph.output:
        value.ClearField("type")
    return bytes(proto.SerializeToString())


def _value(name: str, *shape: Any, of: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, of, shape)


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: Sequence[onnx.TensorProto] = (),
    domains: Sequence[str] = ("",),
) -> bytes:
    graph = helper.make_graph(nodes, "odd", inputs, outputs, weights)
    imports = [helper.make_opsetid(each, 1 if each else 21) for each in domains]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return bytes(model.SerializeToString())


def _odd_models() -> Iterator[tuple[str, bytes]]:
    """What they are, in words, and models."""
    x, y = _value("x", 2, 3), _value("y")
    y.ClearField("type")
    node = helper.make_node
    yield "a graph of no node", _model([], [x], [_value("x", 2, 3)])
    yield (
        "nodes whose optional inputs are left out",
        _model(
            [
                node("Clip", ["x", "", ""], ["a"]),
                node("Clip", ["a"], ["b"]),
                node("Resize", ["b", "", "s"], ["y"]),
            ],
            [x],
            [y],
            [numpy_helper.from_array(np.ones(2, np.float32), "s")],
        ),
    )
    yield (
        "nodes of whose outputs some are wanted",
        _model(
            [
                node("TopK", ["x", "k"], ["", "i"]),
                node("Dropout", ["x"], ["d", ""]),
                node("Cast", ["i"], ["c"], to=TensorProto.FLOAT),
                node("ReduceSum", ["c"], ["s"], keepdims=0),
                node("Add", ["s", "d"], ["y"]),
            ],
            [x],
            [y],
            [numpy_helper.from_array(np.array([1]), "k")],
        ),
    )
    yield (
        "values that are sequences",
        _model(
            [
                node("SequenceConstruct", ["x", "x"], ["s"]),
                node("SequenceLength", ["s"], ["n"]),
                node("ConcatFromSequence", ["s"], ["y"], axis=0),
            ],
            [x],
            [y, _value("n", of=TensorProto.INT64)],
        ),
    )
    yield (
        "values that are optional",
        _model(
            [
                node("Optional", ["x"], ["o"]),
                node("OptionalHasElement", ["o"], ["h"]),
                node("OptionalGetElement", ["o"], ["y"]),
            ],
            [x],
            [y, _value("h", of=TensorProto.BOOL)],
        ),
    )
    text = _value("t", 2, of=TensorProto.STRING)
    yield (
        "texts",
        _model(
            [
                node("Cast", ["t"], ["y"], to=TensorProto.FLOAT),
                node("Equal", ["t", "w"], ["e"]),
                node("Identity", ["t"], ["u"]),
            ],
            [text],
            [y, _value("e", 2, of=TensorProto.BOOL), _value("u", 2, of=8)],
            [numpy_helper.from_array(np.array(["a", "b"], object), "w")],
        ),
    )
    nothing = helper.make_value_info("z", helper.make_tensor_type_proto(1, None))
    foreign = node(
        "Relu",
        ["x"],
        ["y"],
        domain=_FOREIGN,
        words=["a", "b"],
        tensor=numpy_helper.from_array(np.ones((2, 0), np.float32), "t"),
        body=helper.make_graph([], "body", [], []),
    )
    yield (
        "a node of a domain alone",
        _model([foreign], [x], [_value("y", 2, 3)], domains=[_FOREIGN]),
    )
    yield (
        "a value of another domain's node, of which nothing is known",
        _model(
            [foreign, *(node(o, ["y"], [o]) for o in ("Relu", "Softmax", "Transpose"))],
            [x],
            [_value("Relu"), _value("Softmax"), _value("Transpose")],
            domains=[_FOREIGN, ""],
        ),
    )
    yield (
        "a value of no known rank",
        _model([node("Add", ["z", "z"], ["y"])], [nothing], [y]),
    )


@check("claims", share=0.3)
def whatever_names(trial: Trial) -> None:
    """What nodes and values are called, and in which order weights are, makes no
    difference to what is claimed."""
    words = vocabulary(trial.subject)
    if words is None:
        trial.leave_out(NO_WORDS)
        return
    for number in trial.in_time(range(3 if trial.quick else 12)):
        answers = {}
        for names in NAMES:
            network = draw_network(
                words,
                trial.draw(number),
                nodes=10,
                names=names,
                foreign=("Erf", "Acosh"),
            )
            for turned in (False, True):
                model = _turned(network.model) if turned else network.model
                case = Case(model, {}, f"network {number}, its names {names}")
                if not trial.attempt(case):
                    continue
                asked = ask(trial.subject, model, alone=False)
                if asked is not None:
                    answers[names, turned] = case, _claims(asked)
        first = next(iter(answers.values()), None)
        for case, claims in answers.values():
            if first is not None and claims != first[1]:
                text = f"{case.name}: it claims {claims}, and else {first[1]}"
                trial.find(NAMED, text[:400], case=case, kind="names")


def _turned(model: bytes) -> bytes:
    """*model* with its weights in reverse order."""
    proto = onnx.load_model_from_string(model)
    weights = list(proto.graph.initializer)[::-1]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(weights)
    return bytes(proto.SerializeToString())


def _claims(asked: Asked) -> list[list[int]]:
    return sorted(sorted(each.nodes) for each in asked.report.claims)
