"""The comparison on GPUs of NVIDIA's: what of it needs none."""

from __future__ import annotations

from pathlib import Path

import cuda_ep
import numpy as np
import on_cuda
import onnx
import pytest
import report
import runtimes
from onnx.reference import ReferenceEvaluator

import onnxplug

MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] x, float[2, 3] z) => '
    "(float[2, 3] y, float[2, 3] w) { y = Softmax (x)\n w = Add (y, z) }"
)
FEEDS = {
    name: np.arange(6, dtype=np.float32).reshape(2, 3) + n
    for n, name in enumerate("xz")
}


def test_bound_values_are_run_and_read_when_that_is_asked_for() -> None:
    session = onnxplug.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
    run = on_cuda.bound(onnxplug.OrtValue, session, FEEDS, "cpu")
    wanted = ReferenceEvaluator(MODEL).run(None, FEEDS)
    for _ in range(2):
        for found, expected in zip(run(), wanted, strict=True):
            np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6)


def test_without_a_card_runtimes_say_why(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODEL, path)
    for kind in ("onnxplug-cuda", "onnxruntime"):
        with pytest.raises(Exception, match=r"(?i)cuda"):
            runtimes.prepare(kind, str(path), FEEDS, 1, {"device": "cuda"})


def test_a_card_has_its_section() -> None:
    seconds = {"graph": 1e-3, "onnxplug": 2e-3, "torch": 3e-3, "torch.compile": 1.5e-3}
    ratios = {"torch": 3.0, "torch.compile": 1.5}
    model = {
        "seconds": seconds,
        "ratio": {
            "graph": ratios,
            "onnxplug": {name: x / 2 for name, x in ratios.items()},
        },
        "error": {"onnxplug": {"largest": 1e-3, "rms": 1e-4}},
    }
    found = {
        "machine": {
            "card": "NVIDIA H100",
            "CUDA of PyTorch": "13.0",
            "commit": "abc",
            "versions": {"torch": "2.13", "onnxruntime-gpu": "not installed"},
            "peaks of the card": {"GFLOP/s fp16": 4e5, "GB/s": 3e3},
            "sharing": {
                "runs a second of so many sessions": {"1": 900.0, "4": 2500.0},
                "MiB of the device": {
                    "weights": 32.0,
                    "no limit": 34.0,
                    "a limit of half the weights": "it needs more",
                },
                "first runs": {"of a length": 2e-3},
            },
        },
        "settings": {"runtimes": list(seconds), "peers": ["torch", "torch.compile"]},
        "work": {
            "resnet50-8-fp16": {"flops": 8e10, "nbytes": 1},
            "64-launches": {"flops": 0, "nbytes": 1},
        },
        "threads": {"1": {"models": {"resnet50-8-fp16": model, "64-launches": model}}},
    }
    text = report.on_cards([report.Report("h100", found)])
    assert "### NVIDIA H100" in text and "PyTorch 2.13; onnxplug" in text
    row = next(line for line in text.splitlines() if line.startswith("| resnet50"))
    assert "1.50×" in row and "3.00×" in row
    # 80 GFLOP in a millisecond, of 400 TFLOP/s
    assert "| resnet50-8-fp16 | 80 | 20% |" in text
    assert "by how many run at once: 1: 900, 4: 2500." in text
    assert "| no limit | 34 |" in text and "it is said: `it needs more`" in text
    assert "of a length 2 ms" in text
    assert "graph 15.6 µs" in text and "`torch.compile` 23.4 µs" in text


def test_a_card_has_its_file() -> None:
    found = cuda_ep.results("NVIDIA H100 80GB HBM3")
    assert found == report.CARDS / "nvidia-h100-80gb-hbm3.json"


@pytest.mark.exhaustive
def test_large_layers_are_applied_to_their_own_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("torch", reason="needs make .venv/exporters.stamp")
    from zoo import Network, exported, on_gpus

    monkeypatch.setattr(on_gpus, "SIDE", 32)
    monkeypatch.setattr(on_gpus, "IMAGES", (1, 4, 6, 6))
    for build, shape, kind in (
        (on_gpus.products, (32, 32), "Gemm"),
        (on_gpus.convolutions, (1, 4, 6, 6), "Conv"),
    ):
        files = exported(Network(build, {"x": shape}), kind, tmp_path)
        model = onnx.load(files.model)
        kinds = [node.op_type for node in model.graph.node]
        assert kinds.count(kind) == on_gpus.TIMES
        assert sum(each != kind for each in kinds) <= 1  # which turns the weight
        assert len(model.graph.initializer) <= 2


@pytest.mark.exhaustive
def test_narrow_networks_compute_in_16_bits(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="needs make .venv/exporters.stamp")
    from functools import partial

    from zoo import Network, exported, on_gpus

    build = partial(on_gpus.narrow, torch.nn.Linear, in_features=8, out_features=4)
    files = exported(Network(build, {"x": (2, 8)}), "narrow", tmp_path)
    kinds = {weight.data_type for weight in onnx.load(files.model).graph.initializer}
    assert kinds == {onnx.TensorProto.FLOAT16}


def test_the_page_has_what_the_results_say() -> None:
    text = report.CUDA_PAGE.read_text(encoding="utf-8")
    shown = text.split(report.BEGIN)[1].split(report.END)[0]
    results = report.read(report.RESULTS / "cuda")
    assert shown.strip() == report.on_cards(results).strip()
