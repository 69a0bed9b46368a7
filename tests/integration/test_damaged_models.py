"""Sessions of damaged models: there is one, or an error of ours, and nothing else."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import onnxplug
from onnxplug.errors import ModelError, OnnxplugError
from onnxplug.graph.load import load_model

from . import damaged_models as models

pytestmark = [
    # what is said of models that are damaged is not what is tested
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.parametrize("name", list(models.MODELS)),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    models.write_weights(tmp_path)
    return tmp_path / "m.onnx"


def has_session(path: Path) -> bool:
    """Whether there is a session of the model at *path*."""
    try:
        onnxplug.InferenceSession(path)
    except OnnxplugError as error:
        assert str(error)
        return False
    return True


def test_the_whole_model_has_a_session(path: Path, name: str) -> None:
    path.write_bytes(models.MODELS[name]().SerializeToString())
    assert has_session(path)


def test_every_beginning_of_a_model_is_one_or_an_error(path: Path, name: str) -> None:
    data = models.MODELS[name]().SerializeToString()
    loaded = []
    for end in range(len(data)):
        path.write_bytes(data[:end])
        try:
            load_model(path)
        except ModelError:
            continue
        loaded.append(end)
    # those that end between two fields of the outermost message, after the graph
    assert len(loaded) <= 5
    for end in loaded:
        path.write_bytes(data[:end])
        has_session(path)


def test_damaged_bytes_raise_our_errors_only(path: Path, name: str) -> None:
    data = models.MODELS[name]().SerializeToString()
    generator = random.Random(20261122)
    loaded = 0
    for _ in range(300):
        path.write_bytes(models.damage(data, generator))
        try:
            load_model(path)
        except ModelError:
            continue
        loaded += 1
        has_session(path)
    assert loaded > 10
