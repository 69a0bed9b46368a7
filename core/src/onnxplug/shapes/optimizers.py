"""Types of what the operators of ``ai.onnx.preview.training`` compute.

An optimizer is given a learning rate, a count of updates, and for each of n tensors
itself, its gradient and its states; it gives out all but the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import Fact, NodeCall


def _optimizer(call: NodeCall, states: int) -> Sequence[Fact]:
    given = [call.fact(position) for position in range(2, len(call.node.inputs))]
    count = len(given) // (2 + states)
    return given[:count] + given[2 * count :]


def _gradient(call: NodeCall) -> Sequence[Fact]:
    """The derivative by a tensor is of its type; those of *xs* come first."""
    return [call.fact(position) for position in range(len(call.node.outputs))]


RULES: Final[dict[str, Rule]] = {
    "Adagrad": partial(_optimizer, states=1),
    "Adam": partial(_optimizer, states=2),
    "Gradient": _gradient,
    "Momentum": partial(_optimizer, states=1),
}
