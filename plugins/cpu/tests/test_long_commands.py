"""Long commands have parts, between which a run can end; repeating takes no time."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_cpu.compiler.commands.chunks import LONGEST_CHUNK
from onnxplug_cpu.compiler.runtime.program import Program
from onnxplug_cpu.compiler.runtime.time_slices import estimated_seconds


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "(float[64,20000] a, float[20000,20000] b) => (float[64,20000] c)"
        " { c = MatMul (a, b) }",
        "(float[1,60000] a, float[60000,60000] b) => (float[1,60000] c)"
        " { c = MatMul (a, b) }",
        "(float[2,20000] a, float[20000,20000] b) => (float[2,20000] c)"
        " { c = Gemm <transB = 1> (a, b) }",
        "(float[8000,8000] a, float[8000,8000] b) => (float[8000,8000] c)"
        " { c = MatMul (a, b) }",
        "(float[1,2,9000,128] q, float[1,2,9000,128] k, float[1,2,9000,128] v)"
        " => (float[1,2,9000,128] y) { y = Attention (q, k, v) }",
        "(float[1000000000] x) => (float[1000000000] y) { y = Erf (x) }",
        "(float[1000000,1024] x) => (float[1000000,1024] y) { y = Softmax (x) }",
        "(float[1000000,1024] x, float[1024] s) => (float[1000000,1024] y)"
        " { y = LayerNormalization (x, s) }",
        "(float[1000000,1024] x, int64[1] axis) => (float[1000000] y)"
        " { a = Constant <value_ints = [1]> ()"
        " y = ReduceSum <keepdims = 0> (x, a) }",
        "(float[30000,30000] x) => (float[30000,30000] y) { y = Transpose (x) }",
        "(float[500000000] x, float[500000000] z) => (float[1000000000] y)"
        " { y = Concat <axis = 0> (x, z) }",
        "(float[100000,512] x, int64[3000000] i) => (float[3000000,512] y)"
        " { y = Gather (x, i) }",
        "(float[1000000,1024] x) => (float[1000000,1024] y)"
        " { a = Constant <value_int = 1> () y = CumSum (x, a) }",
        # of single rows
        *(
            "(float[4000000000] x) => (float y)"
            f" {{ y = Reduce{kind} <keepdims = 0> (x) }}"
            for kind in (
                *("Max", "Min", "Sum", "Mean", "Prod", "L1", "L2", "LogSum"),
                *("LogSumExp", "SumSquare"),
            )
        ),
        "(int64[4000000000] x) => (int64 y) { y = ReduceMax <keepdims = 0> (x) }",
        "(float[400000000,8] x) => (float[8] y) { a = Constant <value_ints = [0]> ()"
        " y = ReduceMax <keepdims = 0> (x, a) }",
        "(float[4000000,1000] x) => (float[1000] y)"
        " { a = Constant <value_ints = [0]> () y = ReduceSum <keepdims = 0> (x, a) }",
        "(float[1000000000] x) => (float[1000000000] y) { y = Softmax (x) }",
        "(float[1000000000] x) => (float[1000000000] y) { y = LogSoftmax (x) }",
        "(float[100000000,8] x) => (float[100000000,8] y) { y = Softmax <axis=0> (x) }",
        "(float[8,100000000] x) => (float[8,100000000] y) { y = Softmax <axis=0> (x) }",
        "(float[1000000000] x, float[1000000000] s) => (float[1000000000] y)"
        " { y = LayerNormalization (x, s) }",
        "(float[1000000000] x, float[1000000000] s) => (float[1000000000] y)"
        " { y = RMSNormalization (x, s) }",
        "(float[1,8,100000000] x, float[8] s) => (float[1,8,100000000] y)"
        " { y = InstanceNormalization (x, s, s) }",
        "(float[1,2,1000000000] x, float[2] s) => (float[1,2,1000000000] y)"
        " { y = GroupNormalization <num_groups = 1> (x, s, s) }",
        "(float[1000000000] x) => (float[1000000000] y) { y = LpNormalization (x) }",
        "(float[1000000000] x) => (float[1000000000] y)"
        " { a = Constant <value_int = 0> () y = CumSum (x, a) }",
        "(float[2000000011] x) => (float[2000000011] y)"
        " { s = Constant <value_ints = [-1]> ()"
        " e = Constant <value_ints = [-9000000000000000000]> ()"
        " a = Constant <value_ints = [0]> () y = Slice (x, s, e, a, s) }",
        "(float[2,1000000007] x) => (float[1000000007,2] y) { y = Transpose (x) }",
        "(float[10,200000000] x, int64[10] i) => (float[10,200000000] y)"
        " { y = Gather (x, i) }",
        "(float[10,200000000] x, int64[10,1] i, float[10,200000000] u)"
        " => (float[10,200000000] y) { y = ScatterND (x, i, u) }",
        "(float[1000000000] x, float[1000000000] z) => (float y) { y = MatMul (x, z) }",
        "(float[8,1000000000] x, float[1000000000,64] z) => (float[8,64] y)"
        " { y = MatMul (x, z) }",
        "(float[1,1,30000,30000] x, float[1,1,30000,30000] w) => (float[1,1,1,1] y)"
        " { y = Conv (x, w) }",
        "(float[1,1,30000,30000] x) => (float[1,1,1,1] y)"
        " { y = MaxPool <kernel_shape = [30000,30000]> (x) }",
        "(float[1,1,30000,30000] x) => (float[1,1,101,101] y)"
        " { y = AveragePool <kernel_shape = [29900,29900]> (x) }",
        "(float[1,1,30000,30000] x) => (float[1,1,1,1] y) { y = GlobalMaxPool (x) }",
    ],
)
def test_long_commands_have_chunks_that_are_not(text: str, threads: int) -> None:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = threads
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> long {text}'
    )
    programs: list[Program] = []
    make = Program.__init__

    def noted(program: Program, *rest: Any, **named: Any) -> None:
        make(program, *rest, **named)
        programs.append(program)

    with mock.patch.object(Program, "__init__", noted):  # runs would take long
        onnxplug.InferenceSession(model, options)
    commands = [command for program in programs for command in program.commands]
    assert sum(estimated_seconds(command, 1) for command in commands) > 0.1
    for command in commands:
        chunk = estimated_seconds(command, 1) / command.chunks
        # other estimates, of each kernel, say how many chunks there are
        assert chunk < 5 * LONGEST_CHUNK, command.label


REPEATED = """
import json, sys
import numpy as np, onnx, onnxplug

providers = [("CPU", {"compile": sys.argv[1]})]
for text, shape, first in json.loads(sys.argv[2]):
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 23]> g ' + text
    )
    x = first + np.arange(np.prod(shape), dtype=np.float32).reshape(shape) / 4
    try:
        session = onnxplug.InferenceSession(model, providers=providers)
        (y,) = session.run(None, {"x": x})
        told = [float(value) for value in y.ravel()]
    except onnxplug.errors.OutOfMemory as error:
        told = "needs more memory than there is" in str(error)
    print(json.dumps(told), flush=True)
"""


def told_in_a_process(compiled: str, cases: Sequence[tuple[str, Any, float]]) -> Any:
    """What is computed of models, or that it needs too much memory; element by element
    they would take hours."""
    done = subprocess.run(
        [sys.executable, "-c", REPEATED, compiled, json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stderr == ""
    return [json.loads(line) for line in done.stdout.splitlines()]


REDUCED = """(float[2,3] x) => (float[p,q] y) {
    s = Constant <value_ints = [1099511627776, 2, 3]> () e = Expand (x, s)
    a = Constant <value_ints = [0]> () y = KIND <keepdims = 0> (e, a)
}"""
KINDS: dict[str, Callable[..., Any]] = {
    "ReduceMax": lambda x, n: x,
    "ReduceMean": lambda x, n: x,
    "ReduceSum": lambda x, n: x * n,
    "ReduceSumSquare": lambda x, n: x * x * n,
    "ReduceLogSumExp": lambda x, n: x + np.log(n),
    "ReduceProd": lambda x, n: np.where(x < 1, 0, np.where(x > 1, np.inf, 1)),
}


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_what_is_only_repeated_takes_no_time(compiled: str) -> None:
    models = [(REDUCED.replace("KIND", kind), (2, 3), 0.0) for kind in KINDS]
    told = told_in_a_process(compiled, models)
    x = np.arange(6) / 4
    for kind, found in zip(KINDS, told, strict=True):
        wanted = KINDS[kind](x, 2.0**40)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, err_msg=kind)


_IMAGE = "s = Constant <value_ints = [1,1,268435456,268435456]> () e = Expand (x, s)"
_KEYS = "s = Constant <value_ints = [1,1,1099511627776,1]> () e = Expand (x, s)"


STRETCHED = {
    f"{_IMAGE} y = MaxPool <kernel_shape = [268435456,268435456]> (e)": [3.0],
    f"{_IMAGE} y = AveragePool <kernel_shape = [268435455,268435455]> (e)": [3.0] * 4,
    f"{_IMAGE} y = GlobalMaxPool (e)": [3.0],
    f"{_IMAGE} y = Conv (e, e)": [9.0 * 2**56],
    f"{_KEYS} t = Transpose <perm = [0,1,3,2]> (e) y = MatMul (t, e)": [9.0 * 2**40],
    f"{_KEYS} q = Constant <value_ints = [1,1,1,1]> () r = Reshape (x, q)"
    " y = Attention (r, e, e)": [3.0],
    f"{_IMAGE} f = Erf (e) m = Constant <value_ints = [2,3]> ()"
    " y = ReduceMean (f, m)": [0.99997791],
}


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_operators_on_what_is_repeated_take_no_time(compiled: str) -> None:
    models = [
        (f"(float[1,1] x) => (float[a,b,c,d] y) {{{text}}}", (1, 1), 3.0)
        for text in STRETCHED
    ]
    told = told_in_a_process(compiled, models)
    for (text, expected), found in zip(STRETCHED.items(), told, strict=True):
        if compiled == "true":
            np.testing.assert_allclose(found, expected, rtol=1e-6, err_msg=text)
        else:  # on arrays only reductions know
            assert found in (True, [3.0]), text
