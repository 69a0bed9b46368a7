"""What the CPU EP tells of its work in traces and reports, and how runs end early."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxplug
from onnxplug.errors import RunCancelled
from onnxplug_cpu.compiler.runtime.linked import LinkedProgram

Event = dict[str, Any]

MIXED = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[n, 8] x, float[8, 4] w) => (float[n, 4] y)
    {
        [product] p = MatMul (x, w)
        [bend] r = Relu (p)
        [top] h = Mod <fmod = 1> (r, p)
        [sum] y = Add (h, r)
    }
    """
)
X = np.arange(24, dtype=np.float32).reshape(3, 8) - 9
W = np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4)


def profiled(model: onnx.ModelProto, tmp_path: Path) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    return onnxplug.InferenceSession(model, options)


def events_of(session: onnxplug.InferenceSession) -> list[Event]:
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    return sorted(events, key=lambda event: event["ts"])


def chain(length: int, size: int) -> onnx.ModelProto:
    """Products of matrices, one after the other."""
    nodes = [
        helper.make_node("MatMul", [f"v{n}", "w"], [f"v{n + 1}"]) for n in range(length)
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [size, size])],
        [helper.make_tensor_value_info(f"v{length}", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(np.eye(size, dtype=np.float32), "w")],
    )
    return helper.make_model(
        graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)]
    )


def test_every_command_is_told_with_its_work(tmp_path: Path) -> None:
    session = profiled(MIXED, tmp_path)
    want = session.run(None, {"x": X, "w": W})[0]
    got = session.run(None, {"x": X, "w": W})[0]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(
        want, onnxplug.InferenceSession(MIXED).run(None, {"x": X, "w": W})[0]
    )
    events = events_of(session)
    run = [event for event in events if event["name"] == "model_run"][-1]
    nodes = [
        event for event in events if event["cat"] == "Node" and event["ts"] >= run["ts"]
    ]
    compiled = [event for event in nodes if event["args"]["tier"] == "compiled"]
    facts = [event["args"] for event in compiled]
    assert {fact["provider"] for fact in facts} == {"CPUExecutionProvider"}
    assert {name for fact in facts for name in fact["nodes"]} == {
        "product", "bend", "sum"
    }  # fmt: skip
    (matmul,) = (event for event in compiled if "product" in event["args"]["nodes"])
    assert matmul["name"].startswith("MatMul")
    assert matmul["args"]["op_name"].startswith("MatMul")
    assert matmul["args"]["kernel"].startswith("contraction")
    assert matmul["args"]["flops"] >= 2 * 3 * 8 * 4
    for event in compiled:
        fact, taken = event["args"], max(event["dur"] * 1e3, 1)
        assert fact["share_of_peak"] > 0
        if "flops" in fact:
            assert fact["GFLOP/s"] == pytest.approx(fact["flops"] / taken)
        assert fact["GB/s"] == pytest.approx(fact["bytes"] / taken)
    assert sum(event["dur"] for event in nodes) <= run["dur"]


def test_the_array_tier_is_told_and_why(tmp_path: Path) -> None:
    session = profiled(MIXED, tmp_path)
    session.run(None, {"x": X, "w": W})
    (rest,) = (e for e in events_of(session) if e["name"] == "top_kernel_time")
    assert rest["args"]["tier"] == "array"
    assert "Mod has no compiled kernel" in rest["args"]["note"]
    explanation = session.explain()
    placed = {node.name: (node.tier, node.note) for node in explanation.nodes}
    assert placed["product"] == placed["sum"] == ("compiled", "")
    assert placed["top"] == ("array", rest["args"]["note"])
    assert explanation.to_dict()["nodes"][2]["note"] == rest["args"]["note"]


def test_new_shapes_are_planned_in_the_trace(tmp_path: Path) -> None:
    session = profiled(MIXED, tmp_path)
    for rows in (3, 5, 3):
        session.run(None, {"x": np.ones((rows, 8), np.float32), "w": W})
    plans = [e for e in events_of(session) if e["name"] == "plan for new shapes"]
    shapes = [
        event["args"]["inputs"]["x"]
        for event in plans
        if "x" in event["args"]["inputs"]
    ]
    assert shapes == [[3, 8], [5, 8]]


def test_a_partition_wholly_on_arrays_tells_why(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '< ir_version: 10, opset_import: ["" : 21] >'
        "agraph (float[2, 2] x) => (float[2, 2] y) { [top] y = Mod <fmod = 1> (x, x) }"
    )
    session = profiled(model, tmp_path)
    (node,) = session.explain().nodes
    assert node.tier == "array"
    assert "Mod has no compiled kernel" in node.note
    session.run(None, {"x": np.ones((2, 2), np.float32)})
    (event,) = (e for e in events_of(session) if e["cat"] == "Node")
    assert event["args"]["tier"] == "array"
    assert event["args"]["note"] == node.note


def test_switched_off_it_does_not_excuse_itself() -> None:
    session = onnxplug.InferenceSession(
        MIXED, providers=[("CPUExecutionProvider", {"compile": False})]
    )
    assert {(n.tier, n.note) for n in session.explain().nodes} == {("array", "")}


def test_a_long_program_is_cancelled_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    session = onnxplug.InferenceSession(chain(length=150, size=512))
    assert session.explain().partitions[0].tiers == {"compiled": 150}
    feed = {"v0": np.ones((512, 512), np.float32)}
    session.run(None, feed)
    started = time.perf_counter()
    session.run(None, feed)
    whole = time.perf_counter() - started

    options = onnxplug.RunOptions()
    options.timeout = whole / 10
    late = []
    for _ in range(5):
        started = time.perf_counter()
        with pytest.raises(RunCancelled, match="timeout"):
            session.run(None, feed, options)
        late.append(time.perf_counter() - started - options.timeout)
    assert min(late) < 0.05

    options = onnxplug.RunOptions()
    late.clear()

    def terminate() -> None:
        time.sleep(whole / 10)
        late.append(time.perf_counter())
        options.terminate = True

    thread = threading.Thread(target=terminate)
    thread.start()
    with pytest.raises(RunCancelled, match="terminate"):
        session.run(None, feed, options)
    assert time.perf_counter() - late[0] < max(0.05, whole / 2)
    thread.join()
    # the session goes on as before
    np.testing.assert_allclose(session.run(None, feed)[0], feed["v0"], rtol=1e-5)


def test_a_profiled_run_is_cancelled_too(tmp_path: Path) -> None:
    session = profiled(chain(length=200, size=256), tmp_path)
    feed = {"v0": np.ones((256, 256), np.float32)}
    session.run(None, feed)  # which measures the machine
    options = onnxplug.RunOptions()
    options.timeout = 1e-3
    with pytest.raises(RunCancelled, match="timeout"):
        session.run(None, feed, options)
    session.run(None, feed, onnxplug.RunOptions())
    assert len([e for e in events_of(session) if e["name"] == "model_run"]) == 3


def test_a_short_program_is_run_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise AssertionError("a short program is not divided")

    session = onnxplug.InferenceSession(chain(length=3, size=8))
    monkeypatch.setattr(LinkedProgram, "run_in_parts", refuse)
    feed = {"v0": np.ones((8, 8), np.float32)}
    np.testing.assert_array_equal(
        session.run(None, feed, onnxplug.RunOptions())[0], feed["v0"]
    )


def test_what_is_found_out_in_a_run_is_in_the_report() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[n, k, 4] x, float[m, l] w) => (float[n, k, 4] y)
        {
            [norm] p = LayerNormalization <axis = 1> (x, w)
            h = Mod <fmod = 1> (p, p) y = Add (h, p)
        }
        """
    )
    session = onnxplug.InferenceSession(model)
    norm = session.explain().nodes[0]
    assert (norm.tier, norm.note) == ("compiled", "")
    x = np.random.default_rng(0).random((2, 3, 4), np.float32)
    # the array tier tells of wrong shapes in its own words
    with pytest.raises(onnxplug.errors.NodeError, match="'norm' failed on"):
        session.run(None, {"x": x, "w": x[0, :2]})
    assert session.explain().nodes[0].tier == "compiled"
    # one number for each row, which the kernel does not take
    session.run(None, {"x": x, "w": x[0, :, :1]})
    norm = session.explain().nodes[0]
    assert norm.tier == "compiled"
    assert norm.note.startswith("on arrays for inputs of some shapes: ")
    assert "broadcast within a row" in norm.note
    assert session.explain().partitions[0].tiers == {"compiled": 2, "array": 1}
