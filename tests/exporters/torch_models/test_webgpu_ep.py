"""Networks as PyTorch exports them, on the EP that computes by WebGPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make test-webgpu installs it")
pytest.importorskip("transformers", reason="make test-webgpu installs it")
if "webgpu" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
    pytest.importorskip("wgpu", reason="make test-webgpu installs it")

from models.decoders import llama
from zoo import built

import onnxplug

from .test_torch_ep import assert_near
from .test_zoo import SMALL, export_small, small

EPS = ["WebGpuExecutionProvider", "CPUExecutionProvider"]

OFTEN = "resnet50 mobilenetv2 unet whisper-encoder bert-base gpt2-decode".split()
NAMES = [
    pytest.param(name, marks=[] if name in OFTEN else pytest.mark.exhaustive)
    for name in SMALL
    if name != "lstm"  # which is most of that network
]

PRODUCTS = {"Conv", "ConvTranspose", "MatMul", "Gemm", "Attention"}
"""Operators that have nearly all of a network's arithmetic."""


def assert_on_the_device(session: onnxplug.InferenceSession) -> None:
    """That there are all products, at least 95 % of what does not follow from shapes,
    and what is between inputs and outputs."""
    explained = session.explain()
    nodes = [
        node
        for node in explained.nodes
        if node.ep != EPS[0] or "follows from shapes" not in node.note
    ]
    there = [node for node in nodes if node.ep == EPS[0] and node.tier == "compiled"]
    elsewhere = {node.op_type for node in nodes} - {node.op_type for node in there}
    assert len(there) >= 0.95 * len(nodes), str(explained)
    assert not elsewhere & PRODUCTS
    names = {arg.name for arg in (*session.get_inputs(), *session.get_outputs())}
    assert {copy.value for copy in explained.copies} <= names


def assert_right(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for ours, right in zip(found, wanted, strict=True):
        assert ours.shape == right.shape
        atol = tolerance * abs(right).max()
        np.testing.assert_allclose(ours, right, rtol=0, atol=atol)


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_on_the_device_and_right(name: str, tmp_path: Path) -> None:
    files, tolerance = export_small(name, tmp_path), SMALL[name].tolerance
    feeds = dict(np.load(files.feeds))
    session = onnxplug.InferenceSession(files.model, providers=EPS)
    found = session.run(None, feeds)
    assert_right(found, list(np.load(files.expected).values()), tolerance)
    cpu = onnxplug.InferenceSession(files.model, providers=["cpu"]).run(None, feeds)
    assert_right(found, cpu, 2 * tolerance)
    assert_on_the_device(session)
    if small(name).grows:
        _check_growing(name, session, found)


def _check_growing(
    name: str, session: onnxplug.InferenceSession, found: Sequence[Any]
) -> None:
    """Runs of which each takes what the one before kept."""
    module, drawn = built(small(name), **SMALL[name].sizes)
    word, *cache = drawn.values()
    names = [arg.name for arg in session.get_inputs()]
    for _ in range(4):
        theirs = module(word, *cache)
        for ours, right in zip(found, theirs, strict=True):
            assert_near(ours, right.numpy(), name)
        cache = theirs[1:]
        fed = [word.numpy(), *found[1:]]
        found = session.run(None, dict(zip(names, fed, strict=True)))


def in_float64(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same in the wider type."""
    wide = onnx.ModelProto()
    wide.CopyFrom(model)
    del wide.graph.value_info[:]
    double, single = onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT
    for tensor in wide.graph.initializer:
        if tensor.data_type == single:
            array = onnx.numpy_helper.to_array(tensor).astype(np.float64)
            tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    for value in (*wide.graph.input, *wide.graph.output):
        if value.type.tensor_type.elem_type == single:
            value.type.tensor_type.elem_type = double
    return wide


@pytest.mark.parametrize(("length", "past"), [(7, 0), (1, 6)])
def test_a_block_of_llama_is_on_the_device_and_right(length: int, past: int) -> None:
    """A prompt, and a word with what is kept of those before."""
    sizes: Mapping[str, int] = {
        "layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 48,
    }  # fmt: skip
    case = llama(length, past, **sizes)
    session = onnxplug.InferenceSession(case.model, providers=EPS)
    wide = onnx.reference.ReferenceEvaluator(in_float64(case.model))
    feeds = {
        key: x.astype(np.float64) if x.dtype == np.float32 else x
        for key, x in case.feeds.items()
    }
    assert_right(session.run(None, case.feeds), wide.run(None, feeds), 2e-5)
    assert_on_the_device(session)
