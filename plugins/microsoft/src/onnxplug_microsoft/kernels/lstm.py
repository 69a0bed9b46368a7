"""LSTM with quantized weights, and states quantized at each step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnxplug_kernels.quantize import dynamic_quantize_linear, exact_dtype
from onnxplug_kernels.rnn import USUAL_ACTIVATIONS, Layer, Weights, run_lstm
from onnxplug_microsoft.kernels import KERNELS


@KERNELS.operator("DynamicQuantizeLSTM", since=1)
def dynamic_quantize_lstm(
    xp: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any | None,
    sequence_lens: Any | None,
    initial_h: Any | None,
    initial_c: Any | None,
    p: Any | None,
    w_scale: Any,
    w_zero_point: Any,
    r_scale: Any,
    r_zero_point: Any,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
) -> tuple[Any, Any, Any]:
    """As LSTM, with *w* [directions, input, 4 · hidden] and *r* transposed.

    The input, and the states of the whole batch at each step, are quantized to uint8 as
    their range needs it.  Scales and zero points of weights are one for a direction,
    or one for each of its columns.
    """
    layer = Layer.of(
        xp,
        x,
        xp.swapaxes(w, 1, 2),
        xp.swapaxes(r, 1, 2),
        b,
        sequence_lens,
        direction,
        layout=0,
        hidden_size=hidden_size,
        gates=4,
    )
    rows = layer.weights[0].w.shape[0]
    for name, parameter in (
        ("W_scale", w_scale),
        ("W_zero_point", w_zero_point),
        ("R_scale", r_scale),
        ("R_zero_point", r_zero_point),
    ):
        if parameter.shape not in ((w.shape[0],), (w.shape[0], 1), (w.shape[0], rows)):
            raise ValueError(
                f"{name} has shape {parameter.shape}; expected one number for each of "
                f"{w.shape[0]} directions, or one for each of its {rows} columns"
            )
    weights = [
        _QuantizedWeights(
            _centred(xp, one.w, w_zero_point[index]),
            _centred(xp, one.r, r_zero_point[index]),
            one.input_bias,
            one.recurrent_bias,
            w_scale[index],
            r_scale[index],
        )
        for index, one in enumerate(layer.weights)
    ]
    layer = replace(layer, weights=weights)
    chosen = layer.activations(
        activations, USUAL_ACTIVATIONS["LSTM"], activation_alpha, activation_beta, clip
    )
    return run_lstm(layer, chosen, initial_h, initial_c, p, bool(input_forget))


def _centred(xp: Any, w: Any, zero_point: Any) -> Any:
    """*w* [rows, columns] less the zero point of each row, in an exact dtype."""
    dtype = exact_dtype(xp, w.shape[1] * 255 * 255)
    return xp.astype(w, dtype) - xp.reshape(xp.astype(zero_point, dtype), (-1, 1))


@dataclass(frozen=True, slots=True)
class _QuantizedWeights(Weights):
    """Integers in floating point, without their zero points, and their scales."""

    w_scale: Any
    r_scale: Any

    def of_input(self, xp: Any, x: Any) -> Any:
        return _product(xp, x, self.w, self.w_scale)

    def of_state(self, xp: Any, h: Any) -> Any:
        return _product(xp, h, self.r, self.r_scale)


def _product(xp: Any, x: Any, w: Any, scale: Any) -> Any:
    codes, x_scale, zero_point = dynamic_quantize_linear(xp, x)
    centred = xp.astype(codes, w.dtype) - xp.astype(zero_point, w.dtype)
    return xp.astype(xp.matmul(centred, w.T), xp.float32) * (x_scale * scale)
