"""What is left of runs and sessions: in wgpu, in the pool, and in other processes."""

from __future__ import annotations

import gc
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug.ep import MemoryLocation
from onnxplug.plugins import registry
from onnxplug_webgpu.adapters import import_wgpu
from onnxplug_webgpu.device import Device

X = np.random.default_rng(5).standard_normal((2, 3)).astype(np.float32)
SHARES = np.exp(X) / np.exp(X).sum(-1, keepdims=True)


def check(session: onnxplug.InferenceSession) -> None:
    found = session.run(None, {"x": X})[0]
    np.testing.assert_allclose(found, -SHARES, 1e-5)


def objects() -> dict[str, int]:
    """How many objects wgpu-native has, by kind."""
    import_wgpu()
    import wgpu

    gc.collect()
    counts = wgpu.diagnostics.get_dict()["wgpu_native_counts"]
    return {kind: found["count"] for kind, found in counts.items()}


def test_runs_leave_nothing_in_wgpu(device: Device, alone: Any, parse: Any) -> None:
    session = alone(parse("m = Softmax(x) y = Neg(m)"))
    for _ in range(3):
        check(session)
    before = objects()
    assert before["ComputePipeline"] >= 1
    for _ in range(20):
        check(session)
    # what tests before left may go meanwhile
    assert {kind: n for kind, n in objects().items() if n > before[kind]} == {}


def test_sessions_leave_nothing_behind(adapter: Any, alone: Any, parse: Any) -> None:
    """One after another, and several of which the last one ends."""
    texts = [
        "m = Softmax(x) y = Neg(m)",
        "n = Neg(x) m = Neg(n) s = Softmax(m) y = Neg(s)",
    ]
    for _ in range(2):
        for text in texts:
            check(alone(parse(text)))
    sessions = [alone(parse(text)) for text in texts]
    device = registry.contexts.at(MemoryLocation("webgpu", 0)).context.device
    for session in sessions:
        check(session)
    del session
    first = set(device._pool._buffers)
    assert len(device._pipelines) > 1
    sessions.clear()
    # of one device, so that none is made anew for the next session
    session = alone(parse(texts[0]))
    check(session)
    assert registry.contexts.at(MemoryLocation("webgpu", 0)).context.device is device
    assert first.isdisjoint(device._pool._buffers)
    before = objects()
    for text in (*texts, *texts):
        check(alone(parse(text)))
    del session
    device._pool.collect()
    assert not device._pool._buffers and not device._pipelines
    after = objects()
    assert after["Device"] == before["Device"] and after["Buffer"] < before["Buffer"]


def test_kernels_are_kept_up_to_a_number(
    device: Device, alone: Any, parse: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxplug_webgpu.device._MOST_PIPELINES", 2)
    device._pipelines.clear()  # those of sessions that tests before left
    nodes = "a = Softmax(x) b = ReduceMax(x) c = CumSum(x, t) d = Softmax<axis=0>(x)"
    weights = "int64 t = {1}"
    outputs = "float[2, 3] a, float[1, 1] b, float[2, 3] c, float[2, 3] d"
    session = alone(parse(nodes, outputs=outputs, weights=weights))
    columns = np.exp(X) / np.exp(X).sum(0, keepdims=True)
    for _ in range(2):
        found = session.run(None, {"x": X})
        wanted = [SHARES, X.max(keepdims=True), X.cumsum(1), columns]
        for ours, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(ours, right, 1e-5, 1e-6)
    assert len(device._pipelines) == 2


FORKED = """
import os, sys, onnx, onnxplug
import numpy as np

model = onnx.parser.parse_model(sys.argv[1])
make = lambda: onnxplug.InferenceSession(model, providers=["WebGpuExecutionProvider"])
session, x = make(), np.ones((2, 3), np.float32)
run = lambda session: session.run(None, {"x": x})[0].tolist()
before, told = run(session), 0
child = os.fork()
if not child:
    for attempt in (lambda: run(session), lambda: run(session), make):
        try:
            attempt()
        except onnxplug.errors.EpError as error:
            told += "start processes by spawn" in str(error)
    os._exit(told)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), run(session) == before)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")
def test_the_child_of_a_fork_is_told(adapter: Any, parse: Any) -> None:
    """It would wait for ever for threads of the driver's."""
    import onnx

    text = onnx.printer.to_text(parse("y = Softmax(x)"))
    command = [sys.executable, "-c", FORKED, text]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["3", "True"], done.stdout + done.stderr


def test_what_is_in_use_is_counted(device: Any) -> None:
    before = device.used_bytes()
    memories = [device.memory(1 << 20) for _ in range(3)]
    assert device.used_bytes() == before + (3 << 20)
    memories.clear()
    assert device.used_bytes() == before
