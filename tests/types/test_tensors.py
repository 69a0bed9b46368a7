"""Tensors of every element type: fed, stored in every form, passed on, and returned.

Their bits are random, so that there are NaN, denormals and negative zeros among them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType
from onnxplug.errors import InputTypeError

from .formats import Array
from .onnx_models import (
    assert_alike,
    model,
    run,
    sample,
    session,
    stored,
    tensor,
    tensor_type,
)

NUMBERS = [dtype for dtype in DataType if dtype is not DataType.STRING]
SHAPES = [(5,), (3, 7), (2, 3), (1,), (), (0,), (2, 0, 3)]
"""Odd numbers of elements among them, which leave part of a byte unused."""


def type_text(dtype: DataType) -> str:
    """The type of a tensor as ONNX writes it in the schemas of operators."""
    return f"tensor({TensorProto.DataType.Name(dtype.onnx).lower()})"


def takes(operator: str, dtype: DataType) -> bool:
    """Whether the newest version of an operator takes tensors of a type."""
    schema = defs.get_schema(operator)
    return any(
        type_text(dtype) in constraint.allowed_type_strs
        for constraint in schema.type_constraints
    )


def test_every_element_type_of_onnx_is_known() -> None:
    numbers = set(TensorProto.DataType.values()) - {TensorProto.UNDEFINED}
    assert {dtype.onnx for dtype in DataType} == numbers


# passed on


def passing(dtype: DataType) -> tuple[list[Any], list[str]]:
    """Nodes that hand ``x`` on, and what they hand it on as."""
    nodes, outputs = [], []
    if takes("Identity", dtype):
        nodes.append(helper.make_node("Identity", ["x"], ["same"]))
        outputs.append("same")
    if takes("If", dtype):
        branches = {
            name: helper.make_graph(
                [helper.make_node("Identity", ["x"], [name])],
                name,
                [],
                [tensor(name, dtype)],
            )
            for name in ("then_branch", "else_branch")
        }
        for flag in ("yes", "no"):
            nodes.append(helper.make_node("If", [flag], [f"if_{flag}"], **branches))
            outputs.append(f"if_{flag}")
    if takes("Loop", dtype):
        body = helper.make_graph(
            [
                helper.make_node("Identity", ["go"], ["on"]),
                helper.make_node("Identity", ["carried"], ["kept"]),
            ],
            "body",
            [
                tensor("i", "int64", ()),
                tensor("go", "bool", ()),
                tensor("carried", dtype),
            ],
            [tensor("on", "bool", ()), tensor("kept", dtype)],
        )
        nodes.append(helper.make_node("Loop", ["twice", "", "x"], ["loop"], body=body))
        outputs.append("loop")
    if takes("Scan", dtype):
        body = helper.make_graph(
            [helper.make_node("Identity", ["element"], ["scanned"])],
            "body",
            [tensor("element", dtype, ())],
            [tensor("scanned", dtype, ())],
        )
        scan = helper.make_node("Scan", ["x"], ["scan"], body=body, num_scan_inputs=1)
        nodes.append(scan)
        outputs.append("scan")
    nodes.append(helper.make_node("Optional", ["x"], ["optional"]))
    nodes.append(helper.make_node("OptionalGetElement", ["optional"], ["element"]))
    outputs.append("element")
    if takes("SequenceConstruct", dtype):
        nodes.append(helper.make_node("SequenceConstruct", ["x", "x"], ["sequence"]))
        nodes.append(helper.make_node("SequenceAt", ["sequence", "last"], ["at"]))
        outputs.append("at")
    return nodes, outputs


@pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "arrays"])
@pytest.mark.parametrize("dtype", DataType)
def test_a_tensor_comes_out_as_it_went_in(dtype: DataType, compiled: bool) -> None:
    nodes, names = passing(dtype)
    flags = {"yes": np.array(True), "no": np.array(False), "twice": np.array(2)}
    weights = [numpy_helper.from_array(value, key) for key, value in flags.items()]
    weights.append(numpy_helper.from_array(np.array(-1), "last"))
    made = model(
        nodes,
        [tensor("x", dtype)],
        [tensor("x", dtype), *(tensor(name, dtype) for name in names)],
        weights=weights,
    )
    opened = session(made, compiled=compiled)
    arguments = [*opened.get_inputs(), *opened.get_outputs()]
    assert {argument.type for argument in arguments} == {type_text(dtype)}
    for shape in ((5,), (0,)):
        x = sample(dtype, shape)
        for result in opened.run(None, {"x": x}):
            assert_alike(result, x)
            assert result is not x and not (x.size and np.shares_memory(result, x))


def test_rows_of_strings_are_scanned_as_opset_8_does() -> None:
    """Each row of a batch by itself, and filled up with nothing after its end."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["element"], ["state_out"]),
            helper.make_node("Identity", ["state"], ["scanned"]),
        ],
        "body",
        [tensor("state", "string", ()), tensor("element", "string", ())],
        [tensor("state_out", "string", ()), tensor("scanned", "string", ())],
    )
    names = ["lengths", "first", "x"]
    node = helper.make_node("Scan", names, ["last", "y"], body=body, num_scan_inputs=1)
    made = model(
        [node],
        [
            tensor("lengths", "int64", ("b",)),
            tensor("first", "string", ("b",)),
            tensor("x", "string", ("b", "n")),
        ],
        [tensor("last", "string", ("b",)), tensor("y", "string", ("b", "n"))],
        opsets={"": 8},
        ir_version=3,
    )
    feed = {
        "lengths": np.array([3, 1]),
        "first": np.array(["one", "two"], object),
        "x": np.array([["a", "b", "c"], ["d", "e", "f"]], object),
    }
    found = run(made, feed)
    assert_alike(found["last"], np.array(["c", "d"], object))
    rows = [["one", "a", "b"], ["two", "", ""]]
    assert_alike(found["y"], np.array(rows, object))


# stored


def unpacked(proto: TensorProto) -> bytes:
    """A tensor whose typed field has an entry of its own for each number, as writers
    may have that use another version of protobuf."""
    field = next(
        (field for field, _ in proto.ListFields() if field.name.endswith("_data")), None
    )
    if field is None or field.name in ("raw_data", "string_data"):
        return bytes(proto.SerializeToString())
    parts = []
    for number in getattr(proto, field.name):
        if field.name in ("float_data", "double_data"):
            wire, dtype = (5, "<f4") if field.name == "float_data" else (1, "<f8")
            content = np.array(number, dtype).tobytes()
        else:
            wire, content = 0, varint(int(number) % (1 << 64))
        parts.append(varint(field.number << 3 | wire) + content)
    empty = TensorProto()
    empty.CopyFrom(proto)
    empty.ClearField(field.name)
    return bytes(empty.SerializeToString()) + b"".join(parts)


def varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def with_initializer(made: onnx.ModelProto, tensor_bytes: bytes) -> bytes:
    """The serialized model with one more initializer, put there byte by byte."""
    field = varint(5 << 3 | 2) + varint(len(tensor_bytes)) + tensor_bytes
    graph = made.graph.SerializeToString() + field
    rest = onnx.ModelProto()
    rest.CopyFrom(made)
    rest.ClearField("graph")
    head = bytes(rest.SerializeToString())
    return head + varint(7 << 3 | 2) + varint(len(graph)) + graph


def typed(x: Array, name: str) -> TensorProto:
    """The tensor in the field of its type, such as ``int32_data``."""
    if x.dtype == object:
        return stored(x, name)
    number = DataType.from_numpy(x.dtype).onnx
    proto = helper.make_tensor(name, number, x.shape, x.reshape(-1))
    assert not proto.HasField("raw_data")
    return proto


@pytest.mark.parametrize("dtype", DataType)
def test_every_form_of_storage_holds_the_same(dtype: DataType) -> None:
    for shape in SHAPES:
        x = sample(dtype, shape)
        if dtype is not DataType.STRING:
            # ONNX's writer goes by way of numbers, which lose the payload of a NaN
            x = numpy_helper.to_array(typed(x, "")).astype(x.dtype)
        names = ["typed", "raw", "typed_constant", "raw_constant"]
        nodes = [
            helper.make_node("Constant", [], ["typed_constant"], value=typed(x, "t")),
            helper.make_node("Constant", [], ["raw_constant"], value=stored(x, "r")),
        ]
        made = model(
            nodes,
            [],
            [tensor(name, dtype, shape) for name in names],
            weights=[typed(x, "typed"), stored(x, "raw")],
        )
        for result in run(made, {}).values():
            assert_alike(result, x)
        made = model([], [], [tensor("unpacked", dtype, shape)])
        data = with_initializer(made, unpacked(typed(x, "unpacked")))
        assert_alike(run(data, {})["unpacked"], x)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_data_in_another_file_hold_the_same(dtype: DataType, tmp_path: Path) -> None:
    arrays = {f"w{place}": sample(dtype, shape) for place, shape in enumerate(SHAPES)}
    made = model(
        [],
        [],
        [tensor(name, dtype, x.shape) for name, x in arrays.items()],
        weights=[stored(x, name) for name, x in arrays.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        made, path, save_as_external_data=True, location="weights", size_threshold=0
    )
    assert (tmp_path / "weights").stat().st_size
    for name, result in run(path, {}).items():
        assert_alike(result, arrays[name])


# fed


def identity(dtype: DataType) -> Any:
    """A model that gives back what it is fed; not every type may go through a node."""
    if takes("Identity", dtype):
        nodes = [helper.make_node("Identity", ["x"], ["y"])]
    else:
        nodes = [
            helper.make_node("Optional", ["x"], ["o"]),
            helper.make_node("OptionalGetElement", ["o"], ["y"]),
        ]
    return model(nodes, [tensor("x", dtype, None)], [tensor("y", dtype, None)])


@pytest.mark.parametrize("dtype", DataType)
def test_what_may_be_fed(dtype: DataType) -> None:
    opened = session(identity(dtype))
    x = sample(dtype, (3, 4))
    strided = np.repeat(x, 2, axis=1)[:, ::2]
    swapped = x.astype(x.dtype.newbyteorder("S")) if x.dtype.isbuiltin == 1 else x
    value = onnxplug.OrtValue(x)
    for fed in (x, strided, np.asfortranarray(x), swapped, value):
        (result,) = opened.run(None, {"x": fed})
        assert_alike(result, x)
    (scalar,) = opened.run(None, {"x": x[1, 1]})
    assert_alike(scalar, np.asarray(x[1, 1], x.dtype))
    (returned,) = opened.run_with_ort_values(None, {"x": value})
    assert (returned.data_type(), returned.element_type()) == (
        type_text(dtype),
        dtype.onnx,
    )
    assert_alike(returned.numpy(), x)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_lists_become_the_type_of_the_input(dtype: DataType) -> None:
    opened = session(identity(dtype))
    numbers = [[True, False], [False, True]]
    (result,) = opened.run(None, {"x": numbers})
    assert_alike(result, np.array(numbers).astype(dtype.numpy))


@pytest.mark.parametrize("array", ["U", "S", "O", "T", "list"])
def test_strings_come_in_any_form_of_numpys(array: str) -> None:
    texts = ["a", "", "b c"]
    forms: dict[str, Any] = {
        "U": np.array(texts),
        "S": np.array(texts, "S"),
        "O": np.array(["a", b"", "b c"], object),
        "T": np.array(texts, np.dtypes.StringDType()),
        "list": texts,
    }
    (result,) = session(identity(DataType.STRING)).run(None, {"x": forms[array]})
    assert_alike(result, np.array(texts, object))


@pytest.mark.parametrize("dtype", NUMBERS)
def test_other_types_are_refused(dtype: DataType) -> None:
    opened = session(identity(dtype))
    for other in DataType:
        if other is dtype:
            continue
        with pytest.raises(InputTypeError, match="input data type") as raised:
            opened.run(None, {"x": sample(other)})
        assert f"expected: ({type_text(dtype)})" in str(raised.value)
        assert f"Actual: ({type_text(other)})" in str(raised.value)


def test_bits_are_not_taken_for_numbers_but_can_be_said_to_be_some() -> None:
    """ONNX Runtime takes bits of bfloat16 only with a type beside them, too."""
    opened = session(identity(DataType.BFLOAT16))
    bits = np.array([0x3F80, 0xC000], np.uint16)
    with pytest.raises(InputTypeError, match=r"\.view\(ml_dtypes\.bfloat16\) reads"):
        opened.run(None, {"x": bits})
    with pytest.raises(InputTypeError, match=r"convert it with \.astype\('bfloat16'\)"):
        opened.run(None, {"x": bits.astype(np.float32)})
    value = onnxplug.OrtValue.ortvalue_from_numpy_with_onnx_type(
        bits, TensorProto.BFLOAT16
    )
    for fed in (value, bits.view(ml_dtypes.bfloat16)):
        (result,) = opened.run(None, {"x": fed})
        assert result.astype(float).tolist() == [1, -2]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bound_inputs_and_outputs(dtype: DataType) -> None:
    opened = session(identity(dtype))
    x, y = sample(dtype, (3, 5)), np.zeros((3, 5), dtype.numpy)
    binding = opened.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", onnxplug.OrtValue.ortvalue_from_numpy(y))
    opened.run_with_iobinding(binding)
    assert_alike(y, x)


def test_an_element_of_a_sequence_has_a_type_too() -> None:
    """Operators on sequences take no narrow types; a model may have them as inputs."""
    for dtype in DataType:
        kind = helper.make_sequence_type_proto(tensor_type(dtype))
        value = helper.make_value_info("s", kind)
        opened = session(model([], [value], [value]))
        assert opened.get_inputs()[0].type == f"seq({type_text(dtype)})"
        fed = [sample(dtype), sample(dtype, (0,))]
        (result,) = opened.run(None, {"s": fed})
        assert_alike(result, fed)
