"""What cannot be allocated is a clear error, and the session goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug.errors import OnnxplugError, OutOfMemory, RunError

CPU = "CPUExecutionProvider"
ON_ARRAYS = [(CPU, {"compile": False})]


def parse(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        '< ir_version: 10, opset_import: ["" : 21] >\n' + text
    )


FILLED = parse(
    """filled (int64[R] shape) => (float[] y)
    { c = ConstantOfShape (shape) y = Sin (c) }"""
)


@pytest.mark.parametrize("providers", [None, ON_ARRAYS])
@pytest.mark.parametrize("shape", [[2**50], [2**20] * 3, [2**62], [2**40, 2**40]])
def test_a_run_that_needs_too_much_says_so(providers: Any, shape: list[int]) -> None:
    session = onnxplug.InferenceSession(FILLED, providers=providers)
    small = {"shape": np.array([2], np.int64)}
    session.run(None, small)
    for _ in range(2):
        with pytest.raises((OutOfMemory, RunError)) as caught:
            session.run(None, {"shape": np.array(shape, np.int64)})
        assert isinstance(caught.value, OnnxplugError)
        # beyond what int64 can count it is a wrong shape rather than much memory
        if np.prod([float(size) for size in shape]) < 2**60:
            assert isinstance(caught.value, MemoryError)
            assert isinstance(caught.value, OutOfMemory)
            assert "ConstantOfShape" in str(caught.value)
            assert caught.value.ep == CPU
            assert caught.value.nbytes == 4 * np.prod(shape)
    assert session.run(None, small)[0].tolist() == [0, 0]


def test_a_compiled_program_names_the_node_of_its_largest_value() -> None:
    model = parse(
        """large (float[N] x, float[M] z) => (float s) {
            two = Constant <value = int64[2] {-1, 1}> ()
            c = Reshape (x, two) p = Mul (c, z) e = Softmax (p)
            f = Softmax <axis = 0> (e) s = ReduceMax <keepdims = 0> (f)
        }"""
    )
    session = onnxplug.InferenceSession(model)
    small = {"x": np.ones(2, np.float32), "z": np.ones(2, np.float32)}
    session.run(None, small)
    huge = np.ones(2**23, np.float32)
    for _ in range(2):
        with pytest.raises(OutOfMemory, match=f"{2**48:,} bytes") as caught:
            session.run(None, {"x": huge, "z": huge})
        assert caught.value.ep == CPU
        assert caught.value.node
    assert session.run(None, small)[0] == 0.5


def test_an_output_that_is_a_view_of_too_much_says_so() -> None:
    session = onnxplug.InferenceSession(
        parse("wide (float[1] x, int64[1] n) => (float[] y) { y = Expand (x, n) }"),
        providers=ON_ARRAYS,
    )
    feed = {"x": np.ones(1, np.float32), "n": np.array([2**45])}
    with pytest.raises(OutOfMemory):
        session.run(None, feed)


def test_a_static_shape_that_is_too_large_is_told_when_the_session_is_made() -> None:
    model = parse(
        f"""large (float[{2**24}, 1] x) => (float[] y)
        {{ t = Transpose (x) m = Mul (x, t) y = Exp (m) }}"""
    )
    with pytest.raises(OutOfMemory, match="bytes") as caught:
        onnxplug.InferenceSession(model)
    assert caught.value.ep == CPU


def in_child(code: str, megabytes: int) -> str:
    """What *code* prints in a process that may have so much address space."""
    limited = f"""
import resource
import numpy as np
import onnx
import onnxplug
from onnxplug.errors import OutOfMemory

def parse(text):
    return onnx.parser.parse_model(
        '< ir_version: 10, opset_import: ["" : 21] >\\n' + text)

def limit():
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ({megabytes} << 20),) * 2)
"""
    done = subprocess.run(
        [sys.executable, "-c", limited + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")


@linux_only
@pytest.mark.parametrize("options", ["None", repr(ON_ARRAYS)])
def test_a_run_beyond_the_processs_limit_fails_and_the_next_succeeds(
    options: str,
) -> None:
    printed = in_child(
        f"""
        session = onnxplug.InferenceSession(parse(
            "a (float[N] x, float[M] z) => (float s) {{"
            "two = Constant <value = int64[2] {{-1, 1}}> ()"
            "c = Reshape (x, two) p = Mul (c, z) e = Exp (p)"
            "s = ReduceSum <keepdims = 0> (e) }}"), providers={options})
        def run(size):
            ones = np.ones(size, np.float32)
            return session.run(None, {{"x": ones, "z": ones}})[0]
        run(8)
        limit()
        try:
            run(20000)
        except OutOfMemory as error:
            print(error.ep, bool(error.node))
        print(round(float(run(8))))
        """,
        megabytes=256,
    )
    assert printed.split() == [CPU, "True", "174"]


@linux_only
def test_a_model_that_does_not_fit_is_told_while_it_is_loaded() -> None:
    printed = in_child(
        """
        model = parse("a (float[1] x) => (float[] y) <int4[2] k = {1, 2}>"
                      "{ c = Cast <to = 1> (k) y = Add (x, c) }")
        k = model.graph.initializer[0]
        k.ClearField("int32_data")
        k.dims[:] = [1 << 29]
        k.raw_data = bytes(1 << 28)
        data = model.SerializeToString()
        del model, k
        limit()
        try:
            session = onnxplug.InferenceSession(data)
            session.run(None, {"x": np.ones(1, np.float32)})
        except OutOfMemory as error:
            print(type(error).__name__)
        """,
        megabytes=200,
    )
    assert printed.split() == ["OutOfMemory"]


@linux_only
def test_what_a_loop_gathers_does_not_grow_past_memory() -> None:
    printed = in_child(
        """
        session = onnxplug.InferenceSession(parse('''
            a (float[65536] x) => (float[] y) {
            n = Constant <value = int64 {4611686018427387904}> ()
            y = Loop (n, ) <body = b (int64 i, bool c) => (bool d, float[65536] w)
                { d = Identity (c) w = Neg (x) }> }'''))
        limit()
        try:
            session.run(None, {"x": np.ones(65536, np.float32)})
        except OutOfMemory as error:
            print(error.node)
        """,
        megabytes=128,
    )
    assert printed


DOUBLED = "doubled (float[N] x) => (float[] v10) {" + (
    "".join(f"v{n + 1} = Concat <axis = 0> (v{n}, v{n}) " for n in range(10)) + "}"
).replace("v0", "x")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system refuses")
@pytest.mark.parametrize("providers", [None, ON_ARRAYS])
def test_arrays_that_are_too_much_together_are_refused(
    providers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = onnxplug.InferenceSession(parse(DOUBLED), providers=providers)
    monkeypatch.setattr(
        "onnxplug.authoring.memory_limit.memory_left_on_linux", lambda root: 100 << 20
    )
    for _ in range(2):
        # 2, 4, … 64, 128 MiB, which are more than there is
        with pytest.raises(
            OutOfMemory, match=r"Concat[^;]*; 104,857,600 are left"
        ) as caught:
            session.run(None, {"x": np.ones(1 << 19, np.float32)})
        assert caught.value.ep == CPU
        assert caught.value.node
    (small,) = session.run(None, {"x": np.ones(2, np.float32)})
    np.testing.assert_array_equal(small, np.ones(2048, np.float32))


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the system refuses")
def test_a_view_of_much_memory_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    session = onnxplug.InferenceSession(
        parse(
            """views (float[N] x, int64[1] n) => (float y) {
            e = Expand (x, n)  r = Identity (e)
            two = Constant <value = int64[2] {2, -1}> ()  s = Reshape (r, two)
            t = Transpose (s)  first = Constant <value = int64[1] {0}> ()
            last = Constant <value = int64[1] {1}> ()
            p = Slice (t, first, last)  y = ReduceMax <keepdims = 0> (p) }"""
        ),
        providers=ON_ARRAYS,
    )
    monkeypatch.setattr(
        "onnxplug.authoring.memory_limit.memory_left_on_linux", lambda root: 0
    )
    (y,) = session.run(
        None, {"x": np.ones(1, np.float32), "n": np.array([2**30], np.int64)}
    )
    assert y == 1
