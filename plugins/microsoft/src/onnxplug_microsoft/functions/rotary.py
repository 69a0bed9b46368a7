"""Rotary position embedding."""

from __future__ import annotations

from onnxplug_microsoft.functions.body import Body, NoFunction
from onnxplug_microsoft.functions.makers import operator


@operator("RotaryEmbedding", since=11)
def _rotary_embedding(
    body: Body,
    input: str,
    position_ids: str,
    cos_cache: str,
    sin_cache: str,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> str:
    """Of [B, S, N·H] or [B, N, S, H]."""
    if is_packed_batching:
        raise NoFunction("its attribute 'is_packed_batching' is set")
    if scale != 1:
        raise NoFunction(f"its attribute 'scale' is {scale}; expected 1")
    rank = body.rank(input)
    if rank not in (3, 4):
        raise NoFunction(f"its input 'input' has rank {rank}; expected 3 or 4")
    if rotary_embedding_dim and not num_heads and rank == 3:
        raise NoFunction(
            "its attribute 'rotary_embedding_dim' is set and 'num_heads' is not"
        )
    positions = position_ids
    if body.rank(position_ids) == 1:  # where the sequences begin
        length = body.size(input, 1 if rank == 3 else 2)
        counted = body.op("Add", body.count(length), position_ids)
        positions = body.unsqueeze(counted, 0)
    half = body.known_size(cos_cache, 1)
    rotated = rotary_embedding_dim or (None if half is None else 2 * half)
    if rotated is None:
        raise NoFunction("the shape of its input 'cos_cache' is unknown")
    heads = input
    if rank == 3:
        heads = body.reshape(
            input, 0, 0, *((num_heads, -1) if num_heads else (-1, rotated))
        )
    axis = 2 if rank == 3 else 1
    y = rotate(
        body,
        heads,
        tuple(
            body.unsqueeze(body.op("Gather", cache, positions, axis=0), axis)
            for cache in (cos_cache, sin_cache)
        ),
        rotated,
        bool(interleaved),
        whole=not rotary_embedding_dim,
    )
    return y if rank == 4 else body.reshape(y, 0, 0, -1)


def rotate(
    body: Body,
    x: str,
    angles: tuple[str, ...],
    rotated: int,
    interleaved: bool,
    *,
    whole: bool,
) -> str:
    """Pairs of elements of the last axis, rotated.

    J. Su et al., "RoFormer" (2021).

    Args:
        x: rank 4.
        angles: cosines and sines that broadcast to half of what is rotated.
        rotated: how many elements are; a pair is an element of their first half and one
            of the second, or neighbours if *interleaved*.
        whole: no element is left as it is.
    """
    cos, sin = angles
    rest = None
    if not whole:
        x, rest = body.slice(x, 0, rotated, 3), body.slice(x, rotated, 1 << 62, 3)
    half = rotated // 2
    if interleaved:
        pairs = body.reshape(x, 0, 0, 0, half, 2)
        first, second = (body.squeeze(part, 4) for part in body.split(pairs, 2, 4))
    else:
        first, second = body.split(x, 2, 3, (half, half))
    real = body.op("Sub", body.op("Mul", first, cos), body.op("Mul", second, sin))
    imaginary = body.op("Add", body.op("Mul", second, cos), body.op("Mul", first, sin))
    if interleaved:
        parts = (body.unsqueeze(part, 4) for part in (real, imaginary))
        y = body.reshape(body.op("Concat", *parts, axis=4), 0, 0, 0, -1)
    else:
        y = body.op("Concat", real, imaginary, axis=3)
    return y if rest is None else body.op("Concat", y, rest, axis=3)
