"""What makes features ready, and linear regressors, compiled: against definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx.helper
import pytest

import onnxplug

Array = np.ndarray[Any, Any]

SHAPES = [(1, 4), (7, 4), (0, 4), (4,), (3, 2, 4)]


def computed(op_type: str, *inputs: Array, **attributes: Any) -> Array:
    """What one node of ``ai.onnx.ml`` gives, compiled."""
    helper = onnx.helper
    names = [f"x{number}" for number in range(len(inputs))]
    node = helper.make_node(op_type, names, ["y"], domain="ai.onnx.ml", **attributes)
    types = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(each.dtype), [None] * each.ndim
        )
        for name, each in zip(names, inputs, strict=True)
    ]
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "features", types, [y]),
        opset_imports=[
            helper.make_opsetid("", 21),
            helper.make_opsetid("ai.onnx.ml", 3),
        ],
        ir_version=10,
    )
    session = onnxplug.InferenceSession(model.SerializeToString())
    (found,) = session.run(None, dict(zip(names, inputs, strict=True)))
    nodes = session.explain().nodes
    assert [(each.tier, each.note) for each in nodes] == [("compiled", "")]
    assert found.dtype == np.float32
    return found


def rows(shape: tuple[int, ...], *, missing: bool = False) -> Array:
    rng = np.random.default_rng(len(shape))
    x = rng.standard_normal(shape).astype(np.float32)
    x[rng.random(shape) < 0.2] = np.nan if missing else 0
    return x


def close(found: Array, expected: Array) -> None:
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("offset", [[1.0], [1.0, 2.0, -3.0, 0.5]], ids=len)
@pytest.mark.parametrize("scale", [[0.5], [0.5, 2.0, 3.0, -1.0]], ids=len)
def test_scaler(
    shape: tuple[int, ...], offset: list[float], scale: list[float]
) -> None:
    x = rows(shape, missing=True)
    found = computed("Scaler", x, offset=offset, scale=scale)
    close(found, (x.astype(np.float64) - offset) * scale)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_binarizer(shape: tuple[int, ...]) -> None:
    x = rows(shape, missing=True)
    close(computed("Binarizer", x, threshold=0.25), (x > 0.25).astype(np.float32))
    close(computed("Binarizer", x), (x > 0).astype(np.float32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("imputed", [[9.0], [9.0, 8.0, 7.0, 6.0]], ids=len)
def test_imputer(shape: tuple[int, ...], imputed: list[float]) -> None:
    x = rows(shape, missing=True)
    values = {"imputed_value_floats": imputed}
    found = computed("Imputer", x, replaced_value_float=float("nan"), **values)
    close(found, np.where(np.isnan(x), np.float32(imputed), x))
    x = rows(shape)
    close(computed("Imputer", x, **values), np.where(x == 0, np.float32(imputed), x))


NORMS: dict[str, Callable[[Array], Array]] = {
    "MAX": lambda x: x.max(axis=-1, keepdims=True),
    "L1": lambda x: np.abs(x).sum(axis=-1, keepdims=True),
    "L2": lambda x: np.sqrt((x * x).sum(axis=-1, keepdims=True)),
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("norm", NORMS)
def test_normalizer(shape: tuple[int, ...], norm: str) -> None:
    x = rows(shape)
    if len(x):
        x[0] = 0
    wide = x.astype(np.float64)
    size = NORMS[norm](wide)
    close(computed("Normalizer", x, norm=norm), wide / np.where(size == 0, 1, size))


def transformed(scores: Array, transform: str) -> Array:
    if transform == "LOGISTIC":
        return 1 / (1 + np.exp(-scores))
    if transform == "SOFTMAX":
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        return powers / powers.sum(axis=1, keepdims=True)
    return scores


@pytest.mark.parametrize("shape", [(1, 4), (7, 4), (0, 4), (4,)], ids=str)
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("targets", [1, 3])
def test_linear_regressor(shape: tuple[int, ...], transform: str, targets: int) -> None:
    x = rows(shape)
    matrix = np.linspace(-1, 2, 4 * targets).reshape(targets, 4)
    for intercepts in ([], [0.5], np.arange(targets).astype(float).tolist()):
        given = {"intercepts": intercepts} if intercepts else {}
        found = computed(
            "LinearRegressor",
            x,
            coefficients=matrix.reshape(-1).tolist(),
            targets=targets,
            post_transform=transform,
            **given,
        )
        scores = x.reshape(-1, 4).astype(np.float64) @ matrix.T
        scores = scores + (intercepts or 0)
        expected = transformed(scores, transform) if len(scores) else scores
        assert found.size == expected.size
        close(found.reshape(expected.shape), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("chosen", [[1], [3, 0, 0], [-1, 2]], ids=str)
def test_columns(shape: tuple[int, ...], chosen: list[int]) -> None:
    x = rows(shape)
    found = computed("ArrayFeatureExtractor", x, np.array(chosen))
    close(found, (x if x.ndim > 1 else x[None])[..., chosen])


def test_a_column_that_there_is_not() -> None:
    with pytest.raises(onnxplug.errors.OnnxplugError, match="4"):
        computed("ArrayFeatureExtractor", rows((3, 4)), np.array([4]))
