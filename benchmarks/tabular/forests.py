"""Ensembles of many trees, by LightGBM and XGBoost, in the forms of their libraries."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import onnx

from .libraries import Fitted
from .pipelines import numbers, target

FEATURES: Final = 28
FITTED: Final = 20_000
"""Rows."""

FORESTS: Final[Mapping[str, tuple[str, int]]] = {
    f"{library}-{trees}": (library, trees)
    for trees in (100, 500)
    for library in ("lightgbm", "xgboost")
}
"""Names, and what is so called: trees of up to 63 leaves, or 6 deep."""


def write_forest(name: str, folder: Path) -> Path:
    """Fit an ensemble, unless it is there, and write it in all forms; its model."""
    path = folder / f"{name}.onnx"
    if path.exists():
        return path
    library, trees = FORESTS[name]
    x = numbers(FITTED, FEATURES, 1)
    fitted, model = (_lightgbm if library == "lightgbm" else _xgboost)(x, trees, path)
    path.with_suffix(".pickle").write_bytes(pickle.dumps(Fitted(fitted, "x", False)))
    onnx.save(model, path)
    return path


def _lightgbm(x: Any, trees: int, path: Path) -> tuple[Any, onnx.ModelProto]:
    from lightgbm import LGBMRegressor
    from onnxmltools import convert_lightgbm
    from onnxmltools.convert.common.data_types import FloatTensorType

    fitted = LGBMRegressor(
        n_estimators=trees, num_leaves=63, n_jobs=1, random_state=0, verbose=-1
    )
    fitted.fit(x, target(x))
    fitted.booster_.save_model(str(path.with_suffix(".txt")))
    types = [("x", FloatTensorType([None, FEATURES]))]
    return fitted, convert_lightgbm(fitted, initial_types=types, target_opset=15)


def _xgboost(x: Any, trees: int, path: Path) -> tuple[Any, onnx.ModelProto]:
    from onnxmltools import convert_xgboost
    from onnxmltools.convert.common.data_types import FloatTensorType
    from xgboost import XGBRegressor

    fitted = XGBRegressor(n_estimators=trees, max_depth=6, n_jobs=1, random_state=0)
    fitted.fit(x, target(x))
    fitted.save_model(path.with_suffix(".json"))
    types = [("x", FloatTensorType([None, FEATURES]))]
    return fitted, convert_xgboost(fitted, initial_types=types, target_opset=15)
