"""Recurrent networks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..single_node import Array, SingleNode
from .arrays import floats


def _network(
    op_type: str,
    gates: int,
    *,
    directions: int = 1,
    lengths: Array | None = None,
    states: int = 0,
    layout: int = 0,
    peepholes: Array | None = None,
    constant: tuple[int, ...] = (1, 2, 3),
    **attributes: Any,
) -> SingleNode:
    times, batch, width, hidden = 4, 3, 5, 2
    x = floats(times, batch, width)
    start = floats(directions, batch, hidden)
    if layout:
        x, start = x.transpose(1, 0, 2), start.transpose(1, 0, 2)
    inputs: list[Array | None] = [
        np.ascontiguousarray(x),
        floats(directions, gates * hidden, width),
        floats(directions, gates * hidden, hidden),
        floats(directions, 2 * gates * hidden),
        lengths,
        *(np.ascontiguousarray(start) for _ in range(states)),
    ]
    if peepholes is not None:
        inputs += [None] * (7 - len(inputs)) + [peepholes]
        constant = (*constant, 7)
    if layout:
        attributes["layout"] = 1
    attributes["hidden_size"] = hidden
    outputs = 3 if op_type == "LSTM" else 2
    return SingleNode(op_type, inputs, constant, attributes, outputs=outputs)


NETWORKS: Final = {
    "RNN": _network("RNN", 1, states=1),
    "RNN-both": _network(
        "RNN", 1, directions=2, direction="bidirectional", activations=["Relu", "Tanh"]
    ),
    "GRU": _network("GRU", 3, states=1),
    "GRU-reverse": _network("GRU", 3, direction="reverse", linear_before_reset=1),
    "GRU-lengths": _network("GRU", 3, lengths=np.int32([4, 1, 2])),
    "GRU-batch-first": _network("GRU", 3, states=1, layout=1),
    "LSTM": _network("LSTM", 4, states=2),
    "LSTM-computed-weights": _network("LSTM", 4, constant=()),
    "LSTM-both": _network(
        "LSTM",
        4,
        directions=2,
        states=2,
        direction="bidirectional",
        lengths=np.int32([4, 0, 3]),
    ),
    "LSTM-whole-lengths": _network(
        "LSTM", 4, lengths=np.int32([4, 4, 4]), constant=(1, 2, 3, 4)
    ),
    "LSTM-batch-first": _network("LSTM", 4, states=2, layout=1),
    "LSTM-clip": _network("LSTM", 4, clip=0.7, input_forget=1),
    "LSTM-activations": _network(
        "LSTM",
        4,
        activations=["HardSigmoid", "ScaledTanh", "Softsign"],
        activation_alpha=[0.3, 1.1],
        activation_beta=[0.4, 0.9],
    ),
    "LSTM-peepholes": _network(
        "LSTM", 4, peepholes=np.float32([[0.5, -1, 0, 0, 0.25, 2]])
    ),
}
