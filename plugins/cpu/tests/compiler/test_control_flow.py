"""If, Loop and Scan in compiled programs, against ONNX Runtime."""

from __future__ import annotations

import _thread
import signal
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import onnxplug
from onnxplug.errors import NodeError, RunCancelled
from onnxplug_cpu.compiler.flow import commands
from onnxplug_cpu.compiler.runtime.program import Program

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(1, 12)
HEAD = '<ir_version: 10, opset_import: ["" : 21]>'

LOOPS = f"""{HEAD}
loops (float[1, 12] x, int64 fed, bool go, float[12, 12] w) => (
    ends, before, product, numbers, same, endless, one, other, never, capped
)
<int64 three = {{3}}, int64 zero = {{0}}, int64 below = {{-2}},
 bool yes = {{1}}, bool no = {{0}}>
{{
    [carried] ends, before, product = Loop (three, yes, x) <body = carry
        (int64 i, bool before_, float[1, 12] s)
        => (bool after, float[1, 12] t, float[1, 12] u, float[1, 12] p)
        {{
            after = Identity (before_)
            p = MatMul (s, w)
            t = Tanh (p)
            u = Identity (s)
        }}>
    [counted] numbers = Loop (three, , ) <body = count
        (int64 i, bool before_) => (bool after, int64 n)
        <int64 two = {{2}}>
        {{ after = Not (no) n = Mul (i, two) }}>
    [empty] same = Loop (zero, yes, x) <body = nothing
        (int64 i, bool before_, float[1, 12] s) => (bool after, float[1, 12] t)
        {{ after = Identity (before_) t = Neg (s) }}>
    [while] endless = Loop ( , , x) <body = grow
        (int64 i, bool before_, float[1, 12] s) => (bool after, float[1, 12] t)
        <float limit = {{40.0}}>
        {{
            t = Add (s, x)
            total = ReduceSum <keepdims = 0> (t)
            size = ReduceMax <keepdims = 0> (t)
            after = Less (size, limit)
        }}>
    [swapped] one, other = Loop (fed, go, x, endless) <body = swap
        (int64 i, bool before_, float[1, 12] a, float[1, 12] b)
        => (bool after, float[1, 12] c, float[1, 12] d)
        {{ after = Identity (before_) c = Identity (b) d = Identity (a) }}>
    [less] never = Loop (below, , x) <body = less
        (int64 i, bool before_, float[1, 12] s) => (bool after, float[1, 12] t)
        {{ after = Identity (before_) t = Neg (s) }}>
    [capped_] capped = Loop (fed, , x) <body = cap
        (int64 i, bool before_, float[1, 12] s) => (bool after, float[1, 12] t)
        {{
            after = Less (i, three)
            number = Cast <to = 1> (i)
            t = Add (s, number)
        }}>
}}
"""

SCANS = f"""{HEAD}
scans (float[2, 3] s, float[2, 5, 3] a, float[5, 2, 3] b)
    => (last, sums, turned, products)
{{
    [both] last, sums, turned, products = Scan <
        num_scan_inputs = 2, scan_input_axes = [-2, 0], scan_input_directions = [1, 0],
        scan_output_axes = [1, 0, -1], scan_output_directions = [0, 1, 1],
        body = step (float[2, 3] state, float[2, 3] p, float[2, 3] q)
            => (float[2, 3] next, float[2, 3] sum, float[3, 2] turn, float[2, 3] times)
        {{
            sum = Add (p, state)
            next = Sub (sum, q)
            turn = Transpose <perm = [1, 0]> (p)
            times = Mul (p, q)
        }}
    > (s, a, b)
}}
"""

NESTED = f"""{HEAD}
nested (float[1, 12] x, bool[1] chosen, float[12] limit) => (y, z, rows)
<int64 four = {{4}}>
{{
    [choose] y, z = If (chosen) <
        then_branch = first () => (float[1, 12] p, float[1, 12] r)
        {{ p = Exp (x) r = Identity (x) }},
        else_branch = second () => (float[1, 12] q, float[1, 12] t)
        <float[1, 12] t = {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}>
        {{ q = Neg (x) }}
    >
    [outer] kept, rows = Loop (four, , y) <body = turn
        (int64 i, bool before, float[1, 12] s)
        => (bool after, float[1, 12] u, float[1, 12] g)
        <int64 one = {{1}}, int64 none = {{0}}>
        {{
            after = Identity (before)
            parity = BitwiseAnd (i, one)
            odd = Equal (parity, one)
            u = If (odd) <
                then_branch = deeper () => (float[1, 12] b)
                {{
                    b = Loop (i, , s) <body = inner
                        (int64 j, bool before2, float[1, 12] v)
                        => (bool after2, float[1, 12] w)
                        {{
                            after2 = Identity (before2)
                            h = Mul (v, limit)
                            w = Sin (h)
                        }}>
                }},
                else_branch = plain () => (float[1, 12] c) {{ c = Add (s, z) }}
            >
            g = Sub (u, s)
        }}>
}}
"""

FEEDS = {
    "loops": {
        "x": X,
        "fed": np.array(3),
        "go": np.array(True),
        "w": np.linspace(-1, 1, 144, dtype=np.float32).reshape(12, 12),
    },
    "scans": {
        "s": np.ones((2, 3), np.float32),
        "a": np.arange(30, dtype=np.float32).reshape(2, 5, 3),
        "b": -np.arange(30, dtype=np.float32).reshape(5, 2, 3),
    },
    "nested": {
        "x": X,
        "chosen": np.array([False]),
        "limit": np.linspace(0, 2, 12, dtype=np.float32),
    },
}
MODELS = {"loops": LOOPS, "scans": SCANS, "nested": NESTED}


def opened(text: str, threads: int = 1) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    model = onnx.parser.parse_model(text).SerializeToString()
    return onnxplug.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def reference(text: str, feeds: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 3
    model = onnx.parser.parse_model(text).SerializeToString()
    peer = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray[Any, Any]] = peer.run(None, dict(feeds))
    return found


def assert_equal(found: Any, expected: Any) -> None:
    for one, other in zip(found, expected, strict=True):
        assert one.shape == other.shape
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def variations(name: str) -> list[dict[str, Any]]:
    feeds = FEEDS[name]
    return {
        "loops": [
            feeds,
            feeds | {"fed": np.array(0)},
            feeds | {"fed": np.array(7)},
            feeds | {"go": np.array(False)},
        ],
        "scans": [feeds],
        "nested": [feeds, feeds | {"chosen": np.array([True])}],
    }[name]


@pytest.mark.parametrize("name", MODELS)
def test_control_flow_is_compiled(name: str) -> None:
    session = opened(MODELS[name])
    for feeds in variations(name):
        assert_equal(session.run(None, feeds), reference(MODELS[name], feeds))
    nodes = session.explain().nodes
    assert {(node.ep, node.tier, node.note) for node in nodes} == {
        ("CPUExecutionProvider", "compiled", "")
    }
    assert len(session.explain().partitions) == 1
    assert any(node.graph for node in nodes)


@pytest.mark.parametrize("threads", [1, 2])
def test_runs_look_between_turns(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "MOST_TURNS", 1)
    entered = []
    go_on = Program.go_on

    def counted(program: Program, words: Any, arrays: Any, look: Any) -> None:
        go_on(program, words, arrays, lambda: entered.append(look()))

    monkeypatch.setattr(Program, "go_on", counted)
    for name, text in MODELS.items():
        session = opened(text, threads)
        for feeds in variations(name):
            for _ in range(2):
                assert_equal(session.run(None, feeds), reference(text, feeds))
    assert len(entered) > 40


ENDLESS = f"""{HEAD}
endless (float[4] x) => (y)
{{
    [around] y = Loop ( , , x) <body = turn
        (int64 i, bool before, float[4] s) => (bool after, float[4] t)
        {{
            u = Loop ( , before, s) <body = inner
                (int64 j, bool before2, float[4] v) => (bool after2, float[4] w)
                <float huge = {{1e30}}>
                {{
                    w = Sin (v)
                    sum = ReduceMax <keepdims = 0> (w)
                    after2 = Less (sum, huge)
                }}>
            t = Neg (u)
            after = Identity (before)
        }}>
}}
"""


def test_an_endless_loop_ends_when_it_is_told_to() -> None:
    session = opened(ENDLESS)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}
    feeds = {"x": np.ones(4, np.float32)}
    options = onnxplug.RunOptions()

    def terminate() -> None:
        options.terminate = True

    timer = threading.Timer(0.1, terminate)
    timer.start()
    with pytest.raises(RunCancelled):
        session.run(None, feeds, options)
    timer.join()
    # shells have what they run in the background ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        timer = threading.Timer(0.1, _thread.interrupt_main)
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.run(None, feeds)
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)


def test_runs_at_the_same_time_have_turns_of_their_own() -> None:
    session = opened(NESTED)
    feeds = [FEEDS["nested"] | {"x": X * n} for n in range(1, 5)]
    expected = [session.run(None, each) for each in feeds]
    wrong: list[int] = []

    def run(number: int) -> None:
        for _ in range(50):
            for one, other in zip(
                session.run(None, feeds[number]), expected[number], strict=True
            ):
                if not np.array_equal(one, other):
                    wrong.append(number)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


GROWING = f"""{HEAD}
growing (float[1, 3] x, int64 n) => (all, sizes, last)
<int64 zero = {{0}}>
{{
    [grow] all, last, sizes = Loop (n, , x, x) <body = turn
        (int64 i, bool before, float[k, 3] s, float[1, 3] l)
        => (bool after, float[k2, 3] t, float[1, 3] m, int64[2] size)
        {{
            after = Identity (before)
            m = Sin (l)
            t = Concat <axis = 0> (s, m)
            size = Shape (t)
        }}>
}}
"""


def test_shapes_that_change_are_turns_in_python() -> None:
    session = opened(GROWING)
    for count in (3, 0, 5, 40):
        feeds = {"x": X[:, :3], "n": np.array(count)}
        found = session.run(None, feeds)
        if count:
            assert_equal(found, reference(GROWING, feeds))
        else:  # of which the peer does not know the shape
            assert_equal(found, [feeds["x"], np.empty((0, 2)), feeds["x"]])
    (node,) = [node for node in session.explain().nodes if node.op_type == "Loop"]
    assert node.tier == "array"
    assert "a state of" in node.note
    within = {node.tier for node in session.explain().nodes if node.graph}
    assert "compiled" in within


def test_errors_within_bodies_name_the_node() -> None:
    text = f"""{HEAD}
    gathers (float[4] x, int64 place) => (y)
    <int64 three = {{3}}>
    {{
        [around] y = Loop (three, , x) <body = turn
            (int64 i, bool before, float[4] s) => (bool after, float[4] t)
            {{
                after = Identity (before)
                at = Add (i, place)
                [picks] p = Gather (x, at)
                t = Add (s, p)
            }}>
    }}
    """
    session = opened(text)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}
    feeds = {"x": np.arange(4, dtype=np.float32), "place": np.array(1)}
    assert_equal(session.run(None, feeds), reference(text, feeds))
    with pytest.raises(NodeError, match="around"):
        session.run(None, feeds | {"place": np.array(2)})


def test_a_branch_that_shapes_choose_is_a_part_of_the_plan() -> None:
    text = f"""{HEAD}
    squeezed (float[n, k] x, int64[1] axis) => (y)
    <int64 one = {{1}}, int64 zero = {{0}}>
    {{
        shape = Shape (x)
        rows = Gather (shape, zero)
        single = Equal (rows, one)
        y = If (single) <
            then_branch = alone () => (float[a] p)
            <int64[1] first = {{0}}>
            {{ s = Squeeze (x, first) p = Exp (s) }},
            else_branch = many () => (float[b, c] q) {{ q = Neg (x) }}
        >
    }}
    """
    session = opened(text)
    for rows in (1, 3):
        feeds = {"x": X.reshape(-1, 4)[:rows], "axis": np.array([0])}
        assert_equal(session.run(None, feeds), reference(text, feeds))
    assert {(n.tier, n.note) for n in session.explain().nodes} == {("compiled", "")}


def test_a_branch_that_does_not_fit_is_left_to_runs_that_want_it() -> None:
    text = f"""{HEAD}
    either (float[n, k] x, float[4, 4] w, float[6, 4] v, bool wide) => (y)
    {{
        [choose] y = If (wide) <
            then_branch = six () => (float[n, 4] p) {{ p = MatMul (x, v) }},
            else_branch = four () => (float[n, 4] q) {{ q = MatMul (x, w) }}
        >
    }}
    """
    session = opened(text)
    numbers = np.random.default_rng(0)
    feeds: dict[str, Any] = {
        "w": numbers.standard_normal((4, 4)).astype(np.float32),
        "v": numbers.standard_normal((6, 4)).astype(np.float32),
    }
    for wide in (False, True):
        x = numbers.standard_normal((2, 6 if wide else 4)).astype(np.float32)
        feeds |= {"x": x, "wide": np.array(wide)}
        assert_equal(session.run(None, feeds), reference(text, feeds))
    with pytest.raises(onnxplug.errors.OnnxplugError, match="MatMul"):
        session.run(None, feeds | {"wide": np.array(False)})


def test_turns_whose_number_only_a_run_knows_are_done_in_batches() -> None:
    text = f"""{HEAD}
    counted (float[1, 12] x, int64 n, int64 stop, bool go) => (y, states, numbers)
    {{
        [count] y, states, numbers = Loop (n, go, x) <body = turn
            (int64 i, bool before, float[1, 12] s)
            => (bool after, float[1, 12] t, float[1, 12] g, int64 number)
            {{
                after = Less (i, stop)
                t = Sin (s)
                g = Add (t, x)
                number = Identity (i)
            }}>
    }}
    """
    session = opened(text)
    for count, stop, go in (
        (3000, 5000, True),
        (3000, 1000, True),
        (2, 5000, True),
        (0, 5000, True),
        (5, 5, False),
    ):
        feeds = {
            "x": X,
            "n": np.array(count),
            "stop": np.array(stop),
            "go": np.array(go),
        }
        assert_equal(session.run(None, feeds), reference(text, feeds))
    (node,) = [node for node in session.explain().nodes if node.op_type == "Loop"]
    assert node.note == "how many turns there are is not known"
