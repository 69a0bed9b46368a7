"""What TensorRT gets of a model, and why it does not get the rest."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import errors

from .conftest import EP
from .standin import TensorRT

CHAIN = "a = Exp(x) b = Sin(a) c = Neg(b) d = Cos(c) e = Abs(d) y = Relu(e)"


def placed(session: onnxplug.InferenceSession) -> dict[str, str]:
    found = {}
    for node in session.explain().nodes:
        found[node.op_type] = node.ep
    return found


def refusal(session: onnxplug.InferenceSession, operator: str) -> str:
    for back in session.explain().given_back:
        if any(operator in str(node) for node in back.nodes):
            return str(back.reason)
    for node, passed in session.explain().refusals:
        if node.op_type == operator and passed.ep == EP:
            return str(passed.reason)
    raise AssertionError(str(session.explain()))


def check(session: onnxplug.InferenceSession, model: onnx.ModelProto) -> None:
    x = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)
    (found,) = session.run(None, {"x": x})
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-6)


def test_what_the_parser_does_not_take_goes_elsewhere(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    tensorrt.refused["Neg"] = "UNSUPPORTED_NODE_ATTR", "Neg has no such attribute"
    tensorrt.refused["Cos"] = "UNSUPPORTED_NODE_DATATYPE", "Cos of what is this"
    model = parse(CHAIN)
    session = make(model)
    where = placed(session)
    assert {name for name, ep in where.items() if ep == EP} == {
        "Exp", "Sin", "Abs", "Relu",
    }  # fmt: skip
    assert "attribute: TensorRT: Neg has no such attribute" in refusal(session, "Neg")
    assert "dtype: TensorRT: Cos of what is this" in refusal(session, "Cos")
    check(session, model)
    # once for the whole, for each node, and for each of the parts
    assert tensorrt.counts["supports_model_v2"] == 1 + 6 + 2


def test_what_the_parser_cannot_read_goes_elsewhere(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    """It says nothing of the nodes beside."""
    tensorrt.refused["Neg"] = "INVALID_NODE", "Neg of uint8"
    tensorrt.refused["Abs"] = "INVALID_NODE", "Abs of uint8"
    model = parse(CHAIN)
    session = make(model)
    where = placed(session)
    assert {name for name, ep in where.items() if ep == EP} == {
        "Exp", "Sin", "Relu",
    }  # fmt: skip
    assert "other: TensorRT: Abs of uint8" in refusal(session, "Abs")
    check(session, model)


def test_nodes_that_are_left_out(make: Any, parse: Any) -> None:
    model = parse(CHAIN)
    session = make(model, trt_op_types_to_exclude="Cos, Neg")
    assert "'trt_op_types_to_exclude'" in refusal(session, "Cos")
    assert placed(session)["Exp"] == placed(session)["Relu"] == EP
    check(session, model)


def test_small_partitions_are_left_out(make: Any, parse: Any) -> None:
    model = parse(CHAIN)
    session = make(model, trt_op_types_to_exclude="Cos", trt_min_subgraph_size=3)
    where = placed(session)
    assert {name for name, ep in where.items() if ep == EP} == {"Exp", "Sin", "Neg"}
    assert "'trt_min_subgraph_size'" in refusal(session, "Relu")
    check(session, model)


def test_the_parser_is_asked_so_often(
    make: Any, parse: Any, tensorrt: TensorRT
) -> None:
    tensorrt.refused["Cos"] = "UNSUPPORTED_NODE", "no Cos"
    model = parse(CHAIN)
    with pytest.warns(errors.EpWarning, match="'trt_max_partition_iterations'"):
        session = make(model, trt_max_partition_iterations=1)
    assert EP not in placed(session).values()
    check(session, model)


def test_types_that_it_has_not(make: Any, parse: Any) -> None:
    model = parse("d = Cast<to = 11>(x) e = Exp(d) y = Cast<to = 1>(e)")
    with pytest.warns(errors.EpWarning, match="float64.*which TensorRT has not"):
        session = make(model)
    check(session, model)


def test_types_that_it_has_within_only(make: Any, parse: Any) -> None:
    """What makes them for others goes elsewhere, and what is beside does not."""
    model = parse(
        "a = Exp(x) b = Sin(a) q = QuantizeLinear(b, s, o) "
        "d = DequantizeLinear(q, s, o) y = Neg(d)",
        outputs="float[2, 3] y, float8e4m3fn[2, 3] q",
        weights="float s = {0.25}, float8e4m3fn o = {0}",
    )
    session = make(model)
    where = placed(session)
    assert where["Exp"] == where["Sin"] == EP != where["QuantizeLinear"]
    assert "neither goes in nor out of TensorRT" in refusal(session, "QuantizeLinear")
    model.graph.output.pop()
    assert set(placed(make(model)).values()) == {EP}


def test_operators_that_its_parser_never_heard_of(make: Any, parse: Any) -> None:
    model = parse("d = Det(x) y = Exp(d)", "float[2, 2] x", "float y")
    session = make(model)
    assert "has no such operator" in refusal(session, "Det")
    assert placed(session)["Exp"] == EP


def test_an_input_that_is_a_shape(make: Any, alone: Any, parse: Any) -> None:
    """Its values are to be known, so it goes elsewhere unless their range is said."""
    model = parse(
        "e = Exp(x) r = Reshape(e, s) y = Sin(r)",
        "float[2, 3] x, int64[2] s", "float[n, m] y",
    )  # fmt: skip
    x = np.ones((2, 3), np.float32)
    feed = {"x": x, "s": np.array([3, 2])}
    (wanted,) = ReferenceEvaluator(model).run(None, feed)
    session = make(model)
    assert placed(session)["Exp"] == EP != placed(session)["Reshape"]
    assert "trt_profile_min_shapes" in refusal(session, "Reshape")
    np.testing.assert_allclose(session.run(None, feed)[0], wanted, 1e-6)
    session = alone(
        model,
        trt_profile_min_shapes="s:1x1",
        trt_profile_opt_shapes="s:3x2",
        trt_profile_max_shapes="s:6x6",
    )
    np.testing.assert_allclose(session.run(None, feed)[0], wanted, 1e-6)


def test_an_input_of_any_rank_goes_elsewhere(make: Any, parse: Any) -> None:
    model = parse("e = Exp(x) f = Exp(z) y = Sin(f)", "float[2, 3] x, float[2] z",
                  "float[2, 3] e, float[2] y")  # fmt: skip
    for value in (model.graph.input[1], model.graph.output[1]):
        value.type.tensor_type.ClearField("shape")
    session = make(model)
    assert "rank of 'z' is not known" in refusal(session, "Exp")
    x = np.ones((2, 3), np.float32)
    for rank in range(3):
        z = np.ones((2,) * rank, np.float32)
        found = session.run(None, {"x": x, "z": z})[1]
        np.testing.assert_allclose(found, np.sin(np.exp(z)), 1e-6)


def test_operators_of_other_domains_are_none_of_its_parser_s(
    make: Any, parse: Any
) -> None:
    model = parse("a = Exp(x) y = acme.Neg(a)")
    model.opset_import.add(domain="acme", version=1)
    with pytest.raises(errors.UnassignedNode, match="no operators of the domain acme"):
        make(model)
