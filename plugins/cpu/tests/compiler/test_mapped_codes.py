"""Codes that are looked up in tables, and codes that are joined, against arrays, which
compute what the model says in float32."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pytest

from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.codegen.emit import Module
from onnxplug_cpu.compiler.kernels.tables.mapped import Mapped
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE

from .differential import session
from .test_quantised_graphs import NODE, Array, Numbers, made_of, model_of

OF_X = Numbers("x", 0.03, np.uint8(120))
OF_G = Numbers("g", 1 / 256, np.uint8(0))
OF_Y = Numbers("y", 0.021, np.int8(-3))


def on_arrays(model: Any, feeds: dict[str, Array]) -> list[Array]:
    return session(model, compiled=False).run(None, feeds)


def tables_of(model: Any, feeds: dict[str, Array]) -> tuple[int, list[Array]]:
    """How many tables the compiled model has, and its outputs."""
    recorded = []
    record = Recorder.constant

    def noting(self: Any, array: Array) -> Any:
        recorded.append(array)
        return record(self, array)

    with mock.patch.object(Recorder, "constant", noting):
        _, outputs = made_of(model, feeds)
    bytes_ = [each for each in recorded if each.shape == (256,)]
    return len(bytes_), outputs


@pytest.mark.parametrize("shape", [(3, 5, 77), (2, 24, 9, 7), (200,), (0, 4)], ids=str)
@pytest.mark.parametrize("operator", ["Sigmoid", "Swish", "Gelu", "Tanh"])
def test_a_function_of_codes_is_a_table(shape: tuple[int, ...], operator: str) -> None:
    """``Swish`` is written as exporters write it, with codes in between."""
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32) * 3
    nodes = [
        NODE("QuantizeLinear", ["x", *OF_X.names], ["q"]),
        NODE("DequantizeLinear", ["q", *OF_X.names], ["d"]),
        NODE("Sigmoid" if operator == "Swish" else operator, ["d"], ["f"]),
    ]
    last = "f"
    if operator == "Swish":
        last = "m"
        nodes += [
            NODE("QuantizeLinear", ["f", *OF_G.names], ["g"]),
            NODE("DequantizeLinear", ["g", *OF_G.names], ["e"]),
            NODE("Mul", ["d", "e"], ["m"]),
        ]
    nodes.append(NODE("QuantizeLinear", [last, *OF_Y.names], ["y"]))
    weights = {**OF_X.constants, **OF_G.constants, **OF_Y.constants}
    model = model_of(nodes, {"x": x}, ["y", "q"], weights)
    count, found = tables_of(model, {"x": x})
    assert count == 1 if x.size else count <= 1
    for one, other in zip(found, on_arrays(model, {"x": x}), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_does_not_follow_from_one_code_is_no_table() -> None:
    """Scales of an axis, a second factor that varies, floats in between."""
    x = np.random.default_rng(2).standard_normal((4, 6, 5)).astype(np.float32)
    scales = Numbers("s", [0.01, 0.02, 0.03, 0.04, 0.05, 0.06], np.full(6, 9, np.uint8))
    head = [
        NODE("QuantizeLinear", ["x", *OF_X.names], ["q"]),
        NODE("DequantizeLinear", ["q", *OF_X.names], ["d"]),
        NODE("Sigmoid", ["d"], ["f"]),
    ]
    weights = {**OF_X.constants, **OF_Y.constants, **scales.constants}
    for nodes in (
        [NODE("QuantizeLinear", ["f", *scales.names], ["y"], axis=1)],
        [
            NODE("Mul", ["f", "x"], ["m"]),
            NODE("QuantizeLinear", ["m", *OF_Y.names], ["y"]),
        ],
        [
            NODE("Mul", ["f", "row"], ["m"]),
            NODE("QuantizeLinear", ["m", *OF_Y.names], ["y"]),
        ],
    ):
        given = {**weights, "row": np.float32([1, 2, 3, 4, 5])}
        model = model_of([*head, *nodes], {"x": x}, ["y"], given)
        count, (found,) = tables_of(model, {"x": x})
        assert not count
        apart = found.astype(int) - on_arrays(model, {"x": x})[0]
        assert np.abs(apart).max() <= 1


@pytest.mark.parametrize("isa", [AVX512, AVX2, SSE, NEON], ids=lambda isa: isa.name)
def test_only_permutations_of_bytes_take_registers(isa: Any) -> None:
    wide = isa._replace(features=f"{isa.features},+avx512vbmi")
    for each, has in ((isa, False), (wide, isa is AVX512)):
        if each is wide and not has:
            continue
        module = Module()
        Mapped(1, False).write(module, "k", each)
        assert ("vpermi2var" in module.text(each.attributes)) == has


def test_codes_of_unequal_steps_are_joined_as_codes() -> None:
    random = np.random.default_rng(3)
    feeds = {
        "x": random.standard_normal((2, 5, 7, 6)).astype(np.float32),
        "w": random.standard_normal((2, 9, 7, 6)).astype(np.float32),
    }
    nodes = [
        NODE("QuantizeLinear", ["x", *OF_X.names], ["q"]),
        NODE("DequantizeLinear", ["q", *OF_X.names], ["d"]),
        NODE("QuantizeLinear", ["w", *OF_Y.names], ["r"]),
        NODE("DequantizeLinear", ["r", *OF_Y.names], ["e"]),
    ]
    weights = {**OF_X.constants, **OF_Y.constants, **OF_G.constants}
    for parts, of, made in (
        (["d", "e", "d"], OF_X, {"QLinearConcat": 1}),
        (["d", "e"], OF_G, {"QLinearConcat": 1}),
        (["d", "d"], OF_X, {"Identity": 1}),
    ):
        joined = [
            NODE("Concat", parts, ["c"], axis=1),
            NODE("QuantizeLinear", ["c", *of.names], ["y"]),
        ]
        model = model_of(nodes + joined, feeds, ["y"], weights)
        found, outputs = made_of(model, feeds)
        assert found == made
        np.testing.assert_array_equal(outputs[0], on_arrays(model, feeds)[0])


@pytest.mark.parametrize(
    ("x_scale", "w_scale", "takes"),
    [
        (0.03, 0.01, True),
        (0.0, 0.01, True),
        (1e-20, 1e-20, False),
        (1e25, 1e25, False),
        (np.inf, 0.01, False),
        (0.03, np.nan, False),
    ],
)
def test_scales_whose_product_float32_loses_stay_with_floats(
    x_scale: float, w_scale: float, takes: bool
) -> None:
    random = np.random.default_rng(4)
    x = random.integers(0, 256, (3, 40)).astype(np.uint8)
    of_x = Numbers("x", x_scale, np.uint8(120))
    of_w = Numbers("w", w_scale, np.int8(0))
    nodes = [
        NODE("DequantizeLinear", ["x", *of_x.names], ["d"]),
        NODE("DequantizeLinear", ["w", *of_w.names], ["v"]),
        NODE("MatMul", ["d", "v"], ["y"]),
    ]
    w = random.integers(-128, 128, (40, 20)).astype(np.int8)
    weights = {"w": w, **of_x.constants, **of_w.constants}
    with np.errstate(all="ignore"):
        made, _ = made_of(model_of(nodes, {"x": x}, ["y"], weights), {"x": x})
    assert made == ({"QuantizedMatMul": 1} if takes else {})


def test_a_refusal_while_constants_are_packed_is_told() -> None:
    """The node runs on arrays, and both ways to read a report say why."""
    x = np.ones((5, 64), np.float32)
    nodes = [NODE("MatMul", ["x", "w"], ["y"])]
    model = model_of(nodes, {"x": x}, ["y"], {"w": np.ones((64, 48), np.float32)})
    packed = Recorder.packed

    def refusing(
        self: Any, source: Any, layout: str, nbytes: int, record: Any, accepts: Any
    ) -> Any:
        def record_none(*_: Any) -> None:
            raise ValueError("no such layout")

        return packed(self, source, layout, nbytes, record_none, accepts)

    with (
        mock.patch.dict("os.environ", ONNXPLUG_CACHE_SIZE="0"),
        mock.patch.object(Recorder, "packed", refusing),
    ):
        runner = session(model, compiled=True)
    (node,) = runner.explain().nodes
    assert (node.tier, node.note) == ("array", "no such layout")
    assert "MatMul×1, array: no such layout" in str(runner.explain())
    np.testing.assert_array_equal(runner.run(None, {"x": x})[0], np.full((5, 48), 64))
