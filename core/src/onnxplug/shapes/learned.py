"""Types of what the operators of ``ai.onnx.ml`` compute."""

from __future__ import annotations

from typing import Any, Final

from onnxplug.authoring.bounds import at_least
from onnxplug.authoring.sizes import Extent, product
from onnxplug.ep import DataType, MapType, SequenceType, TensorType
from onnxplug.shapes.elementwise import Rule, same_as_first
from onnxplug.shapes.facts import Fact, NodeCall, Shape, Value

_FLOAT = DataType.FLOAT32
_INT64 = DataType.INT64
_STRING = DataType.STRING


def _floats(call: NodeCall) -> Value:
    return Value(_FLOAT, call.value().shape)


# encoders


def _array_feature_extractor(call: NodeCall) -> Value:
    (dtype, shape), indices = call.value(), call.value(1).shape
    if not shape:
        return Value(dtype)
    count = call.fresh() if indices is None else product(indices)
    return Value(dtype, (*(shape[:-1] or (1,)), count))


_CASTS: Final = {"TO_FLOAT": _FLOAT, "TO_INT64": _INT64, "TO_STRING": _STRING}


def _cast_map(call: NodeCall) -> Value:
    count: Extent = call.fresh()
    if call.attribute("map_form", "DENSE") == "SPARSE":
        (count,) = at_least(1, (call.attribute("max_map", 1),), "max_map")
    return Value(_CASTS.get(call.attribute("cast_to", "TO_FLOAT")), (1, count))


def _category_mapper(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if dtype is None:
        return Value(None, shape)
    return Value(_INT64 if dtype is _STRING else _STRING, shape)


def _dict_vectorizer(call: NodeCall) -> Value:
    names = call.attribute("string_vocabulary") or call.attribute("int64_vocabulary")
    fact = call.fact()
    value = fact.value if isinstance(fact, MapType) else None
    dtype = value.dtype if isinstance(value, TensorType) else None
    return Value(dtype, (1, len(names)))


def _feature_vectorizer(call: NodeCall) -> Value:
    shapes = [value.shape for value in call.values()]
    rows: Extent = call.fresh()
    if shapes and shapes[0] is not None:
        rows = shapes[0][0] if len(shapes[0]) > 1 else 1
    stated = call.attribute("inputdimensions")
    if stated:
        return Value(_FLOAT, (rows, sum(at_least(0, stated, "inputdimensions"))))
    width: Extent = 0
    for shape in shapes:
        if shape is None:
            return Value(_FLOAT, (rows, call.fresh()))
        width = width + product(shape[1:] if len(shape) > 1 else shape)
    return Value(_FLOAT, (rows, width))


def _label_encoder(call: NodeCall) -> Value:
    shape = call.value().shape
    if call.attribute("classes_strings") is not None:
        return _category_mapper(call)
    for name, made in (
        ("values_strings", _STRING),
        ("values_int64s", _INT64),
        ("values_floats", _FLOAT),
    ):
        if call.attribute(name):
            return Value(made, shape)
    tensor = call.attribute("values_tensor")
    return Value(None if tensor is None else tensor.dtype, shape)


def _one_hot_encoder(call: NodeCall) -> Value:
    shape = call.value().shape
    categories = call.attribute("cats_strings") or call.attribute("cats_int64s") or ()
    return Value(_FLOAT, None if shape is None else (*shape, len(categories)))


def _zip_map(call: NodeCall) -> Fact:
    key = _STRING if call.attribute("classlabels_strings") else _INT64
    return SequenceType(MapType(key, TensorType(_FLOAT, ())))


# predictors


def _rows(call: NodeCall) -> Extent:
    """How many rows of features there are; a vector is one."""
    shape = call.value().shape
    if shape is None:
        return call.fresh()
    return shape[0] if len(shape) > 1 else 1


def _scores(call: NodeCall, count: Any) -> Value:
    """The scores of a predictor, *count* of them for each row."""
    if count is None:
        return Value(_FLOAT, (_rows(call), call.fresh()))
    at_least(1, (count,), "the number of targets")
    return Value(_FLOAT, (_rows(call), count))


def _classified(call: NodeCall, integers: str) -> tuple[Value, int]:
    """The labels that a classifier gives out, and how many it has."""
    strings = call.attribute("classlabels_strings")
    labels = strings or call.attribute(integers) or ()
    dtype = _STRING if strings else _INT64
    return Value(dtype, (_rows(call),)), len(labels)


def _linear_classifier(call: NodeCall) -> list[Value]:
    labels, count = _classified(call, "classlabels_ints")
    return [labels, _scores(call, count or None)]


def _svm_classifier(call: NodeCall) -> list[Value]:
    """The scores are one per class, or one per pair of classes; of a single pair both
    are there."""
    labels, count = _classified(call, "classlabels_ints")
    is_per_class = call.attribute("prob_a") or not sum(
        call.attribute("vectors_per_class") or ()
    )
    if not is_per_class and count != 2:
        count = count * (count - 1) // 2
    return [labels, _scores(call, count or None)]


def _tree_ensemble_classifier(call: NodeCall) -> list[Value]:
    labels, count = _classified(call, "classlabels_int64s")
    return [labels, _scores(call, count or None)]


def _linear_regressor(call: NodeCall) -> Value:
    return _scores(call, call.attribute("targets", 1))


def _svm_regressor(call: NodeCall) -> Value:
    return _scores(call, 1)


def _tree_ensemble_regressor(call: NodeCall) -> Value:
    return _scores(call, call.attribute("n_targets"))


def _tree_ensemble(call: NodeCall) -> Value:
    shape: Shape | None = _scores(call, call.attribute("n_targets")).shape
    return Value(call.value().dtype, shape)


RULES: Final[dict[str, Rule]] = {
    "ArrayFeatureExtractor": _array_feature_extractor,
    "Binarizer": same_as_first,
    "CastMap": _cast_map,
    "CategoryMapper": _category_mapper,
    "DictVectorizer": _dict_vectorizer,
    "FeatureVectorizer": _feature_vectorizer,
    "Imputer": same_as_first,
    "LabelEncoder": _label_encoder,
    "LinearClassifier": _linear_classifier,
    "LinearRegressor": _linear_regressor,
    "Normalizer": _floats,
    "OneHotEncoder": _one_hot_encoder,
    "SVMClassifier": _svm_classifier,
    "SVMRegressor": _svm_regressor,
    "Scaler": _floats,
    "TreeEnsemble": _tree_ensemble,
    "TreeEnsembleClassifier": _tree_ensemble_classifier,
    "TreeEnsembleRegressor": _tree_ensemble_regressor,
    "ZipMap": _zip_map,
}
