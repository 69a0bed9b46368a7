"""What is in one node, as a model whose values have names: bodies, and functions.

The body of a loop is run iteration by iteration, each on the state that the reference
had, until one differs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, inliner, numpy_helper

from onnxplug.authoring.record import Record
from onnxplug_cli.comparison.reproduction import Reproduction, typed
from onnxplug_cli.comparison.sides import Sides
from onnxplug_cli.comparison.steps import bodies, is_constant

MAX_ITERATIONS: Final = 64
"""Of a loop that are looked at; each is a run."""


class Inside(Record):
    """What is in a node.

    Attributes:
        words: what it is, such as ``then_branch``.
        model: it as a model, and what it is fed.
        targets: outputs that differ.
    """

    words: str
    model: Reproduction
    targets: Sequence[str]


class NotSearched(ValueError):
    """What is in the node cannot be searched; the text says why."""


def has_inside(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    """Whether *node* of *model* has bodies, or calls a function."""
    return any(True for _ in bodies(node)) or _is_call(node, model)


def _is_call(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    called = (node.domain, node.op_type)
    return any(called == (each.domain, each.name) for each in model.functions)


def look_inside(sides: Sides, alone: Reproduction, node: onnx.NodeProto) -> Inside:
    """What in *node* differs, which *alone* has and nothing else but constants.

    Args:
        sides: how a model is opened.

    Raises:
        NotSearched: there is nothing like that to be had.
        OnnxplugError: it does not run by itself.
    """
    for words, model in _candidates(sides, alone, node):
        names = [info.name for info in model.model.graph.output]
        with sides.of(model.model) as pair:
            targets = pair.disagree(names, pair.run(names, model.inputs))
        if targets:
            return Inside(words, model, targets)
    raise NotSearched("by itself, what is in it agrees")


def _candidates(
    sides: Sides, alone: Reproduction, node: onnx.NodeProto
) -> Iterator[tuple[str, Reproduction]]:
    attributes = {attribute.name: attribute.g for attribute in node.attribute}
    match node.op_type if node.domain in ("", "ai.onnx") else None:
        case "If":
            taken = bool(np.all(_value(alone, node.input[0])))
            branch = "then_branch" if taken else "else_branch"
            yield branch, _body_model(alone, attributes[branch], {})
        case "Loop":
            yield from _iterations(sides, alone, node, attributes["body"])
        case _ if _is_call(node, alone.model):
            try:
                inlined = inliner.inline_local_functions(alone.model)
            except (RuntimeError, ValueError) as error:
                raise NotSearched(f"onnx.inliner says: {error}") from error
            yield "function", Reproduction(inlined, alone.inputs)
        case _:
            raise NotSearched(
                "values in its bodies have no name outside; make those of interest "
                "outputs of the body"
            )


def _iterations(
    sides: Sides, alone: Reproduction, node: onnx.NodeProto, body: onnx.GraphProto
) -> Iterator[tuple[str, Reproduction]]:
    """The body in each iteration, on the state that the reference had."""
    count, condition, *states = [*node.input, "", ""][: max(len(node.input), 2)]
    most = int(np.ravel(_value(alone, count))[0]) if count else None
    goes_on = bool(np.all(_value(alone, condition))) if condition else True
    state = [_value(alone, name) for name in states]
    results = [info.name for info in body.output]
    number = 0
    while goes_on and (most is None or number < most):
        if number == MAX_ITERATIONS:
            raise NotSearched(f"its first {MAX_ITERATIONS} iterations agree")
        iteration, going, *carried = body.input
        named = {
            iteration.name: _in_rank(np.array(number, np.int64), iteration),
            going.name: _in_rank(np.array(True), going),
        }
        for info, value in zip(carried, state, strict=True):
            named[info.name] = value
        model = _body_model(alone, body, named)
        yield f"body, iteration {number}", model
        with sides.reference(model.model) as session:
            after = session.run(results, model.inputs)
        goes_on = bool(np.all(after[0]))
        state = after[1 : 1 + len(states)]
        number += 1


def _in_rank(array: Any, info: onnx.ValueInfoProto) -> Any:
    """The scalar *array* as one element of as many dimensions as *info* states."""
    return array.reshape([1] * len(info.type.tensor_type.shape.dim))


def _body_model(
    alone: Reproduction, body: onnx.GraphProto, fed: Mapping[str, Any]
) -> Reproduction:
    """*body* with what is around it, and its own inputs *fed*."""
    around = alone.model.graph
    inputs = {**alone.inputs, **fed}
    for name, array in inputs.items():
        if not isinstance(array, np.ndarray):
            raise NotSearched(f"{name!r} is no tensor")
    graph = helper.make_graph(
        [*filter(is_constant, around.node), *body.node],
        "body",
        [typed(name, array) for name, array in inputs.items()],
        body.output,
        [*around.initializer, *body.initializer],
        sparse_initializer=[*around.sparse_initializer, *body.sparse_initializer],
    )
    model = helper.make_model(
        graph,
        ir_version=alone.model.ir_version,
        opset_imports=alone.model.opset_import,
        functions=alone.model.functions,
    )
    return Reproduction(model, inputs)


def _value(alone: Reproduction, name: str) -> Any:
    graph = alone.model.graph
    if name in alone.inputs:
        return alone.inputs[name]
    for tensor in graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in filter(is_constant, graph.node):
        if name in node.output and node.attribute[0].name == "value":
            return numpy_helper.to_array(node.attribute[0].t)
    raise NotSearched(f"the value of its input {name!r} is not known")
