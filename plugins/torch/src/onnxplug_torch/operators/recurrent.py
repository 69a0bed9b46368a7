"""Recurrent layers, where they are those of torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.dtypes import FLOATS, POSITIONS
from onnxplug_torch.operators import onednn
from onnxplug_torch.operators.onednn import LstmLayers
from onnxplug_torch.operators.registry import operator

_LENGTHS = {4: POSITIONS}
_DEFAULTS = {
    "LSTM": [["sigmoid", "tanh", "tanh"]],
    "GRU": [["sigmoid", "tanh"]],
    "RNN": [["tanh"], ["relu"]],
}


def _refusal(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """What torch's layers have not."""
    read = node.attributes.get
    found = [str(each).lower() for each in read("activations", ())]
    known = _DEFAULTS[node.op_type]
    directions = 2 if read("direction") == "bidirectional" else 1
    if found and found not in [each * directions for each in known]:
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, f"activations {', '.join(found)}")
    if read("clip") is not None:
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "clip")
    if read("input_forget", 0):
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "input_forget")
    if node.op_type == "GRU" and not read("linear_before_reset", 0):
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, "linear_before_reset is 0")
    named = dict(enumerate(node.inputs))
    for position, what in ((4, "sequence_lens"), (7, "peepholes")):
        if named.get(position):
            return ep.Reason(ep.RefusalCode.OTHER, f"{what} are given")
    return None


def _reordered(torch: Any, x: Any, order: Sequence[int]) -> Any:
    """The gates of *x* [directions, gates · hidden, …] in torch's *order*."""
    parts = x.unflatten(1, (len(order), -1))
    return torch.cat([parts[:, gate] for gate in order], 1)


class Weights:
    """What torch's layers take, of constants in ONNX's order of gates.

    Attributes:
        form: tensors, or the layers that keep them otherwise once there are such.
        shape: of the weights of the input, as ONNX has them.
    """

    __slots__ = ("form", "shape")

    def __init__(self, tensors: list[Any], shape: tuple[int, ...]) -> None:
        self.form: list[Any] | LstmLayers = tensors
        self.shape = shape

    def __str__(self) -> str:
        return f"weights{list(self.shape)}"

    def lstm(self, torch: Any, x: Any) -> LstmLayers | None:
        """Layers that keep them as they are read; ``None``: torch has none for *x*."""
        form = self.form  # read once, as runs overlap
        if isinstance(form, list):
            if not onednn.computes(torch, x):
                return None
            form = self.form = LstmLayers(torch, x, form, self.shape[0])
        return form


def _weights(
    torch: Any, order: Sequence[int], w: Any, r: Any, b: Any | None
) -> list[Any]:
    """Of each direction those of the input and the state, and their biases."""
    parts = [w, r]
    if b is not None:
        half = b.shape[1] // 2
        parts += [b[:, :half], b[:, half:]]
    ordered = [_reordered(torch, part, order) for part in parts]
    return [part[n] for n in range(w.shape[0]) for part in ordered]


def _check_shape(what: str, given: Any | None, wanted: tuple[int, ...]) -> None:
    """Refuse what is not as large as torch's layers take for granted and read."""
    if given is not None and tuple(given.shape) != wanted:
        raise ValueError(f"{what} has shape {tuple(given.shape)}; expected {wanted}")


def _preparing(order: Sequence[int]) -> Callable[..., Weights]:
    def prepare(torch: Any, w: Any, r: Any, b: Any | None = None) -> Weights:
        return Weights(_weights(torch, order, w, r, b), tuple(w.shape))

    return prepare


# ONNX has input, output, forget and cell; torch input, forget, cell and output
_LSTM = (0, 2, 3, 1)
# ONNX has update, reset and hidden; torch reset, update and hidden
_GRU = (1, 0, 2)
_RNN = (0,)


def _run(
    torch: Any,
    function: Any,
    order: Sequence[int],
    x: Any,
    w: Any,
    r: Any,
    b: Any | None,
    states: Sequence[Any | None],
    direction: str,
    layout: int,
    hidden_size: int | None,
) -> tuple[Any, ...]:
    if layout:
        x = x.transpose(0, 1)
        states = [None if each is None else each.transpose(0, 1) for each in states]
    if direction == "reverse":
        x = torch.flip(x, (0,))
    count, hidden = 2 if direction == "bidirectional" else 1, r.shape[-1]
    batch = x.shape[1]
    if hidden_size not in (None, hidden):
        raise ValueError(f"hidden_size is {hidden_size}; the weights have {hidden}")
    steps = len(order) * hidden
    _check_shape("W", w, (count, steps, x.shape[2]))
    _check_shape("R", r, (count, steps, hidden))
    _check_shape("B", b, (count, 2 * steps))
    for state in states:
        _check_shape("a state", state, (count, batch, hidden))
    x = x.contiguous()
    begin = [
        x.new_zeros((count, batch, hidden)) if each is None else each.contiguous()
        for each in states
    ]
    layers = w.lstm(torch, x) if isinstance(w, Weights) and order is _LSTM else None
    if layers is not None:
        y, *ends = layers(x, begin)
    else:
        y, *ends = function(
            x,
            begin if len(begin) > 1 else begin[0],
            w.form if isinstance(w, Weights) else _weights(torch, order, w, r, b),
            b is not None,
            1,
            0.0,
            False,
            count == 2,
            False,
        )
    if direction == "reverse":
        y = torch.flip(y, (0,))
    y = y.unflatten(2, (count, hidden)).transpose(1, 2)
    if layout:
        return (y.permute(2, 0, 1, 3), *(each.transpose(0, 1) for each in ends))
    return (y, *ends)


@operator(
    "LSTM",
    since=7,
    types=FLOATS - {DataType.FLOAT16},
    other=_LENGTHS,
    check=_refusal,
    prepare=_preparing(_LSTM),
    traced=False,
)
def lstm(
    torch: Any, x: Any, w: Any, r: Any, b: Any | None = None,
    lengths: Any | None = None, initial_h: Any | None = None,
    initial_c: Any | None = None, p: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> Any:  # fmt: skip
    states = (initial_h, initial_c)
    return _run(
        torch, torch.lstm, _LSTM, x, w, r, b, states, direction, layout, hidden_size
    )


@operator(
    "GRU",
    since=7,
    types=FLOATS - {DataType.FLOAT16},
    other=_LENGTHS,
    check=_refusal,
    prepare=_preparing(_GRU),
)
def gru(
    torch: Any, x: Any, w: Any, r: Any, b: Any | None = None,
    lengths: Any | None = None, initial_h: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    states = (initial_h,)
    return _run(
        torch, torch.gru, _GRU, x, w, r, b, states, direction, layout, hidden_size
    )


@operator(
    "RNN",
    since=7,
    types=FLOATS - {DataType.FLOAT16},
    other=_LENGTHS,
    check=_refusal,
    prepare=_preparing(_RNN),
)
def rnn(
    torch: Any, x: Any, w: Any, r: Any, b: Any | None = None,
    lengths: Any | None = None, initial_h: Any | None = None,
    *,
    activation_alpha: Sequence[float] = (),
    activation_beta: Sequence[float] = (),
    activations: Sequence[str] = (),
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> Any:  # fmt: skip
    rectified = bool(activations) and activations[0].lower() == "relu"
    function = torch.rnn_relu if rectified else torch.rnn_tanh
    states = (initial_h,)
    return _run(
        torch, function, _RNN, x, w, r, b, states, direction, layout, hidden_size
    )
