"""The operators: what is taken of each, and how it is launched.

One is added by an entry in :data:`OPERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from onnxplug import ep

from .kernels import (
    Launch,
    Shape,
    broadcast_strides,
    elementwise,
    matmul,
    softmax,
    strides_of,
)

Attributes: TypeAlias = Mapping[str, Any]

MOST_AXES: Final = 8
"""A kernel has arguments for each axis, and OpenCL promises room for 1 KiB of them."""


class Operator(NamedTuple):
    """An operator that the device computes, of float32.

    Attributes:
        launch: how it is, for attributes, the shapes of its inputs, and that of its
            result, all of which have elements; ``None``: it is a copy.
        versions: the first and the last that are meant, as ``Node.since_version``.
        attributes: those that are heeded.
        refuses: what of the attributes is not computed, for the rank of the first
            input; empty: nothing.
        least_rank: of inputs.
        sizes: the position of an input of integers, which has to be constant, and which
            kernels are not given.
    """

    launch: Callable[[Attributes, Sequence[Shape], Shape], Launch] | None
    versions: tuple[int, int]
    attributes: frozenset[str] = frozenset()
    refuses: Callable[[Attributes, int], str] | None = None
    least_rank: int = 0
    sizes: int | None = None


def why_not(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """What was found in the way of *node*, and what is taken; ``None`` if nothing."""
    operator = None if node.domain else OPERATORS.get(node.op_type)
    if operator is None:
        known = ", ".join(OPERATORS)
        return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; takes {known}")
    first, last = operator.versions
    if not first <= node.since_version <= last:
        detail = f"version {node.since_version}; takes {first} to {last}"
        return ep.Reason(ep.RefusalCode.OPSET, detail)
    if unknown := sorted(node.attributes.keys() - operator.attributes):
        detail = f"{unknown[0]}; heeds {', '.join(operator.attributes) or 'none'}"
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
    for position, name in enumerate(node.inputs):
        value = graph.value(name or "")
        if position == operator.sizes:
            if not value.is_constant:
                detail = f"{name!r} is not constant"
                return ep.Reason(ep.RefusalCode.NOT_CONSTANT, detail)
        elif reason := _why_not_value(value, operator):
            return reason
    return _why_not_attributes(graph, node, operator)


def _why_not_value(value: ep.ValueInfo, operator: Operator) -> ep.Reason | None:
    if value.dtype is not ep.DataType.FLOAT32:
        detail = f"{value.name!r} is {value.dtype or 'of unknown type'}; takes float32"
        return ep.Reason(ep.RefusalCode.DTYPE, detail)
    rank = None if value.shape is None else len(value.shape)
    if rank is None or not operator.least_rank <= rank <= MOST_AXES:
        found = "unknown" if rank is None else rank
        detail = f"{value.name!r} is of rank {found}; takes {operator.least_rank}"
        return ep.Reason(ep.RefusalCode.RANK, f"{detail} to {MOST_AXES}")
    return None


def _why_not_attributes(
    graph: ep.Graph, node: ep.Node, operator: Operator
) -> ep.Reason | None:
    shape = graph.value(node.inputs[0] or "").shape
    if operator.refuses is None or shape is None:
        return None
    detail = operator.refuses(node.attributes, len(shape))
    return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail) if detail else None


def _by(
    expression: str, versions: tuple[int, int], attributes: Sequence[str] = ()
) -> Operator:
    """What makes an element of those at its place in the inputs, which are repeated."""

    def launch(attributes: Attributes, inputs: Sequence[Shape], y: Shape) -> Launch:
        strides = [broadcast_strides(shape, y) for shape in inputs]
        return elementwise(expression, y, strides)

    return Operator(launch, versions, frozenset(attributes))


def _matmul(attributes: Attributes, inputs: Sequence[Shape], y: Shape) -> Launch:
    a, b = inputs
    if a[-1] != b[-2] or a[-2] != y[-2] or b[-1] != y[-1]:
        raise ValueError(f"cannot multiply matrices {list(a)} and {list(b)}")
    return matmul(a, b, y)


def _softmax(attributes: Attributes, inputs: Sequence[Shape], y: Shape) -> Launch:
    return softmax(y)


def _refuses_axis(attributes: Attributes, rank: int) -> str:
    axis = attributes.get("axis", -1)
    return "" if axis in (-1, rank - 1) else f"axis is {axis}; takes the last one"


def _transpose(attributes: Attributes, inputs: Sequence[Shape], y: Shape) -> Launch:
    (shape,) = inputs
    order = attributes.get("perm", range(len(shape))[::-1])
    strides = strides_of(shape)
    return elementwise("a", y, [[strides[axis] for axis in order]])


_ARITHMETIC: Final = (7, 14)
_FUNCTION: Final = (6, 13)

OPERATORS: Final[Mapping[str, Operator]] = {
    "Abs": _by("fabs(a)", _FUNCTION),
    "Add": _by("a + b", _ARITHMETIC),
    "Div": _by("a / b", _ARITHMETIC),
    "Exp": _by("exp(a)", _FUNCTION),
    "Identity": Operator(None, (1, 25)),
    "MatMul": Operator(_matmul, (1, 13), least_rank=2),
    "Mul": _by("a * b", _ARITHMETIC),
    "Neg": _by("-a", _FUNCTION),
    "Relu": _by("a < 0 ? 0 : a", (6, 14)),
    "Reshape": Operator(None, (5, 25), frozenset({"allowzero"}), sizes=1),
    "Sigmoid": _by("1 / (1 + exp(-a))", _FUNCTION),
    "Softmax": Operator(
        _softmax, (13, 13), frozenset({"axis"}), _refuses_axis, least_rank=1
    ),
    "Sqrt": _by("sqrt(a)", _FUNCTION),
    "Sub": _by("a - b", _ARITHMETIC),
    "Tanh": _by("tanh(a)", _FUNCTION),
    "Transpose": Operator(_transpose, (1, 25), frozenset({"perm"})),
}
"""By the name that ONNX has for the operator."""
