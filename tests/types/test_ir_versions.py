"""Each IR version, 1 to 14, with what it brought (``enum Version`` of onnx.proto)."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType, SparseTensor
from onnxplug.errors import InputError, InvalidModel, UnsupportedModel

from .formats import decode
from .onnx_models import assert_alike, model, run, sample, session, tensor, tensor_type

X = np.array([1.5, -2.5], np.float32)
W = np.array([10, 20], np.float32)
VERSIONS = range(1, 15)
NEWEST_OPSET = {
    1: 1,
    2: 1,
    3: 8,
    4: 9,
    5: 10,
    6: 11,
    7: 14,
    8: 18,
    9: 20,
    10: 22,
    11: 23,
    12: 24,
    13: 26,
    14: 28,
}
"""The newest opset that was released with each IR version."""


def scaled(ir_version: int, *, listed: bool) -> onnx.ModelProto:
    """A model of ``x * w`` with a weight that is an input, too, where it is listed."""
    opset = NEWEST_OPSET[ir_version]
    inputs = [tensor("x", "float32"), *[tensor("w", "float32")] * listed]
    made = model(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        inputs,
        [tensor("y", "float32")],
        weights=[numpy_helper.from_array(W, "w")],
        opsets={"": opset} if ir_version > 2 else {},
        ir_version=ir_version,
    )
    assert made.ir_version == ir_version
    return made


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize("ir_version", VERSIONS)
def test_a_model_of_each_version_runs(ir_version: int, listed: bool) -> None:
    """Weights may not be listed since version 4; models that left them out before are
    read, too, as ONNX Runtime reads them."""
    opened = session(scaled(ir_version, listed=listed))
    assert [each.name for each in opened.get_inputs()] == ["x"]
    assert_alike(opened.run(None, {"x": X}), [X * W])


@pytest.mark.parametrize("ir_version", VERSIONS)
def test_a_weight_that_is_an_input_may_be_fed_since_version_4(ir_version: int) -> None:
    opened = session(scaled(ir_version, listed=True))
    names = [each.name for each in opened.get_overridable_initializers()]
    feed = {"x": X, "w": W + 1}
    if ir_version >= 4:
        assert names == ["w"]
        assert_alike(opened.run(None, feed), [X * (W + 1)])
    else:
        assert names == []
        with pytest.raises(InputError, match="Invalid input name: w"):
            opened.run(None, feed)


@pytest.mark.parametrize("ir_version", [0, -1, 15, 100])
def test_other_versions_are_refused(ir_version: int) -> None:
    made = scaled(14, listed=False)
    made.ir_version = ir_version
    if ir_version < 1:
        with pytest.raises(InvalidModel, match="does not say its IR version"):
            session(made)
    else:
        expected = f"IR version {ir_version}, and this onnxplug reads up to 14; upgrade"
        with pytest.raises(UnsupportedModel, match=expected):
            session(made)


def test_1_has_attributes_without_a_type() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.5)
    node.attribute[0].ClearField("type")
    values = [tensor("x", "float32")], [tensor("y", "float32")]
    made = model([node], *values, opsets={}, ir_version=1)
    assert_alike(run(made, {"x": X})["y"], np.array([1.5, -1.25], np.float32))


def test_2_says_the_types_of_attributes() -> None:
    node = helper.make_node("Transpose", ["x"], ["y"], perm=[1, 0])
    assert node.attribute[0].type == onnx.AttributeProto.INTS
    values = [tensor("x", "float32", (2, 3))], [tensor("y", "float32", (3, 2))]
    made = model([node], *values, opsets={}, ir_version=2)
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert_alike(run(made, {"x": x})["y"], x.T.copy())


def test_3_imports_the_operators_of_several_domains() -> None:
    nodes = [
        helper.make_node("Binarizer", ["x"], ["b"], domain="ai.onnx.ml", threshold=0.5),
        helper.make_node("Neg", ["b"], ["y"]),
    ]
    values = [tensor("x", "float32")], [tensor("y", "float32")]
    made = model(nodes, *values, opsets={"": 6, "ai.onnx.ml": 1}, ir_version=3)
    assert_alike(run(made, {"x": X})["y"], np.array([-1, -0.0], np.float32))
    del made.opset_import[:]
    with pytest.raises(InvalidModel, match="imports no operator set"):
        session(made)


def test_4_has_bfloat16() -> None:
    w = sample(DataType.BFLOAT16)
    made = model(
        [],
        [],
        [tensor("w", "bfloat16", (5,))],
        weights=[numpy_helper.from_array(w, "w")],
        opsets={"": 9},
        ir_version=4,
    )
    assert_alike(run(made, {})["w"], w)


def test_5_annotates_what_is_quantized() -> None:
    made = scaled(5, listed=False)
    note = made.graph.quantization_annotation.add(tensor_name="x")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="w")
    assert_alike(run(made, {"x": X})["y"], X * W)


def test_6_has_sparse_weights() -> None:
    made = scaled(6, listed=False)
    del made.graph.initializer[:]
    made.graph.sparse_initializer.append(
        helper.make_sparse_tensor(
            numpy_helper.from_array(W[1:], "w"),
            numpy_helper.from_array(np.array([1])),
            (2,),
        )
    )
    assert_alike(run(made, {"x": X})["y"], X * np.array([0, 20], np.float32))


def test_7_can_be_trained() -> None:
    """How it is trained is no business of inference."""
    made = scaled(7, listed=False)
    info = made.training_info.add()
    info.algorithm.CopyFrom(
        helper.make_graph(
            [helper.make_node("Sub", ["w", "step"], ["w_new"])],
            "algorithm",
            [],
            [tensor("w_new", "float32")],
            [numpy_helper.from_array(W, "step")],
        )
    )
    info.update_binding.add(key="w", value="w_new")
    assert_alike(run(made, {"x": X})["y"], X * W)


def doubling() -> onnx.FunctionProto:
    node = helper.make_node("Mul", ["a", "two"], ["b"])
    two = helper.make_node("Constant", [], ["two"], value_float=2.0)
    return helper.make_function(
        "my", "Double", ["a"], ["b"], [two, node], [helper.make_opsetid("", 18)]
    )


def calling(ir_version: int, *functions: Any, **attributes: Any) -> onnx.ModelProto:
    """A model of a call of the first of *functions*."""
    name = functions[0].name
    return model(
        [helper.make_node(name, ["x"], ["y"], domain="my", **attributes)],
        [tensor("x", "float32")],
        [tensor("y", "float32")],
        functions=functions,
        opsets={"": 18, "my": 1},
        ir_version=ir_version,
    )


def test_8_has_functions() -> None:
    assert_alike(run(calling(8, doubling()), {"x": X})["y"], X * 2)


def test_8_has_optional_and_sparse_inputs() -> None:
    optional = helper.make_optional_type_proto(tensor_type("float32"))
    sparse = helper.make_sparse_tensor_type_proto(TensorProto.FLOAT, (3,))
    values = [
        helper.make_value_info("o", optional),
        helper.make_value_info("s", sparse),
    ]
    made = model([], values, values, opsets={"": 18}, ir_version=8)
    given = SparseTensor(values=X[:1], indices=np.array([2]), shape=(3,))
    found = run(made, {"o": None, "s": given})
    assert found["o"] is None
    assert_alike(found["s"].values, X[:1])


def scaling() -> onnx.FunctionProto:
    """A function that scales by an attribute, 3 unless a call says otherwise."""
    factor = helper.make_node("Constant", [], ["factor"])
    factor.attribute.add(
        name="value_float", ref_attr_name="factor", type=onnx.AttributeProto.FLOAT
    )
    node = helper.make_node("Mul", ["a", "factor"], ["b"])
    made = helper.make_function(
        "my", "Scale", ["a"], ["b"], [factor, node], [helper.make_opsetid("", 18)]
    )
    made.attribute_proto.append(helper.make_attribute("factor", 3.0))
    return made


def test_9_has_defaults_for_attributes_of_functions() -> None:
    assert_alike(run(calling(9, scaling()), {"x": X})["y"], X * 3)
    assert_alike(run(calling(9, scaling(), factor=5.0), {"x": X})["y"], X * 5)


def test_10_has_overloads_and_notes_everywhere() -> None:
    first, second = doubling(), doubling()
    second.overload = "negated"
    second.node.append(helper.make_node("Neg", ["b"], ["c"]))
    second.output[0] = "c"
    made = calling(10, first, second)
    assert_alike(run(made, {"x": X})["y"], X * 2)
    made.graph.node[0].overload = "negated"
    for noted in (made.graph, made.graph.node[0], made.graph.input[0], first):
        noted.metadata_props.add(key="note", value="anything")
    assert_alike(run(made, {"x": X})["y"], -X * 2)


def test_11_may_be_divided_among_devices() -> None:
    """The division is a hint for runtimes that have several; here one computes all."""
    made = scaled(11, listed=False)
    made.configuration.add(name="pair", num_devices=2, device=["a", "b"])
    placed = made.graph.node[0].device_configurations.add(configuration_id="pair")
    placed.pipeline_stage = 1
    sharding = placed.sharding_spec.add(tensor_name="x")
    sharding.device.extend([0, 1])
    sharding.sharded_dim.add(axis=0)
    assert_alike(run(made, {"x": X})["y"], X * W)


@pytest.mark.parametrize(
    ("ir_version", "name"),
    [
        (9, "float8_e4m3fn"),
        (9, "float8_e4m3fnuz"),
        (9, "float8_e5m2"),
        (9, "float8_e5m2fnuz"),
        (10, "uint4"),
        (10, "int4"),
        (11, "float4_e2m1fn"),
        (12, "float8_e8m0fnu"),
        (13, "uint2"),
        (13, "int2"),
        (14, "float6_e2m3fn"),
        (14, "float6_e3m2fn"),
    ],
)
def test_versions_that_brought_element_types(ir_version: int, name: str) -> None:
    opset = NEWEST_OPSET[ir_version]
    w = sample(DataType(name))
    made = model(
        [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)],
        [tensor("x", name)],
        [tensor("y", "float32"), tensor("x", name)],
        weights=[numpy_helper.from_array(w, "w")],
        opsets={"": opset},
        ir_version=ir_version,
    )
    x = sample(DataType(name))
    found = run(made, {"x": x})
    assert_alike(found["x"], x)
    np.testing.assert_array_equal(found["y"], decode(w))


def test_14_has_values_of_opaque_types() -> None:
    """What they are is known to those who make and take them; they are handed on."""
    made = scaled(14, listed=False)
    for values in (made.graph.input, made.graph.output):
        added = values.add(name="thing")
        added.type.opaque_type.domain = "my.domain"
        added.type.opaque_type.name = "Thing"
    opened = onnxplug.InferenceSession(made)
    assert opened.get_inputs()[1].type == "unknown"
    thing = object()
    y, same = opened.run(None, {"x": X, "thing": thing})
    assert_alike(y, X * W)
    assert same is thing
