"""Compiled models in onnxplug's cache: restored, and as right as compiled ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_openvino.compiled import Compiler

from .conftest import EP

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.linspace(-1, 1, 20, dtype=np.float32).reshape(4, 5)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    return tmp_path / "onnxplug-compiled"


@pytest.fixture
def model(parse: Callable[..., Any]) -> Any:
    weights = ",".join(f"{each:.9g}" for each in W.flat)
    return parse(
        "t = MatMul (x, w) y = Relu (t)",
        inputs="float[n, 4] x",
        outputs="float[n, 5] y",
        weights=f"float[4, 5] w = {{{weights}}}",
    )


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Grows with each model that OpenVINO compiles."""
    found: list[None] = []
    original = Compiler.__call__

    def compile(self: Compiler, model: Any) -> Any:
        found.append(None)
        return original(self, model)

    monkeypatch.setattr(Compiler, "__call__", compile)
    return found


def check(session: onnxplug.InferenceSession, rows: int = 3) -> None:
    x = np.resize(X, (rows, 4))
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.maximum(x @ W, 0), rtol=1e-5, atol=1e-5)


def outcomes(session: onnxplug.InferenceSession) -> set[str]:
    return {part.cache for part in session.explain().partitions}


def test_a_model_is_compiled_once(
    alone: Callable[..., Any], model: Any, compilations: list[None]
) -> None:
    first, second = alone(model, cache=True), alone(model, cache=True)
    assert outcomes(first) == {"cached for other processes"}
    assert outcomes(second) == {"restored from the cache"}
    assert len(compilations) == 1
    for rows in (3, 1, 7):
        check(first, rows)
        check(second, rows)


def test_other_options_are_another_model(
    alone: Callable[..., Any], model: Any, compilations: list[None]
) -> None:
    for options in ({}, {"int64_in_32_bits": True}, {"precision": "ACCURACY"}):
        check(alone(model, cache=True, **options))
    assert len(compilations) == 3


def test_models_of_shapes_are_kept_too(
    alone: Callable[..., Any], model: Any, compilations: list[None]
) -> None:
    for _ in range(2):
        session = alone(model, cache=True, disable_dynamic_shapes=True)
        for rows in (3, 1):
            check(session, rows)
    assert len(compilations) == 2
    (part,) = session.explain().partitions
    assert part.specialisations is not None
    assert part.specialisations.cached == {"restored from the cache": 2}
    assert "    2 restored from the cache" in str(session.explain())


def test_nothing_is_kept_unasked(
    alone: Callable[..., Any], model: Any, folder: Path
) -> None:
    check(alone(model))
    assert not folder.exists()


@pytest.mark.parametrize("way", ["cache", "cache_dir", "compiled ahead"])
def test_what_openvino_restores_wrongly_is_compiled_again(
    parse: Callable[..., Any], tmp_path: Path, way: str
) -> None:
    """It fuses nodes to a layer, RoPE, whose sizes it forgets where it writes it."""
    model = parse(
        "y = RotaryEmbedding (x, c, s)",
        "float[2, 4, 3, 8] x, float[2, 3, 4] c, float[2, 3, 4] s",
        "float[2, 4, 3, 8] y",
        opset=23,
    )
    chance = np.random.default_rng(0)
    feeds = {
        name: chance.standard_normal(shape, np.float32)
        for name, shape in (("x", (2, 4, 3, 8)), ("c", (2, 3, 4)), ("s", (2, 3, 4)))
    }
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    given = {"cache": {"cache": True}, "cache_dir": {"cache_dir": str(tmp_path / "o")}}
    options = onnxplug.SessionOptions()
    options.add_provider(EP, given.get(way, {}))
    source: Any = model
    if way == "compiled ahead":
        source = tmp_path / "compiled.onnx"
        onnxplug.ModelCompiler(options, model).compile_to_file(source)
    for _ in range(2):
        with onnxplug.InferenceSession(source, options) as session:
            assert {node.ep for node in session.explain().nodes} == {EP}
            found = session.run(None, feeds)[0]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
