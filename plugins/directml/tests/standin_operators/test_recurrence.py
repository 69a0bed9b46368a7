"""RNN, GRU and LSTM against ONNX Runtime, and what is demanded of their tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators import Desc, Tensor
from ..standin.operators.constraints import OWNED_BY_DML
from .examples import Array, assert_rejected, evaluate, u32
from .reference import of_onnx

LENGTH, BATCH, WIDTH, HIDDEN = 5, 3, 4, 2

DIRECTIONS = {
    "FORWARD": ("forward", 1),
    "BACKWARD": ("reverse", 1),
    "BIDIRECTIONAL": ("bidirectional", 2),
}

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}

ACTIVATIONS = {"RNN": "Tanh", "GRU": "Sigmoid Tanh", "LSTM": "Sigmoid Tanh Tanh"}


def activation(name: str) -> Desc:
    """An activation by ONNX's name, as operators that fuse it have it."""
    fields: dict[str, Any] = {"InputTensor": None, "OutputTensor": None}
    if name == "HardSigmoid":
        return Desc("ACTIVATION_HARD_SIGMOID", fields | {"Alpha": 0.2, "Beta": 0.5})
    return Desc(f"ACTIVATION_{name.upper()}", fields)


def output(*sizes: int) -> Tensor:
    """An output of FLOAT32."""
    return Tensor(np.dtype(np.float32), sizes)


def weights(name: str, ways: int, rng: np.random.Generator) -> dict[str, Array]:
    """Inputs by ONNX's letters, with every one that is optional."""
    gates = GATES[name]
    sizes = {
        "X": (LENGTH, BATCH, WIDTH),
        "W": (ways, gates * HIDDEN, WIDTH),
        "R": (ways, gates * HIDDEN, HIDDEN),
        "B": (ways, 2 * gates * HIDDEN),
        "initial_h": (ways, BATCH, HIDDEN),
        "initial_c": (ways, BATCH, HIDDEN),
        "P": (ways, 3 * HIDDEN),
    }
    drawn = {of: rng.standard_normal(size) for of, size in sizes.items()}
    drawn["P"][:, HIDDEN : 2 * HIDDEN] = 0  # the output gate's, of which ONNX differs
    return {of: array.astype(np.float32) for of, array in drawn.items()}


FIELDS = {
    "X": "InputTensor",
    "W": "WeightTensor",
    "R": "RecurrenceTensor",
    "B": "BiasTensor",
    "initial_h": "HiddenInitTensor",
    "initial_c": "CellMemInitTensor",
    "P": "PeepholeTensor",
}

OPTIONAL = ("B", "sequence_lens", "initial_h", "initial_c", "P")


def fields(name: str, direction: str, inputs: dict[str, Array]) -> dict[str, Any]:
    """The fields of an operator for inputs by ONNX's letters."""
    ways = DIRECTIONS[direction][1]
    result: dict[str, Any] = {
        "Direction": direction,
        "ActivationDescs": tuple(map(activation, ACTIVATIONS[name].split() * ways)),
        "OutputSequenceTensor": output(LENGTH, ways, BATCH, HIDDEN),
        "OutputSingleTensor": output(1, ways, BATCH, HIDDEN),
    }
    if name == "GRU":
        result["LinearBeforeReset"] = False
    if name == "LSTM":
        result |= {"UseClipThreshold": False, "ClipThreshold": 0.0}
        result |= {"CoupleInputForget": False}
        result["OutputCellSingleTensor"] = output(1, ways, BATCH, HIDDEN)
    for of, array in inputs.items():
        if of == "sequence_lens":
            result["SequenceLengthsTensor"] = u32(array).reshape(1, 1, 1, -1)
        elif name == "LSTM" or of not in ("initial_c", "P"):
            ahead = (1,) * (4 - array.ndim)
            result[FIELDS[of]] = array.reshape(*ahead, *array.shape)
    return result


def by_onnxruntime(
    name: str, direction: str, inputs: dict[str, Array], **attributes: Any
) -> list[Array]:
    """The outputs of ONNX's operator of the same name."""
    order = ["X", "W", "R", "B", "sequence_lens", "initial_h"]
    if name == "LSTM":
        order += ["initial_c", "P"]
    found: list[Array] = of_onnx(
        name,
        *map(inputs.get, order),
        outputs=3 if name == "LSTM" else 2,
        hidden_size=HIDDEN,
        direction=DIRECTIONS[direction][0],
        **attributes,
    )
    return found


def compare(found: list[Any], expected: list[Array]) -> None:
    """Outputs equal ONNX Runtime's, where Y has the same axes and states lack one."""
    for one, other in zip(found, expected, strict=True):
        ahead = (1,) * (4 - other.ndim)
        np.testing.assert_allclose(
            one, other.reshape(*ahead, *other.shape), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("whole", [True, False], ids=["whole", "short"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("name", GATES)
def test_all_inputs(
    name: str, direction: str, whole: bool, rng: np.random.Generator
) -> None:
    inputs = weights(name, DIRECTIONS[direction][1], rng)
    if not whole:
        inputs["sequence_lens"] = np.array([5, 1, 3], np.int32)
    found = evaluate(name, **fields(name, direction, inputs))
    compare(found, by_onnxruntime(name, direction, inputs))


@pytest.mark.parametrize("name", GATES)
def test_optional_inputs_left_out(name: str, rng: np.random.Generator) -> None:
    drawn = weights(name, 1, rng)
    inputs = {of: drawn[of] for of in drawn if of not in OPTIONAL}
    found = evaluate(name, **fields(name, "FORWARD", inputs))
    compare(found, by_onnxruntime(name, "FORWARD", inputs))


@pytest.mark.parametrize("name", GATES)
def test_outputs_left_out(name: str, rng: np.random.Generator) -> None:
    desc = fields(name, "FORWARD", weights(name, 1, rng))
    whole = evaluate(name, **desc)
    none, *last = evaluate(name, **(desc | {"OutputSequenceTensor": None}))
    assert none is None
    np.testing.assert_array_equal(last, whole[1:])


def test_linear_before_reset(rng: np.random.Generator) -> None:
    inputs = weights("GRU", 1, rng)
    desc = fields("GRU", "FORWARD", inputs) | {"LinearBeforeReset": True}
    expected = by_onnxruntime("GRU", "FORWARD", inputs, linear_before_reset=1)
    compare(evaluate("GRU", **desc), expected)


def test_clipped_and_coupled(rng: np.random.Generator) -> None:
    inputs = weights("LSTM", 2, rng)
    desc = fields("LSTM", "BIDIRECTIONAL", inputs)
    clipped = desc | {"UseClipThreshold": True, "ClipThreshold": 0.5}
    expected = by_onnxruntime("LSTM", "BIDIRECTIONAL", inputs, clip=0.5)
    compare(evaluate("LSTM", **clipped), expected)
    coupled = desc | {"CoupleInputForget": True, "ClipThreshold": 0.5}
    expected = by_onnxruntime("LSTM", "BIDIRECTIONAL", inputs, input_forget=1)
    compare(evaluate("LSTM", **coupled), expected)


def test_activations_of_each_direction(rng: np.random.Generator) -> None:
    names = ["HardSigmoid", "Tanh", "Softsign", "Sigmoid", "Relu", "Tanh"]
    inputs = weights("LSTM", 2, rng)
    desc = fields("LSTM", "BIDIRECTIONAL", inputs)
    desc["ActivationDescs"] = tuple(map(activation, names))
    expected = by_onnxruntime(
        "LSTM",
        "BIDIRECTIONAL",
        inputs,
        activations=names,
        activation_alpha=[0.2],
        activation_beta=[0.5],
    )
    compare(evaluate("LSTM", **desc), expected)
    three = desc | {"ActivationDescs": desc["ActivationDescs"][:3]}
    assert_rejected("LSTM", "3 activations for 2 directions", **three)


def test_the_output_gates_peephole_sees_the_cell_before_the_step(
    rng: np.random.Generator,
) -> None:
    def sigmoid(values: Array) -> Array:
        return 1 / (1 + np.exp(-values))

    inputs = weights("LSTM", 1, rng)
    inputs["P"] = rng.standard_normal((1, 3 * HIDDEN)).astype(np.float32)
    one = {of: each.astype(np.float64) for of, each in inputs.items()}
    x, h, c = one["X"][0], one["initial_h"][0], one["initial_c"][0]
    bias = one["B"][0].reshape(2, 4, HIDDEN).sum(axis=0)
    gates = x @ one["W"][0].T + h @ one["R"][0].T
    i, o, f, g = np.moveaxis(gates.reshape(BATCH, 4, HIDDEN) + bias, 1, 0)
    to_i, to_o, to_f = one["P"][0].reshape(3, HIDDEN)
    cell = sigmoid(f + to_f * c) * c + sigmoid(i + to_i * c) * np.tanh(g)
    expected = sigmoid(o + to_o * c) * np.tanh(cell)
    inputs["sequence_lens"] = np.array([1, 1, 1])
    sequence, _, last = evaluate("LSTM", **fields("LSTM", "FORWARD", inputs))
    np.testing.assert_allclose(sequence[0, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(last[0, 0], cell, rtol=1e-5)


@pytest.mark.parametrize("name", GATES)
def test_constraints(name: str, rng: np.random.Generator) -> None:
    desc = fields(name, "FORWARD", weights(name, 1, rng))
    weight = desc["WeightTensor"]
    owned = Tensor(weight.dtype, weight.shape, flags=OWNED_BY_DML)
    assert_rejected(name, "OWNED_BY_DML", **(desc | {"WeightTensor": owned}))
    assert_rejected(
        name, "WeightTensor has Sizes", **(desc | {"WeightTensor": weight[:, :, 1:]})
    )
    half = desc | {"BiasTensor": desc["BiasTensor"].astype(np.float16)}
    assert_rejected(name, "DataType", **half)
    assert_rejected(
        name, "WeightTensor has Sizes", **(desc | {"Direction": "BIDIRECTIONAL"})
    )
    single = desc | {"OutputSingleTensor": output(1, 1, HIDDEN, BATCH)}
    assert_rejected(name, "OutputSingleTensor has Sizes", **single)
