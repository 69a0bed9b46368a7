"""Sparse tensors: stored ones are made dense, fed ones are checked and passed on.

No operator of ONNX takes or gives a sparse tensor, up to opset 28: a graph's own inputs
and outputs, and operators of other domains, are all that may be sparse.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import defs, helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType, SparseTensor
from onnxplug.errors import InputError, InputTypeError, InvalidModel, UnassignedNode

from .formats import Array
from .onnx_models import assert_alike, model, run, sample, session, stored, tensor

SHAPES = [(7,), (3, 4), (2, 3, 2), (0, 3)]


def parts(x: Array, layout: str) -> tuple[Array, Array]:
    """The elements of *x* that are not zero in every bit, and where they are."""
    flat = x.reshape(-1)
    if x.dtype == object:
        kept = np.array([place for place, text in enumerate(flat) if text], np.int64)
    else:
        octets = flat.view(np.uint8).reshape(flat.size, x.dtype.itemsize)
        kept = np.flatnonzero(octets.any(axis=1))
    indices = kept
    if layout == "coordinates":
        places = [np.unravel_index(place, x.shape) for place in kept.tolist()]
        indices = np.array(places, np.int64).reshape(len(kept), x.ndim)
    return flat[kept], indices


def sparse(x: Array, name: str, layout: str) -> Any:
    """*x* as ONNX stores sparse tensors."""
    values, indices = parts(x, layout)
    return helper.make_sparse_tensor(
        stored(values, name), numpy_helper.from_array(indices), x.shape
    )


def sparse_type(dtype: DataType | str, shape: Any) -> Any:
    return helper.make_sparse_tensor_type_proto(DataType(dtype).onnx, shape)


def with_zeros(dtype: DataType, shape: tuple[int, ...]) -> Array:
    """A sample in which two of three elements are nothing."""
    x = sample(dtype, shape)
    x.reshape(-1)[1::3] = x.reshape(-1)[2::3] = "" if x.dtype == object else 0
    return x


def test_no_operator_of_onnx_knows_sparse_tensors() -> None:
    kinds = {
        text
        for schema in defs.get_all_schemas_with_history()
        for constraint in schema.type_constraints
        for text in constraint.allowed_type_strs
    }
    assert not {kind for kind in kinds if "sparse" in kind}


# stored


@pytest.mark.parametrize("layout", ["linear", "coordinates"])
@pytest.mark.parametrize("dtype", DataType)
def test_stored_ones_are_dense(dtype: DataType, layout: str) -> None:
    for shape in SHAPES:
        x = with_zeros(dtype, shape)
        constant = sparse(x, "value", layout)
        made = model(
            [helper.make_node("Constant", [], ["constant"], sparse_value=constant)],
            [],
            [tensor("stored", dtype, shape), tensor("constant", dtype, shape)],
            sparse=[sparse(x, "stored", layout)],
        )
        for result in run(made, {}).values():
            assert_alike(result, x)


def test_stored_ones_take_part_like_any_other() -> None:
    w = with_zeros(DataType.FLOAT32, (4, 3))
    w[~np.isfinite(w)] = 1
    w = np.clip(w, -9, 9)
    made = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        [tensor("x", "float32", ("n", 4))],
        [tensor("y", "float32", ("n", 3))],
        sparse=[sparse(w, "w", "coordinates")],
    )
    x = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    np.testing.assert_allclose(run(made, {"x": x})["y"], x @ w, rtol=1e-5)


@pytest.mark.parametrize("declared", ["dense", "sparse"])
def test_a_stored_one_may_be_the_default_of_an_input(declared: str) -> None:
    """Made dense it is, so what is fed instead is dense, whatever is declared."""
    w = with_zeros(DataType.INT32, (3, 4))
    given = tensor("w", "int32", w.shape)
    if declared == "sparse":
        given = helper.make_value_info("w", sparse_type("int32", w.shape))
    made = model(
        [helper.make_node("Identity", ["w"], ["y"])],
        [given],
        [tensor("y", "int32", w.shape)],
        sparse=[sparse(w, "w", "linear")],
    )
    opened = session(made)
    (default,) = opened.get_overridable_initializers()
    assert (default.name, default.type) == ("w", "tensor(int32)")
    assert_alike(opened.run(None, {})[0], w)
    assert_alike(opened.run(None, {"w": w + 1})[0], w + 1)


def test_their_values_may_be_in_another_file(tmp_path: Path) -> None:
    x = with_zeros(DataType.FLOAT16, (5, 5))
    weight = sparse(x, "w", "linear")
    (tmp_path / "values").write_bytes(b"...." + weight.values.raw_data)
    entries = {"location": "values", "offset": "4"}
    for key, value in entries.items():
        weight.values.external_data.add(key=key, value=value)
    weight.values.ClearField("raw_data")
    weight.values.data_location = onnx.TensorProto.EXTERNAL
    made = model([], [], [tensor("w", "float16", (5, 5))], sparse=[weight])
    (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
    assert_alike(run(tmp_path / "model.onnx", {})["w"], x)


# fed


def pass_on(dtype: DataType | str, shape: Any) -> Any:
    value = helper.make_value_info("x", sparse_type(dtype, shape))
    return model([], [value], [value])


@pytest.mark.parametrize("dtype", DataType)
def test_one_that_is_fed_comes_out(dtype: DataType) -> None:
    opened = session(pass_on(dtype, ("rows", 4)))
    (argument,) = opened.get_inputs()
    number = onnx.TensorProto.DataType.Name(dtype.onnx).lower()
    assert argument.type == f"sparse_tensor({number})"
    assert argument.shape == ["rows", 4]
    for layout in ("linear", "coordinates"):
        values, indices = parts(with_zeros(dtype, (3, 4)), layout)
        fed = SparseTensor(values=values, indices=indices, shape=(3, 4))
        (result,) = opened.run(None, {"x": fed})
        assert_alike(result.values, values)
        assert_alike(result.indices, indices)
        assert result.shape == (3, 4)
        # the caller's own, as other results are
        result.indices[:] = 0
        assert_alike(indices, parts(with_zeros(dtype, (3, 4)), layout)[1])
    value = onnxplug.OrtValue(fed)
    assert value.is_sparse_tensor() and not value.is_tensor()
    assert value.data_type() == argument.type
    (returned,) = opened.run_with_ort_values(None, {"x": value})
    assert returned.is_sparse_tensor() and returned.data_type() == argument.type


VALUES, PLACES = np.array([7, 8], np.float32), np.array([1, 5])


@pytest.mark.parametrize(
    ("fed", "kind", "expected"),
    [
        (
            np.zeros((2, 3), np.float32),
            InputTypeError,
            "is a ndarray; expected an onnx",
        ),
        (None, InputTypeError, "is a NoneType; expected an onnxplug.ep.SparseTensor"),
        ((VALUES.astype(float), PLACES, (2, 3)), InputTypeError, r"tensor\(double\)"),
        ((VALUES, PLACES.astype(np.int32), (2, 3)), InputTypeError, r"tensor\(int32\)"),
        ((VALUES, PLACES, (6,)), InputError, "Got: 1 Expected: 2"),
        ((VALUES, PLACES, (2, 4)), InputError, "index: 1 Got: 4 Expected: 3"),
        ((VALUES, PLACES[:1], (2, 3)), InputError, r"shape \[2\] and indices of .*\[1"),
        (
            (VALUES, PLACES.reshape(1, 2), (2, 3)),
            InputError,
            r"indices \[n\] or \[n, r",
        ),
        ((VALUES[None], PLACES, (2, 3)), InputError, r"values of shape \[1, 2\]"),
        ((VALUES, PLACES + 1, (2, 3)), InputError, "index outside it: 6"),
        ((VALUES, -PLACES, (2, 3)), InputError, "index outside it: -1"),
        ((VALUES[:1], np.array([[1, 3]]), (2, 3)), InputError, "index outside it: 3"),
    ],
)
def test_what_does_not_fit_is_refused(fed: Any, kind: Any, expected: str) -> None:
    if isinstance(fed, tuple):
        fed = SparseTensor(values=fed[0], indices=fed[1], shape=fed[2])
    with pytest.raises(kind, match=expected) as raised:
        session(pass_on("float32", (2, 3))).run(None, {"x": fed})
    assert raised.value.input == "x"


@pytest.mark.parametrize("operator", ["Identity", "Abs", "Size"])
@pytest.mark.parametrize("stated", [True, False])
def test_operators_of_onnx_are_not_given_any(operator: str, stated: bool) -> None:
    """Whether ONNX's inference looks at the model or, as all is stated, we alone."""
    middle = tensor("y", "int64" if operator == "Size" else "float32", (2, 3))
    nodes = [
        helper.make_node(operator, ["x"], ["y"]),
        helper.make_node("Identity", ["y"], ["z"]),
    ]
    given = helper.make_value_info("x", sparse_type("float32", (2, 3)))
    output = helper.make_value_info("z", middle.type)
    made = model(nodes, [given], [output])
    if stated:
        made.graph.value_info.append(middle)
    with pytest.raises(InvalidModel, match="sparse"):
        session(made)


def test_operators_of_other_domains_may_be_given_some() -> None:
    value = helper.make_value_info("x", sparse_type("float32", (2, 3)))
    node = helper.make_node("Densify", ["x"], ["y"], domain="my.domain")
    made = model(
        [node],
        [value],
        [tensor("y", "float32", (2, 3))],
        opsets={"": 28, "my.domain": 1},
    )
    with pytest.raises(UnassignedNode, match=r"no EP runs my\.domain\.Densify"):
        session(made)
