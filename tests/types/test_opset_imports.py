"""Which version of an operator a model means, in models that import several."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from onnxplug.errors import InvalidModel, UnassignedNode, UnsupportedModel

from .onnx_models import assert_alike, model, run, session, tensor

X = np.array([[[1, 2], [3, 5]]], np.float32)
SHAPE = (1, 2, 2)


def softmax(x: Any, axes: Any) -> Any:
    """In float64, over *axes* together."""
    raised = np.exp(x.astype(np.float64))
    return raised / raised.sum(axis=axes, keepdims=True)


def of_softmax(opsets: dict[str, int], **attributes: Any) -> Any:
    """Softmax, which until version 12 takes all axes from the given one together."""
    node = helper.make_node("Softmax", ["x"], ["y"], **attributes)
    values = [tensor("x", "float32", SHAPE)], [tensor("y", "float32", SHAPE)]
    return model([node], *values, opsets=opsets, ir_version=8)


@pytest.mark.parametrize(
    ("opsets", "axes"),
    [
        ({"": 11}, (1, 2)),
        ({"": 12}, (1, 2)),
        ({"": 13}, (1,)),
        ({"ai.onnx": 11}, (1, 2)),
    ],
)
def test_the_version_imported_is_the_version_run(opsets: Any, axes: Any) -> None:
    found = run(of_softmax(opsets, axis=1), {"x": X})["y"]
    np.testing.assert_allclose(found, softmax(X, axes), rtol=1e-6)


@pytest.mark.parametrize("names", [("", ""), ("", "ai.onnx"), ("ai.onnx", "")])
@pytest.mark.parametrize("versions", [(11, 13), (13, 11)])
def test_of_two_versions_the_higher_counts(names: Any, versions: Any) -> None:
    made = of_softmax({"": 11}, axis=1)
    del made.opset_import[:]
    for name, version in zip(names, versions, strict=True):
        made.opset_import.add(domain=name, version=version)
    found = run(made, {"x": X})["y"]
    np.testing.assert_allclose(found, softmax(X, (1,)), rtol=1e-6)


def test_bodies_have_the_versions_of_the_model() -> None:
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Softmax", ["x"], [name], axis=1)],
            name,
            [],
            [tensor(name, "float32", SHAPE)],
        )
        for name in ("then", "else")
    }
    made = model(
        [helper.make_node("If", ["flag"], ["y"], **branches)],
        [tensor("x", "float32", SHAPE), tensor("flag", "bool", ())],
        [tensor("y", "float32", SHAPE)],
        opsets={"": 11},
        ir_version=6,
    )
    found = run(made, {"x": X, "flag": np.array(True)})["y"]
    np.testing.assert_allclose(found, softmax(X, (1, 2)), rtol=1e-6)


@pytest.mark.parametrize(
    ("version", "attributes", "expected"),
    [
        (1, {"classes_strings": ["a", "b"]}, [1, -1]),
        (2, {"keys_strings": ["b"], "values_int64s": [7]}, [7, -1]),
        (4, {"keys_strings": ["c"], "values_int64s": [9]}, [-1, 9]),
    ],
)
def test_each_domain_has_a_version_of_its_own(
    version: int, attributes: Any, expected: Any
) -> None:
    nodes = [
        helper.make_node(
            "LabelEncoder", ["s"], ["n"], domain="ai.onnx.ml", **attributes
        ),
        helper.make_node("Softmax", ["x"], ["y"], axis=1),
    ]
    made = model(
        nodes,
        [tensor("s", "string"), tensor("x", "float32", SHAPE)],
        [tensor("n", "int64"), tensor("y", "float32", SHAPE)],
        opsets={"": 12, "ai.onnx.ml": version, "com.example": 7},
        ir_version=8,
    )
    found = run(made, {"s": np.array(["b", "c"], object), "x": X})
    assert_alike(found["n"], np.array(expected))
    np.testing.assert_allclose(found["y"], softmax(X, (1, 2)), rtol=1e-6)


# functions


def calling(nodes: list[Any], opsets: dict[str, int], version: int) -> Any:
    """A model of opset *version* that calls a function of *nodes* and *opsets*."""
    function = helper.make_function(
        "my",
        "Function",
        ["a"],
        ["b"],
        nodes,
        [helper.make_opsetid(*each) for each in opsets.items()],
    )
    return model(
        [helper.make_node("Function", ["x"], ["y"], domain="my")],
        [tensor("x", "float32", SHAPE)],
        [tensor("y", "float32", SHAPE)],
        functions=[function],
        opsets={"": version, "my": 1},
        ir_version=8,
    )


@pytest.mark.parametrize("own", [9, 12, 13, 18, 28])
@pytest.mark.parametrize("version", [9, 13, 28])
def test_a_function_may_import_another_version(own: int, version: int) -> None:
    """If its operators mean the same as in the version that the model imports."""
    nodes = [
        helper.make_node("Reciprocal", ["a"], ["c"]),
        helper.make_node("LeakyRelu", ["c"], ["b"], alpha=0.5),
    ]
    made = calling(nodes, {"": own}, version)
    assert_alike(run(made, {"x": X})["y"], 1 / X)


def test_a_function_must_mean_what_the_model_means() -> None:
    node = helper.make_node("Softmax", ["a"], ["b"], axis=1)
    found = run(calling([node], {"": 13}, 21), {"x": X})["y"]
    np.testing.assert_allclose(found, softmax(X, (1,)), rtol=1e-6)
    with pytest.raises(UnsupportedModel, match="Softmax"):
        session(calling([node], {"": 12}, 13))
    with pytest.raises(UnsupportedModel, match=r"opset 29 .* up to 28"):
        session(calling([node], {"": 29}, 28))


def test_a_function_without_imports_has_those_of_the_model() -> None:
    node = helper.make_node("Softmax", ["a"], ["b"], axis=1)
    found = run(calling([node], {}, 12), {"x": X})["y"]
    np.testing.assert_allclose(found, softmax(X, (1, 2)), rtol=1e-6)


def test_a_function_may_import_a_domain_that_the_model_does_not() -> None:
    node = helper.make_node("Normalizer", ["a"], ["b"], domain="ai.onnx.ml", norm="MAX")
    made = calling([node], {"": 13, "ai.onnx.ml": 1}, 13)
    found = run(made, {"x": X})["y"]
    np.testing.assert_allclose(found, X / X.max(axis=-1, keepdims=True), rtol=1e-6)


# missing


@pytest.mark.parametrize(
    ("domain", "operator"),
    [("ai.onnx.ml", "Binarizer"), ("com.example", "Double"), ("", "Relu")],
)
def test_a_domain_that_is_used_must_be_imported(domain: str, operator: str) -> None:
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    values = [tensor("x", "float32", SHAPE)], [tensor("y", "float32", SHAPE)]
    opsets = {"other": 1} if not domain else {"": 21}
    made = model([node], *values, opsets=opsets, ir_version=8)
    name = domain or "ai.onnx"
    expected = (
        rf"no EP runs .*{operator}(.|\n)*imports no version of the domain '{name}'"
    )
    with pytest.raises(UnassignedNode, match=expected):
        session(made)


def test_some_operators_must_be_imported() -> None:
    made = of_softmax({"": 13})
    del made.opset_import[:]
    with pytest.raises(InvalidModel, match="IR version 8 and imports no operator set"):
        session(made)


@pytest.mark.parametrize(
    ("opsets", "expected"),
    [
        ({"": 29}, "opset 29 of domain 'ai.onnx', .* up to 28"),
        ({"": 13, "ai.onnx.ml": 6}, "opset 6 of domain 'ai.onnx.ml', .* up to 5"),
    ],
)
def test_newer_versions_are_refused(opsets: Any, expected: str) -> None:
    with pytest.raises(UnsupportedModel, match=expected):
        session(of_softmax(opsets))
