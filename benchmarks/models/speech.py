"""Models of speech, voice and text with recurrent layers, and what is before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx

from .graph import Case, Exporter, Graph

_GATES: Mapping[str, int] = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _recurrent(
    g: Graph,
    value: str,
    name: str,
    kind: str,
    sizes: tuple[int, int],
    *,
    both: bool = False,
    states: tuple[str, ...] = (),
) -> tuple[str, list[str]]:
    """``torch.nn.LSTM`` and the like, one layer of it, as exporters write it.

    Args:
        value: ``[time, batch, features]``.
        sizes: features and hidden size.
        both: in both directions.
        states: before the first step; zeros are if there are none.

    Returns:
        ``[time, batch, hidden]``, twice as wide of both directions, and the states
        after the last step.
    """
    features, hidden = sizes
    directions, rows = 1 + both, _GATES[kind] * hidden
    scale = hidden**-0.5
    given = {"linear_before_reset": 1} if kind == "GRU" else {}
    outputs = g.add_many(
        kind,
        3 if kind == "LSTM" else 2,
        value,
        g.weight(f"{name}.w", directions, rows, features, scale=scale),
        g.weight(f"{name}.r", directions, rows, hidden, scale=scale),
        g.weight(f"{name}.b", directions, 2 * rows),
        "",
        *states,
        hidden_size=hidden,
        direction="bidirectional" if both else "forward",
        **given,
    )
    if both:
        value = g.transpose(outputs[0], 0, 2, 1, 3)
        value = g.add("Reshape", value, g.integers(0, 0, -1))
    else:
        value = g.add("Squeeze", outputs[0], g.integers(1))
    return value, outputs[1:]


def acoustic(kind: str, frames: int, *, hidden: int = 256, layers: int = 2) -> Case:
    """Scores of 40 phones for each frame of 80 bands; with one frame it is a step of a
    stream, whose states come in and go out."""
    g = Graph(Exporter.TORCHSCRIPT)
    feeds = {"x": g.random.standard_normal((1, frames, 80), np.float32)}
    names = ["h", "c"] if kind == "LSTM" else ["h"]
    stream = frames == 1
    value = g.linear("x", "into", 80, hidden)
    value = g.transpose(g.add("Relu", value), 1, 0, 2)
    found: list[str] = []
    for layer in range(layers):
        states = tuple(f"{name}{layer}" for name in names) if stream else ()
        for state in states:
            feeds[state] = g.random.standard_normal((1, 1, hidden), np.float32)
        value, after = _recurrent(
            g, value, f"{layer}", kind, (hidden, hidden), states=states
        )
        found += after if stream else []
    value = g.linear(g.transpose(value, 1, 0, 2), "out", hidden, 40)
    value = g.add("LogSoftmax", value, axis=2)
    return g.finish("acoustic", feeds, [value, *found])


def denoiser(frames: int) -> Case:
    """A mask of 161 bins for each frame, by two layers of GRUs between linear ones, of
    the kind of NSNet2; with one frame it is a step of a stream."""
    g = Graph(Exporter.TORCHSCRIPT)
    feeds = {"x": g.random.standard_normal((1, frames, 161), np.float32)}
    stream = frames == 1
    value = g.transpose(g.linear("x", "into", 161, 400), 1, 0, 2)
    found: list[str] = []
    for layer in range(2):
        states = (f"h{layer}",) if stream else ()
        for state in states:
            feeds[state] = g.random.standard_normal((1, 1, 400), np.float32)
        value, after = _recurrent(
            g, value, f"{layer}", "GRU", (400, 400), states=states
        )
        found += after if stream else []
    value = g.transpose(value, 1, 0, 2)
    value = g.add("Relu", g.linear(value, "a", 400, 600))
    value = g.add("Relu", g.linear(value, "b", 600, 600))
    value = g.add("Sigmoid", g.linear(value, "out", 600, 161))
    return g.finish("denoiser", feeds, [value, *found])


def marks(length: int = 60, hidden: int = 128) -> Case:
    """Marks for each of *length* characters: an embedding, two layers of LSTMs in both
    directions, and a classifier."""
    g = Graph(Exporter.TORCHSCRIPT)
    feeds = {"ids": g.random.integers(0, 64, (1, length))}
    value = g.add("Gather", g.weight("embedding", 64, hidden, scale=1), "ids")
    value = g.transpose(value, 1, 0, 2)
    value, _ = _recurrent(g, value, "0", "LSTM", (hidden, hidden), both=True)
    value, _ = _recurrent(g, value, "1", "LSTM", (2 * hidden, hidden), both=True)
    value = g.linear(g.transpose(value, 1, 0, 2), "out", 2 * hidden, 15)
    return g.finish("marks", feeds, [g.add("Softmax", value, axis=2)])


def line_of_text(width: int = 160) -> Case:
    """Scores of characters along a line of text, for CTC: convolutions, and a layer of
    LSTMs in both directions."""
    g = Graph(Exporter.TORCHSCRIPT)
    feeds = {"x": g.random.standard_normal((1, 1, 32, width), np.float32)}
    value, channels = "x", 1
    for number, (out, strides) in enumerate(((32, 2), (64, 2), (128, 1), (128, 1))):
        weight = g.weight(f"{number}.w", out, channels, 3, 3, scale=channels**-0.5 / 3)
        value = g.add(
            "Conv", value, weight, g.weight(f"{number}.b", out),
            kernel_shape=[3, 3], pads=[1, 1, 1, 1],
        )  # fmt: skip
        value = g.add("Relu", value)
        pool = [2, strides]
        value = g.add("MaxPool", value, kernel_shape=pool, strides=pool)
        channels = out
    value = g.add("Reshape", value, g.integers(1, 256, width // 4))
    value, _ = _recurrent(
        g, g.transpose(value, 2, 0, 1), "lstm", "LSTM", (256, 128), both=True
    )
    value = g.linear(value, "out", 256, 100)
    return g.finish("line", feeds, [g.add("LogSoftmax", value, axis=2)])


def _voice(rate: int, samples: int) -> onnx.GraphProto:
    """The probability of a voice in *samples*, and the state after them."""
    g = Graph(Exporter.TORCHSCRIPT, rate, f"of_{rate}_")
    size = samples // 9 * 4
    bins, border = size // 2 + 1, g.integers(0, 0, 0, size // 4)
    value = g.add("Pad", "x", border, mode="reflect")
    value = g.add("Unsqueeze", value, g.integers(1))
    basis = g.weight("basis", 2 * bins, 1, size, scale=size**-0.5)
    value = g.add("Conv", value, basis, strides=[size // 2], kernel_shape=[size])
    real, imaginary = (
        g.add("Slice", value, g.integers(start), g.integers(end), g.integers(1))
        for start, end in ((0, bins), (bins, 2 * bins))
    )
    squares = (g.add("Pow", part, g.scalar(2)) for part in (real, imaginary))
    value, channels = g.add("Sqrt", g.add("Add", *squares)), bins
    for number, (out, stride) in enumerate(((128, 1), (64, 2), (64, 2), (128, 1))):
        weight = g.weight(f"{number}.w", out, channels, 3, scale=channels**-0.5)
        value = g.add(
            "Conv", value, weight, g.weight(f"{number}.b", out),
            kernel_shape=[3], strides=[stride], pads=[1, 1],
        )  # fmt: skip
        value, channels = g.add("Relu", value), out
    value = g.transpose(value, 2, 0, 1)
    states = tuple(
        g.add("Slice", "state", g.integers(n), g.integers(n + 1), g.integers(0))
        for n in range(2)
    )
    value, after = _recurrent(g, value, "lstm", "LSTM", (128, 128), states=states)
    value = g.add("Relu", g.transpose(value, 1, 2, 0))
    weight = g.weight("out.w", 1, 128, 1, scale=0.1)
    value = g.add("Conv", value, weight, g.weight("out.b", 1), kernel_shape=[1])
    value = g.add("ReduceMean", g.add("Sigmoid", value), axes=[2], keepdims=0)
    return g.body(f"rate {rate}", [value, g.add("Concat", *after, axis=0)])


def voice(rate: int = 16000) -> Case:
    """Whether somebody speaks, in 32 ms after 4 that are known, of the kind of
    Silero's detector: an ``If`` chooses a network for the rate, and the state goes in
    and out."""
    g = Graph(Exporter.TORCHSCRIPT)
    samples = rate * 36 // 1000
    feeds = {
        "x": g.random.standard_normal((1, samples), np.float32) * np.float32(0.1),
        "state": np.zeros((2, 1, 128), np.float32),
        "rate": np.array(rate),
    }
    wide = g.add("Equal", "rate", g.constant(np.int64(16000)))
    outputs = g.add_many(
        "If", 2, wide, then_branch=_voice(16000, 576), else_branch=_voice(8000, 288)
    )
    return g.finish("voice", feeds, outputs)


def bands(seconds: int = 5, rate: int = 16000) -> Case:
    """The logarithm of the energy in 80 bands, of frames of 25 ms every 10 ms."""
    g = Graph(Exporter.DYNAMO)
    feeds = {"x": g.random.standard_normal((1, seconds * rate), np.float32)}
    size, bins = rate // 40, rate // 80 + 1
    window = np.hanning(size + 1)[:-1].astype(np.float32)
    scalar = g.constant(np.int64(rate // 100))
    value = g.add("STFT", "x", scalar, g.constant(window), onesided=1)
    value = g.add("ReduceSumSquare", value, g.integers(-1), keepdims=0)
    matrix = np.maximum(g.random.standard_normal((bins, 80), np.float32), 0)
    value = g.add("MatMul", value, g.constant(matrix))
    value = g.add("Log", g.add("Add", value, g.scalar(1e-6)))
    return g.finish("bands", feeds, [g.transpose(value, 0, 2, 1)])


SPEECH: Mapping[str, Callable[[], Case]] = {
    "lstm": lambda: acoustic("LSTM", 200),
    "lstm-step": lambda: acoustic("LSTM", 1),
    "gru": lambda: acoustic("GRU", 200),
    "gru-step": lambda: acoustic("GRU", 1),
    "rnn": lambda: acoustic("RNN", 200),
    "denoiser": lambda: denoiser(100),
    "denoiser-step": lambda: denoiser(1),
    "marks": marks,
    "line-of-text": line_of_text,
    "voice": voice,
    "voice-8k": lambda: voice(8000),
    "bands": bands,
}
"""Models by name: a frame is 10 ms; a step is one frame."""
