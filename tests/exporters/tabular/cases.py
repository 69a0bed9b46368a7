"""Estimators to fit, convert with skl2onnx, and compare with themselves."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import onnx
import pytest
from skl2onnx import to_onnx
from sklearn.base import clone

from .comparison import FLOAT32, FLOAT64, assert_predicts
from .datasets import FEATURES, TRAINING, Array

Output: TypeAlias = "str | Callable[[Any, Array], Any]"
"""A method of the estimator, or a function of it and the features."""

BOTH: Final = ("float32", "float64")


@dataclass(frozen=True)
class Case:
    """An estimator, and what its converted model is expected to return.

    Attributes:
        outputs: of the model, in its order.
        target: what to fit to; ``None`` to fit to features alone.
        options, opsets: to convert with.
        dtypes: of features that the converter makes a valid model for.
        tolerance64, tolerance: for float64 features, and for others.
        name: what tells it from others of its class.
    """

    estimator: Any
    outputs: tuple[Output, ...]
    target: Array | None = None
    features: Array = field(default_factory=lambda: FEATURES)
    options: Mapping[str, Any] = field(default_factory=dict)
    opsets: Mapping[str, int] | None = None
    dtypes: tuple[str, ...] = BOTH
    tolerance: float = FLOAT32
    tolerance64: float = FLOAT64
    name: str = ""

    @cached_property
    def fitted(self) -> Any:
        """A copy of the estimator that knows the training rows."""
        target = () if self.target is None else (self.target[:TRAINING],)
        features = self.features[:TRAINING].astype(np.float64)
        return clone(self.estimator).fit(features, *target)

    def converted(
        self, dtype: str = "float32", opsets: Mapping[str, int] | None = None
    ) -> onnx.ModelProto:
        """The model of the copy, for features of *dtype*."""
        options = {id(self.fitted): dict(self.options)} if self.options else None
        row = self.features[:1].astype(dtype)
        target = dict(opsets or self.opsets or {}) or None
        with warnings.catch_warnings():
            # of scikit-learn 1.9, at each look of skl2onnx at a machine
            warnings.filterwarnings("ignore", ".*prob[AB]_` was deprecated")
            return to_onnx(self.fitted, row, options=options, target_opset=target)

    def check(self, dtype: str, opsets: Mapping[str, int] | None = None) -> Any:
        """Compare what follows the training rows, and return the model of it."""
        model = self.converted(dtype, opsets)
        x = self.features[TRAINING:].astype(dtype)
        rows = x.astype(np.float64)
        expected = [
            getattr(self.fitted, output)(rows)
            if isinstance(output, str)
            else output(self.fitted, rows)
            for output in self.outputs
        ]
        tolerance = self.tolerance64 if dtype == "float64" else self.tolerance
        assert_predicts(model, {model.graph.input[0].name: x}, expected, tolerance)
        return model


def each_dtype(cases: Iterable[Case]) -> Any:
    """Parametrises a test by ``case`` and ``dtype``."""
    return pytest.mark.parametrize(
        ("case", "dtype"),
        [
            pytest.param(
                case,
                dtype,
                id="-".join(
                    filter(None, (type(case.estimator).__name__, case.name, dtype))
                ),
            )
            for case in cases
            for dtype in case.dtypes
        ],
    )
