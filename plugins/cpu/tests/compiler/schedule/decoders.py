"""A decoder whose cache grows, and what it is fed."""

from __future__ import annotations

from typing import Any

from ..lowered import graph, random

LAYERS = 3


def decoder(layers: int = LAYERS) -> str:
    """A decoder of 2 heads of 4, whose cache grows; its mask and its places follow from
    lengths."""
    inputs, outputs, body = "float[B, S, 8] x, float[96, 8] table", "", ""
    body += (
        "shape = Shape (x) length = Gather <axis = 0> (shape, one) "
        "before = Shape (k0) past = Gather <axis = 0> (before, two) "
        "whole = Add (past, length) "
        "columns = Range (zero, whole, one0) rows = Range (past, whole, one0) "
        "standing = Unsqueeze (rows, ones) seen = LessOrEqual (columns, standing) "
        "mask = Where (seen, none, lowest) "
        "batch = Gather <axis = 0> (shape, zero) "
        "b = Unsqueeze (batch, zeros) s = Unsqueeze (length, zeros) "
        "apart = Concat <axis = 0> (b, s, heads) "
        "flat = Concat <axis = 0> (b, s, eight) "
        "first = Unsqueeze (past, zeros) last = Unsqueeze (whole, zeros) "
        "places = Slice (table, first, last, zeros) x0 = Add (x, places) "
    )
    for n in range(layers):
        inputs += f", float[B, 2, P, 4] k{n}, float[B, 2, P, 4] v{n}"
        outputs += f", float[B, 2, T, 4] kk{n}, float[B, 2, T, 4] vv{n}"
        for part in "qkv":
            body += (
                f"{part}m{n} = MatMul (x{n}, w) {part}a{n} = Add ({part}m{n}, bias) "
                f"{part}r{n} = Reshape ({part}a{n}, apart) "
                f"{part}t{n} = Transpose <perm = [0, 2, 1, 3]> ({part}r{n}) "
            )
        body += (
            f"kk{n} = Concat <axis = 2> (k{n}, kt{n}) "
            f"vv{n} = Concat <axis = 2> (v{n}, vt{n}) "
            f"kx{n} = Transpose <perm = [0, 1, 3, 2]> (kk{n}) "
            f"sc{n} = MatMul (qt{n}, kx{n}) sm{n} = Mul (sc{n}, half) "
            f"sa{n} = Add (sm{n}, mask) p{n} = Softmax <axis = -1> (sa{n}) "
            f"o{n} = MatMul (p{n}, vv{n}) "
            f"ot{n} = Transpose <perm = [0, 2, 1, 3]> (o{n}) "
            f"of{n} = Reshape (ot{n}, flat) om{n} = MatMul (of{n}, w) "
            f"y{n} = Add (om{n}, x{n}) "
            f"x{n + 1} = LayerNormalization <axis = -1> (y{n}, scale, bias) "
        )
    weights = ", ".join(f"{0.1 * (i % 7 - 3):.1f}" for i in range(64))
    row = ", ".join(f"{0.1 * i:.1f}" for i in range(8))
    return graph(
        inputs,
        f"float[B, S, 8] x{layers}{outputs}",
        body,
        f"float[8, 8] w = {{{weights}}}, float[8] bias = {{{row}}}, "
        f"float[8] scale = {{{row}}}, float half = {{0.5}}, float none = {{0}}, "
        "float lowest = {-1e30}, int64 zero = {0}, int64 one = {1}, int64 two = {2}, "
        "int64 one0 = {1}, int64[1] zeros = {0}, int64[1] ones = {1}, "
        "int64[2] heads = {2, 4}, int64[1] eight = {8}",
    )


def feeds(batch: int, length: int, past: int, layers: int = LAYERS) -> list[Any]:
    shapes = [(batch, length, 8), (96, 8)] + [(batch, 2, past, 4)] * (2 * layers)
    return random(*shapes, seed=past)
