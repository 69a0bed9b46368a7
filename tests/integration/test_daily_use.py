"""What people do with sessions every day, beyond running them."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import pickle
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto

import onnxplug
from onnxplug.errors import (
    ExternalDataError,
    InputError,
    OptionError,
    OptionWarning,
    PluginNotFound,
    RunCancelled,
    UnknownOutput,
)
from onnxplug_testing import SimulatedFactory

CPU = "CPUExecutionProvider"
SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[batch, 2] x) => (float[batch, 2] y)
    <float[2, 2] w = {1, 2, 3, 4}>
    {
        [product] p = MatMul (x, w)
        [copy] c = Identity (p)
        [bend] y = Relu (c)
    }
    """
)
X = np.array([[1, -2], [3, -4]], np.float32)
W = np.array([[1, 2], [3, 4]], np.float32)
Y = np.maximum(X @ W, 0)

LONG = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (int64 count, float x) => (float y)
    {
        y = Loop (count, , x) <body = steps (int64 i, bool c, float a)
            => (bool d, float b) { d = Identity (c) b = Sin (a) }>
    }
    """
)
ENDLESS = {"count": np.array(10**9), "x": np.array(1, np.float32)}


# taps


def test_any_value_of_the_graph_can_be_asked_for() -> None:
    session = onnxplug.InferenceSession(MODEL)
    p, y, c, w, x = session.run(["p", "y", "c", "w", "x"], {"x": X})
    np.testing.assert_array_equal(p, X @ W)
    np.testing.assert_array_equal(c, X @ W)
    np.testing.assert_array_equal(y, Y)
    np.testing.assert_array_equal(w, W)
    np.testing.assert_array_equal(x, X)
    assert len(session.run(None, {"x": X})) == 1
    with pytest.raises(UnknownOutput, match="Invalid output name: 'q'"):
        session.run(["q"], {"x": X})


# cancelling


def test_a_timeout_ends_a_run() -> None:
    session = onnxplug.InferenceSession(LONG)
    options = onnxplug.RunOptions()
    options.timeout = 0.2
    started = time.monotonic()
    with pytest.raises(RunCancelled, match="timeout"):
        session.run(None, ENDLESS, options)
    assert time.monotonic() - started < 5
    assert session.run(None, {**ENDLESS, "count": np.array(1)})[0] == np.sin(
        np.float32(1)
    )


def test_terminate_from_another_thread_ends_a_run() -> None:
    session = onnxplug.InferenceSession(LONG)
    options = onnxplug.RunOptions()
    options.timeout = 60  # should it not end
    timer = threading.Timer(0.2, setattr, (options, "terminate", True))
    timer.start()
    with pytest.raises(RunCancelled, match="terminate flag being set to true"):
        session.run(None, ENDLESS, options)
    timer.join()


def test_ctrl_c_ends_a_run_and_leaves_the_session_usable() -> None:
    import signal

    session = onnxplug.InferenceSession(LONG)
    # a process that was started in the background ignores the signal
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGINT,))
    timer.start()
    options = onnxplug.RunOptions()
    options.timeout = 60  # should the signal not arrive
    try:
        with pytest.raises(KeyboardInterrupt):
            session.run(None, ENDLESS, options)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert session.run(None, {**ENDLESS, "count": np.array(0)})[0] == 1


# in the background


def test_a_callback_gets_the_results_or_the_error() -> None:
    session = onnxplug.InferenceSession(MODEL)
    done = threading.Event()
    got: list[Any] = []

    def callback(results: list[Any], data: Any, error: str) -> None:
        got.append((results, data, error))
        done.set()

    session.run_async(None, {"x": X}, callback, "mine")
    assert done.wait(10)
    results, data, error = got.pop()
    assert (data, error) == ("mine", "")
    np.testing.assert_array_equal(results[0], Y)

    done.clear()
    options = onnxplug.RunOptions()
    options.terminate = True
    session.run_async(None, {"x": X}, callback, 1, options)
    assert done.wait(10)
    assert got.pop() == (
        [],
        1,
        "Exiting due to terminate flag being set to true: the run was cancelled before "
        "it finished",
    )
    with pytest.raises(InputError):
        session.run_async(None, {}, callback, None)


def test_runs_can_be_awaited_and_cancelled() -> None:
    session = onnxplug.InferenceSession(MODEL)
    endless = onnxplug.InferenceSession(LONG)

    async def main() -> None:
        both = await asyncio.gather(
            session.arun(None, {"x": X}), session.arun(["y"], {"x": 2 * X})
        )
        np.testing.assert_array_equal(both[0][0], Y)
        np.testing.assert_array_equal(both[1][0], 2 * Y)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(endless.arun(None, ENDLESS), 0.2)

    asyncio.run(main())
    deadline = time.monotonic() + 10
    while endless._built._runs and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not endless._built._runs


# options


def test_free_dimensions_are_fixed_by_name() -> None:
    options = onnxplug.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    session = onnxplug.InferenceSession(MODEL, options)
    assert session.get_inputs()[0].shape == [2, 2]
    with pytest.raises(InputError, match="Got: 3 Expected: 2"):
        session.run(None, {"x": np.zeros((3, 2), np.float32)})
    wrong = onnxplug.SessionOptions()
    wrong.add_free_dimension_override_by_name("bath", 2)
    with pytest.raises(OptionError, match="batch"):
        onnxplug.InferenceSession(MODEL, wrong)
    with pytest.raises(OptionError, match="≥ 1"):
        wrong.add_free_dimension_override_by_name("batch", -1)


def test_initializers_from_memory_are_kept_alive() -> None:
    options = onnxplug.SessionOptions()
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(2 * W))
    session = onnxplug.InferenceSession(MODEL, options)
    del options
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 2 * Y)
    for name, value, message in [
        ("v", W, "no initializer 'v'"),
        ("w", W[0], "dimensions do not match"),
        ("w", W.astype(np.float64), "dimensions do not match"),
    ]:
        wrong = onnxplug.SessionOptions()
        wrong.add_initializer(name, onnxplug.OrtValue.ortvalue_from_numpy(value))
        with pytest.raises(OptionError, match=message):
            onnxplug.InferenceSession(MODEL, wrong)


def odd_weights() -> dict[str, Any]:
    """``W`` in memory that is not as usual."""
    odd = np.empty(W.nbytes + 1, np.uint8)[1:].view(W.dtype).reshape(W.shape)
    odd[...] = W
    return {
        "unpickled": pickle.loads(pickle.dumps(W)),
        "swapped": W.astype(W.dtype.newbyteorder("S")),
        "strided": np.repeat(W, 2, axis=1)[:, ::2],
        "fortran": np.asfortranarray(W),
        "misaligned": odd,
        "subclass": W.view(np.matrix),
    }


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("form", odd_weights())
def test_initializers_from_memory_have_any_form(form: str, compiled: bool) -> None:
    value = onnxplug.OrtValue(odd_weights()[form])
    for source, external in ((MODEL, False), (external_model(), True)):
        options = onnxplug.SessionOptions()
        if external:
            options.add_external_initializers(["w"], [value])
        else:
            options.add_initializer("w", value)
        options.add_provider("CPUExecutionProvider", {"compile": compiled})
        session = onnxplug.InferenceSession(source, options)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (W.astype("M8[s]"), "no ONNX element type"),
        (W.astype(object), "element of type float"),
        (np.empty(W.size // 2, object).reshape(1, -1), "of type NoneType|as strings"),
    ],
    ids=["dates", "objects", "pointers"],
)
def test_initializers_from_memory_are_tensors(array: Any, message: str) -> None:
    value = onnxplug.OrtValue(array)
    options = onnxplug.SessionOptions()
    options.add_initializer("w", value)
    with pytest.raises(OptionError, match=message):
        onnxplug.InferenceSession(MODEL, options)
    options = onnxplug.SessionOptions()
    options.add_external_initializers(["w"], [value])
    with pytest.raises(ExternalDataError, match=r"no ONNX element type|as strings"):
        onnxplug.InferenceSession(external_model(), options)


def test_narrow_initializers_from_memory_stand_for_packed_ones() -> None:
    w = np.array([1, -8, 7]).astype(ml_dtypes.int4)
    tensor = TensorProto(name="w", data_type=TensorProto.INT4, dims=[3])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="gone.bin")
    graph = onnx.helper.make_graph(
        [],
        "graph",
        [],
        [onnx.helper.make_tensor_value_info("w", TensorProto.INT4, [3])],
        [tensor],
    )
    options = onnxplug.SessionOptions()
    options.add_external_initializers(["w"], [onnxplug.OrtValue(w)])
    session = onnxplug.InferenceSession(onnx.helper.make_model(graph), options)
    assert session.run(None, {})[0].tolist() == w.tolist()


def external_model() -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    (weight,) = model.graph.initializer
    for field in ("raw_data", "float_data"):
        weight.ClearField(field)
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="gone.bin")
    return model


def test_external_initializers_from_memory() -> None:
    options = onnxplug.SessionOptions()
    value = onnxplug.OrtValue.ortvalue_from_numpy(W.copy())
    options.add_external_initializers(["w"], [value])
    session = onnxplug.InferenceSession(external_model(), options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)

    files = onnxplug.SessionOptions()
    data = W.tobytes()
    files.add_external_initializers_from_files_in_memory(
        ["gone.bin"], [data], [len(data)]
    )
    session = onnxplug.InferenceSession(external_model(), files)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)
    with pytest.raises(OptionError, match="its buffer has 3"):
        files.add_external_initializers_from_files_in_memory(["a"], [b"abc"], [4])


def test_the_prepared_model_can_be_written(tmp_path: Path) -> None:
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "prepared.onnx")
    onnxplug.InferenceSession(MODEL, options)
    written = onnx.load(tmp_path / "prepared.onnx")
    onnx.checker.check_model(written)
    assert [node.op_type for node in written.graph.node] == ["MatMul", "Relu"]
    session = onnxplug.InferenceSession(written)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


def test_the_prepared_model_says_of_itself_what_the_model_says(tmp_path: Path) -> None:
    """As in ONNX Runtime: programs find their letters and classes there."""
    model = onnx.parser.parse_model(
        """
        < ir_version: 8, opset_import: ["" : 17], producer_name: "maker",
          producer_version: "1.2", domain: "com.me", model_version: 3,
          doc_string: "what it is for", metadata_props: ["letters": "abc"] >
        name (float[N] x) => (float[N] y) { z = Identity (x) y = Relu (z) }
        """
    )
    model.graph.doc_string = "how it works"
    written = {}
    for runtime in (onnxplug, onnxruntime):
        options = runtime.SessionOptions()
        options.optimized_model_filepath = str(tmp_path / runtime.__name__)
        runtime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        written[runtime] = onnx.load(
            options.optimized_model_filepath, format="protobuf"
        )
    ours, theirs = written.values()
    assert [node.op_type for node in ours.graph.node] == ["Relu"]
    for each in (ours, theirs):
        each.ClearField("opset_import")  # has its own domains, too
        for field in ("node", "value_info", "input", "output"):
            each.graph.ClearField(field)
    assert ours == theirs
    assert ours.metadata_props[0].value == "abc"


def test_no_optimisation_leaves_the_graph_as_it_is() -> None:
    options = onnxplug.SessionOptions()
    options.graph_optimization_level = onnxplug.GraphOptimizationLevel.ORT_DISABLE_ALL
    assert len(onnxplug.InferenceSession(MODEL, options).explain().nodes) == 3
    assert len(onnxplug.InferenceSession(MODEL).explain().nodes) == 2


def test_options_are_never_ignored_silently() -> None:
    options = onnxplug.SessionOptions()
    with pytest.raises(AttributeError, match="did you mean 'intra_op_num_threads'"):
        options.intra_op_threads = 2
    with pytest.raises(TypeError, match="expected int"):
        options.intra_op_num_threads = "2"  # type: ignore[assignment]
    with pytest.warns(OptionWarning, match="inter_op_num_threads has no effect"):
        options.inter_op_num_threads = 2
    with pytest.warns(OptionWarning, match="has no effect"):
        options.add_session_config_entry("session.disable_prepacking", "1")
    with pytest.raises(OptionError, match="no session config entry"):
        options.add_session_config_entry("session.no_such_thing", "1")
    assert options.get_session_config_entry("session.disable_prepacking") == "1"


def test_verbose_logging_shows_the_placement(
    caplog: pytest.LogCaptureFixture,
) -> None:
    options = onnxplug.SessionOptions()
    options.log_severity_level = 0
    options.logid = "mine"
    with caplog.at_level(logging.DEBUG):
        onnxplug.InferenceSession(MODEL, options)
    records = [r for r in caplog.records if r.name == "onnxplug.session.mine"]
    assert "2 nodes: 2 on CPUExecutionProvider" in records[0].getMessage()
    assert "partition 0" in records[-1].getMessage()


# another session


def test_a_session_can_be_pickled(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "model.onnx")
    options = onnxplug.SessionOptions()
    options.add_free_dimension_override_by_name("batch", 2)
    for source in (tmp_path / "model.onnx", MODEL.SerializeToString(), MODEL):
        session = onnxplug.InferenceSession(source, options, providers=["cpu"])
        again = pickle.loads(pickle.dumps(session))
        np.testing.assert_array_equal(again.run(None, {"x": X})[0], Y)
        assert again.get_inputs()[0].shape == [2, 2]


def _run_in_child(session: onnxplug.InferenceSession, results: Any) -> None:
    results.put(session.run(None, {"x": X})[0])
    done = threading.Event()
    session.run_async(None, {"x": X}, lambda *_: done.set(), None)
    results.put(done.wait(10))


def test_a_session_works_after_a_fork() -> None:
    session = onnxplug.InferenceSession(MODEL)
    done = threading.Event()
    session.run_async(None, {"x": X}, lambda *_: done.set(), None)
    assert done.wait(10)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    child = context.Process(target=_run_in_child, args=(session, results))
    child.start()
    np.testing.assert_array_equal(results.get(), Y)
    assert results.get() is True
    child.join(10)
    assert child.exitcode == 0


def test_providers_are_changed_whole_or_not_at_all(simulated: MakeSimulated) -> None:
    simulated()
    session = onnxplug.InferenceSession(MODEL)
    session.set_providers([SIMULATED])
    assert session.get_providers() == [SIMULATED, CPU]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)
    with pytest.raises(PluginNotFound):
        session.set_providers(["NoSuch"])
    assert session.get_providers() == [SIMULATED, CPU]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], Y)


def test_the_assignment_in_onnx_runtimes_words() -> None:
    (part,) = onnxplug.InferenceSession(MODEL).get_provider_graph_assignment_info()
    assert part.ep_name == CPU
    assert [node.op_type for node in part.get_nodes()] == ["MatMul", "Relu"]


# load


@pytest.mark.slow
def test_many_threads_and_sessions_leave_nothing_behind(
    simulated: MakeSimulated,
) -> None:
    import gc
    import resource

    simulated()
    session = onnxplug.InferenceSession(MODEL, providers=[SIMULATED])
    plain = onnxplug.InferenceSession(MODEL)
    wrong: list[int] = []

    def work(number: int, runs: int) -> None:
        for step in range(runs):
            chosen = session if step % 10 == 0 else plain
            fed = np.full((2, 2), number + step % 7, np.float32)
            if not np.array_equal(chosen.run(None, {"x": fed})[0], fed @ W):
                wrong.append(number)

    def load(runs: int) -> None:
        threads = [threading.Thread(target=work, args=(n, runs)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def sessions(count: int) -> None:
        for number in range(count):
            chosen = [SIMULATED] if number % 2 else ["cpu"]
            made = onnxplug.InferenceSession(MODEL, providers=chosen)
            made.run(None, {"x": X})
        gc.collect()

    load(200)
    sessions(10)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    load(2000)
    sessions(50)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert not wrong
    assert grown < 8 * 1024  # kB: the peak stays where warming up left it
