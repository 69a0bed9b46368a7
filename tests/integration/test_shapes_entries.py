"""Config entries for what is compiled by input shapes, where nothing is."""

from __future__ import annotations

import onnx
import pytest

import onnxplug
from onnxplug.errors import OptionWarning

MODEL = onnx.parser.parse_model("""
    <ir_version: 10, opset_import: ["" : 21]>
    agraph (float[batch, 2] x) => (float[batch, 2] y) { y = Relu (x) }
""")


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("session.pad_dimensions", "batch=1,8", "and lets them be padded"),
        ("session.serve_while_compiling", "1", "compiles by input shapes"),
    ],
)
def test_entries_that_have_no_effect_warn(key: str, value: str, said: str) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry(key, value)
    with pytest.warns(OptionWarning, match=f"{key}.*no effect.*{said}") as warned:
        onnxplug.InferenceSession(MODEL, options, providers=["CPUExecutionProvider"])
    assert [each.filename for each in warned] == [__file__]
