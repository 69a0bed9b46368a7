"""Models as PyTorch exports them in Core ML's format, run by its interpreter."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test-coreml installs it")
pytest.importorskip("transformers", reason="make test-coreml installs it")
pytest.importorskip("coremltools", reason="make test-coreml installs it")

import onnxplug

sys.path.append(str(Path(__file__).parents[3] / "plugins" / "coreml" / "tests"))

from mlprogram.simulation import EP, simulated
from zoo import ZOO
from zoo import export as export_network

from .export import export
from .test_torch import ARCHITECTURES, array, outputs
from .test_zoo import SMALL

NARROW = {"ModelFormat": "MLProgram", "ComputePrecision": "Float16"}


def share_on_coreml(session: onnxplug.InferenceSession) -> float:
    nodes = session.explain().nodes
    return sum(node.ep == EP[0] for node in nodes) / len(nodes)


@pytest.mark.parametrize("options", [EP[1], NARROW], ids=["float32", "float16"])
@pytest.mark.parametrize("name", ["resnet50", "mobilenetv2", "unet", "whisper-encoder"])
def test_a_network_agrees_with_float64(
    name: str, options: dict[str, str], tmp_path: Path
) -> None:
    sizes, inputs, tolerance = SMALL[name]
    files = export_network(ZOO[name]._replace(inputs=inputs), tmp_path, name, **sizes)
    with np.load(files.feeds) as stored:
        feeds = {key: stored[key] for key in stored.files}
    with np.load(files.expected) as stored:
        expected = [stored[key] for key in stored.files]
    with simulated() as loaded:
        session = onnxplug.InferenceSession(files.model, providers=[(EP[0], options)])
        found = session.run(None, feeds)
    assert share_on_coreml(session) >= 0.95
    assert len(loaded) == 1
    margin = 2e-2 if options is NARROW else tolerance
    for ours, wanted in zip(found, expected, strict=True):
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(ours, wanted, rtol=0, atol=margin * scale)


def test_bert_agrees_with_torch(tmp_path: Path) -> None:
    architecture, path = ARCHITECTURES["bert"], tmp_path / "model.onnx"
    export(architecture, "dynamo", path)
    model = architecture.model()
    with simulated():
        session = onnxplug.InferenceSession(path, providers=[EP])
        assert share_on_coreml(session) >= 0.95
        for sizes in architecture.sizes:
            drawn = architecture.draw(sizes)
            found = session.run(None, {key: array(x) for key, x in drawn.items()})
            wanted = outputs(model, architecture.draw(sizes))
            for ours, theirs in zip(found, wanted, strict=True):
                np.testing.assert_allclose(ours, array(theirs), 1e-4, 1e-5)
