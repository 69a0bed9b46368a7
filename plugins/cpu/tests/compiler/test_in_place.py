"""Caches that are updated where they are, by operators that put elements."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug_compiler.schedule.in_place import outputs_in_place
from onnxplug_cpu.compiler import segment

RNG = np.random.default_rng(4)
ROWS = "float{}[1, 2, 64, 8] past, float{}[1, 2, 1, 8] new, int64[1, 2, 1, 8] at"
TURNED = "float[1, 2, 64, 8] past, float[1, 1, 2, 8] new, int64[1, 1] at"
THERE, BACK = "<perm = [2, 0, 1, 3]>", "<perm = [1, 2, 0, 3]>"
PUT = f"t = Transpose {THERE} (past) f = ScatterND (t, at, new) "
SUM, AROUND = 'reduction = "add"', 'axis = 1, mode = "circular"'
ADDED = PUT.replace("ScatterND", f"ScatterND <{SUM}>")
FEW = "float{}[2, 9, 8] past, float{}[2, 3, 8] new, int64[2] at"

CASES = {
    "elements": (ROWS, "y = ScatterElements <axis = 2> (past, at, new)", True),
    "sums": (ROWS, f"y = ScatterElements <axis = 2, {SUM}> (past, at, new)", True),
    "with axes in another order": (TURNED, f"{PUT} y = Transpose {BACK} (f)", True),
    "sums so": (TURNED, f"{ADDED} y = Transpose {BACK} (f)", True),
    "what is read elsewhere": (
        TURNED,
        f"{PUT} u = Transpose {BACK} (f) o = ReduceMax <keepdims = 0> (past) "
        "y = Add (u, o)",
        False,
    ),
    "what is turned further": (
        "float[1, 2, 8, 8] past, float[1, 1, 2, 8] new, int64[1, 1] at",
        f"{PUT} y = Transpose <perm = [1, 2, 3, 0]> (f)",
        False,
    ),
    "rows": (FEW, "y = TensorScatter <axis = 1> (past, new, at)", True),
    "rows around": (
        FEW,
        f"y = TensorScatter <{AROUND}> (past, new, at)",
        True,
    ),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, "") for name in CASES),
        *((name, "16") for name, case in CASES.items() if "{}" in case[0]),
    ],
)
def test_a_cache_that_is_bound_as_both(name: str, kind: str) -> None:
    inputs, body, expected = CASES[name]
    inputs = inputs.format(kind, kind)
    past = inputs.split(" past")[0]
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 24]> g ({inputs}) => ({past} y) '
        f"{{ {body} }}"
    )
    dtype = np.dtype(f"float{kind or 32}")
    feeds: dict[str, np.ndarray[Any, Any]] = {}
    for value in model.graph.input:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        array = RNG.standard_normal(shape).astype(dtype)
        feeds[value.name] = array if value.name != "at" else np.full(shape, 5)
    (wanted,) = ReferenceEvaluator(model).run(None, feeds)
    found: list[dict[int, int]] = []

    def spy(*given: Any) -> dict[int, int]:
        found.append(outputs_in_place(*given))
        return found[-1]

    with mock.patch.object(segment, "outputs_in_place", spy):
        session = onnxplug.InferenceSession(model)
        (apart,) = session.run(None, feeds)
    assert found[-1] == ({0: 0} if expected else {})
    assert not [node.note for node in session.explain().nodes if node.note]
    bound = 2e-6 if dtype == np.float32 else 2e-3
    np.testing.assert_allclose(apart, wanted, bound, bound)
    binding = session.io_binding()
    for name, array in feeds.items():
        value = onnxplug.OrtValue.ortvalue_from_numpy(array.copy())
        binding.bind_ortvalue_input(name, value)
        if name == "past":
            cache = value
            binding.bind_ortvalue_output("y", value)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(cache.numpy(), apart)
