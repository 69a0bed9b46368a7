"""Predictions by the libraries that models come from, and by compilers of trees."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Fitted(NamedTuple):
    """What is beside a model, pickled.

    Attributes:
        estimator: what the model was converted from.
        form: what it takes: ``x``, an array; ``texts``, a vector; or ``frame``, a table
            with named columns.
        classifies: its probabilities are wanted, too.
    """

    estimator: Any
    form: str
    classifies: bool


def given(form: str, feeds: Mapping[str, Any]) -> Any:
    """What an estimator takes, of the inputs of its model."""
    if form == "frame":
        import pandas

        columns = {name: column[:, 0] for name, column in feeds.items()}
        return pandas.DataFrame(columns)
    return feeds["x"][:, 0] if form == "texts" else feeds["x"]


def prepare_library(
    kind: str, model: Path, feeds: Mapping[str, Any], threads: int
) -> Callable[[], list[Any]]:
    """A function that predicts what the model does.

    Args:
        kind: ``tabular``, the library itself; ``lleaves`` or ``tl2cgen``.

    Raises:
        ValueError: *kind* cannot.
    """
    if kind == "lleaves":
        return _prepare_lleaves(model.with_suffix(".txt"), feeds, threads)
    if kind == "tl2cgen":
        return _prepare_tl2cgen(model, feeds, threads)
    estimator, form, classifies = pickle.loads(
        model.with_suffix(".pickle").read_bytes()
    )
    if "n_jobs" in estimator.get_params():
        estimator.set_params(n_jobs=threads)
    x = given(form, feeds)
    if classifies:
        return lambda: [estimator.predict(x), estimator.predict_proba(x)]
    return lambda: [np.asarray(estimator.predict(x)).reshape(-1, 1)]


def _prepare_lleaves(
    text: Path, feeds: Mapping[str, Any], threads: int
) -> Callable[[], list[Any]]:
    if not text.exists():
        raise ValueError("lleaves takes ensembles of LightGBM alone")
    import lleaves

    model = lleaves.Model(str(text))
    model.compile(cache=str(text.with_suffix(".lleaves")))
    x = feeds["x"].astype(np.float64)  # which it would do in each run
    return lambda: [model.predict(x, n_jobs=threads).reshape(-1, 1)]


def _prepare_tl2cgen(
    model: Path, feeds: Mapping[str, Any], threads: int
) -> Callable[[], list[Any]]:
    text, described = model.with_suffix(".txt"), model.with_suffix(".json")
    if not text.exists() and not described.exists():
        raise ValueError("tl2cgen takes ensembles of LightGBM and XGBoost alone")
    import tl2cgen
    import treelite

    library = model.with_suffix(".so")
    if not library.exists():
        if text.exists():
            trees = treelite.frontend.load_lightgbm_model(str(text))
        else:
            trees = treelite.frontend.load_xgboost_model(str(described))
        tl2cgen.export_lib(
            trees,
            toolchain="gcc",
            libpath=str(library),
            params={"parallel_comp": 8},
        )
    predictor = tl2cgen.Predictor(str(library), nthread=threads)
    element = "float64" if text.exists() else "float32"
    x = tl2cgen.DMatrix(feeds["x"].astype(element), dtype=element)
    return lambda: [predictor.predict(x).reshape(-1, 1)]
