"""Exporters and their tools, which say ``import onnxruntime``, on onnxplug.

Each program is run unchanged, by ``python -m onnxplug_onnxruntime``.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

ONNX_PROGRAM = """
import sys
import torch

class Model(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3, dtype=dtype)
    def forward(self, x):
        return torch.relu(self.linear(x)), x + 1

for dtype in (torch.float32, torch.float16, torch.bfloat16):
    model, x = Model(dtype).eval(), torch.randn(2, 4, dtype=dtype)
    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    for found, expected in zip(program(x), model(x), strict=True):
        assert found.dtype is dtype
        torch.testing.assert_close(found, expected, atol=2e-2, rtol=2e-2)

class Narrow(torch.nn.Module):
    def forward(self, x):
        return x.to(torch.float32) * 2, x

x = torch.tensor([1.0, 2.0, -4.0]).to(torch.float8_e4m3fn)
doubled, same = torch.onnx.export(Narrow(), (x,), dynamo=True, verbose=False)(x)
assert doubled.tolist() == [2, 4, -8] and same.dtype is torch.float8_e4m3fn
print(sys.modules["onnxruntime"].InferenceSession.__module__)
"""

VERIFICATION = """
import torch
from torch.onnx.verification import verify_onnx_program

model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).eval()
program = torch.onnx.export(model, (torch.randn(2, 4),), dynamo=True, verbose=False)
infos = verify_onnx_program(program)
assert infos and all(info.max_abs_diff < 1e-5 for info in infos)
import onnxruntime
print(onnxruntime.InferenceSession.__module__)
"""

EVALUATOR = """
import numpy as np
import onnxscript
from onnxscript import FLOAT, evaluator, opset18 as op, script

@script()
def f(x: FLOAT["N"], y: FLOAT["N"]):
    return op.Relu(x * y) + op.ReduceSum(x, keepdims=0)

assert "ORT" in type(evaluator.default()).__name__
x = np.float32([1, -2, 3])
assert f(x, x).tolist() == [3, 6, 11]
pair = op.SequenceConstruct(x, x)
assert [each.value.tolist() for each in pair] == [x.tolist()] * 2

@script(onnxscript.values.Opset("com.mine", 1), default_opset=op)
def Twice(x):
    return op.Add(x, x)

import onnx
import onnxruntime
options = onnxruntime.SessionOptions()
options.register_custom_ops_library(Twice)
model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 18, "com.mine": 1]> '
    "g (float[N] x) => (float[N] y) { y = com.mine.Twice (x) }"
)
session = onnxruntime.InferenceSession(model.SerializeToString(), options)
assert session.run(None, {"x": x})[0].tolist() == [2, -4, 6]
print(onnxruntime.InferenceSession.__module__)
"""

SCIKIT_LEARN = """
import numpy as np
import onnxruntime as rt
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from skl2onnx.helpers import collect_intermediate_steps
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

X, y = load_iris(return_X_y=True)
X = X.astype(np.float32)
model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)).fit(X, y)
session = rt.InferenceSession(
    to_onnx(model, X[:1], options={"zipmap": False}).SerializeToString(),
    providers=["CPUExecutionProvider"],
)
labels, scores = session.run(None, {session.get_inputs()[0].name: X})
assert (labels == model.predict(X)).all()
np.testing.assert_allclose(scores, model.predict_proba(X), atol=1e-5)
types = [("X", FloatTensorType([None, 4]))]
for step in collect_intermediate_steps(model, "pipeline", types, target_opset=18):
    rt.InferenceSession(step["onnx_step"].SerializeToString())
print(type(session).__module__)
"""

POLYGRAPHY = """
import onnx
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.comparator import Comparator

model = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[2, 3] x) => (float[2, 3] y) '
    "{ z = Relu (x) y = Exp (z) }"
).SerializeToString()
runners = [OnnxrtRunner(SessionFromOnnx(model), name=name) for name in "ab"]
assert bool(Comparator.compare_accuracy(Comparator.run(runners)))
import onnxruntime
print(onnxruntime.InferenceSession.__module__)
"""

EXTENSIONS = """
import onnxruntime
import onnxruntime_extensions as extensions
from onnxruntime_extensions import PyCustomOpDef, onnx_op

@onnx_op(op_type="Reversed", inputs=[PyCustomOpDef.dt_float])
def reversed_(x):
    return x[::-1]

options = onnxruntime.SessionOptions()
try:
    options.register_custom_ops_library(extensions.get_library_path())
except onnxruntime.capi.onnxruntime_pybind11_state.Fail as error:
    assert "native library of custom operators" in str(error)
    print(onnxruntime.InferenceSession.__module__)
"""

OPTIMIZER = """
import sys
from onnxruntime.transformers.optimizer import optimize_model
import onnxruntime

model = optimize_model(sys.argv[1], model_type="bert", opt_level=1, use_gpu=False)
assert [node.op_type for node in model.model.graph.node] == ["Relu"]
print(onnxruntime.InferenceSession.__module__)
"""


@pytest.mark.parametrize(
    ("package", "program"),
    [
        pytest.param("torch", ONNX_PROGRAM, id="ONNXProgram"),
        pytest.param("torch", VERIFICATION, id="verification"),
        pytest.param("onnxscript", EVALUATOR, id="onnxscript"),
        pytest.param("skl2onnx", SCIKIT_LEARN, id="skl2onnx"),
        pytest.param("polygraphy", POLYGRAPHY, id="polygraphy"),
        pytest.param("torch", OPTIMIZER, id="onnxruntime.transformers"),
        pytest.param("onnxruntime_extensions", EXTENSIONS, id="extensions"),
    ],
)
def test_a_program_runs_unchanged(package: str, program: str, tmp_path: Path) -> None:
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
        "{ z = Identity (x) y = Relu (z) }"
    )
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "program.py").write_text(program)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "onnxplug_onnxruntime"),
            *(tmp_path / "program.py", tmp_path / "model.onnx"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": ""},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout.splitlines()[-1]
    assert said == "onnxplug_onnxruntime.session"
