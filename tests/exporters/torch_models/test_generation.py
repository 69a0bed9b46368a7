"""Decoders that PyTorch exports, generating token by token with a cache that grows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test-exporters installs it")

import torch

import onnxplug

sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from models.exported import (
    TORCH_EXPORTERS,
    Decoder,
    TorchExporter,
    export_decoder,
)

from .architecture import enliven

LAYERS, HEADS, WIDTH, WORDS = 3, 2, 32, 50


@pytest.fixture(scope="module")
def model() -> Decoder:
    torch.manual_seed(0)
    model = Decoder(layers=LAYERS, width=WIDTH, heads=HEADS, words=WORDS, places=64)
    enliven(model.eval().requires_grad_(False))
    return model


@pytest.mark.parametrize("exporter", TORCH_EXPORTERS)
def test_a_cache_grows_with_one_structure(
    model: Decoder, exporter: TorchExporter, tmp_path: Path
) -> None:
    path = tmp_path / "decoder.onnx"
    export_decoder(model, exporter, path)
    session = onnxplug.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    cache: Any = [np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32)] * 2 * LAYERS
    ids = np.array([[3, 14, 15, 9, 2]])
    plans: list[int] = []
    for _ in range(24):
        found = session.run(None, dict(zip(names, (ids, *cache), strict=True)))
        given = [torch.from_numpy(each) for each in (ids, *cache)]
        for ours, theirs in zip(found, model(*given), strict=True):
            scale = float(theirs.abs().max())
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * scale)
        scores, *cache = found
        ids = scores[:, -1:].argmax(-1)
        (partition,) = session.explain().partitions
        assert set(partition.tiers) == {"compiled"}
        plans.append(partition.counts["plans"])
    assert plans == list(range(1, 25))
    # the prompt, which has no past, may need its own
    assert partition.counts["structures"] <= 2


@pytest.mark.parametrize("exporter", TORCH_EXPORTERS)
def test_batches_and_lengths_in_any_order(
    model: Decoder, exporter: TorchExporter, tmp_path: Path
) -> None:
    path = tmp_path / "decoder.onnx"
    export_decoder(model, exporter, path)
    session = onnxplug.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [given.name for given in session.get_inputs()]
    random = np.random.default_rng(0)
    for _ in range(30):
        batch, length, past = random.integers((1, 1, 0), (5, 9, 20))
        ids = random.integers(0, WORDS, (batch, length))
        shape = batch, HEADS, past, WIDTH // HEADS
        cache = [random.standard_normal(shape, np.float32) for _ in range(2 * LAYERS)]
        found = session.run(None, dict(zip(names, (ids, *cache), strict=True)))
        given = [torch.from_numpy(each) for each in (ids, *cache)]
        for ours, theirs in zip(found, model(*given), strict=True):
            scale = float(theirs.abs().max()) if theirs.numel() else 0
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-5 * scale)
    (partition,) = session.explain().partitions
    assert partition.counts["structures"] <= 8
