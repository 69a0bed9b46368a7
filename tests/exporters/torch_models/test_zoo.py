"""The benchmarks' networks that PyTorch exports, small, against float64."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make test-exporters installs it")
pytest.importorskip("transformers", reason="make test-exporters installs it")

import torch
import zoo
from zoo import SEQUENCES, ZOO, Exported, Network, cache_of, export
from zoo.classifiers import Stage

import onnxplug

VISION: Final = Path(zoo.__file__).parents[1] / "vision.py"


class Small(NamedTuple):
    """Sizes with which a network takes little time, and shapes of its inputs.

    Roundings of float32 were seen to add up to a fifth of the tolerance, a share of an
    output's largest value.
    """

    sizes: Mapping[str, Any]
    inputs: Mapping[str, tuple[int, ...]]
    tolerance: float = 2e-5


IMAGE: Final = {"image": (2, 3, 64, 64)}
STAGES: Final = (
    Stage(1, 3, 1, 4, 1),
    Stage(6, 3, 2, 6, 2),
    Stage(6, 5, 2, 8, 2),
    Stage(3, 5, 1, 20, 2),
)
RESNET: Final = Small({"blocks": (1, 2, 1, 1), "width": 8, "classes": 10}, IMAGE)

SMALL: Final[Mapping[str, Small]] = {
    "resnet50": RESNET,
    "resnet50-torchscript": RESNET,
    "mobilenetv2": Small({"stages": STAGES, "stem": 8, "head": 40}, IMAGE),
    "efficientnet-b0": Small({"stages": STAGES, "stem": 8, "head": 40}, IMAGE),
    "convnext-t": Small(
        {"hidden_sizes": [8, 16, 24, 40], "depths": [1, 1, 2, 1], "num_labels": 10},
        IMAGE,
    ),
    "unet": Small({"widths": (8, 12, 16, 24)}, IMAGE),
    "yolo": Small(
        {"widths": (4, 8, 16, 20, 24), "classes": 5, "size": 64},
        IMAGE,
        tolerance=1e-4,
    ),
    "swin-t": Small(
        {
            "image_size": 64,
            "embed_dim": 8,
            "depths": [2, 2],
            "num_heads": [2, 4],
            "window_size": 4,
            "num_labels": 10,
        },
        IMAGE,
    ),
    "segformer-b0": Small(
        {
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 24, 32],
            "num_attention_heads": [1, 2, 3, 4],
            "decoder_hidden_size": 16,
            "num_labels": 5,
        },
        IMAGE,
    ),
    "detr": Small(
        {
            "backbone": {
                "embedding_size": 8,
                "hidden_sizes": [8, 16, 24, 32],
                "depths": [1, 1, 1, 1],
            },
            "d_model": 16,
            "num_queries": 5,
            "encoder_layers": 1,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 24,
            "decoder_ffn_dim": 24,
            "num_labels": 3,
        },
        IMAGE,
    ),
    "whisper-encoder": Small(
        {
            "num_mel_bins": 8,
            "d_model": 16,
            "encoder_layers": 1,
            "encoder_attention_heads": 2,
            "encoder_ffn_dim": 24,
            "max_source_positions": 20,
        },
        {"mel": (2, 8, 40)},
    ),
    "wav2vec2": Small(
        {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 24,
            "conv_dim": (8, 8, 12),
            "conv_stride": (5, 2, 2),
            "conv_kernel": (10, 3, 2),
            "num_feat_extract_layers": 3,
            "num_conv_pos_embeddings": 16,
            "num_conv_pos_embedding_groups": 4,
        },
        {"samples": (2, 800)},
    ),
    "bert-base": Small(
        {
            "vocab_size": 50,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "intermediate_size": 24,
        },
        {"input_ids": (2, 9)},
    ),
    "gpt2-decode": Small(
        {"layers": 2, "width": 16, "heads": 2, "words": 50, "places": 32},
        cache_of(9, layers=2, heads=2, size=8),
    ),
    "lstm": Small({"width": 12}, {"steps": (2, 7, 12)}),
}
NETWORKS: Final = {**ZOO, **SEQUENCES}


def test_every_network_is_tested() -> None:
    assert SMALL.keys() == NETWORKS.keys()


def small(name: str) -> Network:
    """The network *name*, with small inputs."""
    network = NETWORKS[name]
    return network._replace(inputs=SMALL[name].inputs, words=min(network.words, 50))


def export_small(name: str, folder: Path) -> Exported:
    """The same with few weights, exported."""
    return export(small(name), folder, name, **SMALL[name].sizes)


@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_network_agrees_with_float64(name: str, tmp_path: Path) -> None:
    files, tolerance = export_small(name, tmp_path), SMALL[name].tolerance
    onnx.checker.check_model(files.model, full_check=True)
    assert_agrees(files, tolerance)


def assert_agrees(files: Exported, tolerance: float) -> None:
    """That outputs are as in float64, compiled and on arrays."""
    with np.load(files.feeds) as stored:
        feeds = {key: stored[key] for key in stored.files}
    with np.load(files.expected) as stored:
        expected = [stored[key] for key in stored.files]
    for compiles in (True, False):
        cpu = "CPUExecutionProvider", {"compile": compiles}
        session = onnxplug.InferenceSession(files.model, providers=[cpu])
        found = session.run(None, feeds)
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == np.float32
            assert ours.shape == theirs.shape
            scale = np.abs(theirs).max()
            assert 1e-3 < scale < 1e4
            # lively: what one place has, no other has
            assert theirs.std() > 1e-3 * scale
            np.testing.assert_allclose(
                ours, theirs, rtol=0, atol=tolerance * scale, err_msg=f"{compiles=}"
            )


@pytest.mark.parametrize("name", ["resnet50", "mobilenetv2", "unet"])
def test_norms_that_an_exporter_leaves_agree_with_float64(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = torch.onnx.export
    monkeypatch.setattr(torch.onnx, "export", partial(written, optimize=False))
    files, tolerance = export_small(name, tmp_path), SMALL[name].tolerance
    operators = [node.op_type for node in onnx.load(files.model).graph.node]
    norms = operators.count("BatchNormalization")
    assert norms >= operators.count("Conv") - 1 > 0
    assert_agrees(files, tolerance)


@pytest.mark.slow
def test_the_comparison_exports_once_and_measures_errors(tmp_path: Path) -> None:
    words = "--models mobilenetv2 --threads 1 --repeats 1 --seconds 0.06 --no-start"
    path = tmp_path / "report.json"
    command = [sys.executable, str(VISION), *words.split(), "--json", str(path)]
    environment = dict(os.environ, XDG_CACHE_HOME=str(tmp_path))
    exported = []
    for _ in range(2):
        subprocess.run(command, check=True, env=environment, capture_output=True)
        (model,) = tmp_path.glob("onnxplug-benchmarks/*/mobilenetv2.onnx")
        exported.append(model.stat().st_mtime_ns)
    assert exported[0] == exported[1]
    found = json.loads(path.read_text(encoding="utf-8"))
    result = found["threads"]["1"]["models"]["mobilenetv2"]
    assert result["failed"] == {}
    assert result["error"].keys() >= {"onnxplug", "onnxruntime"}
    for error in result["error"].values():
        assert 0 < error["rms"] < error["largest"] < 1e-4
    # as it is published: 300 million multiplications
    assert 5.9e8 < found["work"]["mobilenetv2"]["flops"] < 6.3e8
