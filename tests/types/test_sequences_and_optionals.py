"""Sequences are lists, also in lists; what an optional lacks is ``None``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType
from onnxplug.errors import InputError, InputTypeError, NodeError

from .onnx_models import (
    assert_alike,
    model,
    run,
    sample,
    session,
    tensor,
    tensor_type,
)

FLOAT = tensor_type("float32")
SEQUENCE = helper.make_sequence_type_proto(FLOAT)
X = np.arange(3, dtype=np.float32)
Y = np.array([[5.0]], np.float32)


def value(name: str, kind: Any) -> Any:
    return helper.make_value_info(name, kind)


def optional_of(kind: Any) -> Any:
    return helper.make_optional_type_proto(kind)


# sequences


@pytest.mark.parametrize(
    "dtype", ["string", "bool", "int8", "uint64", "float16", "complex64"]
)
def test_a_sequence_goes_in_is_changed_and_comes_out(dtype: str) -> None:
    kind = helper.make_sequence_type_proto(tensor_type(dtype))
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["longer"]),
        helper.make_node("SequenceErase", ["longer", "first"], ["shorter"]),
        helper.make_node("SequenceAt", ["longer", "first"], ["head"]),
        helper.make_node("SequenceLength", ["longer"], ["length"]),
    ]
    outputs = [
        value("longer", kind),
        value("shorter", kind),
        tensor("head", dtype, None),
        tensor("length", "int64", ()),
    ]
    inputs = [value("s", kind), tensor("x", dtype, None)]
    zero = numpy_helper.from_array(np.array(0), "first")
    opened = session(model(nodes, inputs, outputs, weights=[zero]))
    assert opened.get_inputs()[0].type == f"seq(tensor({dtype.replace('32', '')}))"
    a, b, x = (sample(DataType(dtype), shape) for shape in ((2,), (0, 3), ()))
    for given in ([a, b], (a, b), onnxplug.OrtValue([a, b])):
        found = opened.run(None, {"s": given, "x": x})
        assert_alike(found, [[a, b, x], [b, x], a, np.array(3)])
    found = opened.run(None, {"s": [], "x": x})
    assert_alike(found, [[x], [], x, np.array(1)])


def test_sequences_may_be_nested() -> None:
    kind = helper.make_sequence_type_proto(SEQUENCE)
    made = model(
        [helper.make_node("Identity", ["s"], ["y"])],
        [value("s", kind)],
        [value("y", kind), value("s", kind)],
    )
    assert session(made).get_inputs()[0].type == "seq(seq(tensor(float)))"
    for fed in ([[X, Y], [], [X]], [], [[]]):
        assert_alike(list(run(made, {"s": fed}).values()), [fed, fed])


def test_results_are_the_callers_own() -> None:
    made = model([], [value("s", SEQUENCE)], [value("s", SEQUENCE)])
    fed = [X.copy(), Y.copy()]
    found = run(made, {"s": fed})["s"]
    found[0][:] = 7
    found.append(X)
    assert_alike(fed, [X, Y])


def test_a_sequence_is_carried_through_a_loop_and_chosen_by_a_condition() -> None:
    grow = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["on"]),
            helper.make_node("Cast", ["i"], ["number"], to=DataType.FLOAT32.onnx),
            helper.make_node("Add", ["x", "number"], ["item"]),
            helper.make_node("SequenceInsert", ["sofar", "item"], ["grown"]),
        ],
        "grow",
        [
            tensor("i", "int64", ()),
            tensor("go", "bool", ()),
            value("sofar", SEQUENCE),
        ],
        [tensor("on", "bool", ()), value("grown", SEQUENCE)],
    )
    branches = {
        f"{name}_branch": helper.make_graph(
            [helper.make_node("Identity", [given], [name])],
            name,
            [],
            [value(name, SEQUENCE)],
        )
        for name, given in (("then", "all"), ("else", "s"))
    }
    made = model(
        [
            helper.make_node("Loop", ["times", "", "s"], ["all"], body=grow),
            helper.make_node("If", ["flag"], ["y"], **branches),
        ],
        [value("s", SEQUENCE), tensor("x", "float32"), tensor("flag", "bool", ())],
        [value("y", SEQUENCE)],
        weights=[numpy_helper.from_array(np.array(2), "times")],
    )
    feed = {"s": [Y], "x": X}
    grown = [Y, X, X + 1]
    assert_alike(run(made, {**feed, "flag": np.array(True)})["y"], grown)
    assert_alike(run(made, {**feed, "flag": np.array(False)})["y"], [Y])


@pytest.mark.parametrize(
    ("fed", "kind", "expected"),
    [
        (X, InputTypeError, "'s' is a ndarray; expected a list"),
        (None, InputTypeError, "'s' is a NoneType; expected a list"),
        ({"a": X}, InputTypeError, "'s' is a dict; expected a list"),
        (onnxplug.OrtValue(X), InputTypeError, "'s' is a ndarray; expected a list"),
        ([X, X.astype(float)], InputTypeError, r"tensor\(double\)\) , expected: \(te"),
        ([X, None], InputTypeError, "'s' is None; expected a tensor of float32"),
        ([X, [X]], InputError, "Got: 2 Expected: 1"),
    ],
)
def test_what_is_no_sequence_is_refused(fed: Any, kind: Any, expected: str) -> None:
    vectors = helper.make_sequence_type_proto(tensor_type("float32", ("n",)))
    made = model([], [value("s", vectors)], [value("s", vectors)])
    with pytest.raises(kind, match=expected) as raised:
        run(made, {"s": fed})
    assert raised.value.input == "s"


# optionals


@pytest.mark.parametrize(
    ("kind", "fed", "text"),
    [
        (FLOAT, X, "optional(tensor(float))"),
        (tensor_type("string"), np.array(["a"], object), "optional(tensor(string))"),
        (SEQUENCE, [X, Y], "optional(seq(tensor(float)))"),
        (SEQUENCE, [], "optional(seq(tensor(float)))"),
        (
            helper.make_map_type_proto(DataType.INT64.onnx, FLOAT),
            {1: np.float32(2)},
            "optional(map(int64,tensor(float)))",
        ),
    ],
)
def test_an_optional_comes_out_as_it_went_in(kind: Any, fed: Any, text: str) -> None:
    made = value("o", optional_of(kind))
    opened = session(model([], [made], [made]))
    assert opened.get_inputs()[0].type == text
    for given in (fed, onnxplug.OrtValue(fed)):
        assert_alike(opened.run(None, {"o": given}), [fed])
    for given in (None, onnxplug.OrtValue(None)):
        assert opened.run(None, {"o": given}) == [None]
    (empty,) = opened.run_with_ort_values(None, {"o": onnxplug.OrtValue(None)})
    assert not empty.has_value()
    with pytest.raises(InputError, match=r"'o'.* missing"):
        opened.run(None, {})


@pytest.mark.parametrize(("kind", "fed"), [(FLOAT, X), (SEQUENCE, [X])])
def test_what_an_optional_has(kind: Any, fed: Any) -> None:
    made = model(
        [helper.make_node("OptionalHasElement", ["o"], ["has"])],
        [value("o", optional_of(kind))],
        [tensor("has", "bool", ())],
    )
    assert run(made, {"o": fed})["has"] is not None
    assert_alike(run(made, {"o": fed})["has"], np.array(True))
    assert_alike(run(made, {"o": None})["has"], np.array(False))
    made = model(
        [helper.make_node("OptionalGetElement", ["o"], ["y"])],
        [value("o", optional_of(kind))],
        [value("y", kind)],
    )
    assert_alike(run(made, {"o": fed})["y"], fed)
    with pytest.raises(NodeError, match="OptionalGetElement of an empty optional"):
        run(made, {"o": None})


@pytest.mark.parametrize("kind", [FLOAT, SEQUENCE])
def test_an_optional_may_be_made_empty(kind: Any) -> None:
    made = model(
        [
            helper.make_node("Optional", [], ["o"], type=kind),
            helper.make_node("OptionalHasElement", ["o"], ["has"]),
            helper.make_node("OptionalHasElement", [], ["never"]),
        ],
        [],
        [
            value("o", optional_of(kind)),
            tensor("has", "bool", ()),
            tensor("never", "bool", ()),
        ],
    )
    found = run(made, {})
    assert found["o"] is None
    assert not found["has"] and not found["never"]


def test_one_branch_may_give_nothing() -> None:
    full = helper.make_graph(
        [helper.make_node("Optional", ["x"], ["full"])],
        "full",
        [],
        [value("full", optional_of(FLOAT))],
    )
    empty = helper.make_graph(
        [helper.make_node("Optional", [], ["empty"], type=FLOAT)],
        "empty",
        [],
        [value("empty", optional_of(FLOAT))],
    )
    node = helper.make_node("If", ["flag"], ["o"], then_branch=full, else_branch=empty)
    made = model(
        [node],
        [tensor("x", "float32"), tensor("flag", "bool", ())],
        [value("o", optional_of(FLOAT))],
    )
    assert_alike(run(made, {"x": X, "flag": np.array(True)})["o"], X)
    assert run(made, {"x": X, "flag": np.array(False)})["o"] is None


def test_what_an_optional_holds_is_checked() -> None:
    made = value("o", optional_of(SEQUENCE))
    opened = session(model([], [made], [made]))
    for fed in (X, [X.astype(np.float64)], [None]):
        with pytest.raises(InputTypeError, match="'o'"):
            opened.run(None, {"o": fed})
