"""Models as PyTorch exports them, on the EP that computes by PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test-torch installs it")
pytest.importorskip("transformers", reason="make test-torch installs it")

import onnxplug

from .architecture import EXPORTERS, Exporter
from .export import export
from .test_torch import ARCHITECTURES, TOLERANCE, array, outputs

CPU = "CPUExecutionProvider"

NEEDS_THE_CPU = {
    "spatial_transformer": {"AffineGrid"},
    "spectrogram": {"STFT"},
    "deep_and_cross": {"SequenceEmpty", "SequenceInsert", "ConcatFromSequence"},
    "state_space": {"SequenceEmpty", "SequenceInsert", "ConcatFromSequence"},
}
"""Operators that the EP does not take; all others are on it."""


@pytest.mark.parametrize(
    ("name", "exporter"),
    [
        (name, exporter)
        for name, architecture in ARCHITECTURES.items()
        for exporter in EXPORTERS
        if exporter not in architecture.without
    ],
)
# what the file misdeclares is told of where the CPU EP is tested
@pytest.mark.filterwarnings("ignore::onnxplug.errors.ModelWarning")
def test_an_exported_model_agrees_with_torch(
    name: str, exporter: Exporter, tmp_path: Path
) -> None:
    architecture, path = ARCHITECTURES[name], tmp_path / "model.onnx"
    export(architecture, exporter, path)
    model = architecture.model()
    session = onnxplug.InferenceSession(path, providers=["torch", "cpu"])
    elsewhere = {node.op_type for node in session.explain().nodes if node.ep == CPU}
    assert elsewhere <= NEEDS_THE_CPU.get(name, set())
    for sizes in architecture.sizes:
        drawn = architecture.draw(sizes)
        found = session.run(None, {key: array(x) for key, x in drawn.items()})
        for ours, wanted in zip(
            found, outputs(model, architecture.draw(sizes)), strict=True
        ):
            assert_near(ours, array(wanted), f"{name} at {dict(sizes)}")


def assert_near(ours: Any, theirs: Any, case: str) -> None:
    """That they differ by no more than roundings add up to; integers not at all."""
    assert ours.dtype == theirs.dtype, case
    assert ours.shape == theirs.shape, case
    is_float = theirs.dtype.kind == "f" and theirs.size
    atol = TOLERANCE * float(abs(theirs).max()) if is_float else 0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol, err_msg=case)
