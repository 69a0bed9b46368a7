"""One step of a gradient based optimizer, over several tensors at once.

An optimizer is given a learning rate, a count of updates, and for each of n tensors
itself, its gradient and its states; it gives out all but the gradients.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from onnxplug.ep import Graph, Node, ValueType
from onnxplug_kernels import Registry
from onnxplug_training.names import DOMAIN

KERNELS: Final = Registry(DOMAIN)


@KERNELS.operator("Adagrad", since=1)
def adagrad(
    xp: Any,
    learning_rate: Any,
    update_count: Any,
    *tensors: Any,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Any:
    """New values and new accumulated squared gradients."""
    rate = learning_rate.item() / (1 + update_count.item() * decay_factor)
    values, squares = [], []
    for x, gradient, square in zip(*_groups(tensors, 3), strict=True):
        regularized = norm_coefficient * x + gradient
        square = square + regularized * regularized
        values.append(x - rate * regularized / (xp.sqrt(square) + epsilon))
        squares.append(square)
    return _arrays(xp, *values, *squares)


@KERNELS.operator("Adam", since=1)
def adam(
    xp: Any,
    learning_rate: Any,
    update_count: Any,
    *tensors: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    """New values, new averaged gradients and new averaged squared gradients."""
    rate, count = learning_rate.item(), update_count.item()
    if count > 0:
        rate *= (1 - beta**count) ** 0.5 / (1 - alpha**count)
    values, averages, squares = [], [], []
    for x, gradient, average, square in zip(*_groups(tensors, 4), strict=True):
        regularized = norm_coefficient * x + gradient
        average = alpha * average + (1 - alpha) * regularized
        square = beta * square + (1 - beta) * regularized * regularized
        x = x - rate * average / (xp.sqrt(square) + epsilon)
        values.append((1 - norm_coefficient_post) * x)
        averages.append(average)
        squares.append(square)
    return _arrays(xp, *values, *averages, *squares)


@KERNELS.operator("Momentum", since=1)
def momentum(
    xp: Any,
    learning_rate: Any,
    update_count: Any,
    *tensors: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    """New values and new momenta."""
    if mode not in ("nesterov", "standard"):
        raise ValueError(f"Momentum: mode is {mode!r}, not 'nesterov' or 'standard'")
    rate = learning_rate.item()
    scale = beta if update_count.item() > 0 else 1.0
    values, momenta = [], []
    for x, gradient, velocity in zip(*_groups(tensors, 3), strict=True):
        regularized = norm_coefficient * x + gradient
        velocity = alpha * velocity + scale * regularized
        step = regularized + alpha * velocity if mode == "nesterov" else velocity
        values.append(x - rate * step)
        momenta.append(velocity)
    return _arrays(xp, *values, *momenta)


def _groups(tensors: tuple[Any, ...], count: int) -> list[tuple[Any, ...]]:
    """Split all values, then all gradients, then each kind of state, apart."""
    size, rest = divmod(len(tensors), count)
    if rest:
        raise ValueError(
            f"the optimizer takes {count} inputs per tensor after the learning rate "
            f"and the update count, but got {len(tensors)} of them"
        )
    groups = [tensors[i * size : (i + 1) * size] for i in range(count)]
    for group in groups:
        for first, x in zip(groups[0], group, strict=True):
            if x.shape != first.shape:
                raise ValueError(
                    f"a tensor of shape {first.shape} has a gradient or state of "
                    f"shape {x.shape}; expected equal shapes"
                )
    return groups


def _arrays(xp: Any, *values: Any) -> tuple[Any, ...]:
    # arithmetic on 0-d arrays gives scalars
    return tuple(xp.asarray(value) for value in values)


_STATES: Final[Mapping[str, int]] = {"Adagrad": 1, "Adam": 2, "Momentum": 1}
"""How many states an optimizer has of each tensor."""


def types(
    graph: Graph, node: Node, inputs: Sequence[ValueType | None]
) -> Sequence[ValueType | None]:
    """The types of an optimizer's outputs: those of all but the gradients."""
    given = inputs[2:]
    count = len(given) // (2 + _STATES[node.op_type])
    return [*given[:count], *given[2 * count :]]
