"""Arrays of every element type in every form: the results are those of plain arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import defs, helper, numpy_helper

import onnxplug
from onnxplug.ep import DataType, SparseTensor
from onnxplug.errors import InputTypeError, InvalidArgument

from .forms import forms
from .onnx_models import assert_alike, model, sample, session, tensor, tensor_type
from .test_tensors import NUMBERS, identity, passing, type_text

SHAPE = (5, 6)
WEIGHTS = {
    "all": np.array([-1]),
    "rows": np.array([1, 0]),
    "flags": np.arange(5).reshape(5, 1) % 2 == 0,
    "scale": np.float32(0.5),
}
SAME: list[tuple[str, Sequence[str], dict[str, Any]]] = [
    ("Identity", ["x"], {}),
    ("Add", ["x", "x"], {}),
    ("Relu", ["x"], {}),
    ("Reshape", ["x", "all"], {}),
    ("Transpose", ["x"], {}),
    ("Concat", ["x", "x"], {"axis": 1}),
    ("Gather", ["x", "rows"], {"axis": 1}),
    ("Where", ["flags", "x", "x"], {}),
    ("StringConcat", ["x", "x"], {}),
]
"""Operators whose output has the type of ``x``."""

tiers = pytest.mark.parametrize("compiled", [True, False], ids=["compiled", "arrays"])


def may_be_x(operator: str, inputs: Sequence[str], dtype: DataType) -> bool:
    """Whether *dtype* is a type of the input of *operator* that is called ``x``."""
    schema = defs.get_schema(operator)
    variable = schema.inputs[min(inputs.index("x"), len(schema.inputs) - 1)].type_str
    return any(
        type_text(dtype) in constraint.allowed_type_strs
        for constraint in schema.type_constraints
        if constraint.type_param_str == variable
    )


def assert_forms_are_one(made: Any, x: Any, *, compiled: bool) -> None:
    """Run on *x* in every form and compare the results, bit by bit."""
    opened = session(made, compiled=compiled)
    names = [output.name for output in opened.get_outputs()]
    expected = opened.run(None, {"x": x})
    for form, fed in forms(x):
        results = opened.run(None, {"x": fed})
        for name, found, wanted in zip(names, results, expected, strict=True):
            try:
                assert_alike(found, wanted)
            except AssertionError as error:
                raise AssertionError(f"{name} of {x.dtype} {form}: {error}") from error


@tiers
@pytest.mark.parametrize("dtype", DataType)
def test_operators_take_every_form(dtype: DataType, compiled: bool) -> None:
    nodes, outputs = [], []
    for operator, inputs, attributes in SAME:
        if may_be_x(operator, inputs, dtype):
            nodes.append(helper.make_node(operator, inputs, [operator], **attributes))
            outputs.append(tensor(operator, dtype, None))
    for operator, result in (
        ("DequantizeLinear", DataType.FLOAT32),
        ("QuantizeLinear", DataType.UINT8),
    ):
        if may_be_x(operator, ["x"], dtype):
            nodes.append(helper.make_node(operator, ["x", "scale"], [operator]))
            outputs.append(tensor(operator, result, None))
    weights = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in WEIGHTS.items()
    ]
    made = model(nodes, [tensor("x", dtype, ("n", "m"))], outputs, weights=weights)
    for shape in (SHAPE, (1, 6)):
        assert_forms_are_one(made, sample(dtype, shape), compiled=compiled)


@tiers
@pytest.mark.parametrize("dtype", [d for d in DataType if not d.startswith("complex")])
def test_casts_take_every_form(dtype: DataType, compiled: bool) -> None:
    """To every type, by its number and by an example."""
    nodes, outputs, weights = [], [], []
    for to in DataType:
        if to.startswith("complex"):
            continue
        cast, like = f"cast_{to}", f"like_{to}"
        nodes.append(helper.make_node("Cast", ["x"], [cast], to=to.onnx))
        outputs.append(tensor(cast, to, None))
        if to is not DataType.STRING and type_text(to) in allowed_likes():
            nodes.append(helper.make_node("CastLike", ["x", f"of_{to}"], [like]))
            outputs.append(tensor(like, to, None))
            example = sample(to, (1,))
            weights.append(numpy_helper.from_array(example, f"of_{to}"))
    made = model(nodes, [tensor("x", dtype, ("n", "m"))], outputs, weights=weights)
    if dtype is DataType.STRING:
        x = np.array([["1", "2", "0"], ["3", "0", "1"]], object)
    elif dtype is DataType.BOOL:
        x = sample(dtype, (2, 4))
    else:
        # beyond int8 where the type allows, which a cast by way of it would show
        largest = {2: 1, 4: 5}.get(dtype.bits, 4)
        x = np.array([[0, 1, largest], [1, 240, 100]]).astype(dtype.numpy)
        if dtype is DataType.FLOAT64:
            x /= 3  # which float32 has not as exactly
    assert_forms_are_one(made, x, compiled=compiled)


def allowed_likes() -> Sequence[str]:
    (constraint,) = (
        constraint
        for constraint in defs.get_schema("CastLike").type_constraints
        if constraint.type_param_str == "T2"
    )
    allowed: Sequence[str] = constraint.allowed_type_strs
    return allowed


@tiers
@pytest.mark.parametrize("dtype", DataType)
def test_bodies_and_containers_take_every_form(dtype: DataType, compiled: bool) -> None:
    nodes, names = passing(dtype)
    flags = {"yes": np.array(True), "no": np.array(False), "twice": np.array(2)}
    weights = [numpy_helper.from_array(value, key) for key, value in flags.items()]
    weights.append(numpy_helper.from_array(np.array(-1), "last"))
    made = model(
        nodes,
        [tensor("x", dtype)],
        [tensor(name, dtype) for name in names],
        weights=weights,
    )
    for size in (7, 0):
        assert_forms_are_one(made, sample(dtype, (size,)), compiled=compiled)


@pytest.mark.parametrize("dtype", DataType)
def test_scalars_and_arrays_without_elements_take_every_form(dtype: DataType) -> None:
    opened = session(identity(dtype))
    for shape in ((), (0, 3), (1, 1), (2, 0, 1)):
        x = sample(dtype, shape)
        for _, fed in forms(x):
            assert_alike(opened.run(None, {"x": fed})[0], x)


@pytest.mark.parametrize("dtype", DataType)
def test_values_of_other_kinds_have_tensors_of_every_form(dtype: DataType) -> None:
    """A sequence, an optional and a sparse tensor that come out as they went in."""
    x = sample(dtype, (5,))
    fed = [made for _, made in forms(x)]
    kinds = {
        "s": helper.make_sequence_type_proto(tensor_type(dtype)),
        "o": helper.make_optional_type_proto(tensor_type(dtype)),
        "p": helper.make_sparse_tensor_type_proto(dtype.onnx, (9,)),
    }
    values = [helper.make_value_info(name, kind) for name, kind in kinds.items()]
    opened = session(model([], values, values))
    for form, array in forms(x):
        places = np.arange(5)[::-1][::-1] if form == "reversed" else np.arange(5)
        sparse = SparseTensor(values=array, indices=places, shape=(9,))
        feed = {"s": fed, "o": array, "p": sparse}
        sequence, optional, result = opened.run(None, feed)
        assert_alike(sequence, [x] * len(fed))
        assert_alike(optional, x)
        assert_alike(result.values, x)


@pytest.mark.parametrize("dtype", NUMBERS)
def test_bound_values_take_every_form(dtype: DataType) -> None:
    opened = session(identity(dtype))
    x = sample(dtype, (3, 5))
    for form, fed in forms(x):
        (value,) = opened.run_with_ort_values(
            None, {"x": onnxplug.OrtValue.ortvalue_from_numpy(fed)}
        )
        assert_alike(value.numpy(), x)
        binding = opened.io_binding()
        binding.bind_ortvalue_input("x", onnxplug.OrtValue(fed))
        target = dict(forms(np.zeros((3, 5), dtype.numpy)))[form]
        if form in ("byte-swapped", "read-only"):
            continue
        binding.bind_ortvalue_output("y", onnxplug.OrtValue(target))
        opened.run_with_iobinding(binding)
        assert_alike(np.array(target, x.dtype), x)


def odd_arrays() -> list[Any]:
    """Arrays of types that ONNX does not have."""
    numbers = np.zeros(2)
    is_longer = np.dtype(np.longdouble).itemsize > 8  # than double, not on Windows
    longer = [numbers.astype(np.longdouble), numbers.astype(np.clongdouble)]
    return [
        *(longer if is_longer else []),
        numbers.astype("M8[s]"),
        numbers.astype("m8[s]"),
        numbers.view("V8"),
        np.zeros(2, [("a", np.float32), ("b", np.float32)]),
        np.zeros(2, [("a", object)]),
        np.zeros(2, [("a", np.float32)]).view(np.recarray),
        np.zeros(2, [("a", np.float32)])[0],
        np.zeros(2).astype("V8")[0],
    ]


@pytest.mark.parametrize("array", odd_arrays(), ids=lambda array: str(array.dtype))
def test_types_that_onnx_lacks_are_refused(array: Any) -> None:
    with pytest.raises(TypeError, match="has no ONNX element type"):
        DataType.from_numpy(array.dtype)
    with pytest.raises(InvalidArgument, match="has no ONNX element type"):
        onnxplug.OrtValue.ortvalue_from_numpy(array)
    is_bytes = array.dtype.type is np.void and array.dtype.fields is None  # so, text
    for dtype in (DataType.FLOAT64, DataType.BFLOAT16, DataType.STRING):
        if dtype is DataType.STRING and is_bytes:
            continue
        with pytest.raises(InputTypeError, match="Unexpected input data type"):
            session(identity(dtype)).run(None, {"x": array})


class Spelled(str):
    """A text that shows itself as another one, as an enum's does."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


@tiers
@pytest.mark.parametrize(
    "texts",
    [
        ["\0", "a\0", "\0a"],
        [Spelled("a"), np.str_("b"), b"c"],
        ["\ud800", "\udcff", "𝄞"],
    ],
    ids=["NUL", "subclasses", "surrogates"],
)
def test_texts_go_through_as_they_are(texts: list[Any], compiled: bool) -> None:
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("StringConcat", ["x", "x"], ["twice"]),
        helper.make_node("StringNormalizer", ["x"], ["normal"]),
        helper.make_node("StringSplit", ["x"], ["parts", "count"], delimiter="-"),
        helper.make_node("Unique", ["x"], ["unique"], sorted=0),
    ]
    outputs = [tensor(n, "string", None) for n in ("same", "twice", "normal", "parts")]
    outputs.append(tensor("unique", "string", None))
    made = model(nodes, [tensor("x", "string")], outputs)
    opened = session(made, compiled=compiled)
    plain = [t.decode() if isinstance(t, bytes) else str.__str__(t) for t in texts]
    for fed in (np.array(texts, object), texts):
        same, twice, normal, parts, unique = opened.run(None, {"x": fed})
        for found in (same, normal, parts[:, 0], unique):
            assert found.tolist() == plain
            assert {type(text) for text in found} == {str}
        assert twice.tolist() == [text * 2 for text in plain]


@pytest.mark.parametrize(
    "array",
    [
        np.array(["a", 1], object),
        np.array(["a", None], object),
        np.array(["a", np.nan], object),
        np.array(["a", b"\xff"], object),
        np.array(["a", ["b"]], object),
        np.array(["a", None], np.dtypes.StringDType(na_object=None)),
    ],
    ids=["int", "None", "nan", "bytes", "list", "missing"],
)
def test_what_is_no_text_is_refused_as_one(array: Any) -> None:
    opened = session(identity(DataType.STRING))
    with pytest.raises(InputTypeError, match=r"'x' has an element (of type|that is)"):
        opened.run(None, {"x": array})
    if array.dtype == object:
        with pytest.raises(InputTypeError, match="'x' has an element"):
            opened.run_with_ort_values(
                None, {"x": onnxplug.OrtValue.ortvalue_from_numpy(array)}
            )


def test_hidden_elements_are_not_taken_for_numbers() -> None:
    opened = session(identity(DataType.FLOAT32))
    x = np.ma.masked_less(np.arange(3, dtype=np.float32), 1)
    for fed in (x, x[0], np.ma.masked):
        with pytest.raises(InputTypeError, match=r"'x' is a masked array"):
            opened.run(None, {"x": fed})
        with pytest.raises(InvalidArgument, match="a masked array"):
            onnxplug.OrtValue.ortvalue_from_numpy(fed)
    assert_alike(opened.run(None, {"x": x.filled(7)})[0], np.array([7, 1, 2], "f4"))
