"""Rotary embedding of positions."""

from __future__ import annotations

from onnxplug import ep
from onnxplug_directml.lowering.builder import Builder, Refused, Value
from onnxplug_directml.lowering.call import FLOATS, Call, lowers
from onnxplug_directml.lowering.operators.gathering import gathered, indices_of
from onnxplug_directml.lowering.operators.pieces import between, joined


@lowers("RotaryEmbedding")
def _rotary_embedding(call: Call) -> Value:
    """Pairs of elements rotated: the halves of each head, or neighbours in it."""
    call.require_type(0, *FLOATS)
    build, x = call.build, call.operand(0)
    heads = call.attribute("num_heads", 0)
    if x.rank == 4:
        batch, _, length, size = x.shape
    elif heads:
        batch, length, width = x.shape
        size = width // heads
    else:
        raise call.refuse_attribute("num_heads", "the number of heads in 3 dimensions")
    # heads lie before positions or behind them, and the caches have none
    shape = x.shape if x.rank == 4 else (batch, length, heads, size)
    x = build.reshape(x, shape)
    half = (call.attribute("rotary_embedding_dim", 0) or size) // 2
    aligned = (batch, 1, length, half) if len(call.shape(0)) == 4 else (
        batch, length, 1, half
    )  # fmt: skip
    cos, sin = (
        build.reshape(_angles(call, position, half), aligned) for position in (1, 2)
    )
    interleaved = bool(call.attribute("interleaved", 0))
    found = rotate(build, x, (cos, sin), interleaved=interleaved)
    return build.reshape(found, call.output_shape())


def rotate(
    build: Builder, x: Value, angles: tuple[Value, Value], *, interleaved: bool
) -> Value:
    """The pairs at the start of heads [..., size], rotated; what is behind them stays.

    Args:
        angles: their cosines and sines [..., pairs], which broadcast to the heads.
        interleaved: pairs lie side by side, and not in the two halves of that part.
    """
    *_, size = x.shape
    half = angles[0].shape[3]
    turned = between(build, x, 3, 0, 2 * half)
    if interleaved:
        found = _neighbours(build, turned, *angles)
    else:
        real, imaginary = (between(build, turned, 3, at, at + half) for at in (0, half))
        found = joined(build, _rotated(build, real, imaginary, *angles), 3)
    if 2 * half < size:
        found = joined(build, (found, between(build, x, 3, 2 * half, size)), 3)
    return found


def _angles(call: Call, position: int, half: int) -> Value:
    """[B, S, half]: the part of a cache for the positions."""
    call.require_rank(position, 2 if call.has(3) else 3)
    build, cache = call.build, call.operand(position)
    if call.has(3):
        places = indices_of(call, 3, cache.shape[0])
        rows = gathered(build, cache, 0, places)
        cache = build.reshape(rows, (*places.shape, cache.shape[1]))
    if cache.rank != 3 or cache.shape[2] < half:
        raise Refused(
            ep.RefusalCode.OTHER, f"a cache {list(cache.shape)} for {half} angles"
        )
    return between(build, cache, 2, 0, half)


def _neighbours(build: Builder, x: Value, cos: Value, sin: Value) -> Value:
    """Pairs that lie side by side, rotated."""
    *front, size = x.shape
    pairs = build.reshape(x, (*front, size // 2, 2))
    real, imaginary = (
        build.reshape(between(build, pairs, 4, at, at + 1), (*front, size // 2))
        for at in (0, 1)
    )
    turned = [
        build.reshape(each, (*each.shape, 1))
        for each in _rotated(build, real, imaginary, cos, sin)
    ]
    return build.reshape(joined(build, turned, 4), x.shape)


def _rotated(
    build: Builder, real: Value, imaginary: Value, cos: Value, sin: Value
) -> tuple[Value, Value]:
    def product(a: Value, b: Value) -> Value:
        return build.binary("ELEMENT_WISE_MULTIPLY", a, b)

    return (
        build.binary(
            "ELEMENT_WISE_SUBTRACT", product(real, cos), product(imaginary, sin)
        ),
        build.binary("ELEMENT_WISE_ADD", product(real, sin), product(imaginary, cos)),
    )
