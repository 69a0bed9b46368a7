"""The committed demo is what its README says it is."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import pytest
from PIL import Image

DEMO = Path(__file__).parents[2] / "demo"


@pytest.fixture(scope="module")
def training() -> ModuleType:
    pytest.importorskip("sklearn")
    spec = importlib.util.spec_from_file_location(
        "train_digits", DEMO / "train_digits.py"
    )
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def probabilities(images: np.ndarray) -> np.ndarray:
    import onnxplug

    session = onnxplug.InferenceSession(DEMO / "digits.onnx")
    (result,) = session.run(["probabilities"], {"image": images})
    return result


def test_accuracy_on_held_out_digits_is_as_documented(training: ModuleType) -> None:
    _, held_out = training.load_splits()
    guesses = probabilities(held_out.images).argmax(axis=1)
    found = f"{(guesses == held_out.digits).mean():.2%}"
    documented = re.search(r"\*\*(.*%)\*\*", (DEMO / "README.md").read_text("utf-8"))
    assert documented and documented[1] == found
    assert float(found.rstrip("%")) >= 97


def test_the_picture_is_a_held_out_seven(training: ModuleType) -> None:
    _, held_out = training.load_splits()
    assert held_out.digits[training.PICTURED] == 7
    drawn = training.to_picture(held_out.images[training.PICTURED])
    with Image.open(DEMO / "seven.png") as picture:
        assert picture.mode == "L"
        assert picture.size == (160, 160)
        difference = np.asarray(picture, int) - np.asarray(drawn, int)
    assert abs(difference).max() <= 1  # versions of pillow may round differently


def test_the_two_splits_share_no_digit(training: ModuleType) -> None:
    train, held_out = training.load_splits()
    assert len(train.images) + len(held_out.images) == 1797
    assert len(held_out.images) == training.HELD_OUT


def test_the_model_is_valid_and_tells_its_origin() -> None:
    model = onnx.load(DEMO / "digits.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert (model.ir_version, model.opset_import[0].version) == (10, 21)
    assert "UCI" in model.doc_string
    assert "CC BY 4.0" in model.doc_string
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert json.loads(properties["labels"]) == [str(digit) for digit in range(10)]


def test_gradients_agree_with_differences(training: ModuleType) -> None:
    rng = np.random.default_rng(0)
    parameters = {
        name: value.astype(np.float64)
        for name, value in training.initial_parameters(rng).items()
    }
    images, digits = rng.random((5, 1, 8, 8)), np.array([3, 1, 4, 1, 5])

    def loss() -> float:
        logits = training.forward(parameters, images).logits
        chosen = training.softmax(logits)[np.arange(len(digits)), digits]
        return float(-np.log(chosen).mean())

    slopes = training.gradients(
        parameters, training.forward(parameters, images), digits
    )
    for name, value in parameters.items():
        place = tuple(rng.integers(0, size) for size in value.shape)
        middle, step = value[place], 1e-6
        value[place] = middle + step
        above = loss()
        value[place] = middle - step
        below = loss()
        value[place] = middle
        assert slopes[name][place] == pytest.approx((above - below) / (2 * step), 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epochs", "accuracy"),
    [(3, 0.8), pytest.param(30, 0.97, marks=pytest.mark.exhaustive)],
)
def test_training_from_scratch_reaches_the_accuracy(
    training: ModuleType, monkeypatch: pytest.MonkeyPatch, epochs: int, accuracy: float
) -> None:
    assert epochs <= training.EPOCHS
    monkeypatch.setattr(training, "EPOCHS", epochs)
    data, held_out = training.load_splits()
    assert training.accuracy(training.train(data), held_out) >= accuracy
