"""Recurrent networks: RNN, GRU, LSTM.

NaN and infinities go through the formulas as they are; ONNX Runtime clips all sums to
the largest numbers, which makes numbers of them.

The projection of all inputs is one product; only the recurrence runs step by step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from onnxplug.authoring.bounds import at_least
from onnxplug_kernels.registry import PORTABLE, operator

Activation = Callable[[Any], Any]

USUAL_ACTIVATIONS: Final = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
"""Those of a direction, of gates, cell and result, where the node names none."""

Step = Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
"""From the projected input of a step and the states before it to those after it."""

# "foward" is the default of GRU-1's schema, misspelt
DIRECTIONS: Final = {
    "forward": ("forward",),
    "foward": ("forward",),
    "reverse": ("reverse",),
    "bidirectional": ("forward", "reverse"),
}


@operator("RNN", since=1, portable=PORTABLE)
def rnn(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any | None = None,
    sequence_lens: Any | None = None,
    initial_h: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Any, Any]:
    """Returns (Y, Y_h); GRU and LSTM have the same shapes.

    With layout 0, *x* is [time, batch, input], Y [time, directions, batch, hidden] and
    Y_h [directions, batch, hidden]; with layout 1 the batch is the first axis of each.
    """
    layer = Layer.of(
        xp, x, w, r, b, sequence_lens, direction, layout, hidden_size, gates=1
    )
    chosen = layer.activations(
        activations, USUAL_ACTIVATIONS["RNN"], activation_alpha, activation_beta, clip
    )

    def steps() -> Iterator[Step]:
        for weights, (f,) in zip(layer.weights, _groups(chosen, 1), strict=True):
            yield _rnn_step(xp, weights, f)

    y, (y_h,) = _run(layer, steps(), (initial_h,), merged_bias=True)
    return y, y_h


@operator("GRU", since=1, portable=PORTABLE)
def gru(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any | None = None,
    sequence_lens: Any | None = None,
    initial_h: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
    output_sequence: int = 0,
) -> tuple[Any, Any]:
    """Gates lie in the order update, reset, hidden in *w*, *r* and *b*."""
    layer = Layer.of(
        xp, x, w, r, b, sequence_lens, direction, layout, hidden_size, gates=3
    )
    chosen = layer.activations(
        activations, USUAL_ACTIVATIONS["GRU"], activation_alpha, activation_beta, clip
    )

    def steps() -> Iterator[Step]:
        for weights, (f, g) in zip(layer.weights, _groups(chosen, 2), strict=True):
            yield _gru_step(xp, weights, f, g, bool(linear_before_reset))

    y, (y_h,) = _run(layer, steps(), (initial_h,), merged_bias=False)
    return y, y_h


@operator("LSTM", since=1, portable=PORTABLE)
def lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any | None = None,
    sequence_lens: Any | None = None,
    initial_h: Any | None = None,
    initial_c: Any | None = None,
    p: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
    output_sequence: int = 0,
) -> tuple[Any, Any, Any]:
    """Gates lie in the order input, output, forget, cell in *w*, *r* and *b*.

    The peepholes *p* [directions, 3 * hidden] are those of input, output, forget.

    Returns:
        (Y, Y_h, Y_c).
    """
    layer = Layer.of(
        xp, x, w, r, b, sequence_lens, direction, layout, hidden_size, gates=4
    )
    chosen = layer.activations(
        activations, USUAL_ACTIVATIONS["LSTM"], activation_alpha, activation_beta, clip
    )
    return run_lstm(layer, chosen, initial_h, initial_c, p, bool(input_forget))


def run_lstm(
    layer: Layer,
    activations: Sequence[Activation],
    initial_h: Any | None,
    initial_c: Any | None,
    p: Any | None,
    input_forget: bool,
) -> tuple[Any, Any, Any]:
    """(Y, Y_h, Y_c) of *layer*, as the operator LSTM has them."""

    if p is not None:
        hidden = layer.weights[0].hidden
        _require_shape(p, (len(layer.weights), 3 * hidden), "P")

    def steps() -> Iterator[Step]:
        groups = _groups(activations, 3)
        for index, (weights, group) in enumerate(
            zip(layer.weights, groups, strict=True)
        ):
            peepholes = (
                None if p is None else layer.xp.astype(p[index, ...], layer.x.dtype)
            )
            yield _lstm_step(layer.xp, weights, group, peepholes, input_forget)

    y, (y_h, y_c) = _run(layer, steps(), (initial_h, initial_c), merged_bias=True)
    return y, y_h, y_c


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of one direction: of inputs, recurrences, and the biases of both."""

    w: Any
    r: Any
    input_bias: Any
    recurrent_bias: Any

    @property
    def hidden(self) -> int:
        """The size of the state."""
        return int(self.r.shape[1])

    def of_input(self, xp: Any, x: Any) -> Any:
        """The product of *x* [rows, input] and *w*."""
        return xp.matmul(x, self.w.T)

    def of_state(self, xp: Any, h: Any) -> Any:
        """The product of *h* [batch, hidden] and *r*."""
        return xp.matmul(h, self.r.T)


@dataclass(frozen=True, slots=True)
class Layer:
    """What the three operators have in common, in the computing dtype, time first."""

    xp: Any
    x: Any
    dtype: Any
    weights: Sequence[Weights]
    directions: tuple[str, ...]
    lengths: Any | None
    batch_first: bool

    @classmethod
    def of(
        cls,
        xp: Any,
        x: Any,
        w: Any,
        r: Any,
        b: Any | None,
        sequence_lens: Any | None,
        direction: str,
        layout: int,
        hidden_size: int | None,
        *,
        gates: int,
    ) -> Layer:
        """The layer of an operator with so many *gates*.

        Raises:
            ValueError: its inputs do not have the shapes of one layer.
        """
        directions = DIRECTIONS.get(direction.lower())
        if x.ndim != 3 or w.ndim != 3 or r.ndim != 3:
            raise ValueError(
                f"X, W and R have shapes {x.shape}, {w.shape} and {r.shape}; "
                f"expected rank 3"
            )
        if directions is None or len(directions) != w.shape[0]:
            raise ValueError(
                f"direction is {direction!r} with weights for {w.shape[0]} directions, "
                f"expected forward or reverse with 1, or bidirectional with 2"
            )
        hidden = r.shape[2]
        _require_shape(w, (w.shape[0], gates * hidden, x.shape[2]), "W")
        _require_shape(r, (w.shape[0], gates * hidden, hidden), "R")
        if b is not None:
            _require_shape(b, (w.shape[0], 2 * gates * hidden), "B")
        if hidden_size not in (None, hidden):
            raise ValueError(f"hidden_size is {hidden_size}, but R has {r.shape}")
        if sequence_lens is not None:
            batch, time = x.shape[:2] if layout else (x.shape[1], x.shape[0])
            _require_shape(sequence_lens, (batch,), "sequence_lens")
            at_least(0, xp.tolist(sequence_lens), "sequence_lens")
            if batch and int(xp.max(sequence_lens)) > time:
                raise ValueError(
                    f"sequence_lens has {int(xp.max(sequence_lens))}, but X has {time} "
                    f"times"
                )
        wide = xp.computing_dtype(x.dtype)
        w, r = xp.astype(w, wide, copy=False), xp.astype(r, wide, copy=False)
        rows = w.shape[1]
        if b is None:
            biases = xp.zeros((w.shape[0], 2 * rows), dtype=wide)
        else:
            biases = xp.astype(b, wide, copy=False)
        weights = [
            Weights(w[i, ...], r[i, ...], biases[i, :rows], biases[i, rows:])
            for i in range(w.shape[0])
        ]
        moved = xp.swapaxes(x, 0, 1) if layout else x
        return cls(
            xp,
            xp.astype(moved, wide, copy=False),
            x.dtype,
            weights,
            directions,
            sequence_lens,
            bool(layout),
        )

    def activations(
        self,
        names: Sequence[str],
        usual: Sequence[str],
        alphas: Sequence[float],
        betas: Sequence[float],
        clip: float | None,
    ) -> list[Activation]:
        """The functions of *names*, or the *usual* ones of each direction.

        Raises:
            ValueError: there is no such function, or there are more or fewer, or *clip*
                leaves no number.
        """
        if clip is not None and not clip >= 0:
            raise ValueError(f"clip is {clip}, expected 0 or more")
        count = len(usual) * len(self.directions)
        if names and len(names) != count:
            raise ValueError(
                f"activations are {list(names)}, expected {count}: {len(usual)} for "
                f"each of {len(self.directions)} directions"
            )
        chosen = names or [*usual] * len(self.directions)
        return _activations(self.xp, chosen, alphas, betas, clip)


def _require_shape(x: Any, expected: tuple[int, ...], name: str) -> None:
    if x.shape != expected:
        raise ValueError(f"{name} has shape {x.shape}, expected {expected}")


def _run(
    layer: Layer,
    steps: Iterator[Step],
    initial: tuple[Any | None, ...],
    *,
    merged_bias: bool,
) -> tuple[Any, list[Any]]:
    """All directions: the hidden states of all times, and each last state.

    With *merged_bias* the recurrent bias is part of the projected input.
    """
    xp, x = layer.xp, layer.x
    time, batch, _ = x.shape
    hidden = layer.weights[0].hidden
    count = len(layer.directions)
    y = xp.zeros((time, count, batch, hidden), dtype=x.dtype)
    last = [xp.zeros((count, batch, hidden), dtype=x.dtype) for _ in initial]
    for start, final in zip(initial, last, strict=True):
        if start is not None:
            start = xp.swapaxes(start, 0, 1) if layer.batch_first else start
            _require_shape(start, final.shape, "an initial state, directions first,")
            final[...] = start
    for index, (step, weights) in enumerate(zip(steps, layer.weights, strict=True)):
        bias = weights.input_bias
        if merged_bias:
            bias = bias + weights.recurrent_bias
        projected = (
            weights.of_input(xp, xp.reshape(x, (time * batch, x.shape[2]))) + bias
        )
        projected = xp.reshape(projected, (time, batch, weights.w.shape[0]))
        times = range(time)
        states = tuple(final[index, ...] for final in last)
        for t in times if layer.directions[index] == "forward" else reversed(times):
            new = step(projected[t, ...], states)
            if layer.lengths is None:
                y[t, index, ...] = new[0]
            else:
                # a sequence that has not begun (in reverse) or has ended stays
                active = (layer.lengths > t)[:, None]
                y[t, index, ...] = xp.where(active, new[0], 0)
                new = tuple(
                    xp.where(active, after, before)
                    for after, before in zip(new, states, strict=True)
                )
            states = new
        for final, state in zip(last, states, strict=True):
            final[index, ...] = state
    results = [xp.astype(a, layer.dtype, copy=False) for a in (y, *last)]
    if layer.batch_first:
        results[0] = xp.permute_dims(results[0], (2, 0, 1, 3))
        results[1:] = [xp.swapaxes(a, 0, 1) for a in results[1:]]
    return results[0], results[1:]


def _rnn_step(xp: Any, weights: Weights, f: Activation) -> Step:
    recurrent = weights.r.T

    def step(projected: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = states
        return (f(projected + xp.matmul(h, recurrent)),)

    return step


def _gru_step(
    xp: Any, weights: Weights, f: Activation, g: Activation, linear_before_reset: bool
) -> Step:
    size = weights.hidden
    gates, hidden = weights.r[: 2 * size, :].T, weights.r[2 * size :, :].T
    everything = weights.r.T
    gate_bias = weights.recurrent_bias[: 2 * size]
    hidden_bias = weights.recurrent_bias[2 * size :]

    def step(projected: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        (h,) = states
        recurrent = xp.matmul(h, everything if linear_before_reset else gates)
        both = f(projected[:, : 2 * size] + recurrent[:, : 2 * size] + gate_bias)
        update, reset = both[:, :size], both[:, size:]
        if linear_before_reset:
            history = reset * (recurrent[:, 2 * size :] + hidden_bias)
        else:
            history = xp.matmul(reset * h, hidden) + hidden_bias
        candidate = g(projected[:, 2 * size :] + history)
        return ((1 - update) * candidate + update * h,)

    return step


def _lstm_step(
    xp: Any,
    weights: Weights,
    activations: Sequence[Activation],
    peepholes: Any | None,
    input_forget: bool,
) -> Step:
    f, g, h = activations
    size = weights.hidden
    gate = [slice(i * size, (i + 1) * size) for i in range(4)]

    def step(projected: Any, states: tuple[Any, ...]) -> tuple[Any, ...]:
        hidden, cell = states
        sums = projected + weights.of_state(xp, hidden)
        into, out, forget, candidate = (sums[:, part] for part in gate)
        if peepholes is not None:
            into = into + peepholes[gate[0]] * cell
            forget = forget + peepholes[gate[2]] * cell
        into = f(into)
        forget = 1 - into if input_forget else f(forget)
        cell = forget * cell + into * g(candidate)
        if peepholes is not None:
            out = out + peepholes[gate[1]] * cell
        return f(out) * h(cell), cell

    return step


def _groups(
    activations: Sequence[Activation], size: int
) -> Iterator[Sequence[Activation]]:
    """*activations* of each direction."""
    for start in range(0, len(activations), size):
        yield activations[start : start + size]


def _activations(
    xp: Any,
    names: Sequence[str],
    alphas: Sequence[float],
    betas: Sequence[float],
    clip: float | None,
) -> list[Activation]:
    """The functions of *names*, applied after clipping."""
    return [
        _bound(xp, _ACTIVATIONS[name][0], alpha, beta, clip)
        for name, alpha, beta in named_activations(names, alphas, betas)
    ]


def named_activations(
    names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]
) -> list[tuple[str, float | None, float | None]]:
    """The functions of *names* in lower case, with their alphas and betas.

    The values of *alphas* and *betas* go in order to the functions that take one;
    others have their default, and ``None`` where they take none.

    Raises:
        ValueError: there is no such function.
    """
    next_alpha, next_beta = iter(alphas), iter(betas)
    chosen = []
    for name in names:
        kind = _ACTIVATIONS.get(name.lower())
        if kind is None:
            raise ValueError(
                f"activation {name!r} is unknown, expected one of: "
                f"{', '.join(sorted(_ACTIVATIONS))}"
            )
        _, alpha, beta = kind
        if alpha is not None:
            alpha = next(next_alpha, alpha)
        if beta is not None:
            beta = next(next_beta, beta)
        chosen.append((name.lower(), alpha, beta))
    return chosen


def _bound(
    xp: Any,
    function: Callable[..., Any],
    alpha: float | None,
    beta: float | None,
    clip: float | None,
) -> Activation:
    parameters = [value for value in (alpha, beta) if value is not None]

    def apply(x: Any) -> Any:
        if clip is not None:
            x = xp.clip(x, -clip, clip)
        return function(xp, x, *parameters)

    return apply


def _sigmoid(xp: Any, x: Any) -> Any:
    return 1 / (1 + xp.exp(-x))


def _leaky_relu(xp: Any, x: Any, alpha: Any) -> Any:
    return xp.where(x >= 0, x, alpha * x)


def _thresholded_relu(xp: Any, x: Any, alpha: Any) -> Any:
    return xp.where(x >= alpha, x, 0)


def _hard_sigmoid(xp: Any, x: Any, alpha: Any, beta: Any) -> Any:
    return xp.clip(alpha * x + beta, 0, 1)


def _elu(xp: Any, x: Any, alpha: Any) -> Any:
    return xp.where(x >= 0, x, alpha * xp.expm1(xp.minimum(x, 0)))


_ACTIVATIONS: Final[
    dict[str, tuple[Callable[..., Any], float | None, float | None]]
] = {
    "affine": (lambda xp, x, alpha, beta: alpha * x + beta, 1.0, 0.0),
    "elu": (_elu, 1.0, None),
    "hardsigmoid": (_hard_sigmoid, 0.2, 0.5),
    "leakyrelu": (_leaky_relu, 0.01, None),
    "relu": (lambda xp, x: xp.maximum(x, 0), None, None),
    "scaledtanh": (lambda xp, x, alpha, beta: alpha * xp.tanh(beta * x), 1.0, 1.0),
    "sigmoid": (_sigmoid, None, None),
    "softplus": (lambda xp, x: xp.logaddexp(x, 0), None, None),
    "softsign": (lambda xp, x: x / (1 + xp.abs(x)), None, None),
    "tanh": (lambda xp, x: xp.tanh(x), None, None),
    "thresholdedrelu": (_thresholded_relu, 1.0, None),
}
"""By lower-case name: the function, and the defaults of alpha and beta it takes."""
