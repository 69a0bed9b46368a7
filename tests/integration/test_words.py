"""Errors as a person would write them: a cause once, and types by their names."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import onnx.parser
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import (
    EpError,
    InputTypeError,
    ModelTypeError,
    NodeError,
    OptionError,
    OptionTypeError,
)
from onnxplug_testing import Knobs, SimulatedFactory, Stage


def model(text: str) -> bytes:
    header = '<ir_version: 10, opset_import: ["": 21]> g '
    data: bytes = onnx.parser.parse_model(header + text).SerializeToString()
    return data


NEG = model("(float[N, 3] x) => (float[N, 3] y) {y = Neg (x)}")


@pytest.mark.parametrize(
    ("type", "words"),
    [
        (ep.TensorType(ep.DataType.FLOAT32, (2, "N", None)), "float32[2, N, ?]"),
        (ep.TensorType(ep.DataType.INT64, ()), "int64[]"),
        (ep.TensorType(ep.DataType.INT64), "int64[…]"),
        (ep.TensorType(None, (2,)), "?[2]"),
        (ep.TensorType(ep.DataType.BOOL, ("\x1b",)), "bool[\\x1b]"),
        (ep.SparseTensorType(ep.DataType.INT8, (3,)), "sparse int8[3]"),
        (
            ep.SequenceType(ep.TensorType(ep.DataType.STRING, (1,))),
            "sequence(string[1])",
        ),
        (ep.OptionalType(ep.SequenceType()), "optional(sequence(?))"),
        (
            ep.MapType(ep.DataType.STRING, ep.TensorType(ep.DataType.FLOAT32, ())),
            "map(string, float32[])",
        ),
    ],
)
def test_types_are_written_like_arrays(type: ep.ValueType, words: str) -> None:
    assert str(type) == words


def test_a_node_that_fails_alone_is_named_once() -> None:
    text = "(float[N] x, float[M] z) => (float[K] y) {y = Add (x, z)}"
    session = onnxplug.InferenceSession(model(text))
    with pytest.raises(NodeError, match="partition 0: Add giving 'y' failed") as caught:
        session.run(None, {"x": np.zeros(2, np.float32), "z": np.zeros(3, np.float32)})
    assert str(caught.value).count("Add giving") == 1


def test_texts_are_strings_in_what_a_node_failed_on() -> None:
    text = "(string[N] x) => (float[N] y) {y = Cast <to = 1> (x)}"
    with pytest.raises(NodeError, match=r"failed on string\[1\]: "):
        onnxplug.InferenceSession(model(text)).run(None, {"x": np.array(["zz"])})


def test_a_body_of_a_node_without_a_name_is_told_by_its_output() -> None:
    text = """(bool[N] c, float[2] x) => (float[2] y) {
      y = If (c) <then_branch = a () => (float[2] p) {p = Neg (x)},
                  else_branch = b () => (float[2] q) {q = Abs (x)}>
    }"""
    session = onnxplug.InferenceSession(model(text))
    feed = {"c": np.array([True, False]), "x": np.zeros(2, np.float32)}
    with pytest.raises(NodeError, match="If giving 'y': its condition") as caught:
        session.run(None, feed)
    assert caught.value.node == "If giving 'y'"


class Stuck(SimulatedFactory):
    """Its EP raises while it compiles."""


def test_a_partition_of_one_node_is_named_for_it() -> None:
    factory = SimulatedFactory(Knobs(fail_at=Stage.COMPILE))
    registry = onnxplug.plugins.PluginRegistry()
    registry.add(factory)
    with pytest.raises(EpError, match="failed to compile Neg giving 'y': ") as caught:
        onnxplug.InferenceSession(NEG, providers=[factory.name], registry=registry)
    assert "nodes" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({}, "'x' is a dict; expected a tensor of float32"),
        (object(), "'x' is an object; expected a tensor of float32"),
        (np.float32, "'x' is the class numpy.float32; expected a tensor of float32"),
        ([["a"]], "'x' is a list of texts, which do not fit the expected"),
    ],
)
def test_what_is_fed_is_named_for_what_it_is(value: Any, words: str) -> None:
    with pytest.raises(InputTypeError, match=words):
        onnxplug.InferenceSession(NEG).run(None, {"x": value})


def test_what_is_given_for_a_model_or_options_is_named_once() -> None:
    for source, words in (
        ({}, "a model is given as a dict; expected a path"),
        (3, "a model is given as 3; expected a path"),
        (io.StringIO("a"), "given as a _io.StringIO, which gives 'a'; expected"),
    ):
        with pytest.raises(ModelTypeError, match=words):
            onnxplug.InferenceSession(source)
    options: Any = {}
    with pytest.raises(OptionTypeError, match="sess_options is a dict; expected onnx"):
        onnxplug.InferenceSession(NEG, options)


def test_a_replacement_of_another_type_is_told_by_both_types() -> None:
    text = "(float[2] x) => (float[2] y) <float[2] w = {1, 2}> {y = Add (x, w)}"
    options = onnxplug.SessionOptions()
    options.add_initializer("w", onnxplug.OrtValue.ortvalue_from_numpy(np.zeros(3)))
    with pytest.raises(OptionError, match=r"as float64\[3\]; .* is float32\[2\]\."):
        onnxplug.InferenceSession(model(text), options)


def test_a_class_is_no_element_type_unless_it_is_one_of_numpys() -> None:
    for element_type in (dict, Stuck):
        with pytest.raises(TypeError, match="an element type is the class "):
            onnxplug.OrtValue.ortvalue_from_shape_and_type([2], element_type)
    for element_type in (object, np.object_, np.dtype(object)):
        made = onnxplug.OrtValue.ortvalue_from_shape_and_type([2], element_type)
        assert made.data_type() == "tensor(string)"
