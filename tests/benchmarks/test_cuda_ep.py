"""The comparison on GPUs of NVIDIA's: what of it needs none."""

from __future__ import annotations

from pathlib import Path

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
            "versions": {"torch": "2.13", "onnxruntime-gpu": ""},
            "peaks of the card": {"GFLOP/s fp16": 4e5, "GB/s": 3e3},
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
    assert "graph 15.6 µs" in text and "`torch.compile` 23.4 µs" in text


def test_the_page_has_what_the_results_say() -> None:
    text = report.CUDA_PAGE.read_text(encoding="utf-8")
    shown = text.split(report.BEGIN)[1].split(report.END)[0]
    results = report.read(report.RESULTS / "cuda")
    assert shown.strip() == report.on_cards(results).strip()
