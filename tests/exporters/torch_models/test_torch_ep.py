"""Models as PyTorch exports them, on the EP that computes by PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test-torch installs it")
pytest.importorskip("transformers", reason="make test-torch installs it")

import torch_ep
from zoo import built
from zoo.running import prepare_session

import onnxplug

from .architecture import EXPORTERS, Exporter
from .export import export
from .test_torch import ARCHITECTURES, TOLERANCE, array, outputs
from .test_zoo import SMALL, export_small, small

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


# torch.compile takes a minute of the processor for most of them
COMPILED = {"gpt2-decode", "mobilenetv2"}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in torch_ep.NETWORKS),
        *(
            pytest.param(
                name,
                {"compile": "1"},
                marks=[] if name in COMPILED else pytest.mark.exhaustive,
            )
            for name in torch_ep.NETWORKS
        ),
    ],
)
# of torch, of its own parts
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_network_is_wholly_on_the_ep_and_right(
    name: str, options: dict[str, str], tmp_path: Path
) -> None:
    files = export_small(name, tmp_path)
    feeds = dict(np.load(files.feeds))
    wanted = list(np.load(files.expected).values())
    cpu = onnxplug.InferenceSession(files.model, providers=["cpu"]).run(None, feeds)
    run = prepare_session(files.model, feeds, 1, options)
    found = run()
    for ours, right, other in zip(found, wanted, cpu, strict=True):
        assert ours.dtype == np.float32
        atol = SMALL[name].tolerance * abs(right).max()
        np.testing.assert_allclose(ours, right, rtol=0, atol=atol)
        np.testing.assert_allclose(ours, other, rtol=0, atol=2 * atol)
    if small(name).grows:
        module, drawn = built(small(name), **SMALL[name].sizes)
        word, *cache = drawn.values()
        for _ in range(4):  # what each run keeps is what the next one takes
            theirs = module(word, *cache)
            for ours, right in zip(found, theirs, strict=True):
                assert_near(ours, right.numpy(), name)
            cache, found = theirs[1:], run()


def assert_near(ours: Any, theirs: Any, case: str) -> None:
    """That they differ by no more than roundings add up to; integers not at all."""
    assert ours.dtype == theirs.dtype, case
    assert ours.shape == theirs.shape, case
    is_float = theirs.dtype.kind == "f" and theirs.size
    atol = TOLERANCE * float(abs(theirs).max()) if is_float else 0
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=atol, err_msg=case)
