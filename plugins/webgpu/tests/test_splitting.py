"""Arrays that are larger than what a kernel binds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug_compiler.gpu.execution.splitting import Part, _pieces
from onnxplug_webgpu.device import Device

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(4)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def test_chains_and_copies_are_split(device: Device, alone: Any, parse: Any) -> None:
    """Also where arrays are broadcast, transposed, reversed, or share words."""
    device.largest = 4096
    session = alone(
        parse(
            "a = Add(x, row) b = Mul(a, column) t = Transpose<perm = [1, 0]>(b) "
            "y = Neg(t) g = Greater(x, row) n = Not(g) "
            "r = Slice(n, first, last, axis, step) i = Cast<to = 7>(r) z = Add(i, one)",
            "float[N, 129] x, float[129] row, float[N, 1] column",
            "float[129, N] y, bool[N, 129] r, int64[N, 129] z",
            weights="int64[1] first = {-1}, int64[1] last = {-1000}, "
            "int64[1] axis = {1}, int64[1] step = {-1}, int64 one = {1}",
        )
    )
    for rows in (3, 61, 200):
        x, row, column = normal(rows, 129), normal(129), normal(rows, 1)
        y, r, z = session.run(None, {"x": x, "row": row, "column": column})
        np.testing.assert_array_equal(y, -((x + row) * column).T)
        turned = ~(x > row)[:, ::-1]
        np.testing.assert_array_equal(r, turned)
        np.testing.assert_array_equal(z, turned.astype(np.int64) + 1)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_what_cannot_be_split_is_for_the_next_ep(
    device: Device, beside: Any, parse: Any
) -> None:
    device.largest = 4096
    model = parse(
        "h = Relu(x) m = MatMul(h, w) y = Neg(m)",
        "float[40, 40] x, float[40, 3] w",
        "float[40, 3] y",
    )
    session = beside(model)
    places = {node.op_type: node.ep for node in session.explain().nodes}
    assert places == {"Relu": EP, "MatMul": "CPUExecutionProvider", "Neg": EP}
    assert "6400 bytes; kernels bind 4096 at most" in str(session.explain())
    x, w = normal(40, 40), normal(40, 3)
    (y,) = session.run(None, {"x": x, "w": w})
    np.testing.assert_allclose(y, -(np.maximum(x, 0) @ w), 1e-4, 1e-5)


def test_parts_of_an_array_are_all_of_it_and_small() -> None:
    shape = (7, 40, 33)
    parts = [
        Part(256, (1320, 33, 1), 4),
        Part(4 * 1319, (0, -33, -1), 4),
        Part(0, (40, 1, 280), 1),
    ]
    seen = np.zeros(shape, int)
    positions = np.arange(seen.size).reshape(shape)
    for sizes, found in _pieces(shape, parts, 1000):
        for part in found:
            low, high = part.span(sizes)
            assert low >= 0 and high - low <= 1000
            begin, nbytes = part.window(sizes, 256)
            assert begin % 256 == 0 and begin <= low and begin + nbytes >= high
        first = (found[0].start - 256) // 4
        corner = np.unravel_index(first, shape)
        at = tuple(slice(c, c + n) for c, n in zip(corner, sizes, strict=True))
        seen[at] += 1
        assert positions[at].shape == sizes
    assert (seen == 1).all()


@pytest.mark.slow
def test_arrays_beyond_the_least_limit_of_webgpu(device: Device, parse: Any) -> None:
    size = device.largest // 4 + 1000
    if size * 4 > device.largest_buffer:
        pytest.skip("a kernel binds buffers of any size on this adapter")
    session = onnxplug.InferenceSession(
        parse("h = Add(x, x) y = Neg(h)", "float[N] x", "float[N] y"), providers=[EP]
    )
    x = np.arange(size, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], -2 * x)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


def test_results_that_no_memory_is_for_are_told_of_at_once(
    alone: Any, parse: Any
) -> None:
    """And not when millions of parts are planned."""
    text = "float[N, 1] x, float[1, M] z"
    session = alone(parse("y = Add(x, z)", text, "float[N, M] y"))
    column, row = np.ones((1 << 23, 1), np.float32), np.ones((1, 1 << 23), np.float32)
    with pytest.raises(onnxplug.errors.OutOfMemory, match="Add giving 'y'"):
        session.run(None, {"x": column, "z": row})
    (found,) = session.run(None, {"x": column[:3], "z": row[:, :4]})
    np.testing.assert_array_equal(found, np.full((3, 4), 2, np.float32))
