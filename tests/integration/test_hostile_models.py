"""Models that are wrong are refused by an error of ours, and end no process.

Sessions are created in a process of their own, which may not survive.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug.errors import NodeError

SCRIPT = Path(__file__).with_name("hostile_models.py")

PROGRAM = """
import json, sys
import onnx.parser
import onnxplug

for text in json.load(sys.stdin):
    try:
        onnxplug.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    except onnxplug.errors.OnnxplugError as error:
        print(type(error).__name__, flush=True)
    else:
        print("created", flush=True)
"""

HEADER = """<ir_version: 10, opset_import: ["": 21, "my": 1, "ai.onnx.ml": 5]>
g (float[2,3] x, float[N,M] z, bool c, int64[K] n) => (y)
<int64[1] back = {-1}, int64[1] one = {1}, int64[4] cut = {-9, 0, 0, -9}> """

CASES = {
    # of types that are not known, at which ONNX's shape inference looks all the same
    **dict.fromkeys(
        (
            "y = ai.onnx.ml.LabelEncoder <keys_int64s = [1], values_int64s = [2]> (a)",
            "y = EyeLike (a)",
            'y = RegexFullMatch <pattern = "a"> (a)',
            "y = ai.onnx.ml.DictVectorizer <int64_vocabulary = [1]> (a)",
            "y = ai.onnx.ml.TreeEnsembleRegressor <n_targets = 1> (a)",
        ),
        "UnknownOperator",
    ),
    # a size that would be negative, of which it takes a slice; a run fails
    "b = Pad (x, cut) y = Slice (b, one, back, one)": "created",
    # attributes that are missing
    "y = If (c)": "InvalidModel",
    "y = Scan (x)": "InvalidModel",
}


def test_types_and_sizes_that_are_not_known_end_no_process():
    texts = [f"{HEADER} {{ a = my.Mystery (x) {nodes} }}" for nodes in CASES]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        timeout=120,
    )
    outcomes = done.stdout.split()
    assert done.returncode == 0, (done.returncode, [*CASES][len(outcomes)])
    assert dict(zip(CASES, outcomes, strict=True)) == CASES


def test_random_nodes_raise_nothing_but_errors_of_ours():
    done = subprocess.run(
        [sys.executable, SCRIPT, "0", "500"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert not done.stdout
    (count,) = map(int, re.findall(r"created (\d+)", done.stderr))
    assert count > 50


@pytest.mark.parametrize(
    "node",
    [
        "y = Scan <num_scan_inputs = 1, scan_input_axes = [7], "
        "body = b (p) => (q) { q = Neg (p) }> (u)",
        "y = Scan <num_scan_inputs = 1, scan_output_axes = [7], "
        "body = b (p) => (q) { q = Neg (p) }> (u)",
        "y = Loop (n, c, x) <body = b (i, g, s) => (g2, s2) "
        "{ g2 = Identity (g) s2 = Neg (s) }>",
        "y = Loop (, c, x) <body = b (i, g, s) => (g2, s2) "
        "{ g2 = Identity (n) s2 = Neg (s) }>",
    ],
)
def test_control_flow_fails_by_an_error_of_ours(node):
    # the rank of what is scanned is not known before the run
    model = onnx.parser.parse_model(f"{HEADER} {{ u = Reshape (z, n) {node} }}")
    session = onnxplug.InferenceSession(model.SerializeToString())
    values = {
        "x": np.ones((2, 3), np.float32),
        "z": np.ones((2, 1), np.float32),
        "c": np.array(True),
        "n": np.array([1, 2]),
    }
    feeds = {each.name: values[each.name] for each in session.get_inputs()}
    with pytest.raises(NodeError, match=r"(^|: )(Scan|Loop) giving 'y': "):
        session.run(None, feeds)
