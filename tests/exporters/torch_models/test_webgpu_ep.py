"""Networks as PyTorch exports them, on the EP that computes by WebGPU."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import pytest

pytest.importorskip("torch", reason="make test-webgpu installs it")
pytest.importorskip("transformers", reason="make test-webgpu installs it")
if "webgpu" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
    pytest.importorskip("wgpu", reason="make test-webgpu installs it")

import torch
from comparison.arithmetic import shares_of
from models.decoders import llama
from models.quantised import llama_in_4_bits
from zoo import built, converted, drawn_feeds, export

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


IN_FLOAT16 = [
    pytest.param("resnet50", 1.5e-2, marks=pytest.mark.exhaustive),
    pytest.param("mobilenetv2", 5e-3, marks=pytest.mark.exhaustive),
    pytest.param("whisper-encoder", 2e-3, marks=pytest.mark.exhaustive),
    pytest.param("detr", 4e-3, marks=pytest.mark.exhaustive),
    ("unet", 6e-3),
    ("bert-base", 2e-3),
    ("gpt2-decode", 2e-3),
]
"""Networks, and the errors that the page of the EP states: the root of their mean
square, divided by that of the results."""


def opened(
    model: Path | onnx.ModelProto, folder: Path
) -> tuple[onnxplug.InferenceSession, Path]:
    """A session with the EP first, and the model whose nodes it runs."""
    options, prepared = onnxplug.SessionOptions(), folder / "prepared.onnx"
    options.optimized_model_filepath = str(prepared)
    return onnxplug.InferenceSession(model, options, providers=EPS), prepared


def assert_on_the_device(
    session: onnxplug.InferenceSession,
    prepared: Path,
    feeds: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """That there are at least 95 % of the nodes that do not follow from shapes, 99 % of
    the arithmetic of all, and what is between inputs and outputs."""
    explained = session.explain()
    found = shares_of(explained.nodes, onnx.load(prepared), feeds, EPS[0])
    assert found.nodes >= 0.95, str(explained)
    assert found.arithmetic >= 0.99, str(explained)
    names = {arg.name for arg in (*session.get_inputs(), *session.get_outputs())}
    assert {copy.value for copy in explained.copies} <= names


def assert_right(found: Sequence[Any], wanted: Sequence[Any], tolerance: float) -> None:
    for ours, right in zip(found, wanted, strict=True):
        assert ours.shape == right.shape
        atol = tolerance * abs(right).max()
        np.testing.assert_allclose(ours, right, rtol=0, atol=atol)


def rms(array: np.ndarray[Any, Any]) -> float:
    """The root of the mean square."""
    return float(np.sqrt(np.square(array.astype(np.float64)).mean()))


def assert_rounded_alike(
    found: Sequence[Any], cpu: Sequence[Any], wanted: Sequence[Any]
) -> None:
    """That errors, as the roots of their mean squares, are at most 3 times the
    CPU EP's, or than the rounding of the largest result to float32."""
    for ours, theirs, right in zip(found, cpu, wanted, strict=True):
        least = 2**-24 * abs(right).max()
        errors = [rms(each - right) for each in (ours, theirs)]
        assert errors[0] <= 3 * max(errors[1], least), errors


Drawn: TypeAlias = tuple[Mapping[str, np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]]


def draws(name: str, count: int) -> Iterator[Drawn]:
    """Inputs of a network, and what PyTorch gives for them in float64."""
    network = small(name)
    module, _ = built(network, **SMALL[name].sizes)
    module.double()
    for _ in range(count):
        feeds = drawn_feeds(network)
        with torch.no_grad():
            found = module(*converted(feeds, torch.float64).values())
        outputs = (found,) if isinstance(found, torch.Tensor) else found
        yield (
            {key: value.numpy() for key, value in feeds.items()},
            [output.numpy() for output in outputs],
        )


@pytest.mark.parametrize("name", NAMES)
def test_a_network_is_on_the_device_and_right(name: str, tmp_path: Path) -> None:
    files, tolerance = export_small(name, tmp_path), SMALL[name].tolerance
    feeds = dict(np.load(files.feeds))
    session, prepared = opened(files.model, tmp_path)
    first = session.run(None, feeds)
    assert_right(first, list(np.load(files.expected).values()), tolerance)
    cpu = onnxplug.InferenceSession(files.model, providers=["cpu"])
    runs = [
        (session.run(None, given), cpu.run(None, given), right)
        for given, right in draws(name, 1 if name in OFTEN else 8)
    ]
    # together, as errors of few results are large or small by chance
    found, on_cpu, wanted = (
        [np.stack(each) for each in zip(*one, strict=True)]
        for one in zip(*runs, strict=True)
    )
    assert_rounded_alike(found, on_cpu, wanted)
    assert_on_the_device(session, prepared, feeds)
    if small(name).grows:
        _check_growing(name, session, first)


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


@pytest.mark.parametrize(("name", "bound"), IN_FLOAT16)
def test_a_network_in_float16_is_as_near_as_documented(
    name: str, bound: float, tmp_path: Path
) -> None:
    """To float64's of the same weights; the CPU EP rounds as often on arrays."""
    network = small(name)._replace(dtype=torch.float16)
    files = export(network, tmp_path, name, **SMALL[name].sizes)
    feeds = dict(np.load(files.feeds))
    session, prepared = opened(files.model, tmp_path)
    found = session.run(None, feeds)
    assert_on_the_device(session, prepared, feeds)
    arrays = [("cpu", {"compile": False})]
    cpu = onnxplug.InferenceSession(files.model, providers=arrays).run(None, feeds)
    wanted = np.load(files.expected).values()
    for ours, theirs, right in zip(found, cpu, wanted, strict=True):
        assert ours.dtype == np.float16
        assert rms(ours - right) <= bound * rms(right)
        assert rms(ours - right) <= 1.25 * rms(theirs - right)
    if not network.grows:
        return
    module, drawn = built(network, **SMALL[name].sizes)
    module.double()
    word = next(iter(drawn.values()))
    for _ in range(4):
        given = [word.numpy(), *found[1:]]
        names = [arg.name for arg in session.get_inputs()]
        found = session.run(None, dict(zip(names, given, strict=True)))
        cache = [torch.from_numpy(each).double() for each in given[1:]]
        for ours, right in zip(found, module(word, *cache), strict=True):
            assert rms(ours - right.numpy()) <= bound * rms(right.numpy())


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
def test_a_block_of_llama_is_on_the_device_and_right(
    length: int, past: int, tmp_path: Path
) -> None:
    """A prompt, and a word with what is kept of those before."""
    sizes: Mapping[str, int] = {
        "layers": 1, "width": 32, "heads": 4, "groups": 2, "inner": 48,
    }  # fmt: skip
    case = llama(length, past, **sizes)
    session, prepared = opened(case.model, tmp_path)
    wide = onnx.reference.ReferenceEvaluator(in_float64(case.model))
    feeds = {
        key: x.astype(np.float64) if x.dtype == np.float32 else x
        for key, x in case.feeds.items()
    }
    found, wanted = session.run(None, case.feeds), wide.run(None, feeds)
    assert_right(found, wanted, 2e-5)
    cpu = onnxplug.InferenceSession(case.model, providers=["cpu"])
    assert_rounded_alike(found, cpu.run(None, case.feeds), wanted)
    assert_on_the_device(session, prepared, case.feeds)


@pytest.mark.parametrize(("dtype", "bound"), [(np.float32, 1e-5), (np.float16, 2e-3)])
def test_a_block_in_4_bits_is_on_the_device(
    dtype: Any, bound: float, tmp_path: Path
) -> None:
    """The CPU EP computes it of the weights in full, by kernels of its own."""
    case = llama_in_4_bits(dtype, 6, width=128, heads=4, groups=2, inner=256)
    session, prepared = opened(case.model, tmp_path)
    found = session.run(None, case.feeds)
    assert_on_the_device(session, prepared, case.feeds)
    nodes = session.explain().nodes
    assert sum(node.op_type == "MatMulNBits" for node in nodes) == 7
    on_cpu = onnxplug.InferenceSession(case.model, providers=["cpu"])
    for one, other in zip(found, on_cpu.run(None, case.feeds), strict=True):
        wide = other.astype(np.float64)
        apart = np.abs(one.astype(np.float64) - wide).max()
        assert apart <= bound * np.abs(wide).max()
