"""Work that is queued, captured, and looped over: what stays on the device."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.ep import MemoryLocation
from onnxplug_testing.random_models import draw_model

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(1)
ITEMSIZES = {"float": 4, "int64": 8, "int32": 4, "bool": 1}


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


def on_device(array: np.ndarray[Any, Any]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "webgpu", 0)


def copied(path: str) -> list[tuple[str, str, str, int]]:
    """The copies of a trace: what, from where, to where, and how many bytes."""
    found = []
    for event in json.loads(Path(path).read_text("utf-8")):
        if event.get("cat") == "Copy":
            args = event["args"]
            ((kind, shape),) = args["input_type_shape"][0].items()
            nbytes = math.prod(shape) * ITEMSIZES[kind]
            found.append(
                (event["name"][5:], args["source"], args["target"], int(nbytes))
            )
    return found


@pytest.fixture
def traced(adapter: Any, tmp_path: Path) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose runs are traced."""

    def make(model: Any, *eps: Any) -> onnxplug.InferenceSession:
        options = onnxplug.SessionOptions()
        options.enable_profiling = True
        options.profile_file_prefix = str(tmp_path / "trace")
        return onnxplug.InferenceSession(model, options, providers=[EP, *eps])

    return make


def test_a_bound_run_returns_before_its_work_is_done(alone: Any, parse: Any) -> None:
    session = alone(
        parse("h = MatMul(x, x) y = MatMul(h, x)", "float[N, N] x", "float[N, N] y")
    )
    x = normal(300, 300) / 20
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(x))
    binding.bind_output("y", "webgpu")
    session.run_with_iobinding(binding)
    (y,) = binding.get_outputs()
    binding.bind_ortvalue_input("x", y)
    session.run_with_iobinding(binding)
    (z,) = binding.get_outputs()
    wide = x.astype(np.float64) @ x @ x
    np.testing.assert_allclose(z.numpy(), wide @ wide @ wide, 1e-3, 1e-3)
    for value in (y, z):
        value.wait()
        while not value.ready:
            time.sleep(0.001)
    np.testing.assert_allclose(y.numpy(), wide, 1e-3, 1e-3)


def test_what_a_kernel_finds_is_raised_where_it_is_waited_for(
    beside: Any, parse: Any
) -> None:
    session = beside(
        parse("y = Gather(x, i)", "float[4, 3] x, int64[K] i", "float[K, 3] y")
    )
    x = normal(4, 3)
    for wrong in (7, -5):
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", on_device(x))
        binding.bind_cpu_input("i", np.array([0, wrong]))
        binding.bind_output("y", "webgpu")
        session.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
            y.numpy()
        binding.bind_cpu_input("i", np.array([3]))
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), x[3:])


def test_what_reads_the_results_of_a_failed_run_fails_too(
    beside: Any, parse: Any
) -> None:
    """Whether it is known to have failed by then, or not."""
    first = beside(
        parse("y = Gather(x, i)", "float[4, 3] x, int64[2] i", "float[2, 3] y")
    )
    second = beside(parse("z = Neg(y)", "float[2, 3] y", "float[2, 3] z"))
    for waits in (False, True):
        binding = first.io_binding()
        binding.bind_ortvalue_input("x", on_device(normal(4, 3)))
        binding.bind_cpu_input("i", np.array([0, 9]))
        binding.bind_output("y", "webgpu")
        first.run_with_iobinding(binding)
        (y,) = binding.get_outputs()
        while waits and not y.ready:
            time.sleep(0.001)
        with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
            second.run_with_ort_values(None, {"y": y})
        reading = second.io_binding()
        reading.bind_ortvalue_input("y", y)
        reading.bind_output("z", "webgpu")
        with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
            second.run_with_iobinding(reading)
            reading.get_outputs()[0].numpy()
        y.update_inplace(np.ones((2, 3), np.float32))
        (z,) = second.run_with_ort_values(None, {"y": y})
        np.testing.assert_array_equal(z.numpy(), -np.ones((2, 3)))


CAPTURED = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[R, 2] X) => (float[R, 1] Y) <float[2, 1] w = {1, 2}> {
        Y = MatMul(X, w)
    }
"""


def test_bound_runs_are_captured_and_replayed(alone: Any) -> None:
    """The sample that ONNX Runtime documents for graphs that are captured."""
    session = alone(onnx.parser.parse_model(CAPTURED), enableGraphCapture="1")
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    value, room = on_device(x), on_device(np.zeros((3, 1), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", value)
    binding.bind_ortvalue_output("Y", room)
    for factor in (1, 1, 10, -3):
        value.update_inplace(factor * x)
        session.run_with_iobinding(binding)
        expected = factor * np.array([[5], [11], [17]], np.float32)
        np.testing.assert_array_equal(room.numpy(), expected)
    # other arrays are another graph, and an id is one, too
    other = on_device(x[:1])
    binding.bind_ortvalue_input("X", other)
    binding.bind_ortvalue_output("Y", on_device(np.zeros((1, 1), np.float32)))
    for _ in range(3):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), [[5]])


def test_a_replay_has_the_memory_and_the_checks_of_its_run(
    alone: Any, parse: Any
) -> None:
    model = parse(
        "g = Gather(t, i) h = MatMul(g, w) s = Softmax(h) n = Shape(s) "
        "r = Reshape(s, n) y = Add(r, g)",
        "float[5, 4] t, int64[2] i, float[4, 4] w",
        "float[2, 4] y",
    )
    t, w, i = normal(5, 4), normal(4, 4), np.array([1, 4])
    session = alone(model, enableGraphCapture="1")
    values = {"t": on_device(t), "w": on_device(w), "i": on_device(i)}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_ortvalue_output("y", on_device(np.zeros((2, 4), np.float32)))
    (y,) = binding.get_outputs()
    evaluator = ReferenceEvaluator(model)
    for index in ([1, 4], [0, 0], [-1, 3], [2, 2]):
        i = np.array(index)
        values["i"].update_inplace(i)
        session.run_with_iobinding(binding)
        # others take memory meanwhile
        session.run_with_iobinding(other := _bound(session, t, i, w))
        (expected,) = evaluator.run(None, {"t": t, "i": i, "w": w})
        np.testing.assert_allclose(y.numpy(), expected, 1e-5, 1e-6)
        np.testing.assert_allclose(other.get_outputs()[0].numpy(), expected, 1e-5, 1e-6)
    values["i"].update_inplace(np.array([0, 5]))
    session.run_with_iobinding(binding)
    with pytest.raises(onnxplug.errors.NodeError, match="out of range"):
        y.numpy()
    values["i"].update_inplace(np.array([1, 4]))
    session.run_with_iobinding(binding)
    (expected,) = evaluator.run(None, {"t": t, "i": np.array([1, 4]), "w": w})
    np.testing.assert_allclose(y.numpy(), expected, 1e-5, 1e-6)


def _bound(session: Any, t: Any, i: Any, w: Any) -> Any:
    binding = session.io_binding()
    for name, array in (("t", t), ("i", i), ("w", w)):
        binding.bind_ortvalue_input(name, on_device(array))
    binding.bind_ortvalue_output("y", on_device(np.zeros((2, 4), np.float32)))
    return binding


def test_what_cannot_be_captured_is_refused(beside: Any, parse: Any) -> None:
    model = parse("a = Relu(x) d = Cast<to=11>(a) y = Cast<to=1>(d)")
    with pytest.raises(onnxplug.errors.SessionRefused, match="CPUExecutionProvider"):
        beside(model, enableGraphCapture="1")
    with pytest.raises(onnxplug.errors.OptionError, match="NCHW"):
        beside(model, preferredLayout="CHWN")


def captured_as_it_is(seed: int) -> bool:
    """Whether a random model can be captured; then replays give what plain runs do."""
    drawn = draw_model(seed, control_flow=False)
    plain = onnxplug.InferenceSession(drawn.model, providers=[EP])
    feeds = {each.name: drawn.feeds[each.name] for each in plain.get_inputs()}
    try:
        session = onnxplug.InferenceSession(
            drawn.model, providers=[(EP, {"enableGraphCapture": "1"})]
        )
    except onnxplug.errors.SessionRefused as error:
        assert "is an input or a constant" in str(error)
        return False
    binding = session.io_binding()
    values = {name: on_device(array) for name, array in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output, array in zip(
        session.get_outputs(), plain.run(None, feeds), strict=True
    ):
        binding.bind_ortvalue_output(output.name, on_device(np.zeros_like(array)))
    for turn in range(4):
        fed = {name: np.roll(array, turn) for name, array in feeds.items()}
        for name, array in fed.items():
            values[name].update_inplace(array)
        session.run_with_iobinding(binding)
        for ours, theirs in zip(
            binding.get_outputs(), plain.run(None, fed), strict=True
        ):
            np.testing.assert_array_equal(ours.numpy(), theirs)
    return True


def test_random_models_are_replayed_as_they_run(adapter: Any) -> None:
    assert sum(captured_as_it_is(seed) for seed in range(5)) >= 3


@pytest.mark.exhaustive
def test_many_random_models_are_replayed_as_they_run(adapter: Any) -> None:
    assert sum(captured_as_it_is(seed) for seed in range(8, 150)) >= 80


DECODER = """
    < ir_version: 10, opset_import: ["" : 21] >
    decoder (int64[1, 1] token, float[1, 2, P, 8] past_k, float[1, 2, P, 8] past_v)
        => (int64[1, 1] next, float[1, 2, T, 8] k, float[1, 2, T, 8] v)
    <int32 beyond = {1000}, int64[3] sizes = {16, 16, 16},
     int64[4] split = {1, 1, 2, 8}, int64[3] joined = {1, 1, 16}, float scale = {0.35},
     int64[1] last = {-1}>
    {
        e = Gather (table, token)
        n = LayerNormalization (e, one, none)
        both = MatMul (n, w_in)
        q, k_new, v_new = Split <axis = 2> (both, sizes)
        q4 = Reshape (q, split)
        k4 = Reshape (k_new, split)
        v4 = Reshape (v_new, split)
        q_t = Transpose <perm = [0, 2, 1, 3]> (q4)
        k_t = Transpose <perm = [0, 2, 1, 3]> (k4)
        v_t = Transpose <perm = [0, 2, 1, 3]> (v4)
        k = Concat <axis = 2> (past_k, k_t)
        v = Concat <axis = 2> (past_v, v_t)
        k_turned = Transpose <perm = [0, 1, 3, 2]> (k)
        scores = MatMul (q_t, k_turned)
        scaled = Mul (scores, scale)
        shares = Softmax (scaled)
        mixed = MatMul (shares, v)
        back = Transpose <perm = [0, 2, 1, 3]> (mixed)
        flat = Reshape (back, joined)
        out = MatMul (flat, w_out)
        sum = Add (out, e)
        logits = MatMul (sum, head)
        best = ReduceMax (logits, last)
        is_best = Equal (logits, best)
        place = Where (is_best, places, beyond)
        first = ReduceMin <keepdims = 0> (place, last)
        next = Cast <to = 7> (first)
    }
"""


def decoder() -> onnx.ModelProto:
    model = onnx.parser.parse_model(DECODER)
    # of these weights the next token depends on those before, too
    numbers = np.random.default_rng(11)

    def drawn(*shape: int) -> np.ndarray[Any, Any]:
        return numbers.standard_normal(shape).astype(np.float32)

    given = {
        "table": drawn(40, 16), "w_in": drawn(16, 48) / 2, "w_out": drawn(16, 16),
        "head": drawn(16, 40), "places": np.arange(40, dtype=np.int32),
        "one": np.ones(16, np.float32), "none": np.zeros(16, np.float32),
    }  # fmt: skip
    for name, array in given.items():
        weight = onnx.numpy_helper.from_array(array, name)
        model.graph.initializer.append(weight)
    return model


def test_a_decoding_loop_copies_only_tokens(traced: Any) -> None:
    model = decoder()
    session = traced(model)
    assert {node.ep for node in session.explain().nodes} == {EP}
    past = np.zeros((1, 2, 0, 8), np.float32)
    state = {"token": np.array([[3]]), "past_k": past, "past_v": past}
    evaluator = ReferenceEvaluator(model)
    binding = session.io_binding()
    token = on_device(state["token"])
    k = v = on_device(past)
    tokens = set()
    for _ in range(8):
        binding.bind_ortvalue_input("token", token)
        binding.bind_ortvalue_input("past_k", k)
        binding.bind_ortvalue_input("past_v", v)
        for name in ("next", "k", "v"):
            binding.bind_output(name, "webgpu")
        session.run_with_iobinding(binding)
        token, k, v = binding.get_outputs()
        following, ref_k, ref_v = evaluator.run(None, state)
        state = {"token": following, "past_k": ref_k, "past_v": ref_v}
        np.testing.assert_array_equal(token.numpy(), following)
        tokens.add(int(following[0, 0]))
    assert len(tokens) > 3
    np.testing.assert_allclose(k.numpy(), ref_k, 1e-4, 1e-5)
    assert copied(session.end_profiling()) == []
    # and of a run that is given and gives tokens on the host, only those are copied
    session = traced(model)
    binding = session.io_binding()
    binding.bind_cpu_input("token", np.array([[3]]))
    binding.bind_ortvalue_input("past_k", k)
    binding.bind_ortvalue_input("past_v", v)
    binding.bind_output("next")
    binding.bind_output("k", "webgpu")
    binding.bind_output("v", "webgpu")
    session.run_with_iobinding(binding)
    binding.copy_outputs_to_cpu()
    events = copied(session.end_profiling())
    assert events == [
        ("token", "host", "webgpu:0", 8),
        ("next", "webgpu:0", "host", 8),
    ]


LOOP = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[R, 4] x, int64 most) => (float[R, 4] y, float[K, R, 4] every)
    <bool go = {1}> {
        y, every = Loop (most, go, x) <body = step
            (int64 i, bool on, float[R, 4] state) =>
            (bool still, float[R, 4] after, float[R, 4] kept) <float limit = {40}> {
            after = Add (state, x)
            top = ReduceMax <keepdims = 0> (after)
            still = Less (top, limit)
            kept = Neg (after)
        }>
    }
"""


def test_what_a_loop_computes_stays_on_the_device(traced: Any) -> None:
    model = onnx.parser.parse_model(LOOP)
    session = traced(model)
    x = np.abs(normal(3, 4)) + 1
    feeds = {"x": x, "most": np.array(6)}
    found = session.run(None, feeds)
    every = [2 * x]
    while every[-1].max() < 40 and len(every) < 6:
        every.append(every[-1] + x)
    turns = len(every)
    np.testing.assert_allclose(found[0], every[-1], 1e-5)
    np.testing.assert_allclose(found[1], -np.array(every), 1e-5)
    events = copied(session.end_profiling())
    conditions = [event for event in events if event[0] == "still"]
    assert conditions == [("still", "webgpu:0", "host", 1)] * turns
    assert sorted(event[0] for event in events if event[0] != "still") == [
        "every", "x", "y",
    ]  # fmt: skip


SCAN = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[5, 3] xs, {kind}[3, 7] zs, float[3] begin)
        => (float[3] end, float[3, 5] sums, {kind}[7, 3] turned) {{
        end, sums = Scan <num_scan_inputs = 1, scan_output_axes = [1],
            body = add (float[3] state, float[3] x) => (float[3] next, float[3] sum) {{
                next = Add (state, x)
                sum = Mul (next, x)
            }}> (begin, xs)
        turned = Scan <num_scan_inputs = 1, scan_input_axes = [1],
            body = same ({kind}[3] z) => ({kind}[3] w) {{ w = Identity (z) }}> (zs)
    }}
"""


@pytest.mark.parametrize("kind", ["int64", "bool", "float16"])
def test_parts_are_taken_and_stacked_on_the_device(traced: Any, kind: str) -> None:
    """Also of elements that share a word."""
    model = onnx.parser.parse_model(SCAN.format(kind=kind))
    session = traced(model)
    zs = RNG.integers(0, 2, (3, 7)).astype(kind)
    feeds = {"xs": normal(5, 3), "zs": zs, "begin": normal(3)}
    end, sums, turned = session.run(None, feeds)
    every = feeds["begin"] + np.cumsum(feeds["xs"], 0)
    np.testing.assert_allclose(end, every[-1], 1e-5, 1e-6)
    np.testing.assert_allclose(sums, (every * feeds["xs"]).T, 1e-5, 1e-6)
    np.testing.assert_array_equal(turned, zs.T)
    path = session.end_profiling()
    events = json.loads(Path(path).read_text("utf-8"))
    names = {event["name"] for event in events if event.get("cat") == "Copy"}
    inner = {"copy x", "copy state", "copy next", "copy sum"}
    assert not names & inner, names


def test_a_branch_is_computed_on_the_device(traced: Any) -> None:
    model = onnx.parser.parse_model("""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[3] x, bool c) => (float[3] y) {
            r = Relu (x)
            b = If (c) <
                then_branch = t () => (float[3] p) { p = Add (r, r) },
                else_branch = e () => (float[3] q) { q = Neg (r) }>
            y = Mul (b, r)
        }
    """)
    session = traced(model)
    x = normal(3)
    r = np.maximum(x, 0)
    for c, b in ((True, 2 * r), (False, -r)):
        found = session.run(None, {"x": x, "c": np.array(c)})[0]
        np.testing.assert_allclose(found, b * r, 1e-6)
    events = copied(session.end_profiling())
    assert {event[0] for event in events} <= {"x", "y"}


def test_runs_of_many_threads_queue_side_by_side(alone: Any, parse: Any) -> None:
    """Bound ones, with checks, whose sizes and whose memory change."""
    session = alone(
        parse("g = Gather(x, i) h = Softmax(g) y = Add(h, g)",
              "float[N, 6] x, int64[K] i", "float[K, 6] y")
    )  # fmt: skip
    wrong: list[BaseException] = []

    def work(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        try:
            binding = session.io_binding()
            for turn in range(8):
                n = int(numbers.integers(2, 9))
                x = numbers.standard_normal((n, 6)).astype(np.float32)
                i = numbers.integers(0, n, 3 + turn % 3)
                binding.bind_ortvalue_input("x", on_device(x))
                binding.bind_cpu_input("i", i)
                binding.bind_output("y", "webgpu" if turn % 2 else "cpu")
                session.run_with_iobinding(binding)
                found = binding.get_outputs()[0].numpy()
                g = x[i]
                shares = np.exp(g - g.max(-1, keepdims=True))
                expected = shares / shares.sum(-1, keepdims=True) + g
                np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
                if seed % 2:
                    with pytest.raises(onnxplug.errors.NodeError):
                        session.run(None, {"x": x, "i": np.array([n])})
        except BaseException as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong, wrong


def test_a_run_that_is_cancelled_leaves_the_session_usable(
    alone: Any, parse: Any
) -> None:
    session = alone(parse("y = Relu(x)", "float[N, 3] x", "float[N, 3] y"))
    options = onnxplug.RunOptions()
    options.terminate = True
    x = normal(2, 3)
    with pytest.raises(onnxplug.errors.RunCancelled):
        session.run(None, {"x": x}, options)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


class Stopped(Exception):
    """What the handler of a signal raises."""


def stop(signum: int, frame: object) -> None:
    raise Stopped


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no timers")
def test_a_signal_ends_the_wait_for_a_run(alone: Any, parse: Any) -> None:
    """As what its handler raised, and the session goes on."""
    body = " ".join(f"h{n + 1} = MatMul(h{n}, x)" for n in range(4))
    session = alone(
        parse(f"h0 = Relu(x) {body} y = Tanh(h4)", "float[N, N] x", "float[N, N] y")
    )
    small = np.eye(4, dtype=np.float32)
    session.run(None, {"x": small})
    x = np.eye(300, dtype=np.float32)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        with pytest.raises(Stopped):
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            for _ in range(100):
                session.run(None, {"x": x})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    found = session.run(None, {"x": small})[0]
    np.testing.assert_allclose(found, np.tanh(small), 1e-6)


def test_the_memory_of_the_device_is_named(adapter: Any) -> None:
    value = on_device(normal(3))
    assert value.device_name() == "webgpu"
    assert str(MemoryLocation("webgpu", 0)) == "webgpu:0"


def test_launches_are_recorded_one_by_one(alone: Any, parse: Any, traced: Any) -> None:
    model = parse("m = MatMul(x, x) r = Relu(m) y = Softmax(r)", "float[9, 9] x",
                  "float[9, 9] y")  # fmt: skip
    x = normal(9, 9)
    session = traced(model)
    expected = alone(model).run(None, {"x": x})[0]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], expected)
    events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    launches = [event["args"] for event in events if "workgroups" in event["args"]]
    product, softmax = launches
    assert (product["op_name"], product["tier"]) == ("MatMul + Relu 9×9×9", "compiled")
    assert product["flops"] == 2 * 9 * 9 * 9
    assert product["bytes"] == 3 * 4 * 9 * 9
    assert softmax["op_name"] == "Softmax"
