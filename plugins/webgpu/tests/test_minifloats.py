"""Floats of 8 and 4 bits against those of ml_dtypes, bit by bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from .test_elements import model_of

FLOATS = [
    np.dtype(getattr(ml_dtypes, f"float{name}"))
    for name in ("8_e4m3fn", "8_e5m2", "8_e4m3fnuz", "8_e5m2fnuz", "4_e2m1fn")
]
POWERS = np.dtype(ml_dtypes.float8_e8m0fnu)


def codes(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """All of a format, as float32."""
    count = 16 if dtype.name == "float4_e2m1fn" else 256
    return np.arange(count, dtype=np.uint8).view(dtype)


def hard(dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """All its numbers, the middles between two, what is next to these, and what is
    beyond all."""
    numbers = codes(dtype).astype(np.float32)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    ends = np.outer(np.abs(numbers).max() * np.array([-1, 1]), [1.04, 1.0625, 1.3, 9])
    found = np.concatenate([numbers, middles, ends.reshape(-1).astype(np.float32)])
    near = [np.nextafter(found, np.float32(end)) for end in (-np.inf, np.inf)]
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 1e-30, 3e38], np.float32)
    found = np.concatenate([found, *near, special])
    # devices may take subnormal numbers of float32 for 0
    return found[~(np.abs(found) < np.finfo(np.float32).tiny) | (found == 0)]


def narrowed(x: Any, dtype: np.dtype[Any], *, saturates: bool) -> np.ndarray[Any, Any]:
    """By ml_dtypes; what ONNX has of saturation and of no number before it."""
    if dtype.name == "float4_e2m1fn":
        return np.where(np.isnan(x), np.float32(-0.0), x).astype(dtype)
    if saturates:
        limits = ml_dtypes.finfo(dtype)
        x = np.clip(x, np.float32(limits.min), np.float32(limits.max))
    return np.asarray(x.astype(dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_minifloats_are_rounded_to_nearest_even(alone: Any, dtype: Any) -> None:
    x = hard(dtype)
    with np.errstate(all="ignore"):
        half = x.astype(np.float16)
    whole = np.array([-500, -17, 0, 1, 3, 9, 100, 449, 60000], np.int32)
    to = helper.np_dtype_to_tensor_dtype(dtype)
    saturate: list[dict[str, int]] = [{"saturate": 1}, {"saturate": 0}]
    nodes = [
        helper.make_node("Cast", [name], [f"{name}{n}"], to=to, **how)
        for name in "xhi"
        for n, how in enumerate(saturate)
    ]
    nodes.append(helper.make_node("Cast", ["x1"], ["wide"], to=TensorProto.FLOAT))
    nodes.append(helper.make_node("Cast", ["codes"], ["c"], to=TensorProto.FLOAT))
    feeds = {"x": x, "h": half, "i": whole, "codes": codes(dtype)}
    outputs = {f"{name}{n}": dtype for name in "xhi" for n in range(2)}
    outputs |= {"wide": np.dtype(np.float32), "c": np.dtype(np.float32)}
    found = alone(model_of(nodes, feeds, outputs, 23)).run(None, feeds)
    with np.errstate(all="ignore"):
        wanted = [
            narrowed(feeds[name].astype(np.float32), dtype, saturates=not n)
            for name in "xhi"
            for n in range(2)
        ]
        wanted += [wanted[1].astype(np.float32), codes(dtype).astype(np.float32)]
    for result, right in zip(found, wanted, strict=True):
        wide = right.astype(np.float32)
        np.testing.assert_array_equal(result.astype(np.float32), wide)
        number = ~np.isnan(wide)
        bits = f"u{right.itemsize}"
        np.testing.assert_array_equal(
            result.view(bits)[number], right.view(bits)[number]
        )


def test_powers_of_two_are_rounded_as_asked(alone: Any) -> None:
    exponents = np.arange(-126, 128, dtype=np.float32)
    x = np.concatenate(
        [np.exp2(exponents) * np.float32(by) for by in (1, 1.25, 1.5, 1.75)]
    )
    x = np.concatenate([x, -x, np.array([0, np.inf, np.nan, 1e-38], np.float32)])
    modes = {"up": np.ceil, "down": np.floor, "nearest": None}
    to = helper.np_dtype_to_tensor_dtype(POWERS)
    nodes = [
        helper.make_node("Cast", ["x"], [mode], to=to, round_mode=mode, saturate=1)
        for mode in modes
    ]
    nodes.append(helper.make_node("Cast", ["codes"], ["c"], to=TensorProto.FLOAT))
    feeds = {"x": x, "codes": codes(POWERS)[1:]}
    outputs = {**dict.fromkeys(modes, POWERS), "c": np.dtype(np.float32)}
    *found, c = alone(model_of(nodes, feeds, outputs, 25)).run(None, feeds)
    np.testing.assert_array_equal(c, feeds["codes"].astype(np.float32))
    normal = np.isfinite(x) & (np.abs(x) >= np.finfo(np.float32).tiny)
    fraction, exponent = np.frexp(np.abs(x[normal]))
    for mode, result in zip(modes, found, strict=True):
        least = {"up": 0.5, "down": 1.0, "nearest": 0.75}[mode]
        above = fraction > least if mode == "up" else fraction >= least
        wanted = np.minimum(exponent - 1 + above + 127, 254)
        np.testing.assert_array_equal(result.view(np.uint8)[normal], wanted)
        assert result.view(np.uint8)[np.isnan(x)] == 255
        assert result.view(np.uint8)[np.isinf(x)] == 254


@pytest.mark.parametrize("name", ["int4", "uint4", "int2", "uint2"])
def test_floats_become_small_integers_by_rounding(alone: Any, name: str) -> None:
    dtype = np.dtype(getattr(ml_dtypes, name))
    limits = ml_dtypes.iinfo(dtype)
    x = np.arange(int(limits.min) * 4, int(limits.max) * 4 + 1, dtype=np.float32) / 4
    to = helper.np_dtype_to_tensor_dtype(dtype)
    node = helper.make_node("Cast", ["x"], ["y"], to=to)
    (found,) = alone(model_of([node], {"x": x}, {"y": dtype}, 25)).run(None, {"x": x})
    np.testing.assert_array_equal(found.astype(np.int8), np.rint(x).astype(np.int8))


@pytest.mark.parametrize("dtype", FLOATS[:2] + FLOATS[4:], ids=str)
def test_numbers_are_quantized_to_minifloats(alone: Any, dtype: Any) -> None:
    """By axis, and back again."""
    x = np.random.default_rng(3).standard_normal((4, 50)).astype(np.float32) * 9
    scale = np.array([0.1, 0.5, 1, 7], np.float32)
    zero = np.zeros(4, dtype)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0),
    ]
    model = model_of(
        nodes, {"x": x}, {"q": dtype, "y": np.float32}, 23, {"s": scale, "z": zero}
    )
    q, y = alone(model).run(None, {"x": x})
    wanted = narrowed(x / scale[:, None], dtype, saturates=True)
    np.testing.assert_array_equal(q.view(np.uint8), wanted.view(np.uint8))
    np.testing.assert_array_equal(y, wanted.astype(np.float32) * scale[:, None])
