"""Feature operators against ONNX Runtime, and the specification where they differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from .node_oracles import ML, onnx_runtime, run

X = np.array([[-3, 1, 4], [2, -1, 0], [0, 0, 0], [5, -9, 2]])
NAN = float("nan")
NUMBERS = [np.float32, np.float64, np.int32, np.int64]


def f32(values: Any) -> Any:
    return np.array(values, dtype=np.float32)


def ml(op_type: str, *inputs: Any, version: int = 3, **attributes: Any) -> Any:
    return run(op_type, *inputs, domain=ML, version=version, **attributes)


def runtime(op_type: str, *inputs: Any, version: int = 3, **attributes: Any) -> Any:
    return onnx_runtime(op_type, *inputs, domain=ML, version=version, **attributes)[0]


def strings(values: Any) -> Any:
    return np.array(values, dtype=object)


def same(result: Any, expected: Any) -> None:
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("x", [X, X[0], X.reshape(2, 2, 3), X.astype(str).astype("O")])
@pytest.mark.parametrize("indices", [[2], [0, 2, 2], [[1, 0]]])
def test_array_feature_extractor(x: Any, indices: Any) -> None:
    places = np.array(indices)
    kind = TensorProto.STRING if x.dtype == object else TensorProto.INT64
    expected = runtime("ArrayFeatureExtractor", x, places, outputs=(kind,))
    same(ml("ArrayFeatureExtractor", x, places), expected)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_binarizer(dtype: Any) -> None:
    result = ml("Binarizer", X.astype(dtype), threshold=0.5)
    same(result, (X > 0.5).astype(dtype))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_feature_vectorizer(dtype: Any) -> None:
    x, y = X.astype(dtype), X[:, :1].astype(dtype)
    expected = runtime("FeatureVectorizer", x, y, inputdimensions=[2, 3])
    same(ml("FeatureVectorizer", x, y, inputdimensions=(2, 3)), expected)
    same(ml("FeatureVectorizer", x[0], y[0]), f32([[-3, 1, 4, -3]]))
    same(ml("FeatureVectorizer", x[:0], y[:0]), np.zeros((0, 4), np.float32))
    with pytest.raises(ValueError, match="1 entries for 2 inputs"):
        ml("FeatureVectorizer", x, y, inputdimensions=(3,))


@pytest.mark.parametrize("replaced", [0.0, NAN])
@pytest.mark.parametrize("values", [(7.0,), (7.0, 8.0, 9.5)])
def test_imputer_of_floats(values: tuple[float, ...], replaced: float) -> None:
    x = np.where(X == 0, replaced, X).astype(np.float32)
    attributes: dict[str, Any] = {
        "imputed_value_floats": values,
        "replaced_value_float": replaced,
    }
    expected = runtime("Imputer", x, **attributes)
    same(ml("Imputer", x, **attributes), expected)
    wide = ml("Imputer", x.astype(np.float64), **attributes)
    same(wide, expected.astype(np.float64))


def test_imputer_of_integers() -> None:
    attributes: dict[str, Any] = {
        "imputed_value_int64s": (7, 8, 9),
        "replaced_value_int64": 0,
    }
    expected = runtime("Imputer", X, outputs=(TensorProto.INT64,), **attributes)
    same(ml("Imputer", X, **attributes), expected)
    assert ml("Imputer", X.astype(np.int32), **attributes).dtype == np.int32
    with pytest.raises(ValueError, match="0 imputed values for 3 features"):
        ml("Imputer", X.astype(np.float32), **attributes)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str, dtype: Any) -> None:
    x = X.astype(dtype)
    for rows in (x, x[1]):
        result = ml("Normalizer", rows, norm=norm)
        assert result.dtype == np.float32
        expected = runtime("Normalizer", rows, norm=norm)
        np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("count", [1, 3])
def test_scaler(count: int, dtype: Any) -> None:
    attributes: dict[str, Any] = {
        "offset": [0.5, 1.0, -2.0][:count],
        "scale": [0.1, 3.0, 2.0][:count],
    }
    result = ml("Scaler", X.astype(dtype), **attributes)
    expected = runtime("Scaler", X.astype(dtype), **attributes)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    with pytest.raises(ValueError, match="2 offsets for 3 features"):
        ml("Scaler", X, offset=(1.0, 2.0))


def test_one_hot_encoder() -> None:
    x = np.array([[1.7, 5.0], [-2.0, 2.0]])
    numbers: dict[str, Any] = {"cats_int64s": (1, 2, 5)}
    for values in (x, x.astype(np.float32), x.astype(np.int64)):
        same(
            ml("OneHotEncoder", values, **numbers),
            runtime("OneHotEncoder", values, **numbers),
        )
    text = strings(["b", "z"])
    names: dict[str, Any] = {"cats_strings": ("a", "b")}
    same(ml("OneHotEncoder", text, **names), runtime("OneHotEncoder", text, **names))
    with pytest.raises(ValueError, match="'z' is not among"):
        ml("OneHotEncoder", text, zeros=0, **names)


def test_category_mapper() -> None:
    attributes: dict[str, Any] = {
        "cats_int64s": (4, 5),
        "cats_strings": ("a", "b"),
        "default_int64": -7,
        "default_string": "none",
    }
    same(ml("CategoryMapper", strings(["b", "q"]), **attributes), np.array([5, -7]))
    result = ml("CategoryMapper", np.array([[4, 0]]), **attributes)
    same(result, strings([["a", "none"]]))
    with pytest.raises(ValueError, match="1 integers for 2 strings"):
        ml("CategoryMapper", X, cats_int64s=(1,), cats_strings=("a", "b"))


def test_label_encoder_1() -> None:
    attributes: dict[str, Any] = {"classes_strings": ("a", "b"), "default_int64": -7}
    text = strings([["b", "q"], ["a", "b"]])
    result = ml("LabelEncoder", text, version=1, **attributes)
    same(result, np.array([[1, -7], [0, 1]]))
    result = ml("LabelEncoder", np.array([0, 1, 2, -1]), version=1, **attributes)
    same(result, strings(["a", "b", "_Unused", "_Unused"]))


KEYS: dict[str, tuple[Any, Any]] = {
    "keys_strings": (("x", "y", "z"), strings(["y", "?", "x", "z"])),
    "keys_int64s": ((3, -1, 7), np.array([-1, 4, 3, 7])),
    "keys_floats": ((0.5, -1.0, 9.0), f32([-1, 4, 0.5, 9])),
}
VALUES: dict[str, tuple[Any, int, dict[str, Any]]] = {
    "values_strings": (("a", "b", "c"), TensorProto.STRING, {"default_string": "d"}),
    "values_int64s": ((1, 2, 3), TensorProto.INT64, {"default_int64": 4}),
    "values_floats": ((1.5, 2.5, 3.5), TensorProto.FLOAT, {"default_float": 4.5}),
}


@pytest.mark.parametrize("version", [2, 4])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("keys", KEYS)
def test_label_encoder(keys: str, values: str, version: int) -> None:
    key_list, x = KEYS[keys]
    value_list, kind, default = VALUES[values]
    attributes: dict[str, Any] = {keys: key_list, values: value_list}
    result = ml("LabelEncoder", x, version=version, **attributes, **default)
    assert result.tolist() == [
        value_list[1],
        *default.values(),
        value_list[0],
        value_list[2],
    ]
    expected = runtime(
        "LabelEncoder", x, version=version, outputs=(kind,), **attributes, **default
    )
    same(result, expected)
    unknown = x[1:2].reshape(())
    scalar = ml("LabelEncoder", unknown, version=version, **attributes)
    expected_default = {"values_strings": "_Unused", "values_int64s": -1}
    assert (scalar.shape, scalar.item()) == ((), expected_default.get(values, 0))


@pytest.mark.parametrize("dtype", [np.int16, np.int32, np.float64])
def test_label_encoder_of_tensors(dtype: Any) -> None:
    attributes: dict[str, Any] = {
        "keys_tensor": np.array([1, 2, 3], dtype),
        "values_tensor": np.array([4, 5, 6], dtype),
    }
    x = np.array([[3, 9], [1, 2]], dtype)
    given = ml(
        "LabelEncoder", x, version=4, **attributes, default_tensor=np.array([8], dtype)
    )
    same(given, np.array([[6, 8], [4, 5]], dtype))
    default = 0 if dtype == np.float64 else -1
    result = ml("LabelEncoder", x, version=4, **attributes)
    same(result, np.array([[6, default], [4, 5]], dtype))


def test_label_encoder_of_nan_and_repeated_keys() -> None:
    attributes: dict[str, Any] = {
        "keys_floats": (1.0, NAN, 1.0),
        "values_int64s": (5, 6, 7),
    }
    x = np.array([NAN, -NAN, 1, 2], dtype=np.float32)
    same(ml("LabelEncoder", x, version=4, **attributes), np.array([6, 6, 7, -1]))
    repeated: dict[str, Any] = {
        "keys_strings": ("a", "a"),
        "values_strings": ("b", "c"),
    }
    result = ml("LabelEncoder", strings(["a"]), version=4, **repeated)
    same(result, strings(["c"]))


def test_label_encoder_refuses() -> None:
    with pytest.raises(ValueError, match="found 2 of keys_strings"):
        ml(
            "LabelEncoder",
            X,
            keys_int64s=(1,),
            keys_floats=(1.0,),
            values_floats=(1.0,),
        )
    with pytest.raises(ValueError, match="2 keys for 1 values"):
        ml("LabelEncoder", X, keys_int64s=(1, 2), values_int64s=(1,))
    with pytest.raises(ValueError, match=r"keys are numbers.*input.* strings"):
        ml("LabelEncoder", strings(["a"]), keys_int64s=(1,), values_int64s=(1,))


def test_cast_map() -> None:
    numbers, text = {3: 1.5, 0: -2.0}, {3: "1.5", 0: "-2"}
    same(ml("CastMap", numbers), f32([[-2, 1.5]]))
    same(ml("CastMap", text), f32([[-2, 1.5]]))
    same(ml("CastMap", numbers, cast_to="TO_INT64"), np.array([[-2, 1]]))
    same(ml("CastMap", text, cast_to="TO_STRING"), strings([["-2", "1.5"]]))
    spelled = ml("CastMap", numbers, cast_to="TO_STRING")
    same(spelled, strings([["-2.000000", "1.500000"]]))
    sparse: dict[str, Any] = {"map_form": "SPARSE", "max_map": 5}
    same(ml("CastMap", numbers, **sparse), f32([[-2, 0, 0, 1.5, 0]]))
    with pytest.raises(ValueError, match=r"keys from 0 to 3.* 0 to max_map - 1, 2"):
        ml("CastMap", numbers, map_form="SPARSE", max_map=3)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ((4, 8), np.int64),
        ((4.0, 8.0), np.float32),
        (np.array([4, 8], np.float64), np.float64),
        (f32([4, 8]), np.float32),
    ],
)
def test_dict_vectorizer(values: Any, dtype: Any) -> None:
    x = {"a": values[0], "c": values[1]}
    result = ml("DictVectorizer", x, string_vocabulary=("a", "c", "b", "z"))
    same(result, np.array([[4, 8, 0, 0]], dtype))
    result = ml("DictVectorizer", {7: values[0]}, int64_vocabulary=(6, 7))
    same(result, np.array([[0, 4]], dtype))


def test_dict_vectorizer_of_strings() -> None:
    result = ml("DictVectorizer", {7: "x"}, int64_vocabulary=(6, 7))
    same(result, strings([["", "x"]]))


def test_zip_map() -> None:
    x = f32([[0.5, 1], [2, 3]])
    assert ml("ZipMap", x, classlabels_strings=("a", "b")) == [
        {"a": 0.5, "b": 1},
        {"a": 2, "b": 3},
    ]
    assert ml("ZipMap", x[0], classlabels_int64s=(7, 9)) == [{7: 0.5, 9: 1}]
    with pytest.raises(ValueError, match=r"\[N, 3\], not \(2, 2\)"):
        ml("ZipMap", x, classlabels_int64s=(7, 8, 9))
