"""Graphs of numbers that are quantised and dequantised, compiled and on arrays, against
float64; see :mod:`.random_quantised`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule import structure

from .differential import refusing_nothing_more, session
from .test_quantization import NODE, Array, model_of

torch = pytest.importorskip("torch", reason="make test-torch has it")
from .random_quantised import QuantisedGraph  # noqa: E402

SAMPLE = 6
ALL = 400


def check(seed: int, *, compiled: bool) -> None:
    case = QuantisedGraph(seed).make(14)
    runner = session(case.model, compiled=compiled, threads=1 + seed % 2)
    for one, value in zip(runner.run(None, case.feeds), case.wanted, strict=True):
        assert one.shape == value.array.shape
        apart = np.abs(one.astype(np.float64) - value.array).max(initial=0)
        assert apart <= value.error, (
            f"seed {seed}: {value.name} is {apart} apart; {value.error} is allowed"
        )


@pytest.mark.parametrize("seed", range(SAMPLE))
def test_compiled_graphs_are_as_in_float64(seed: int) -> None:
    check(seed, compiled=True)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(SAMPLE, ALL))
def test_many_compiled_graphs_are_as_in_float64(seed: int) -> None:
    check(seed, compiled=True)


@pytest.mark.parametrize("seed", range(0, ALL, 100))
def test_graphs_on_arrays_are_as_in_float64(seed: int) -> None:
    check(seed, compiled=False)


def made_of(model: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[Counter, list]:
    """Which calls take codes in the compiled model, and its outputs."""
    made: Counter[str] = Counter()
    take_codes = structure.take_codes

    def noting(calls: Sequence[Call], *more: Any) -> list[Call]:
        found = take_codes(calls, *more)
        made.update(call.op_type for call in found if call not in calls)
        return found

    with (
        mock.patch.object(structure, "take_codes", noting),
        mock.patch.dict(os.environ, ONNXPLUG_CACHE_SIZE="0"),
        refusing_nothing_more(),
    ):
        runner = session(model, compiled=True, threads=2)
        return made, runner.run(None, feeds)


class Numbers:
    """A scale and a zero point, as constants of a model."""

    def __init__(self, name: str, scale: Any, zero: Any) -> None:
        self.scale, self.zero = np.asarray(scale, np.float32), np.asarray(zero)
        self.names = [f"scale of {name}", f"zero of {name}"]
        self.constants = dict(zip(self.names, (self.scale, self.zero), strict=True))

    def quantised(self, x: Array) -> Array:
        limits = np.iinfo(self.zero.dtype)
        steps = np.rint(x / self.scale.astype(x.dtype)) + self.zero.astype(np.float64)
        return np.clip(steps, limits.min, limits.max).astype(self.zero.dtype)


@pytest.mark.parametrize(
    ("channels", "x_zero", "w_zero", "per_filter", "more"),
    [
        (8, np.uint8(7), np.int8(0), True, {"pads": [1, 1, 1, 1]}),
        (8, np.uint8(131), np.uint8(128), False, {"pads": [1, 0, 2, 1]}),
        (8, np.int8(-9), np.int8(3), True, {"strides": [2, 2]}),
        (8, np.int8(0), np.uint8(100), True, {"dilations": [2, 1]}),
        (3, np.uint8(7), np.int8(3), True, {"pads": [1, 1, 1, 1]}),
        (6, np.int8(-128), np.int8(0), False, {"strides": [2, 1]}),
        (8, np.uint8(7), np.int8(0), True, {"group": 2, "pads": [1, 1, 1, 1]}),
        (24, np.int8(-9), np.uint8(120), True, {"group": 6, "strides": [2, 1]}),
    ],
)
def test_a_convolution_between_steps_has_integer_sums(
    channels: int, x_zero: Any, w_zero: Any, per_filter: bool, more: dict[str, Any]
) -> None:
    """Within one step of what the model's numbers give in float64, and mostly equal."""
    random = np.random.default_rng(3)
    x = random.standard_normal((2, channels, 11, 9)).astype(np.float32)
    limits = np.iinfo(w_zero.dtype)
    groups = more.get("group", 1)
    w = random.integers(limits.min, limits.max + 1, (24, channels // groups, 3, 3))
    w = w.astype(w_zero.dtype)
    shape = (24,) if per_filter else ()
    of_x = Numbers("x", 0.03, x_zero)
    zeros = np.full(shape, w_zero)
    if per_filter and w_zero:  # each has another
        zeros = w_zero + np.arange(24).astype(w_zero.dtype)
    of_w = Numbers("w", random.random(shape) * 0.01 + 1e-3, zeros)
    of_y = Numbers("y", 0.3, np.uint8(100))
    bias = random.standard_normal(24).astype(np.float32)
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"], axis=0),
        NODE("Conv", ["d", "v", "b"], ["c"], **more),
        NODE("Relu", ["c"], ["r"]),
        NODE("QuantizeLinear", ["r", *of_y.names], ["y"]),
    ]
    weights = {"w": w, "b": bias}
    for each in (of_x, of_w, of_y):
        weights |= each.constants
    made, (found,) = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert made == {"QuantizedConv": 1}
    codes = of_x.quantised(x).astype(np.float64) - float(x_zero)
    scales = np.broadcast_to(of_w.scale.astype(np.float64), (24,)).reshape(-1, 1, 1, 1)
    points = np.broadcast_to(zeros.astype(np.float64), (24,)).reshape(-1, 1, 1, 1)
    wide = (w.astype(np.float64) - points) * scales
    pads = more.get("pads", [0] * 4)
    padded = np.pad(
        codes * float(of_x.scale),
        [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])],
    )
    sums = torch.nn.functional.conv2d(
        torch.from_numpy(padded),
        torch.from_numpy(wide),
        torch.from_numpy(bias).double(),
        stride=more.get("strides", 1),
        dilation=more.get("dilations", 1),
        groups=groups,
    )
    wanted = of_y.quantised(np.maximum(sums.numpy(), 0))
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 1
    assert (apart > 0).mean() < 1e-3


@pytest.mark.parametrize("zero", [np.uint8(0), np.uint8(119), np.int8(-7)], ids=str)
def test_what_is_added_to_a_convolution_is_codes_too(zero: Any) -> None:
    """A residual block: its sums become codes, and what is added is read as such."""
    random = np.random.default_rng(8)
    x = random.standard_normal((2, 8, 7, 5)).astype(np.float32)
    w = random.integers(-127, 128, (8, 8, 1, 1)).astype(np.int8)
    of_x, of_y = Numbers("x", 0.0314, zero), Numbers("y", 0.0407, zero)
    of_w = Numbers("w", np.full(8, 0.008), np.zeros(8, np.int8))
    of_sums = Numbers("c", 0.0523, zero)
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"], axis=0),
        NODE("Conv", ["d", "v"], ["c"]),
        NODE("QuantizeLinear", ["c", *of_sums.names], ["e"]),
        NODE("DequantizeLinear", ["e", *of_sums.names], ["f"]),
        NODE("Add", ["f", "d"], ["a"]),
        NODE("Relu", ["a"], ["r"]),
        NODE("QuantizeLinear", ["r", *of_y.names], ["y"]),
    ]
    weights = {"w": w}
    for each in (of_x, of_w, of_sums, of_y):
        weights |= each.constants
    made, (found,) = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert made == {"QuantizedConv": 1}

    def numbers(of: Numbers, value: Array) -> Array:
        codes = of.quantised(value).astype(np.float64)
        return (codes - float(of.zero)) * float(of.scale)

    given = numbers(of_x, x)
    wide = w[:, :, 0, 0].astype(np.float64) * of_w.scale.astype(np.float64)[:, None]
    sums = np.einsum("mc,nchw->nmhw", wide, given)
    wanted = of_y.quantised(np.maximum(numbers(of_sums, sums) + given, 0))
    # a tie of the inner codes moves the outer ones by a step of those
    apart = np.abs(found.astype(int) - wanted.astype(int))
    assert apart.max() <= 2
    assert (apart > 0).mean() < 1e-2


@pytest.mark.parametrize("lead", [(5,), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("operator", ["MatMul", "Gemm"])
@pytest.mark.parametrize("per_column", [False, True])
def test_a_product_between_steps_has_integer_sums(
    lead: tuple[int, ...], turned: bool, operator: str, per_column: bool
) -> None:
    if operator == "Gemm" and len(lead) > 1:
        return
    random = np.random.default_rng(4)
    x = random.standard_normal((*lead, 40)).astype(np.float32)
    w = random.integers(-128, 128, (20, 40) if turned else (40, 20)).astype(np.int8)
    of_x = Numbers("x", 0.03, np.uint8(120))
    shape = (20,) if per_column else ()
    of_w = Numbers("w", random.random(shape) * 0.01 + 1e-3, np.zeros(shape, np.int8))
    bias = random.standard_normal(20).astype(np.float32)
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"], axis=0 if turned else 1),
    ]
    if operator == "Gemm":
        nodes.append(
            NODE("Gemm", ["d", "v", "b"], ["y"], transB=int(turned), alpha=0.5)
        )
    else:
        right = "t" if turned else "v"
        nodes += [NODE("Transpose", ["v"], ["t"], perm=[1, 0])] * turned
        nodes += [NODE("MatMul", ["d", right], ["m"]), NODE("Add", ["m", "b"], ["y"])]
    weights = {"w": w, "b": bias, **of_x.constants, **of_w.constants}
    made, (found,) = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert made == {"QuantizedMatMul": 1}
    codes = (of_x.quantised(x).astype(np.float64) - 120) * float(of_x.scale)
    wide = (w.T if turned else w).astype(np.float64) * of_w.scale.astype(np.float64)
    wanted = (codes @ wide) * (0.5 if operator == "Gemm" else 1) + bias
    np.testing.assert_allclose(found, wanted, 2e-6, 2e-6)


def test_moves_between_equal_steps_move_codes() -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 6, 7, 8)).astype(np.float32)
    of_x = Numbers("x", 0.02, np.uint8(128))
    same = Numbers("z", 0.02, np.uint8(128))
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("Transpose", ["d"], ["t"], perm=[0, 2, 3, 1]),
        NODE("QuantizeLinear", ["t", *same.names], ["u"]),
        NODE("DequantizeLinear", ["u", *same.names], ["v"]),
        NODE("Reshape", ["v", "shape"], ["w"]),
        NODE("QuantizeLinear", ["w", *of_x.names], ["y"]),
    ]
    weights = {"shape": np.int64([2, -1]), **of_x.constants, **same.constants}
    made, (found,) = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert made == {"Identity": 2}  # what moves them is before
    wanted = of_x.quantised(x).transpose(0, 2, 3, 1).reshape(2, -1)
    np.testing.assert_array_equal(found, wanted)


def test_sums_that_int32_does_not_hold_stay_those_of_floats() -> None:
    inner = 33100
    x = np.full((1, inner), 2.55, np.float32)
    of_x = Numbers("x", 0.01, np.uint8(0))
    of_w = Numbers("w", 1.0, np.uint8(0))
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"]),
        NODE("MatMul", ["d", "v"], ["y"]),
    ]
    weights = {"w": np.full((inner, 2), 255, np.uint8)}
    weights |= {**of_x.constants, **of_w.constants}
    made, (found,) = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert not made
    np.testing.assert_allclose(found, np.full((1, 2), inner * 2.55 * 255), 1e-5)


def test_what_others_read_is_made_for_them() -> None:
    """Floats that a product takes as codes, and that somebody else reads."""
    random = np.random.default_rng(6)
    x = random.standard_normal((4, 16)).astype(np.float32)
    of_x = Numbers("x", 0.05, np.uint8(128))
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("Transpose", ["d"], ["t"]),
        NODE("QuantizeLinear", ["t", *of_x.names], ["u"]),
        NODE("DequantizeLinear", ["u", *of_x.names], ["v"]),
        NODE("MatMul", ["d", "v"], ["m"]),
        NODE("Exp", ["d"], ["e"]),
    ]
    outputs = ["m", "e", "d"]
    made, found = made_of(model_of(nodes, {"x": x}, outputs, of_x.constants), {"x": x})
    assert made == {"Identity": 1, "QuantizedMatMul": 1}
    d = (of_x.quantised(x).astype(np.float32) - 128) * of_x.scale
    wide = d.astype(np.float64)
    np.testing.assert_allclose(found[0], wide @ wide.T, 1e-6, 1e-6)
    np.testing.assert_allclose(found[1], np.exp(wide), 1e-6)
    np.testing.assert_array_equal(found[2], d)


def test_explain_says_what_takes_codes_and_how_exact_that_is() -> None:
    of_x = Numbers("x", 0.05, np.uint8(128))
    of_w = Numbers("w", 0.01, np.int8(0))
    nodes = [
        NODE("QuantizeLinear", ["x", *of_x.names], ["q"]),
        NODE("DequantizeLinear", ["q", *of_x.names], ["d"]),
        NODE("Transpose", ["d"], ["t"]),
        NODE("QuantizeLinear", ["t", *of_x.names], ["u"]),
        NODE("DequantizeLinear", ["u", *of_x.names], ["e"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"]),
        NODE("MatMul", ["e", "v"], ["y"]),
    ]
    weights = {"w": np.ones((4, 3), np.int8), **of_x.constants, **of_w.constants}
    x = np.ones((4, 5), np.float32)
    model = model_of(nodes, {"x": x}, ["y"], weights)
    unstated = onnx.ModelProto()
    unstated.CopyFrom(model)
    unstated.graph.input[0].type.tensor_type.shape.dim[1].dim_param = "columns"
    for each in (model, model, unstated, unstated):  # the second has plans from disk
        runner = session(each, compiled=True, threads=1)
        runner.run(None, {"x": x})
        notes = {n.op_type: n.note for n in runner.explain().nodes if n.note}
        assert "one step" in notes["MatMul"]
        assert "to the bit" in notes["Transpose"]
