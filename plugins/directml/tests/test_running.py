"""Runs of sessions: recorded lists, captured graphs, threads, shapes, and the end."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_directml.device.queue import release_hung
from onnxplug_directml.factory import DmlFactory

from .conftest import EP
from .standin import Windows
from .test_memory import on_device

RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def dense(columns: int = 4, rows: int | str = "R") -> onnx.ModelProto:
    """A product with weights, for any number of rows."""
    w = np.arange(3 * columns, dtype=np.float32).reshape(3, columns)
    model = onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[{rows}, 3] x) => (float[{rows}, {columns}] y) {{
            p = MatMul(x, w) y = Relu(p)
        }}
        """
    )
    model.graph.initializer.append(onnx.numpy_helper.from_array(w, "w"))
    return model


def expected(x: np.ndarray[Any, Any], columns: int = 4) -> np.ndarray[Any, Any]:
    w = np.arange(3 * columns, dtype=np.float64).reshape(3, columns)
    return np.maximum(x.astype(np.float64) @ w, 0)


def test_a_list_is_recorded_once_for_arrays_that_come_again(
    windows: Windows, factory: DmlFactory
) -> None:
    session = onnxplug.InferenceSession(dense(rows=5), providers=[EP])
    x = normal(5, 3)
    for _ in range(6):
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), 1e-5)
    assert windows.counts.initializations == windows.counts.compilations == 1
    assert windows.counts.by_method["RecordDispatch"] <= 3  # and the initialisation's
    assert windows.counts.dispatches == 6
    (partition,) = session.explain().partitions
    assert "command lists" in str(session.explain())
    assert partition.serialised


def test_each_shape_has_a_graph_of_its_own(windows: Windows, alone: Any) -> None:
    session = alone(dense())
    for rows in (2, 7, 2, 1):
        x = normal(rows, 3)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), 1e-5)
    assert windows.counts.compilations == 3
    assert session.run(None, {"x": normal(0, 3)})[0].shape == (0, 4)


def test_lists_that_were_not_used_for_longest_are_given_up(
    windows: Windows, factory: DmlFactory
) -> None:
    session = onnxplug.InferenceSession(dense(), providers=[EP])
    x = normal(2, 3)
    value = on_device(x)
    rooms = [on_device(np.zeros((2, 4), np.float32)) for _ in range(12)]
    for _ in range(2):
        for room in rooms:
            binding = session.io_binding()
            binding.bind_ortvalue_input("x", value)
            binding.bind_ortvalue_output("y", room)
            session.run_with_iobinding(binding)
    for room in rooms:
        np.testing.assert_allclose(room.numpy(), expected(x), 1e-5)
    heaps = [each for each in windows.alive if each.INTERFACE == "ID3D12DescriptorHeap"]
    assert len(heaps) <= 9


def test_bound_runs_are_captured_and_replayed(
    windows: Windows, factory: DmlFactory
) -> None:
    session = onnxplug.InferenceSession(
        dense(rows=3), providers=[(EP, {"enable_graph_capture": "1"})]
    )
    x = normal(3, 3)
    value, room = on_device(x), on_device(np.zeros((3, 4), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", room)
    for factor in (1, 1, 10, -3, 2):
        value.update_inplace(factor * x)
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(room.numpy(), expected(factor * x), 1e-5)
    assert windows.counts.by_method["RecordDispatch"] == 2
    # other arrays are another graph; what was captured before goes
    binding.bind_ortvalue_input("x", on_device(2 * x))
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_allclose(room.numpy(), expected(2 * x), 1e-5)


@pytest.mark.parametrize("captures", ["0", "1"])
def test_a_list_is_not_executed_again_before_it_is_done(
    windows: Windows, factory: DmlFactory, captures: str
) -> None:
    """More are recorded for runs on the same arrays that nobody waits for, up to a few;
    then they wait."""
    windows.delay = 0.01
    session = onnxplug.InferenceSession(
        dense(rows=3), providers=[(EP, {"enable_graph_capture": captures})]
    )
    x = normal(3, 3)
    room = on_device(np.zeros((3, 4), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_ortvalue_output("y", room)
    for _ in range(9):
        session.run_with_iobinding(binding)
    np.testing.assert_allclose(room.numpy(), expected(x), 1e-5)
    assert windows.counts.dispatches == 9
    assert 3 <= windows.counts.by_method["RecordDispatch"] <= 1 + 4


def test_what_cannot_be_captured_is_refused(
    windows: Windows, factory: DmlFactory, parse: Any
) -> None:
    model = parse("t = Relu(x) y = Det(t)", "float[2, 2] x", "float y")
    providers = [(EP, {"enable_graph_capture": "1"}), "cpu"]
    with pytest.raises(onnxplug.errors.SessionRefused, match="Det"):
        onnxplug.InferenceSession(model, providers=providers)


def test_threads_share_a_session_one_run_at_a_time(
    windows: Windows, factory: DmlFactory
) -> None:
    session = onnxplug.InferenceSession(dense(), providers=[EP])
    wrong: list[object] = []

    def work(rows: int) -> None:
        try:
            for _ in range(8):
                x = np.random.default_rng(rows).standard_normal((rows, 3))
                x = x.astype(np.float32)
                found = session.run(None, {"x": x})[0]
                np.testing.assert_allclose(found, expected(x), 1e-5)
        except Exception as error:  # noqa: BLE001 (whatever is wrong)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(1 + n % 3,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_sessions_of_many_threads_share_an_adapter(
    windows: Windows, factory: DmlFactory
) -> None:
    wrong: list[object] = []

    def work(columns: int) -> None:
        try:
            for _ in range(3):
                session = onnxplug.InferenceSession(dense(columns), providers=[EP])
                x = np.random.default_rng(columns).standard_normal((2, 3))
                x = x.astype(np.float32)
                found = session.run(None, {"x": x})[0]
                np.testing.assert_allclose(found, expected(x, columns), 1e-5)
                session.close()
        except Exception as error:  # noqa: BLE001 (whatever is wrong)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(2 + n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_run_that_is_cancelled_leaves_the_session_usable(
    windows: Windows, alone: Any
) -> None:
    session, x = alone(dense()), normal(2, 3)
    session.run(None, {"x": x})
    options = onnxplug.RunOptions()
    options.terminate = True
    with pytest.raises(onnxplug.errors.RunCancelled):
        session.run(None, {"x": x}, options)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), 1e-5)


def test_a_bound_run_returns_before_its_work_is_done(
    windows: Windows, factory: DmlFactory
) -> None:
    windows.delay = 0.05
    session = onnxplug.InferenceSession(dense(), providers=[EP])
    x = normal(2, 3)
    value = on_device(x)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "dml")
    session.run_with_iobinding(binding)
    began = time.monotonic()
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    assert time.monotonic() - began < 0.05
    assert not y.ready
    y.wait()
    assert y.ready
    np.testing.assert_allclose(y.numpy(), expected(x), 1e-5)


def test_a_profiled_run_has_the_time_of_each_partition(
    windows: Windows, factory: DmlFactory, tmp_path: Path
) -> None:
    settings = onnxplug.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "trace")
    session = onnxplug.InferenceSession(dense(), settings, providers=[EP])
    session.run(None, {"x": normal(2, 3)})
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    named = [
        each for each in events if each["name"].startswith("MatMul giving 'p' and")
    ]
    (event,) = named
    assert event["args"]["op_name"] == "MatMul" and event["dur"] > 0


def test_graphs_are_written_beside_the_model(
    windows: Windows, alone: Any, tmp_path: Path
) -> None:
    """With their constants, which are named in them."""
    path = tmp_path / "dense.onnx"
    onnx.save(dense(), path)
    session = alone(path, enable_graph_serialization=True)
    session.run(None, {"x": normal(2, 3)})
    text = (tmp_path / "dense.Partition_0.json").read_text("utf-8")
    graph = json.loads(text)
    assert "GEMM" in [node["type"] for node in graph["nodes"]]
    held = [n for n, each in enumerate(graph["inputs"]) if each["constant"]]
    with np.load(tmp_path / "dense.Partition_0.npz") as found:
        assert list(found) == [f"input_{n}" for n in held]
        np.testing.assert_array_equal(
            found[f"input_{held[0]}"].reshape(-1), np.arange(12)
        )
    assert not list(tmp_path.glob("*Partition_1*"))


def test_metacommands_are_turned_off(windows: Windows, alone: Any) -> None:
    session = alone(dense(), disable_metacommands=True, enable_cpu_sync_spinning=True)
    x = normal(2, 3)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected(x), 1e-5)


def test_bodies_of_control_flow_stay_on_the_adapter(
    windows: Windows, factory: DmlFactory
) -> None:
    """What a loop gathers is stacked there, and what it goes through taken there."""
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2] s, float[4, 2] x) => (float[2] last, float[4, 2] all) {
            last, all = Scan <num_scan_inputs = 1, body = step (float[2] a, float[2] b)
                => (float[2] c, float[2] d) { c = Add(a, b) d = Relu(c) }> (s, x)
        }
        """
    )
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    s, x = normal(2), normal(4, 2)
    last, every = session.run(None, {"s": s, "x": x})
    sums = s + np.cumsum(x, 0)
    np.testing.assert_allclose(last, sums[-1], 1e-5, 1e-6)
    np.testing.assert_allclose(every, np.maximum(sums, 0), 1e-5, 1e-6)


def test_what_has_no_elements_is_computed_by_the_host_and_said_so(
    windows: Windows, alone: Any, parse: Any
) -> None:
    """Of tensors without elements DirectML has none."""
    session = alone(
        parse(
            "r = Relu(x) s = ReduceSum <keepdims = 0> (r, axes) y = Add(s, b)",
            "float[N, 3] x, float[3] b", "float[3] y", weights="int64[1] axes = {0}",
        )
    )  # fmt: skip
    b = normal(3)
    np.testing.assert_array_equal(session.run(None, {"x": normal(0, 3), "b": b})[0], b)
    assert windows.counts.dispatches == 0
    nodes = session.explain().nodes
    assert {node.tier for node in nodes} == {"host"}
    assert "no elements" in nodes[0].note
    x = normal(4, 3)
    wanted = np.maximum(x, 0).sum(0) + b
    np.testing.assert_allclose(session.run(None, {"x": x, "b": b})[0], wanted, 1e-5)
    assert windows.counts.dispatches == 1


# loss, and too little memory


def test_a_session_fails_wherever_the_device_is_removed_and_the_next_one_runs(
    windows: Windows, factory: DmlFactory
) -> None:
    x = normal(2, 3)
    for call in range(1, 400, 7):
        windows.faults.remove_at_call = windows.counts.calls + call
        try:
            session = onnxplug.InferenceSession(dense(), providers=[EP])
            found = session.run(None, {"x": x})[0]
        except (onnxplug.errors.DeviceReset, onnxplug.errors.EpError) as error:
            assert "DEVICE_HUNG" in str(error)
        else:
            break
    np.testing.assert_allclose(found, expected(x), 1e-5)
    assert call > 50
    # one beside it, whose device went too, says so until it is made anew
    windows.faults.remove_at_submission = windows.counts.submissions + 1
    for _ in range(2):
        with pytest.raises(onnxplug.errors.DeviceReset, match="anew"):
            session.run(None, {"x": x})
    other = onnxplug.InferenceSession(dense(), providers=[EP])
    np.testing.assert_allclose(other.run(None, {"x": x})[0], expected(x), 1e-5)
    with pytest.raises(onnxplug.errors.DeviceReset, match="anew"):
        session.run(None, {"x": x})


def test_directml_may_lose_its_device_alone(
    windows: Windows, factory: DmlFactory
) -> None:
    """Its methods that return nothing say so, and those of Direct3D go on."""
    x = normal(2, 3)
    for call in range(1, 200):
        windows.faults.lose_directml_at_call = windows.counts.directml_calls + call
        try:
            session = onnxplug.InferenceSession(dense(), providers=[EP])
            found = session.run(None, {"x": x})[0]
        except (onnxplug.errors.DeviceReset, onnxplug.errors.EpError) as error:
            assert "DEVICE_HUNG" in str(error)
        else:
            break
    np.testing.assert_allclose(found, expected(x), 1e-5)
    assert call > 10


def test_a_run_that_the_adapter_does_not_end_is_told(
    windows: Windows, alone: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("onnxplug_directml.device.queue.PATIENCE", 0.05)
    session, x = alone(dense()), normal(2, 3)
    session.run(None, {"x": x})
    windows.faults.stall_at_signal = windows.counts.signals + 3
    with pytest.raises(onnxplug.errors.DeviceReset, match="has not done for"):
        session.run(None, {"x": x})
    session.close()
    windows.resume()
    while windows.alive:
        release_hung()
        time.sleep(0.001)


def test_memory_that_there_is_not_fails_the_session_or_the_run(
    windows: Windows, factory: DmlFactory
) -> None:
    x = normal(2, 3)
    for allocation in range(1, 30):
        at = windows.counts.allocations + allocation
        # the second attempt fails, too
        windows.faults.no_memory_at = at
        session = onnxplug.InferenceSession(dense(), providers=[EP])
        found = session.run(None, {"x": x})[0]
        np.testing.assert_allclose(found, expected(x), 1e-5)
        session.close()
        if windows.counts.allocations < at:
            break
    assert allocation > 3


def test_a_graph_that_directml_does_not_compile_goes_to_the_next_ep(
    windows: Windows, factory: DmlFactory, parse: Any
) -> None:
    windows.faults.compile_at = 1
    windows.faults.compile_result = -2147024809  # E_INVALIDARG
    model = parse("y = Relu(x)")
    with pytest.warns(onnxplug.errors.EpWarning, match=r"CompileGraph.*E_INVALIDARG"):
        session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    (node,) = session.explain().nodes
    assert node.ep == "CPUExecutionProvider"


def test_no_memory_to_compile_with_is_told(
    windows: Windows, factory: DmlFactory, parse: Any
) -> None:
    windows.faults.compile_at = 1
    with pytest.raises(onnxplug.errors.OutOfMemory, match="CompileGraph"):
        onnxplug.InferenceSession(parse("y = Relu(x)"), providers=[EP])


# what only the adapter sees


LOOKUP = (
    "y = Gather(t, i)",
    "float[4, 3] t, int64[2] i",
    "float[2, 3] y",
)


def test_an_index_out_of_range_fails_the_run_and_names_the_node(
    windows: Windows, alone: Any, parse: Any
) -> None:
    model = parse(*LOOKUP)
    model.graph.node[0].name = "lookup"
    session, t = alone(model), normal(4, 3)
    for index in ([0, -1], [3, -4]):
        found = session.run(None, {"t": t, "i": np.array(index)})[0]
        np.testing.assert_array_equal(found, t[index])
    for wrong in (4, -5, 2**32, -(2**40)):
        with pytest.raises(onnxplug.errors.NodeError, match=r"lookup.*out of range"):
            session.run(None, {"t": t, "i": np.array([0, wrong])})
    # and the session is as it was
    found = session.run(None, {"t": t, "i": np.array([2, 2])})[0]
    np.testing.assert_array_equal(found, t[[2, 2]])


@pytest.mark.parametrize("captures", ["0", "1"])
def test_a_bound_run_tells_of_an_index_where_it_is_waited_for(
    windows: Windows, factory: DmlFactory, parse: Any, captures: str
) -> None:
    """Also one that is replayed."""
    session = onnxplug.InferenceSession(
        parse(*LOOKUP), providers=[(EP, {"enable_graph_capture": captures})]
    )
    t = normal(4, 3)
    i, y = on_device(np.array([0, 1])), on_device(np.zeros((2, 3), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("t", on_device(t))
    binding.bind_ortvalue_input("i", i)
    binding.bind_ortvalue_output("y", y)
    for index in ([0, 1], [3, -1], [2, 2]):
        i.update_inplace(np.array(index))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y.numpy(), t[index])
    i.update_inplace(np.array([0, 7]))
    session.run_with_iobinding(binding)
    with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
        y.numpy()
    i.update_inplace(np.array([1, 0]))
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y.numpy(), t[[1, 0]])


def test_several_checks_are_told_apart(
    windows: Windows, alone: Any, parse: Any
) -> None:
    session = alone(
        parse(
            "a = GatherElements(t, i) b = GatherND(t, n) y = Add(a, b)",
            "float[4, 2] t, int64[3, 2] i, int64[3, 2, 2] n",
            "float[3, 2] y",
        )
    )
    t = normal(4, 2)
    i, n = np.zeros((3, 2), np.int64), np.zeros((3, 2, 2), np.int64)
    found = session.run(None, {"t": t, "i": i, "n": n})[0]
    np.testing.assert_allclose(found, np.tile(t[0] + t[0, 0], (3, 1)), 1e-6)
    i[1, 1], n[2, 1, 1] = 4, -3
    with pytest.raises(onnxplug.errors.NodeError, match="GatherElements"):
        session.run(None, {"t": t, "i": i, "n": 0 * n})
    with pytest.raises(onnxplug.errors.NodeError, match="GatherND"):
        session.run(None, {"t": t, "i": 0 * i, "n": n})
