"""scikit-learn's encoders of categories, as numbers and as text, after conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import pytest

pytest.importorskip("skl2onnx", reason="make test-exporters installs it")

from skl2onnx import to_onnx
from skl2onnx.common.data_types import (
    DictionaryType,
    FloatTensorType,
    Int64TensorType,
    StringTensorType,
)
from sklearn.feature_extraction import DictVectorizer, FeatureHasher
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import (
    LabelBinarizer,
    LabelEncoder,
    OneHotEncoder,
    OrdinalEncoder,
    TargetEncoder,
)

import onnxplug

from .comparison import FLOAT32, FLOAT64, assert_close, assert_predicts
from .datasets import BINARY, FEATURES, TARGET, Array

_RANDOM: Final = np.random.default_rng(7)
_ROWS: Final = len(FEATURES)
TOWNS: Final = _RANDOM.choice(["Oslo", "Rome", "Zürich", "東京"], (_ROWS, 2)).astype(
    object
)
DOORS: Final = _RANDOM.integers(-2, 5, (_ROWS, 2))
UNKNOWN: Final[Mapping[str, Any]] = {"O": "Atlantis", "i": 77}


def with_unknown(categories: Array) -> Array:
    """A copy with a category in every fifth place that encoders have not met."""
    changed = categories.copy()
    changed.reshape(-1)[::5] = UNKNOWN[categories.dtype.kind]
    return changed


def converted(fitted: Any, x: Array) -> Any:
    kinds = {"O": StringTensorType, "i": Int64TensorType, "f": FloatTensorType}
    types = [("x", kinds[x.dtype.kind]([None, *x.shape[1:]]))]
    return to_onnx(fitted, initial_types=types)


def check(fitted: Any, x: Array, expected: Any, tolerance: float = FLOAT32) -> None:
    dense = expected.toarray() if hasattr(expected, "toarray") else expected
    assert_predicts(converted(fitted, x), {"x": x}, [dense], tolerance)


BOTH: Final = pytest.mark.parametrize("known", [TOWNS, DOORS], ids=["text", "numbers"])


@BOTH
@pytest.mark.parametrize(
    "settings",
    [{}, {"drop": "first"}, {"drop": "if_binary"}, {"sparse_output": False}],
    ids=str,
)
def test_one_hot(known: Array, settings: Mapping[str, Any]) -> None:
    fitted = OneHotEncoder(**settings).fit(known)
    check(fitted, known, fitted.transform(known))


@BOTH
def test_one_hot_of_unknown_categories(known: Array) -> None:
    fitted = OneHotEncoder(handle_unknown="ignore").fit(known)
    x = with_unknown(known)
    check(fitted, x, fitted.transform(x))


@BOTH
def test_ordinal(known: Array) -> None:
    fitted = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    x = with_unknown(known)
    check(fitted.fit(known), x, fitted.transform(x))


@pytest.mark.parametrize(
    "labels",
    [TOWNS[:, 0], DOORS[:, 0], np.round(FEATURES[:, 0])],
    ids=["text", "numbers", "floats"],
)
def test_label_encoder(labels: Array) -> None:
    fitted = LabelEncoder().fit(labels)
    check(fitted, labels[:, None], fitted.transform(labels))


@pytest.mark.parametrize("settings", [{}, {"neg_label": -1, "pos_label": 3}], ids=str)
@pytest.mark.parametrize("labels", [TOWNS[:, 0], DOORS[:, 0]], ids=["text", "numbers"])
def test_label_binarizer(labels: Array, settings: Mapping[str, Any]) -> None:
    fitted = LabelBinarizer(**settings).fit(labels)
    check(fitted, labels[:, None], fitted.transform(labels))


@BOTH
@pytest.mark.parametrize("target", [TARGET, BINARY], ids=["number", "binary"])
def test_target_encoder(known: Array, target: Array) -> None:
    fitted = TargetEncoder(random_state=0).fit(known, target)
    x = with_unknown(known)
    check(fitted, x, fitted.transform(x))


@pytest.mark.parametrize("strategy", ["most_frequent", "constant"])
def test_imputer_of_text(strategy: str) -> None:
    x = TOWNS.copy()
    x[::5, 0] = "?"
    fitted = SimpleImputer(missing_values="?", strategy=strategy, fill_value="none")
    check(fitted.fit(x), x, fitted.transform(x))


@pytest.mark.parametrize("sign", [True, False])
def test_feature_hasher(sign: bool) -> None:
    fitted = FeatureHasher(8, input_type="string", alternate_sign=sign)
    check(fitted, TOWNS, fitted.transform(TOWNS.tolist()), FLOAT64)


def test_dictionaries() -> None:
    records = [{"size": 1.5, "age": 30.0}, {"age": 4.0, "rank": -2.0}, {}]
    fitted = DictVectorizer(sparse=False).fit(records)
    kind = DictionaryType(StringTensorType([1]), FloatTensorType([]))
    model = to_onnx(fitted, initial_types=[("x", kind)])
    session = onnxplug.InferenceSession(model.SerializeToString())
    for record in records:
        (found,) = session.run(None, {"x": record})
        assert_close(found, fitted.transform([record]), 0)
