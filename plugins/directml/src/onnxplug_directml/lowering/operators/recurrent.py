"""Recurrent networks: RNN, GRU and LSTM.

Gates lie in the same order in ONNX and in DirectML.  Letters in shapes: T times, B
batches, D directions, H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_RECURRENT_NETWORK_DIRECTION
from onnxplug_directml.lowering.builder import Builder, Field, Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.graph import Operator
from onnxplug_directml.lowering.operators.limits import held
from onnxplug_kernels.rnn import DIRECTIONS, USUAL_ACTIVATIONS, named_activations

_ACTIVATIONS: Final[Mapping[str, str]] = {
    "affine": "ACTIVATION_LINEAR",
    "elu": "ACTIVATION_ELU",
    "hardsigmoid": "ACTIVATION_HARD_SIGMOID",
    "leakyrelu": "ACTIVATION_LEAKY_RELU",
    "relu": "ACTIVATION_RELU",
    "scaledtanh": "ACTIVATION_SCALED_TANH",
    "sigmoid": "ACTIVATION_SIGMOID",
    "softplus": "ACTIVATION_SOFTPLUS",
    "softsign": "ACTIVATION_SOFTSIGN",
    "tanh": "ACTIVATION_TANH",
    "thresholdedrelu": "ACTIVATION_THRESHOLDED_RELU",
}

_DIRECTIONS: Final = {
    ("forward",): DML_RECURRENT_NETWORK_DIRECTION.FORWARD,
    ("reverse",): DML_RECURRENT_NETWORK_DIRECTION.BACKWARD,
    ("forward", "reverse"): DML_RECURRENT_NETWORK_DIRECTION.BIDIRECTIONAL,
}

_GATES: Final = {"RNN": 1, "GRU": 3, "LSTM": 4}


@lowers("RNN")
def _rnn(call: Call) -> tuple[Value | None, ...]:
    _refuse_clip(call)
    return _network(call, states=1, fields={})


@lowers("GRU")
def _gru(call: Call) -> tuple[Value | None, ...]:
    _refuse_clip(call)
    linear = bool(call.attribute("linear_before_reset", 0))
    return _network(call, states=1, fields={"LinearBeforeReset": linear})


@lowers("LSTM")
def _lstm(call: Call) -> tuple[Value | None, ...]:
    clip = call.attribute("clip")
    fields: dict[str, Field] = {
        "PeepholeTensor": _peepholes(call) if call.has(7) else None,
        "ClipThreshold": clip or 0.0,
        "UseClipThreshold": clip is not None,
        "CoupleInputForget": bool(call.attribute("input_forget", 0)),
    }
    return _network(call, states=2, fields=fields)


def _refuse_clip(call: Call) -> None:
    if call.attribute("clip") is not None:
        raise call.refuse_attribute("clip", "none: DirectML clips in LSTM alone")


def _peepholes(call: Call) -> Value:
    """[1, 1, D, 3·H]: those of input, output and forget.

    By its documentation DirectML has the output gate see the cell as it was; in ONNX it
    sees the new one.
    """
    known = call.content(7)
    hidden = known.shape[-1] // 3
    if known[..., hidden : 2 * hidden].any():
        raise Refused(
            ep.RefusalCode.OTHER,
            "a peephole of the output gate; takes those of input and forget: "
            "DirectML's shows the cell before the step, ONNX's behind it",
        )
    return _copied(call.build, call.build.at_rank(call.operand(7), 4))


def _network(
    call: Call, states: int, fields: Mapping[str, Field]
) -> tuple[Value | None, ...]:
    """A network with a state, or two; its outputs are Y and the last states."""
    call.require_type(0, *FLOATS)
    call.ignore("output_sequence")
    for position, rank in ((0, 3), (1, 3), (2, 3), (3, 2), (4, 1), (5, 3), (6, 3)):
        if call.has(position):
            call.require_rank(position, rank)
    build, x = call.build, call.operand(0)
    batch_first = bool(call.attribute("layout", 0))
    if batch_first:
        x = build.packed(build.transpose(x, (1, 0, 2)))
    directions = DIRECTIONS.get(call.attribute("direction", "forward").lower())
    if directions is None:
        raise call.refuse_attribute("direction", ", ".join(DIRECTIONS))
    times, batch, _ = x.shape
    hidden = call.shape(2)[-1]
    _refuse_sizes(call, len(directions), hidden, batch_first=batch_first)
    wanted = _results(call, states, (times, len(directions), batch, hidden))
    starts = ("HiddenInitTensor", "CellMemInitTensor")[:states]
    made = build.several(
        call.op_type,
        InputTensor=_copied(build, build.at_rank(x, 4)),
        WeightTensor=_copied(build, build.at_rank(call.operand(1), 4)),
        RecurrenceTensor=_copied(build, build.at_rank(call.operand(2), 4)),
        BiasTensor=_optional(call, 3),
        SequenceLengthsTensor=_lengths(call, times),
        **{name: _start(call, 5 + i, batch_first) for i, name in enumerate(starts)},
        **wanted,
        ActivationDescs=_activations(call, len(directions)),
        Direction=_DIRECTIONS[directions],
        **fields,
    )
    results = iter(made)
    return tuple(
        None
        if result is None
        else _given(build, next(results), batch_first, whole=position == 0)
        for position, result in enumerate(wanted.values())
    )


def _refuse_sizes(
    call: Call, directions: int, hidden: int, *, batch_first: bool
) -> None:
    """Refuse inputs whose sizes are not those of ONNX."""
    batch = call.shape(0)[0 if batch_first else 1]
    rows = _GATES[call.op_type] * hidden
    state = (directions, batch, hidden)
    if batch_first:
        state = (batch, directions, hidden)
    expected = (
        (directions, rows, call.shape(0)[2]), (directions, rows, hidden),
        (directions, 2 * rows),
        (batch,), state, state, (directions, 3 * hidden),
    )  # fmt: skip
    for position, shape in enumerate(expected, 1):
        if call.has(position) and call.shape(position) != shape:
            raise Refused(
                ep.RefusalCode.OTHER,
                f"input {position} is {list(call.shape(position))}, not {list(shape)}",
            )
    if call.attribute("hidden_size", hidden) != hidden:
        raise call.refuse_attribute("hidden_size", f"{hidden}, as R has it")


def _results(
    call: Call, states: int, shape: tuple[int, int, int, int]
) -> dict[str, Result | None]:
    """What is made, by field; ``None`` for what nobody wants."""
    names = ("OutputSequenceTensor", "OutputSingleTensor", "OutputCellSingleTensor")
    dtype = call.dtype(0)
    shapes = (shape, (1, *shape[1:]), (1, *shape[1:]))
    return {
        name: Result(dtype, each) if call.wants(position) else None
        for position, (name, each) in enumerate(
            zip(names[: 1 + states], shapes, strict=False)
        )
    }


def _given(build: Builder, x: Value, batch_first: bool, *, whole: bool) -> Value:
    """A result [T or 1, D, B, H] as ONNX has it; a last state is [D, B, H]."""
    if whole:
        return build.transpose(x, (2, 0, 1, 3)) if batch_first else x
    last = build.reshape(x, x.shape[1:])
    return build.transpose(last, (1, 0, 2)) if batch_first else last


def _start(call: Call, position: int, batch_first: bool) -> Value | None:
    """[1, D, B, H]: a state before the first step."""
    if not call.has(position):
        return None
    build, x = call.build, call.operand(position)
    if batch_first:
        x = build.packed(build.transpose(x, (1, 0, 2)))
    return _copied(build, build.at_rank(x, 4))


def _optional(call: Call, position: int) -> Value | None:
    if not call.has(position):
        return None
    return _copied(call.build, call.build.at_rank(call.operand(position), 4))


def _lengths(call: Call, times: int) -> Value | None:
    """[1, 1, 1, B]: the lengths of sequences, unless all are whole."""
    if not call.has(4):
        return None
    known = call.known(4)
    if known is not None and (known == times).all():
        return None
    wrong = f"a length of a sequence is out of range; takes 0 to {times}"
    lengths = held(call.build, call.operand(4), 0, times + 1, wrong)
    lengths = call.build.cast(lengths, ep.DataType.UINT32)
    return _copied(call.build, call.build.at_rank(lengths, 4))


def _copied(build: Builder, x: Value) -> Value:
    """*x*, or a copy of it if it is a constant.

    Constants are DirectML's own (``DML_TENSOR_FLAG_OWNED_BY_DML``), which by their
    documentation the inputs of recurrent operators must not be.
    """
    return x if build.content(x) is None else build.copied(x)


def _activations(call: Call, directions: int) -> tuple[Operator, ...]:
    names = call.attribute("activations") or (
        USUAL_ACTIVATIONS[call.op_type] * directions
    )
    try:
        chosen = named_activations(
            names,
            call.attribute("activation_alpha", ()),
            call.attribute("activation_beta", ()),
        )
    except ValueError as error:
        raise Refused(ep.RefusalCode.ATTRIBUTE, str(error)) from error
    return tuple(_activation(call.build, *each) for each in chosen)


def _activation(
    build: Builder, name: str, alpha: float | None, beta: float | None
) -> Operator:
    fields: dict[str, Any] = {}
    if alpha is not None:
        fields["Alpha"] = alpha
    if beta is not None:
        fields["Beta"] = beta
    if name == "softplus":
        fields["Steepness"] = 1.0
    return build.operator(_ACTIVATIONS[name], **fields)
