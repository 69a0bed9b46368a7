"""What is narrowed, what is not, and what is said of it."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxplug.ep import DataType, ExportedModel
from onnxplug_tensorrt.precision import Exclusions, narrow_model

from .narrowing import BOTH, error, narrowed, operators, parsed, run

LOWEST = float(np.finfo(np.float32).min)


def draw(*shape: int) -> Any:
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def test_a_model_has_one_cast_for_each_input_and_output() -> None:
    model = parsed("""
        g (float[2, 3] x, float[3, 3] w) => (float[2, 3] y, float[2, 3] z) {
          a = MatMul(x, w)
          y = Relu(a)
          b = Add(y, x)
          z = Tanh(b)
        }""")
    result = narrowed(model)
    assert operators(result.exported.model).count("Cast") == result.casts == 4
    assert (result.narrowed, result.kept) == (4, {})
    feeds = {"x": draw(2, 3), "w": draw(3, 3)}
    for ours, wanted in zip(
        run(result.exported.model, feeds), run(model, feeds), strict=True
    ):
        assert error(wanted, ours) < 2e-3


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize(
    "mask",
    [
        f"c = Constant<value_float={LOWEST}>()  m = Where(hidden, c, zero)",
        f"c = Constant<value_float={LOWEST}>()  f = Cast<to=1>(hidden)\nm = Mul(f, c)",
        "c = Constant<value_float=-1e9>()  f = Cast<to=1>(hidden)\n"
        "e = Expand(c, four)  m = Mul(e, f)",
    ],
)
def test_scores_that_a_mask_hides_have_no_weight_and_a_row_without_others_is_finite(
    mask: str, dtype: DataType
) -> None:
    model = parsed(
        f"""
        g (float[3, 4] x, float[4, 4] w, bool[3, 4] hidden) => (float[3, 4] y) {{
          zero = Constant<value_float=0.0>()
          four = Constant<value_ints=[4]>()
          {mask}
          s = MatMul(x, w)
          a = Add(s, m)
          y = Softmax(a)
        }}"""
    )
    hidden = np.array([[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]], bool)
    feeds = {"x": draw(3, 4), "w": draw(4, 4), "hidden": hidden}
    result = narrowed(model, dtype)
    assert result.kept == {}
    (found,) = run(result.exported.model, feeds)
    (expected,) = run(model, feeds)
    assert (found[0, 2:] == 0).all()
    # of a row that is hidden wholly no more is asked than that it is one
    np.testing.assert_allclose(found[1].sum(), 1, atol=2e-2)
    np.testing.assert_allclose(found[[0, 2]], expected[[0, 2]], atol=6e-2)


def test_a_number_beyond_the_range_that_is_no_mask_keeps_its_readers_in_float32() -> (
    None
):
    model = parsed(f"""
        g (float[2, 3] x) => (float[2, 3] y) {{
          c = Constant<value_float={LOWEST / 4}>()
          a = Tanh(x)
          b = Mul(a, c)
          y = Relu(b)
        }}""")
    result = narrowed(model)
    assert set(result.kept) == {"Mul 2", "Relu 3"}
    assert "beyond the range of float16" in result.kept["Mul 2"]
    feeds = {"x": -abs(draw(2, 3))}
    assert error(*(run(m, feeds)[0] for m in (model, result.exported.model))) < 2e-3


def test_an_epsilon_is_there_when_what_it_is_added_to_is_0() -> None:
    model = parsed("""
        g (float[2, 8] x) => (float[2, 8] y) {
          e = Constant<value_float=1e-12>()
          axes = Constant<value_ints=[1]>()
          m = ReduceMean(x, axes)
          d = Sub(x, m)
          q = Mul(d, d)
          v = ReduceMean(q, axes)
          a = Add(v, e)
          r = Sqrt(a)
          n = Div(d, r)
          y = Tanh(n)
        }""")
    result = narrowed(model)
    assert set(result.kept) == {"Add 6", "Sqrt 7", "Div 8"}
    (found,) = run(result.exported.model, {"x": np.ones((2, 8), np.float32)})
    assert (found == 0).all()
    norms = narrowed(model, norms=True)
    assert set(norms.kept) == {
        "ReduceMean 2", "Sub 3", "Mul 4", "ReduceMean 5", "Add 6", "Sqrt 7", "Div 8",
    }  # fmt: skip
    feeds = {"x": draw(2, 8)}
    assert error(*(run(m, feeds)[0] for m in (model, norms.exported.model))) < 1e-3


def test_positions_and_numbers_of_elements_are_not_rounded_to_few_digits() -> None:
    model = parsed("""
        g (float[1, 4] x, int64[1, 4] places, int64 count) => (float[1, 4] y, float[1, 4] z) {
          p = Cast<to=1>(places)
          c = Cos(p)
          y = Mul(x, c)
          n = Cast<to=1>(count)
          t = Tanh(x)
          z = Div(t, n)
        }""")  # noqa: E501
    feeds = {
        "x": draw(1, 4),
        "places": np.array([[1, 4097, 8195, 20001]]),
        "count": np.array(131072),
    }
    for dtype in BOTH:
        result = narrowed(model, dtype)
        assert ("Div 5" in result.kept) == (dtype is DataType.FLOAT16)
        for ours, wanted in zip(
            run(result.exported.model, feeds), run(model, feeds), strict=True
        ):
            assert error(wanted, ours) < 1e-2


def test_what_the_user_excludes_stays_float32() -> None:
    model = parsed("""
        g (float[2, 2] x) => (float[2, 2] y) {
          a = MatMul(x, x)
          b = MatMul(a, x)
          c = Exp(b)
          y = Neg(c)
        }""")
    model.graph.node[0].name = "first"
    result = narrowed(model, operators=["Exp"], nodes=["first"])
    assert result.kept == {
        "first": "it is to stay float32",
        "Exp 2": "Exp is to stay float32",
    }
    # which overflows in float16
    feeds = {"x": np.full((2, 2), 1.8, np.float32)}
    blocked = narrowed(model, operators=["Exp", "Neg"]).exported.model
    assert np.isfinite(run(blocked, feeds)[0]).all()


def test_between_codes_nothing_is_narrowed_and_dequantised_weights_are() -> None:
    model = parsed("""
        g (float[2, 4] x) => (float[2, 1] y)
        <float s = {0.05}, int8 z = {0}, int8[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, int8[4, 1] v = {1, 2, 3, 4}>
        {
          q = QuantizeLinear(x, s, z)
          d = DequantizeLinear(q, s, z)
          e = DequantizeLinear(w, s, z)
          m = MatMul(d, e)
          r = QuantizeLinear(m, s, z)
          f = DequantizeLinear(r, s, z)
          t = Tanh(f)
          w2 = DequantizeLinear(v, s, z)
          u = MatMul(t, w2)
          y = Sigmoid(u)
        }""")  # noqa: E501
    result = narrowed(model)
    assert {name.partition(" ")[0] for name in result.kept} == {
        "QuantizeLinear", "DequantizeLinear", "MatMul",
    }  # fmt: skip
    assert result.narrowed == 4
    feeds = {"x": draw(2, 4)}
    assert error(*(run(m, feeds)[0] for m in (model, result.exported.model))) < 2e-3


def test_a_scale_that_would_lose_digits_stays() -> None:
    model = parsed("""
        g (float[2, 2] x) => (float[2, 2] y)
        <float s = {1e-6}, int8[2, 2] w = {1, 2, 3, 4}>
        {
          e = DequantizeLinear(w, s)
          y = MatMul(x, e)
        }""")
    assert list(narrowed(model).kept) == ["DequantizeLinear 0"]


def test_bodies_are_narrowed_and_read_what_is_around_them() -> None:
    model = parsed("""
        g (float[2, 2] x, bool c, int64 n) => (float[2, 2] y, float[2, 2] z)
        <float[2, 2] w = {1, 2, 3, 4}>
        {
          a = MatMul(x, w)
          y = If (c) <
            then_branch = t () => (float[2, 2] p) { b = MatMul(a, w)  p = Tanh(b) },
            else_branch = e () => (float[2, 2] q) { q = Identity(a) }
          >
          keep = Constant<value = bool {1}>()
          z = Loop (n, keep, a) <
            body = l (int64 i, bool k, float[2, 2] v) => (bool ko, float[2, 2] vo) {
              ko = Identity(k)
              h = MatMul(v, w)
              vo = Sigmoid(h)
            }
          >
        }""")
    result = narrowed(model)
    assert result.narrowed == 6
    for condition in (True, False):
        feeds = {"x": draw(2, 2), "c": np.array(condition), "n": np.array(3)}
        for ours, wanted in zip(
            run(result.exported.model, feeds), run(model, feeds), strict=True
        ):
            assert error(wanted, ours) < 2e-3


def test_a_cast_that_the_model_has_reads_what_is_there() -> None:
    model = parsed("""
        g (float[2, 2] x, int64[2, 2] i) => (int32[2, 2] y, float[2, 2] z) {
          a = Relu(x)
          y = Cast<to=6>(a)
          b = Cast<to=1>(i)
          c = Add(a, b)
          z = Neg(c)
        }""")
    made = narrowed(model, DataType.BFLOAT16).exported.model
    casts = [(node.input[0], node.attribute[0].i) for node in made.graph.node
             if node.op_type == "Cast"]  # fmt: skip
    assert ("i", TensorProto.BFLOAT16) in casts
    assert ("a_bfloat16", TensorProto.INT32) in casts


def test_scales_regions_and_statistics_stay_beside_narrow_data() -> None:
    model = parsed("""
        g (float[1, 2, 4, 4] x, float[1, 3, 3, 2] grid) => (float[1, 2, 3, 3] y)
        <float[2] s = {1, 2}, float[2] v = {70000, 1e-9}, float[4] f = {1, 1, 2, 2}>
        {
          n = BatchNormalization(x, s, s, s, v)
          r = Resize(n, , f)
          y = GridSample(r, grid)
        }""")
    result = narrowed(model)
    assert (result.narrowed, result.casts, result.kept) == (3, 2, {})


def test_weights_outside_of_the_model_stay_outside() -> None:
    content = draw(64, 64)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 64])],
        [numpy_helper.from_array(content, "w")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10
    )
    inside = narrowed(model).exported
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = tensor.EXTERNAL
    for key, value in {"location": "w0", "offset": "0", "length": "16384"}.items():
        tensor.external_data.add(key=key, value=value)
    raw = content.reshape(-1).view(np.uint8)
    outside = narrow_model(ExportedModel(model, {"w0": raw}), DataType.FLOAT16).exported
    (weight,) = outside.model.graph.initializer
    (name,) = outside.weights
    assert weight.data_location == weight.EXTERNAL
    assert bytes(outside.weights[name]) == inside.model.graph.initializer[0].raw_data
    assert bytes(outside.weights[name]) == content.astype(np.float16).tobytes()


def test_convolutions_of_older_opsets_are_narrowed_to_bfloat16_too() -> None:
    model = parsed(
        """
        g (float[1, 1, 4, 4] x, float[1, 1, 2, 2] w) => (float[1, 1, 3, 3] y) {
          y = Conv(x, w)
        }""",
        opset=17,
    )
    result = narrow_model(ExportedModel(model, {}), DataType.BFLOAT16, Exclusions())
    assert result.narrowed == 1


def test_only_two_types_are_narrower() -> None:
    with pytest.raises(
        ValueError,
        match=re.escape("narrowed to float16 or bfloat16, not to float64"),
    ):
        narrow_model(ExportedModel(onnx.ModelProto(), {}), DataType.FLOAT64)


def test_sums_of_integers_are_scaled_before_they_are_narrowed() -> None:
    model = parsed("""
        g (float[2, 64] x, uint8[64, 64] w, float[64, 64] v) => (float[2, 64] y) {
          q, s, z = DynamicQuantizeLinear(x)
          i = MatMulInteger(q, w, z)
          f = Cast<to=1>(i)
          m = Mul(f, s)
          r = Relu(m)
          y = MatMul(r, v)
        }""")
    result = narrowed(model)
    assert set(result.kept) == {"DynamicQuantizeLinear 0", "Mul 3"}
    assert result.narrowed == 2
    feeds = {
        "x": draw(2, 64),
        "w": np.full((64, 64), 255, np.uint8),
        "v": draw(64, 64),
    }
    assert error(*(run(m, feeds)[0] for m in (model, result.exported.model))) < 2e-3


@pytest.mark.parametrize("dtype", BOTH)
def test_masks_that_are_moved_or_added_twice_stay_finite(dtype: DataType) -> None:
    model = parsed("""
        g (float[3, 3] x, float[3, 3] fed, int64[2] size) => (float[3, 3] y) {
          lowest = ConstantOfShape<value = float[1] {-1e9}>(size)
          one = Constant<value_int = 0>()
          later = Trilu<upper = 1>(lowest, one)
          s = MatMul(x, x)
          a = Add(s, later)
          b = Add(a, fed)
          y = Softmax(b)
        }""")
    result = narrowed(model, dtype)
    assert result.kept == {}
    feeds = {"x": draw(3, 3), "fed": np.full((3, 3), -1e9, np.float32),
             "size": np.array([3, 3])}  # fmt: skip
    # which, unlike the CPU EP, rounds after each node
    (found,) = onnx.reference.ReferenceEvaluator(result.exported.model).run(None, feeds)
    np.testing.assert_allclose(found.sum(1), 1, atol=2e-2)


def test_of_parts_of_a_mask_all_have_to_lead_to_a_softmax() -> None:
    model = parsed("""
        g (float[3, 8] x, bool[3, 8] hidden) => (float[3, 4] y, float[3, 4] z) {
          lowest = Constant<value_float = -1e9>()
          t = Tanh(x)
          c = Where(hidden, lowest, t)
          a, z = Split<axis = 1, num_outputs = 2>(c)
          y = Softmax(a)
        }""")
    result = narrowed(model)
    assert set(result.kept) == {"Where 2", "Split 3"}
    feeds = {"x": draw(3, 8), "hidden": np.tile(np.eye(3, 4) > 0, (1, 2))}
    for ours, wanted in zip(
        run(result.exported.model, feeds), run(model, feeds), strict=True
    ):
        assert error(wanted, ours) < 2e-3


def test_what_leads_to_a_softmax_is_seen_in_one_pass() -> None:
    """And not once for each of the ways there, of which there are 100 ** 12 here."""
    values = [f"v{count}" for count in range(13)]
    nodes = [
        helper.make_node("Concat", [value] * 100, [following], axis=0)
        for value, following in itertools.pairwise(values)
    ]
    nodes.append(helper.make_node("Softmax", [values[-1]], ["y"]))
    sides = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [0, 4])]
        for name in ("v0", "y")
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *sides),
        opset_imports=[helper.make_opsetid("", 22)],
        ir_version=10,
    )
    assert narrowed(model).narrowed == 1


@pytest.mark.parametrize(
    "nodes",
    [
        "c = Constant<value_float=1e30>()  b = Mul(a, c)  r = Relu(b)  y = Sqrt(r)",
        "c = Constant<value_float=1e-12>()  b = Div(a, c)  y = Neg(b)",
        "b = MatMul(a, w)  y = Add(b, b)",
        "d = Constant<value_int=3>()  v = Constant<value_floats=[0.0, 1e30]>()\n"
        "i = ArgMax<axis=1, keepdims=0>(x)  o = OneHot(i, d, v)  y = Mul(a, o)",
    ],
)
def test_what_is_made_of_large_numbers_stays(nodes: str) -> None:
    model = parsed(f"""
        g (float[3, 3] x) => (float[3, 3] y)
        <float[3, 3] w = {{1e5, 1e5, 1e5, 1e5, 1e5, 1e5, 1e5, 1e5, 1e5}}>
        {{
          a = Sigmoid(x)
          {nodes}
        }}""")
    feeds = {"x": draw(3, 3)}
    wanted, found = (
        run(each, feeds)[0] for each in (model, narrowed(model).exported.model)
    )
    assert error(wanted, found) < 2e-3


def test_scales_of_new_codes_keep_their_digits() -> None:
    model = parsed("""
        g (float[3, 2] x) => (int8[3, 2] q)
        <float[2] c = {1e-4, 1e-7}, float[2] s = {1e-6, 1e-9}, int8[2] z = {0, 0}>
        {
          a = Tanh(x)
          b = Mul(a, c)
          q = QuantizeLinear<axis = 1>(b, s, z)
        }""")
    assert set(narrowed(model).kept) == {"QuantizeLinear 2"}


def test_casts_are_no_computation() -> None:
    model = parsed("""
        g (float[3, 2] x) => (int64[3, 2] y) {
          a = Tanh(x)
          y = Cast<to = 7>(a)
        }""")
    assert narrowed(model).kept == {}


def test_what_a_model_of_16_bits_computes_in_float32_stays() -> None:
    """As norms whose squares leave the range of float16, in exports of that type."""
    model = parsed("""
        g (float16[2, 8] x, float16[8, 8] w) => (float16[2, 8] y, float[2, 8] z) {
          a = MatMul(x, w)
          t = Transpose<perm = [0, 1]>(a)
          f = Cast<to = 1>(t)
          q = Mul(f, f)
          axes = Constant<value_ints = [1]>()
          m = ReduceMean(q, axes)
          r = Sqrt(m)
          n = Div(f, r)
          y = Cast<to = 10>(n)
          b = Cast<to = 1>(x)
          z = Tanh(b)
        }""")
    result = narrowed(model)
    assert result.narrowed == 1
    assert set(result.kept) == {"Mul 3", "ReduceMean 5", "Sqrt 6", "Div 7"}
    feeds = {name: (300 * draw(*shape)).astype(np.float16)
             for name, shape in (("x", (2, 8)), ("w", (8, 8)))}  # fmt: skip
    feeds["w"] /= 300
    for ours, wanted in zip(
        run(result.exported.model, feeds), run(model, feeds), strict=True
    ):
        assert error(wanted, ours) < 2e-3
