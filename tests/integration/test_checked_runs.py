"""Runs of which all that EPs return is looked at, and in which nothing is wrong."""

from __future__ import annotations

import numpy as np
import onnx.parser

import onnxplug


def test_what_a_sequence_has_of_an_earlier_one_is_not_returned_again() -> None:
    """A loop adds to it, and so returns what it was given."""
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        g (int64 n, float[2] x) => (seq(float[2]) y)
        {
            c = Constant <value = bool {1}> ()
            e = SequenceEmpty ()
            y = Loop (n, c, e) <body = b (int64 i, bool k, seq(float[2]) s)
                => (bool l, seq(float[2]) t)
                { l = Identity (k) z = Add (x, x) t = SequenceInsert (s, z) }>
        }
        """
    )
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.check_results", "1")
    session = onnxplug.InferenceSession(model, options, providers=["cpu"])
    x = np.array([1, -2], np.float32)
    for times in (3, 1, 4):
        (found,) = session.run(None, {"n": np.array(times), "x": x})
        np.testing.assert_array_equal(found, [2 * x] * times)
