"""Recurrent networks of one layer: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from . import Desc, fused, operator
from .agreement import Tensors, same_data_type, sized
from .arithmetic import Array
from .constraints import not_owned, require

DIRECTIONS = {"FORWARD": (False,), "BACKWARD": (True,), "BIDIRECTIONAL": (False, True)}
"""Whether each direction of ``Direction`` runs from the end."""

OF_RNN = (
    "InputTensor",
    "WeightTensor",
    "RecurrenceTensor",
    "BiasTensor",
    "HiddenInitTensor",
    "SequenceLengthsTensor",
)
"""The inputs of RNN and GRU in order."""

OF_LSTM = (*OF_RNN[:5], "CellMemInitTensor", OF_RNN[5], "PeepholeTensor")
"""The inputs of LSTM in order, which are those of all three."""


def check_recurrence(
    desc: Desc, tensors: Tensors, gates: int, activations: int
) -> None:
    """What the three operators demand, of so many gates and activations each way."""
    floats = " ".join(name for name in OF_LSTM if name != "SequenceLengthsTensor")
    outputs = "OutputSequenceTensor OutputSingleTensor OutputCellSingleTensor"
    same_data_type(tensors, f"{floats} {outputs}")
    not_owned(tensors, " ".join(OF_LSTM))
    one, length, batch, width = tensors["InputTensor"].sizes
    hidden = tensors["RecurrenceTensor"].sizes[3]
    ways = len(DIRECTIONS[desc.Direction])
    require(one == 1, f"InputTensor is of {tensors['InputTensor'].sizes}, not 1 ahead")
    state = 1, ways, batch, hidden
    for name, sizes in {
        "WeightTensor": (1, ways, gates * hidden, width),
        "RecurrenceTensor": (1, ways, gates * hidden, hidden),
        "BiasTensor": (1, 1, ways, 2 * gates * hidden),
        "HiddenInitTensor": state,
        "CellMemInitTensor": state,
        "SequenceLengthsTensor": (1, 1, 1, batch),
        "PeepholeTensor": (1, 1, ways, 3 * hidden),
        "OutputSequenceTensor": (length, ways, batch, hidden),
        "OutputSingleTensor": state,
        "OutputCellSingleTensor": state,
    }.items():
        sized(tensors, name, sizes)
    given = desc.ActivationDescs or ()
    require(
        len(given) == ways * activations,
        f"{len(given)} activations for {ways} directions of {activations}",
    )


@dataclass(frozen=True, slots=True)
class Way:
    """A direction's weights, in float64, and its activations.

    Attributes:
        weight: of the input, by gate, hidden element and element of the input.
        recurrence: of the hidden state, likewise.
        input_bias: of the input's products, by gate and hidden element.
        hidden_bias: of the hidden state's.
        peephole: by gate (input, output, forget) and hidden element.
        activations: the functions f, g, h of the equations, as far as there are.
    """

    weight: Array
    recurrence: Array
    input_bias: Array
    hidden_bias: Array
    peephole: Array
    activations: list[Callable[[Array], Array]]

    def gate(self, at: int, x: Array, h: Array) -> Array:
        """X W^T + H R^T + W_b + R_b of a gate."""
        products = x @ self.weight[at].T + h @ self.recurrence[at].T
        return np.asarray(products + self.input_bias[at] + self.hidden_bias[at])


def way(desc: Desc, given: dict[str, Any], at: int, ways: int) -> Way:
    """The weights of a direction."""
    hidden = given["RecurrenceTensor"].shape[3]
    weight = given["WeightTensor"][0, at].astype(np.float64)
    gates = len(weight) // hidden
    bias = given["BiasTensor"]
    biases = np.zeros((2, gates, hidden))
    if bias is not None:
        biases = bias[0, 0, at].astype(np.float64).reshape(2, gates, hidden)
    peephole = given.get("PeepholeTensor")
    holes = np.zeros((3, hidden))
    if peephole is not None:
        holes = peephole[0, 0, at].astype(np.float64).reshape(3, hidden)
    each = len(desc.ActivationDescs) // ways
    own = desc.ActivationDescs[at * each : (at + 1) * each]
    return Way(
        weight.reshape(gates, hidden, -1),
        given["RecurrenceTensor"][0, at].astype(np.float64).reshape(gates, hidden, -1),
        biases[0],
        biases[1],
        holes,
        [partial(fused, activation) for activation in own],
    )


Step = Callable[[Way, Array, list[Array]], list[Array]]
"""From an input and states (the hidden one first) to the next states."""


def run(
    desc: Desc, fields: tuple[str, ...], inputs: list[Any], step: Step
) -> tuple[Array, list[Array]]:
    """The hidden states of all steps, and the last states, by direction.

    A sequence that is shorter ends with its length, or begins there backwards, and
    its further outputs are 0: the pages don't say what they are, ONNX does.
    """
    given = dict(zip(fields, inputs, strict=True))
    values = given["InputTensor"][0].astype(np.float64)
    length, batch = values.shape[:2]
    lengths = np.full(batch, length)
    if given["SequenceLengthsTensor"] is not None:
        lengths = np.minimum(given["SequenceLengthsTensor"].reshape(-1), length)
    hidden = given["RecurrenceTensor"].shape[3]
    directions = DIRECTIONS[desc.Direction]
    sequence = np.zeros((length, len(directions), batch, hidden))
    finals: list[list[Array]] = []
    for at, backward in enumerate(directions):
        weights = way(desc, given, at, len(directions))
        states = [
            np.zeros((batch, hidden))
            if given[name] is None
            else given[name][0, at].astype(np.float64)
            for name in ("HiddenInitTensor", "CellMemInitTensor")
            if name in fields
        ]
        for t in reversed(range(length)) if backward else range(length):
            running = (t < lengths)[:, None]
            after = step(weights, values[t], states)
            states = [
                np.where(running, new, old)
                for new, old in zip(after, states, strict=True)
            ]
            sequence[t, at] = np.where(running, states[0], 0.0)
        finals.append(states)
    return sequence, [np.stack(each)[None] for each in zip(*finals, strict=True)]


def written(*outputs: tuple[Any, Array]) -> list[Any]:
    """Arrays in the types of outputs, None for those that are null."""
    return [
        None if tensor is None else array.astype(tensor.data_type)
        for tensor, array in outputs
    ]


OF_ONE_STATE = """
        1.0  InputTensor            input    4  FLOATS
             WeightTensor           input    4  FLOATS
             RecurrenceTensor       input    4  FLOATS
             BiasTensor             input?   4  FLOATS
             HiddenInitTensor       input?   4  FLOATS
             SequenceLengthsTensor  input?   4  UINT32
             OutputSequenceTensor   output?  4  FLOATS
             OutputSingleTensor     output?  4  FLOATS
    """
"""The table of RNN and GRU."""


@operator("RNN")
class RNN:
    support = OF_ONE_STATE

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_recurrence(desc, tensors, gates=1, activations=1)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        def step(weights: Way, x: Array, states: list[Array]) -> list[Array]:
            (f,) = weights.activations
            return [f(weights.gate(0, x, states[0]))]

        sequence, (single,) = run(desc, OF_RNN, inputs, step)
        return written(
            (desc.OutputSequenceTensor, sequence), (desc.OutputSingleTensor, single)
        )


@operator("GRU")
class GRU:
    """Gates are concatenated in the order z, r, h."""

    support = OF_ONE_STATE

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_recurrence(desc, tensors, gates=3, activations=2)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        def step(weights: Way, x: Array, states: list[Array]) -> list[Array]:
            f, g = weights.activations
            (hidden,) = states
            z = f(weights.gate(0, x, hidden))
            r = f(weights.gate(1, x, hidden))
            own = x @ weights.weight[2].T + weights.input_bias[2]
            back, bias = weights.recurrence[2].T, weights.hidden_bias[2]
            if desc.LinearBeforeReset:
                candidate = g(own + r * (hidden @ back + bias))
            else:
                candidate = g(own + (r * hidden) @ back + bias)
            return [(1 - z) * candidate + z * hidden]

        sequence, (single,) = run(desc, OF_RNN, inputs, step)
        return written(
            (desc.OutputSequenceTensor, sequence), (desc.OutputSingleTensor, single)
        )


@operator("LSTM")
class LSTM:
    """Gates are concatenated in the order i, o, f, c; peepholes in the order i, o, f.

    By the equations of the page, which its newer edition has as pictures, the output
    gate's peephole sees the cell of *before* the step, as it does in WebNN's lstm,
    which Chromium gives to this operator.  ONNX's sees that of after it: an LSTM with
    peepholes of ONNX's is not this one unless those of its output gate are 0.
    """

    support = """
        1.0  InputTensor             input    4  FLOATS
             WeightTensor            input    4  FLOATS
             RecurrenceTensor        input    4  FLOATS
             BiasTensor              input?   4  FLOATS
             HiddenInitTensor        input?   4  FLOATS
             CellMemInitTensor       input?   4  FLOATS
             SequenceLengthsTensor   input?   4  UINT32
             PeepholeTensor          input?   4  FLOATS
             OutputSequenceTensor    output?  4  FLOATS
             OutputSingleTensor      output?  4  FLOATS
             OutputCellSingleTensor  output?  4  FLOATS
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        check_recurrence(desc, tensors, gates=4, activations=3)

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        def clip(values: Array) -> Array:
            if not desc.UseClipThreshold:
                return values
            return np.clip(values, -desc.ClipThreshold, desc.ClipThreshold)

        def step(weights: Way, x: Array, states: list[Array]) -> list[Array]:
            f, g, h = weights.activations
            hidden, cell = states
            holes = weights.peephole * cell[:, None]
            i = f(clip(weights.gate(0, x, hidden) + holes[:, 0]))
            if desc.CoupleInputForget:
                forget = 1.0 - i
            else:
                forget = f(clip(weights.gate(2, x, hidden) + holes[:, 2]))
            candidate = g(clip(weights.gate(3, x, hidden)))
            output = f(clip(weights.gate(1, x, hidden) + holes[:, 1]))
            cell = forget * cell + i * candidate
            return [output * h(cell), cell]

        sequence, (single, memory) = run(desc, OF_LSTM, inputs, step)
        return written(
            (desc.OutputSequenceTensor, sequence),
            (desc.OutputSingleTensor, single),
            (desc.OutputCellSingleTensor, memory),
        )
