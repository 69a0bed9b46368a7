"""The functions of operators, filled by the modules beside this one.

A function is made by ``maker(body, *inputs, **attributes)``: inputs are names of values
in the body, positional in the order of the operator, annotated ``str | None`` where one
may be left out; attributes are keyword-only parameters whose defaults are the
operator's.  So a signature *is* the operator's schema.  It returns the names of the
outputs, with ``None`` for one that it does not make.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from onnxplug.authoring.record import Record
from onnxplug.ep import (
    AttributeValue,
    Function,
    Graph,
    Node,
    Reason,
    RefusalCode,
    raise_interruption,
)
from onnxplug_microsoft.functions.body import Body, NoFunction

Outputs: TypeAlias = "str | tuple[str | None, ...]"

_Maker = TypeVar("_Maker", bound=Callable[..., Outputs])

_OLDEST: Final = 7
"""The opset from which on ONNX's operators broadcast as numpy does."""


class _Operator(Record):
    maker: Callable[..., Outputs]
    since: int


_OPERATORS: Final[dict[str, _Operator]] = {}


def operator(*op_types: str, since: int = _OLDEST) -> Callable[[_Maker], _Maker]:
    """Declare what makes the functions of *op_types*.

    Args:
        since: the oldest opset of ONNX that has what the body is made of.
    """

    def declare(maker: _Maker) -> _Maker:
        for op_type in op_types:
            _OPERATORS[op_type] = _Operator(maker, since)
        return maker

    return declare


def all_or_none(**inputs: str | None) -> bool:
    """Whether *inputs* are given, of which one makes no sense without the others.

    Raises:
        NoFunction: some are and some are not.
    """
    given = [name for name, value in inputs.items() if value is not None]
    if given and len(given) < len(inputs):
        missing = [name for name in inputs if name not in given]
        raise NoFunction(
            f"it has the input {', '.join(map(repr, given))} and lacks "
            f"{', '.join(map(repr, missing))}"
        )
    return bool(given)


def make(graph: Graph, node: Node) -> Function | Reason:
    """The function of *node*, or why there is none."""
    made = _make(graph, node)
    return Reason(RefusalCode.OTHER, made) if isinstance(made, str) else made


def _make(graph: Graph, node: Node) -> Function | str:
    known = _OPERATORS[node.op_type]
    opset = graph.opset()
    if 0 < opset < known.since:
        return (
            f"its function needs opset {known.since} of ai.onnx, and the model imports "
            f"{opset}; convert the model with onnx.version_converter"
        )
    return write(known.maker, Body(graph, node, formal_inputs(known.maker)), node)


def formal_inputs(maker: Callable[..., Outputs]) -> tuple[str, ...]:
    """The names of the inputs of the functions that *maker* makes."""
    return _form(maker).inputs


def write(maker: Callable[..., Outputs], body: Body, node: Node) -> Function | str:
    """The function of *node* that *maker* writes into *body*, or why there is none."""
    try:
        check_form(maker, node)
        made = maker(body, *body.inputs, **node.attributes)
        outputs = (made,) if isinstance(made, str) else made
        for position, name in enumerate(node.outputs):
            if name is not None and outputs[position : position + 1] in ((), (None,)):
                raise NoFunction(f"its function does not make output {position}")
    except NoFunction as error:
        return str(error)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise_interruption(error)
        # numbers and shapes that nobody has checked: no heads, say, or too few axes
        return f"its attributes and shapes make no function: {error}"
    return body.function(outputs)


def check_form(maker: Callable[..., Outputs], node: Node) -> None:
    """Raise unless *node* has the inputs and attributes that *maker* knows."""
    form = _form(maker)
    if len(node.inputs) > len(form.inputs):
        raise NoFunction(
            f"it has {len(node.inputs)} inputs; its function knows {len(form.inputs)}"
        )
    for position, name in enumerate(form.inputs):
        left_out = node.inputs[position : position + 1] in ((), (None,))
        if left_out and name in form.needed:
            raise NoFunction(f"it has no input {name!r}, which the operator needs")
    unknown = sorted(node.attributes.keys() - form.attributes.keys())
    if unknown:
        raise NoFunction(
            f"its function knows no attribute {', '.join(map(repr, unknown))}"
        )
    missing = sorted(form.required - node.attributes.keys())
    if missing:
        raise NoFunction(
            f"it lacks the attribute {', '.join(map(repr, missing))}, "
            "which the operator needs"
        )
    for name, value in node.attributes.items():
        expected, kind = _KINDS.get(form.attributes[name]), _kind(value)
        if expected is not None and kind != expected and value != ():
            raise NoFunction(
                f"its attribute {name!r} is of type {kind}; expected {expected}"
            )


class _Form(Record):
    """A maker's signature.

    Attributes:
        attributes: with their annotations, less what says that one may be left out.
    """

    inputs: tuple[str, ...]
    needed: frozenset[str]
    attributes: Mapping[str, str]
    required: frozenset[str]


_KINDS: Final[Mapping[str, str]] = {
    "int": "INT",
    "float": "FLOAT",
    "str": "STRING",
    "tuple[int, ...]": "INTS",
    "tuple[float, ...]": "FLOATS",
}
"""ONNX's types of attributes, by the annotations of parameters."""

_SCALARS: Final = {int: "INT", float: "FLOAT", str: "STRING", bytes: "STRING"}


def _kind(value: AttributeValue) -> str:
    """ONNX's type of an attribute with this value, as far as parameters have it."""
    if isinstance(value, tuple):
        return f"{_SCALARS.get(type(value[0]), 'OBJECT')}S" if value else "INTS"
    return _SCALARS.get(type(value), type(value).__name__)


@functools.cache
def _form(maker: Callable[..., Outputs]) -> _Form:
    inputs, needed, required = [], set(), set()
    attributes: dict[str, str] = {}
    parameters: list[Any] = list(inspect.signature(maker).parameters.values())
    for parameter in parameters[1:]:
        if parameter.kind is parameter.KEYWORD_ONLY:
            attributes[parameter.name] = parameter.annotation.removesuffix(" | None")
            if parameter.default is parameter.empty:
                required.add(parameter.name)
        else:
            inputs.append(parameter.name)
            if parameter.annotation == "str":
                needed.add(parameter.name)
    return _Form(tuple(inputs), frozenset(needed), attributes, frozenset(required))
