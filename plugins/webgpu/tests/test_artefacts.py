"""Compiled partitions as bytes: in models, on disk, and damaged."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.ep import MemoryLocation
from onnxplug.plugins import registry
from onnxplug_compiler.gpu.execution import serialiser
from onnxplug_compiler.gpu.execution.artefact import (
    Artefact,
    KeptSegment,
    read,
    write,
)
from onnxplug_compiler.gpu.execution.restored import RestoredPartition
from onnxplug_compiler.gpu.shapes import DEFAULT, Shapes
from onnxplug_webgpu.device import Device

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(3)
X = RNG.standard_normal((2, 3, 8, 8)).astype(np.float32)
I = np.array([1, -1, 0])  # noqa: E741


@pytest.fixture
def model(parse: Any) -> onnx.ModelProto:
    found = parse(
        "c = Conv<pads = [1, 1, 1, 1]>(x, w, b) r = Relu(c) "
        "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r) f = Flatten(p) "
        "g = Gather<axis = 1>(f, i) m = MatMul(f, v) s = Softmax(m) "
        "y = Concat<axis = 1>(s, g)",
        "float[2, 3, 8, 8] x, int64[3] i",
        "float[2, 8] y",
    )
    found.graph.node[4].name = "lookup"
    for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,)), ("v", (64, 5))):
        array = RNG.standard_normal(shape).astype(np.float32)
        found.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return found


def check(session: onnxplug.InferenceSession, model: onnx.ModelProto) -> None:
    feeds = {"x": X, "i": I}
    (expected,) = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, 1e-4, 1e-5)
    with pytest.raises(onnxplug.errors.NodeError, match=r"lookup.*out of range"):
        session.run(None, {"x": X, "i": np.array([0, 1, 64])})
    np.testing.assert_allclose(session.run(None, feeds)[0], expected, 1e-4, 1e-5)


def compile_to(path: Path, model: onnx.ModelProto, *, embed: bool) -> None:
    options = onnxplug.SessionOptions()
    options.add_provider(EP)
    compiler = onnxplug.ModelCompiler(
        options, model.SerializeToString(), embed_compiled_data_into_model=embed
    )
    compiler.compile_to_file(str(path))
    assert not compiler.explanation.not_written


@pytest.mark.parametrize("embed", [True, False])
def test_a_compiled_model_has_shaders_and_weights(
    adapter: Any, model: onnx.ModelProto, tmp_path: Path, embed: bool
) -> None:
    path = tmp_path / "model_ctx.onnx"
    compile_to(path, model, embed=embed)
    (node,) = onnx.load(path).graph.node
    assert node.op_type == "EPContext"
    assert not onnx.load(path).graph.initializer
    session = onnxplug.InferenceSession(path, providers=[EP])
    check(session, model)
    # the device is made anew for what was restored, too
    device = registry.contexts.at(MemoryLocation("webgpu", 0)).context.device
    device.native.destroy()
    with pytest.raises(onnxplug.errors.DeviceReset):
        session.run(None, {"x": X, "i": I})
    check(session, model)


def test_what_another_driver_compiled_is_refused(
    adapter: Any, model: onnx.ModelProto, tmp_path: Path, monkeypatch: Any
) -> None:
    path = tmp_path / "model_ctx.onnx"
    compile_to(path, model, embed=True)
    own = Device.identity

    def other(device: Device) -> dict[str, Any]:
        return {**own(device), "driver": "Mesa 99"}

    monkeypatch.setattr(Device, "identity", other)
    with pytest.raises(onnxplug.errors.OnnxplugError, match=r"compiled for.*Mesa 99"):
        onnxplug.InferenceSession(path, providers=[EP])


def test_what_is_compiled_is_kept_for_other_processes(
    adapter: Any, model: onnx.ModelProto, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    # one that was written to a moment ago is told from others by other means
    os.utime(path, (1, 1))
    said = []
    for _ in range(2):
        session = onnxplug.InferenceSession(
            path, providers=[(EP, {"keepCompiled": "1"})]
        )
        check(session, model)
        said.append(str(session.explain()))
    assert "cached for other processes" in said[0]
    assert "restored from the cache" in said[1], said[1]


def test_sizes_that_are_not_known_are_not_kept(
    adapter: Any, parse: Any, tmp_path: Path
) -> None:
    options = onnxplug.SessionOptions()
    options.add_provider(EP)
    model = parse("y = Relu(x)", "float[N, 3] x", "float[N, 3] y")
    compiler = onnxplug.ModelCompiler(options, model.SerializeToString())
    compiler.compile_to_file(str(tmp_path / "model_ctx.onnx"))
    (left,) = compiler.explanation.not_written
    assert "add_free_dimension_override_by_name" in str(left.reason)


@pytest.fixture
def written(adapter: Any, model: onnx.ModelProto) -> tuple[Device, bytes]:
    """The bytes of a partition, and the device that they are for."""
    made: list[bytes] = []

    def noted(artefact: Artefact, device: Device, shapes: Shapes) -> bytes:
        made.append(write(artefact, device, shapes))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serialiser, "write", noted)
        options = onnxplug.SessionOptions()
        options.add_provider(EP)
        onnxplug.ModelCompiler(
            options, model.SerializeToString(), embed_compiled_data_into_model=True
        ).compile_to_bytes()
    device = registry.contexts.at(MemoryLocation("webgpu", 0)).context.device
    return device, made[0]


def test_bytes_that_are_damaged_are_refused_or_as_good(
    written: tuple[Device, bytes],
) -> None:
    """Whatever is changed in the description, nothing but a ``ValueError`` comes."""
    device, content = written
    assert write(read(memoryview(content), device, DEFAULT), device, DEFAULT)
    length = int.from_bytes(content[:8], "little")
    described = json.loads(content[8 : 8 + length])
    numbers = random.Random(0)
    refused = 0
    for _ in range(300):
        changed = json.loads(json.dumps(described))
        _change(changed, numbers)
        text = json.dumps(changed).encode()
        damaged = len(text).to_bytes(8, "little") + text + content[8 + length :]
        try:
            read(memoryview(damaged), device, DEFAULT)
        except ValueError:
            refused += 1
    assert refused > 150
    with pytest.raises(ValueError, match="'side': 8"):
        read(memoryview(content), device, DEFAULT._replace(side=8))
    for end in (0, 4, 8, 100, length, len(content) - 64):
        with pytest.raises(ValueError):
            read(memoryview(content[:end]), device, DEFAULT)


@pytest.mark.parametrize("window", [(1 << 20, 4), (0, 1 << 20), (256, 0)])
def test_nothing_is_bound_beyond_the_end_of_a_buffer(
    written: tuple[Device, bytes], window: tuple[int, int]
) -> None:
    device, content = written
    length = int.from_bytes(content[:8], "little")
    described = json.loads(content[8 : 8 + length])
    (segment,) = described["segments"]
    segment["program"]["steps"][0][1][0][2:] = window
    text = json.dumps(described).encode()
    changed = len(text).to_bytes(8, "little") + text + content[8 + length :]
    with pytest.raises(ValueError, match="beyond the end of a buffer"):
        read(memoryview(changed), device, DEFAULT)


def _change(found: Any, numbers: random.Random) -> None:
    """Change something, somewhere."""
    while True:
        keys = list(found) if isinstance(found, dict) else list(range(len(found)))
        key = numbers.choice(keys)
        inner = found[key]
        if isinstance(inner, dict | list) and inner and numbers.random() < 0.9:
            found = inner
            continue
        junk = [None, -1, 1 << 70, "x", [], {}, 3.5, True, 7]
        found[key] = numbers.choice(junk)
        return


def test_a_hostile_artefact_harms_nobody(
    written: tuple[Device, bytes], model: onnx.ModelProto
) -> None:
    """Indices that no kernel of ours has are kept within what is bound by the driver,
    and what does not fit the partition is refused."""
    device, content = written
    artefact = read(memoryview(content), device, DEFAULT)
    (segment,) = artefact.segments
    assert isinstance(segment, KeptSegment)
    context = registry.contexts.at(MemoryLocation("webgpu", 0)).context
    session = onnxplug.InferenceSession(model.SerializeToString(), providers=[EP])
    partition = Partition(artefact)
    for wrong, why in (
        (artefact._replace(inputs=artefact.inputs[:1]), "1 inputs, not 2"),
        (artefact._replace(outputs=("no",)), "all outputs"),
        (artefact._replace(segments=()), "all outputs"),
        (
            artefact._replace(segments=(segment._replace(inputs=("a", "b")),)),
            "reads what nothing made",
        ),
    ):
        with pytest.raises(ValueError, match=why):
            RestoredPartition(partition, wrong, context, None, "bucket")  # type: ignore[arg-type]
    check(session, model)


class Partition:
    """What is looked at of a partition."""

    def __init__(self, artefact: Artefact) -> None:
        self.inputs = artefact.inputs
        self.outputs = artefact.outputs
        self.nodes = ()
