"""Decoders and filters that are loops: a step of a recurrent cell in each turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx.numpy_helper
import onnx.parser

from .graph import Array, Case

_WORDS, _HIDDEN, _BEAMS = 512, 256, 4

_CELL = """
    e = Gather (embeddings, token)
    zx = MatMul (e, wz) zh = MatMul (h, uz) zs = Add (zx, zh) z = Sigmoid (zs)
    nx = MatMul (e, wn) nh = MatMul (h, un) ns = Add (nx, nh) n = Tanh (ns)
    change = Sub (n, h) part = Mul (z, change) h2 = Add (h, part)
    scores = MatMul (h2, out)
"""
"""A cell with one gate, and scores of words."""


def _case(text: str, feeds: dict[str, Array], hidden: int = _HIDDEN) -> Case:
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> decoder {text}'
    )
    numbers = np.random.default_rng(0)
    for name, *shape in (
        ("embeddings", _WORDS, hidden),
        *[(name, hidden, hidden) for name in ("wz", "uz", "wn", "un")],
        ("out", hidden, _WORDS),
    ):
        weights = numbers.standard_normal(shape).astype(np.float32)
        weights /= np.float32(hidden**0.5)
        model.graph.initializer.append(onnx.numpy_helper.from_array(weights, name))
    return Case(model, feeds)


def _state(rows: int) -> Array:
    numbers = np.random.default_rng(1)
    return numbers.standard_normal((rows, _HIDDEN)).astype(np.float32)


def greedy() -> Case:
    """The likeliest word after the one before, until the last one or 64."""
    return _case(
        f"""(float[1, {_HIDDEN}] state, int64[1] begin, int64 most)
        => (words, last) <int64 end = {{-1}}>
        {{
            first, last, words = Loop (most, , begin, state) <body = step
                (int64 i, bool before, int64[1] token, float[1, {_HIDDEN}] h)
                => (bool after, int64[1] next, float[1, {_HIDDEN}] h2, int64[1] word)
                {{
                    {_CELL}
                    next = ArgMax <axis = 1, keepdims = 0> (scores)
                    word = Identity (next)
                    ends = Equal (next, end)
                    is_end = Squeeze (ends)
                    after = Not (is_end)
                }}>
        }}""",
        {"state": _state(1), "begin": np.array([1]), "most": np.array(64)},
    )


def growing() -> Case:
    """The same, with a list of words that grows in each turn."""
    return _case(
        f"""(float[1, {_HIDDEN}] state, int64[1] begin, int64 most)
        => (words, last) <int64[1] end = {{-1}}, int64[1] big = {{9223372036854775807}}>
        {{
            words, last = Loop (most, , begin, state) <body = step
                (int64 i, bool before, int64[k] list, float[1, {_HIDDEN}] h)
                => (bool after, int64[k2] longer, float[1, {_HIDDEN}] h2)
                {{
                    token = Slice (list, end, big)
                    {_CELL}
                    next = ArgMax <axis = 1, keepdims = 0> (scores)
                    longer = Concat <axis = 0> (list, next)
                    ends = Equal (next, end)
                    is_end = Squeeze (ends)
                    after = Not (is_end)
                }}>
        }}""",
        {"state": _state(1), "begin": np.array([1]), "most": np.array(64)},
    )


def beam() -> Case:
    """The four likeliest sequences of 64 words."""
    return _case(
        f"""(float[{_BEAMS}, {_HIDDEN}] state, int64[{_BEAMS}] begin,
             float[{_BEAMS}, 1] zero) => (tokens, origins, sums)
        <int64 most = {{64}}, int64 words = {{{_WORDS}}}, int64[1] beams = {{{_BEAMS}}},
         int64[1] flat = {{-1}}, int64[2] column = {{{_BEAMS}, 1}}>
        {{
            t, s, sums, tokens, origins = Loop (most, , begin, state, zero) <body = step
                (int64 i, bool before, int64[{_BEAMS}] token,
                 float[{_BEAMS}, {_HIDDEN}] h, float[{_BEAMS}, 1] sum)
                => (bool after, int64[{_BEAMS}] next, float[{_BEAMS}, {_HIDDEN}] kept,
                    float[{_BEAMS}, 1] best, int64[{_BEAMS}] word,
                    int64[{_BEAMS}] origin)
                {{
                    {_CELL}
                    likely = LogSoftmax <axis = 1> (scores)
                    all = Add (likely, sum)
                    row = Reshape (all, flat)
                    top, places = TopK (row, beams)
                    best = Reshape (top, column)
                    origin = Div (places, words)
                    next = Mod (places, words)
                    word = Identity (next)
                    kept = Gather (h2, origin)
                    after = Identity (before)
                }}>
        }}""",
        {
            "state": _state(_BEAMS),
            "begin": np.arange(_BEAMS),
            "zero": np.zeros((_BEAMS, 1), np.float32),
        },
    )


def smoothing() -> Case:
    """A gate that follows 200 frames of 40 bands, backwards, by a ``Scan``."""
    text = """(float[200, 40] frames, float[40] before, float[40] slow)
        => (last, smooth)
        {
            last, smooth = Scan <
                num_scan_inputs = 1, scan_input_directions = [1],
                scan_output_directions = [1],
                body = step (float[40] s, float[40] x) => (float[40] t, float[40] y)
                {
                    d = Sub (x, s) weight = Sigmoid (slow) part = Mul (d, weight)
                    t = Add (s, part) y = Sub (x, t)
                }
            > (before, frames)
        }"""
    model = onnx.parser.parse_model(
        f'<ir_version: 9, opset_import: ["" : 17]> filter {text}'
    )
    numbers = np.random.default_rng(2)
    return Case(
        model,
        {
            "frames": numbers.standard_normal((200, 40)).astype(np.float32),
            "before": np.zeros(40, np.float32),
            "slow": numbers.standard_normal(40).astype(np.float32),
        },
    )


LOOPS: Mapping[str, Callable[[], Case]] = {
    "greedy": greedy,
    "greedy-growing": growing,
    "beam": beam,
    "smoothing": smoothing,
}
"""Models by name."""
