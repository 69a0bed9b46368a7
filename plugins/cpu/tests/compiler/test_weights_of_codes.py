"""Products of floats with ``DequantizeLinear`` of codes, which stay codes in memory,
against numpy in float64."""

from __future__ import annotations

from typing import Any, NamedTuple
from unittest import mock

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_cpu import quantised_weights

Array = np.ndarray[Any, Any]
TYPES = {
    "int8": (TensorProto.INT8, -128, 127),
    "uint8": (TensorProto.UINT8, 0, 255),
    "int4": (TensorProto.INT4, -8, 7),
    "uint4": (TensorProto.UINT4, 0, 15),
}


class Form(NamedTuple):
    """How a model has its weights.

    Attributes:
        dtype: of the codes.
        depth, columns: of the matrix.
        block: codes that share a scale; 0 for all of a column, -1 for all.
        zero: whether there are zero points.
        turned: the codes are [columns, depth]: ``"Gemm"`` says so, or a
            ``"Transpose"`` follows.
        given: the codes are an input.
    """

    dtype: str
    depth: int
    columns: int
    block: int = 0
    zero: bool = True
    turned: str = ""
    given: bool = False


class Case(NamedTuple):
    """A model, codes that are an input, and the weights in float64."""

    model: onnx.ModelProto
    given: dict[str, Array]
    weights: Array


def tensor(name: str, codes: Array, dtype: str) -> onnx.TensorProto:
    return helper.make_tensor(name, TYPES[dtype][0], codes.shape, codes.ravel())


def case(rng: np.random.Generator, form: Form, operator: str = "MatMul") -> Case:
    """*operator* of x and the weights; Gemm adds 1 to all."""
    kind, low, high = TYPES[form.dtype]
    shape = (form.depth, form.columns)
    codes = rng.integers(low, high + 1, shape)
    block = form.block or form.depth
    scales = (-(-form.depth // block), form.columns) if block > 0 else (1, 1)
    scale = (rng.random(scales) + 0.1).astype(np.float32)
    zero = rng.integers(low, high + 1, scales) if form.zero else np.zeros(scales, int)
    each = block if block > 0 else form.depth
    numbers = np.repeat(scale.astype(np.float64), each, 0)[: form.depth]
    weights = (codes - np.repeat(zero, each, 0)[: form.depth]) * numbers
    if form.turned:
        codes, scale, zero = codes.T, scale.T, zero.T
    axis, attributes = int(bool(form.turned)), {}
    if form.block > 0:
        attributes["block_size"] = form.block
    else:
        axis = 1 - axis
        scale, zero = scale.ravel(), zero.ravel()
        if form.block:
            scale, zero = scale.reshape(()), zero.reshape(())
    constants = [numpy_helper.from_array(scale, "scale")]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", form.depth])]
    given = {}
    if form.given:
        inputs.append(helper.make_tensor_value_info("codes", kind, codes.shape))
        dtype = np.dtype(getattr(ml_dtypes, form.dtype, form.dtype))
        given["codes"] = np.ascontiguousarray(codes).astype(dtype)
    else:
        constants.append(tensor("codes", codes, form.dtype))
    names = ["codes", "scale"]
    if form.zero:
        constants.append(tensor("zero", zero, form.dtype))
        names.append("zero")
    make = helper.make_node
    nodes = [make("DequantizeLinear", names, ["floats"], axis=axis, **attributes)]
    factor = "floats"
    if form.turned == "Transpose":
        nodes.append(make("Transpose", ["floats"], ["turned"], perm=[1, 0]))
        factor = "turned"
    if operator == "Gemm" or form.turned == "Gemm":
        constants.append(numpy_helper.from_array(np.float32(1), "one"))
        turned = int(form.turned == "Gemm")
        nodes.append(make("Gemm", ["x", factor, "one"], ["y"], transB=turned))
    else:
        nodes.append(make("MatMul", ["x", factor], ["y"]))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "weights", inputs, [y], constants)
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return Case(model, given, weights)


def expected(case: Case, x: Array) -> Array:
    added = float(case.model.graph.node[-1].op_type == "Gemm")
    found: Array = x.astype(np.float64) @ case.weights + added
    return found


def assert_near(found: Array, case: Case, x: Array) -> None:
    wanted = expected(case, x)
    assert found.shape == wanted.shape
    bound = 4e-6 * np.abs(wanted).max(initial=1)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=bound)


def session(model: onnx.ModelProto, threads: int = 1) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    with mock.patch.object(quantised_weights, "FEWEST_CODES", 1):
        return onnxplug.InferenceSession(
            model, options, providers=["CPUExecutionProvider"]
        )


FORMS = [
    Form("int4", 64, 21, 32, zero=False),
    Form("int4", 96, 40, 16, turned="Gemm"),
    Form("int4", 45, 7, 15),
    Form("int4", 77, 19),
    Form("uint4", 128, 33, 64),
    Form("uint4", 50, 9, -1, turned="Transpose"),
    Form("uint4", 31, 70, zero=False, turned="Gemm"),
    Form("int8", 60, 37),
    Form("int8", 64, 16, 32, turned="Transpose"),
    Form("uint8", 96, 50, 32),
    Form("uint8", 33, 20, -1, turned="Gemm"),
    Form("uint8", 1, 1),
]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_weights_stay_codes(form: Form) -> None:
    rng = np.random.default_rng(FORMS.index(form))
    tried = case(rng, form)
    found = session(tried.model, threads=1 + FORMS.index(form) % 2)
    assert not found.explain().computed_once
    assert len(found.explain().nodes) == len(tried.model.graph.node)
    for rows in (1, 3, 30, 0):
        x = rng.standard_normal((rows, form.depth)).astype(np.float32)
        assert_near(found.run(None, {"x": x})[0], tried, x)


@pytest.mark.parametrize("dtype", ["int8", "uint4"])
@pytest.mark.parametrize("turned", ["", "Transpose"])
def test_codes_that_are_an_input(dtype: str, turned: str) -> None:
    rng = np.random.default_rng(3)
    form = Form(dtype, 40, 24, 8, turned=turned, given=True)
    tried = case(rng, form)
    found = session(tried.model)
    for rows in (2, 20):
        x = rng.standard_normal((rows, form.depth)).astype(np.float32)
        assert_near(found.run(None, {"x": x, **tried.given})[0], tried, x)


def test_small_matrices_are_made_floats() -> None:
    tried = case(np.random.default_rng(0), FORMS[0])
    found = onnxplug.InferenceSession(tried.model, providers=["CPUExecutionProvider"])
    assert len(found.explain().computed_once) == 1


@pytest.mark.parametrize("block", [24, 0])
def test_scales_of_rows_are_made_floats(block: int) -> None:
    rng = np.random.default_rng(1)
    tried = case(rng, Form("int8", 60, 60, block))
    if not block:
        tried.model.graph.node[0].attribute[0].i = 0  # square: those of rows
    found = session(tried.model)
    assert len(found.explain().computed_once) == 1
    x = rng.standard_normal((4, 60)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(tried.model).run(None, {"x": x})
    (y,) = found.run(None, {"x": x})
    np.testing.assert_allclose(y, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
@pytest.mark.parametrize("axes", [(5, 24), (24, 5)])
def test_few_bits_are_dequantised(dtype: str, axes: tuple[int, int]) -> None:
    """Of an input, some in each byte."""
    rng = np.random.default_rng(4)
    kind, low, high = TYPES[dtype]
    codes = rng.integers(low, high + 1, axes)
    zero = rng.integers(low, high + 1, axes[1])
    scale = rng.random(axes[1]).astype(np.float32)
    node = helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["y"])
    graph = helper.make_graph(
        [node],
        "codes",
        [helper.make_tensor_value_info("x", kind, axes)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, axes)],
        [numpy_helper.from_array(scale, "scale"), tensor("zero", zero, dtype)],
    )
    imports = [helper.make_opsetid("", 21)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    found = onnxplug.InferenceSession(model, providers=["CPUExecutionProvider"])
    x = codes.astype(getattr(ml_dtypes, dtype))
    (y,) = found.run(None, {"x": x})
    np.testing.assert_array_equal(y, ((codes - zero) * scale).astype(np.float32))
