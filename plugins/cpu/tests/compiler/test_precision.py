"""The option ``precision``: bf16 rounds factors of products of float32 to bfloat16."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import OptionError
from onnxplug_cpu.compiler import kept_plans
from onnxplug_cpu.compiler.machine.isa import Isa

from . import tiled
from .interpreter import ISAS
from .kernels.test_contraction_bf16_rounded import rounded
from .lowered import commands
from .test_fp32_matmul import (
    BIAS,
    Session,
    an_input,
    perceptron,
    residual_block,
    the_weights,
)

Array = np.ndarray[Any, Any]


WAYS = {"tiles": tiled.EMULATED[0], "vectors": ISAS[0]}
if tiled.INSTRUCTIONS:
    WAYS["instruction"] = tiled.INSTRUCTIONS[0]


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Iterator[str]:
    """A processor with emulated tiles, one whose vectors multiply bfloat16, or, if that
    is this one, one with the instruction for it."""
    multiplies = property(lambda self: True)
    with (
        tiled.host(WAYS[request.param]),
        mock.patch.object(Isa, "multiplies_bf16", multiplies),
    ):
        yield request.param


def reference(x: Array) -> Array:
    """What the perceptron gives in float64 with rounded factors."""
    first, second = map(rounded, the_weights())
    hidden = np.maximum(rounded(x).astype(np.float64) @ first.T + BIAS, 0)
    result: Array = rounded(hidden).astype(np.float64) @ second + x
    return result


def test_a_model_of_products(way: str) -> None:
    x = an_input()
    session = Session(perceptron(), 2, precision="bf16")
    found, exact = session.run(x), Session(perceptron(), 2).run(x)
    labels = commands(perceptron(), {"x": x}, 2, {"precision": "bf16"})
    assert sum(label.endswith("(bf16)") for label in labels) == 2
    # a hidden number that lies between two may be rounded to either
    np.testing.assert_allclose(found, reference(x), 0, 2e-3)
    apart = np.abs(found - exact).max()
    assert 1e-3 < apart < 0.05
    assert session.packed_bytes() == 2 * 320 * 128 + 64 + 2 * 128 * 320 + 128


def test_convolutions(way: str) -> None:
    model = residual_block(29)
    x = np.random.default_rng(0).standard_normal((2, 64, 29, 29), np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = Session(model, precision="bf16").run(x)
    error = np.linalg.norm(found - expected) / np.linalg.norm(expected)
    assert 1e-3 < error < 5e-3


def narrowed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model of float32 as one of bfloat16, its output left as float32."""
    kind = onnx.TensorProto.BFLOAT16
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor).astype(ml_dtypes.bfloat16)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
    for value in model.graph.input:
        value.type.tensor_type.elem_type = kind
    (last,) = [node for node in model.graph.node if "y" in node.output]
    last.output[0] = "narrow"
    model.graph.node.append(helper.make_node("Cast", ["narrow"], ["y"], to=1))
    return model


def test_a_model_of_bfloat16(way: str) -> None:
    """Its factors are rounded, as it says, unless the option forbids it."""
    x = an_input().astype(ml_dtypes.bfloat16)
    first, second, bias = (
        each.astype(ml_dtypes.bfloat16).astype(np.float64)
        for each in (*the_weights(), BIAS)
    )
    hidden = np.maximum(x.astype(np.float64) @ first.T + bias, 0)
    # a hidden number that lies between two may be rounded to either
    for precision, factor, error in (
        ("auto", rounded(hidden).astype(np.float64), 2e-3),
        ("float32", hidden, 1e-5),
    ):
        found = Session(narrowed(perceptron()), precision=precision).run(x)
        wanted = factor @ second + x.astype(np.float64)
        np.testing.assert_allclose(found, wanted, 0, error)


def test_changing_shapes(way: str) -> None:
    session = Session(perceptron(rows="n"), precision="bf16")
    for rows in (64, 8, 41, 64):
        x = an_input(rows)
        found = session.run(x)
        np.testing.assert_allclose(found, reference(x), 0, 0.05 if rows < 32 else 2e-3)


def test_transforms_are_exact(way: str) -> None:
    """Only products of the model are rounded."""
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20]>
        tested (float[64, 128, 1] x) => (float[64, 128, 2] y)
        <int64 axis = {1}> { y = DFT (x, , axis) }"""
    )
    x = np.random.default_rng(0).standard_normal((64, 128, 1), np.float32)
    found = Session(model, precision="bf16").run(x)
    expected = np.fft.fft(x[..., 0].astype(np.float64), axis=1)
    np.testing.assert_allclose(found[..., 0], expected.real, 0, 1e-4)
    np.testing.assert_allclose(found[..., 1], expected.imag, 0, 1e-4)


def test_plans_are_kept_apart(
    way: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Neither precision is given what the other kept."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(kept_plans.KEEP, "1")
    isa = WAYS[way]
    x = an_input()
    found: dict[str, list[Array]] = {"bf16": [], "float32": []}
    for precision in ("bf16", "float32", "bf16"):
        with tiled.host(isa):
            session = onnxplug.InferenceSession(
                perceptron(),
                providers=[("CPUExecutionProvider", {"precision": precision})],
            )
            found[precision].append(np.asarray(session.run(None, {"x": x})[0]))
    np.testing.assert_array_equal(*found["bf16"])
    assert np.abs(found["bf16"][0] - found["float32"][0]).max() > 1e-3


def test_a_processor_without_bfloat16_computes_in_float32_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = an_input()
    with tiled.host(ISAS[0]):
        expected = Session(perceptron()).run(x)
        for _ in range(2):
            found = Session(perceptron(), precision="bf16").run(x)
            np.testing.assert_array_equal(found, expected)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "neither AMX nor AVX512_BF16" in record.message
    assert "precision=bf16" in record.message


@pytest.mark.parametrize(
    ("name", "value"), [("compile", False), ("fp32_matmul", "fma")]
)
def test_options_that_contradict_it_are_refused(name: str, value: object) -> None:
    given = {"precision": "bf16", name: value}
    with pytest.raises(OptionError, match=f"{name}={value}"):
        onnxplug.InferenceSession(
            perceptron(), providers=[("CPUExecutionProvider", given)]
        )


def test_other_values_are_refused() -> None:
    with pytest.raises(OptionError, match="precision"):
        Session(perceptron(), precision="bfloat16")
