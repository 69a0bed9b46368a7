"""Maps are dicts; a map's keys and values have the types that the model declares."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper

import onnxplug
from onnxplug.ep import DataType
from onnxplug.errors import InputTypeError

from .onnx_models import assert_alike, model, run, session, tensor, tensor_type

ML = "ai.onnx.ml"
OPSETS = {"": 21, ML: 1}


def map_type(key: str, item: str) -> Any:
    """The type of a map of single numbers or texts."""
    return helper.make_map_type_proto(DataType(key).onnx, tensor_type(item))


def consumer(operator: str, kind: Any, result: str, **attributes: Any) -> Any:
    """A model of one operator that takes a map."""
    return model(
        [helper.make_node(operator, ["m"], ["y"], domain=ML, **attributes)],
        [helper.make_value_info("m", kind)],
        [tensor("y", result, None)],
        opsets=OPSETS,
        ir_version=10,
    )


def by_onnxruntime(made: Any, feed: Any) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    peer = onnxruntime.InferenceSession(made.SerializeToString(), options)
    return peer.run(None, feed)


ITEMS = {
    "float32": {1: 0.1, 7: 2.5},
    "float64": {1: 0.1, 7: 2.5},
    "int64": {1: 3, 7: -(2**60)},
    "string": {1: "one", 7: "seven"},
}
"""Python's numbers and texts, which get the type of the map's values."""


@pytest.mark.parametrize(
    ("key", "item"),
    [
        ("string", "int64"),
        ("int64", "string"),
        ("int64", "float32"),
        ("int64", "float64"),
        ("string", "float32"),
        ("string", "float64"),
    ],
)
def test_a_map_becomes_a_row(key: str, item: str) -> None:
    """In all types that DictVectorizer takes; the row has that of the values."""
    given: dict[Any, Any] = dict(ITEMS[item])
    vocabulary: dict[str, Any] = {"int64_vocabulary": [7, 8, 1]}
    if key == "string":
        given = {str(each): value for each, value in given.items()}
        vocabulary = {"string_vocabulary": ["7", "8", "1"]}
    made = consumer("DictVectorizer", map_type(key, item), item, **vocabulary)
    opened = session(made)
    dtype = DataType(item).numpy
    nothing = "" if item == "string" else 0
    row = np.array([[ITEMS[item][7], nothing, ITEMS[item][1]]], dtype)
    numpys = {
        each: value if item == "string" else dtype.type(value)
        for each, value in given.items()
    }
    for fed in (given, numpys, onnxplug.OrtValue(given)):
        assert_alike(opened.run(None, {"m": fed}), [row])
    if item == "float32":  # ONNX Runtime's Python takes no others of these maps
        (expected,) = by_onnxruntime(made, {"m": given})
        assert_alike(expected.reshape(1, -1), row)


@pytest.mark.parametrize("form", ["DENSE", "SPARSE"])
@pytest.mark.parametrize("to", ["TO_FLOAT", "TO_STRING", "TO_INT64"])
@pytest.mark.parametrize("item", ["float32", "string"])
def test_a_map_is_cast(item: str, to: str, form: str) -> None:
    result = {"TO_FLOAT": "float32", "TO_STRING": "string", "TO_INT64": "int64"}[to]
    dtype = DataType(result).numpy
    given: dict[int, Any] = {5: 2.0, 1: -3.0}
    if item == "string":
        given = {5: "2", 1: "-3"}
    attributes = {"cast_to": to, "map_form": form, "max_map": 7}
    made = consumer("CastMap", map_type("int64", item), result, **attributes)
    (found,) = session(made).run(None, {"m": given})
    texts = {"float32": ["-3.000000", "2.000000"], "string": ["-3", "2"]}[item]
    row: list[Any] = texts if to == "TO_STRING" else [-3, 2]
    if form == "SPARSE":
        nothing: Any = "0.f" if to == "TO_STRING" else 0
        row = [nothing, row[0], *[nothing] * 3, row[1], nothing]
    assert_alike(found, np.array([row], dtype))
    if item == "float32":
        (expected,) = by_onnxruntime(made, {"m": given})
        assert_alike(found, expected.astype(dtype))


@pytest.mark.parametrize("key", ["int64", "string"])
def test_rows_become_maps(key: str) -> None:
    labels: list[Any] = [3, 9] if key == "int64" else ["no", "yes"]
    kind = helper.make_sequence_type_proto(map_type(key, "float32"))
    node = helper.make_node(
        "ZipMap", ["x"], ["z"], domain=ML, **{f"classlabels_{key}s": labels}
    )
    made = model(
        [node],
        [tensor("x", "float32", ("n", 2))],
        [helper.make_value_info("z", kind)],
        opsets=OPSETS,
        ir_version=10,
    )
    opened = session(made)
    assert opened.get_outputs()[0].type == f"seq(map({key},tensor(float)))"
    x = np.array([[0.25, 0.75], [1.0, 0.1]], np.float32)
    (found,) = opened.run(None, {"x": x})
    assert found == [dict(zip(labels, row, strict=True)) for row in x.tolist()]
    assert [found] == by_onnxruntime(made, {"x": x})
    assert opened.run(None, {"x": x[:0]}) == [[]]


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("int64", [2**62, -1]),
        ("int32", [np.int32(5), 0]),
        ("uint8", [255, np.uint64(7)]),
        ("string", ["a", np.str_("b")]),
    ],
)
def test_maps_come_out_as_they_went_in(key: str, keys: list[Any]) -> None:
    kind = map_type(key, "float64")
    rows = helper.make_sequence_type_proto(kind)
    names = {"m": kind, "rows": rows}
    values = [helper.make_value_info(name, kind) for name, kind in names.items()]
    opened = session(model([], values, values))
    text = f"map({key},tensor(double))"
    assert [each.type for each in opened.get_inputs()] == [text, f"seq({text})"]
    fed = {each: number for number, each in enumerate(keys)}
    given = [fed, {}, fed]
    one, several = opened.run(None, {"m": fed, "rows": given})
    assert (one, several) == (fed, given)
    assert one is not fed and several is not given
    assert {type(each) for each in one} == {str if key == "string" else int}
    assert {type(each) for each in one.values()} == {np.float64}
    (returned, _) = opened.run_with_ort_values(
        None, {"m": onnxplug.OrtValue(fed), "rows": onnxplug.OrtValue(given)}
    )
    assert returned.data_type() == "map" and not returned.is_tensor()


def test_values_may_be_sequences() -> None:
    kind = helper.make_map_type_proto(
        DataType.INT64.onnx, helper.make_sequence_type_proto(tensor_type("float32"))
    )
    value = helper.make_value_info("m", kind)
    x = np.ones(2, np.float32)
    found = run(model([], [value], [value]), {"m": {1: [x], 2: []}})["m"]
    assert found.keys() == {1, 2} and found[2] == []
    assert_alike(found[1], [x])


@pytest.mark.parametrize(
    ("key", "item", "fed", "expected"),
    [
        ("int64", "float32", [1.0], "'m' is a list; expected a dict"),
        ("int64", "float32", None, "'m' is a NoneType; expected a dict"),
        ("int64", "float32", {"1": 1.0}, "'m' has the key '1' of type str; .*int64"),
        ("int64", "float32", {True: 1.0}, "'m' has the key True of type bool"),
        ("int64", "float32", {1.0: 1.0}, "'m' has the key 1.0 of type float"),
        ("uint8", "float32", {256: 1.0}, "'m' has the key 256 .*uint8"),
        ("string", "float32", {1: 1.0}, "'m' has an element of type int"),
        ("int64", "int64", {1: 1.5}, "'m' is a float of float64 values, .*int64"),
        ("int64", "float32", {1: "x"}, "'m' is a str of .*float32"),
        ("int64", "string", {1: 1.5}, "'m' has an element of type float"),
        ("int64", "float32", {1: None}, "'m' is None; expected a tensor"),
        ("int64", "float32", {1: np.array(1.0)}, r"Actual: \(tensor\(double\)\)"),
    ],
)
def test_what_does_not_fit_is_refused(
    key: str, item: str, fed: Any, expected: str
) -> None:
    value = helper.make_value_info("m", map_type(key, item))
    with pytest.raises(InputTypeError, match=expected) as raised:
        session(model([], [value], [value])).run(None, {"m": fed})
    assert raised.value.input == "m"
