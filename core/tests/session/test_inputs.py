"""What is fed: refused with the input's name, or brought into form without a change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from onnxplug.ep import (
    DataType,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensor,
    SparseTensorType,
    TensorType,
    ValueType,
)
from onnxplug.errors import InputError, InputTypeError
from onnxplug.session.inputs import InputChecker
from onnxplug.session.ort_value import OrtValue
from onnxplug.shapes.symbols import BeliedSymbols

FLOAT_23 = TensorType(DataType.FLOAT32, (2, 3))


def check(value_type: ValueType | None, value: Any) -> Any:
    (checked,) = InputChecker({"x": value_type}, {}).check({"x": value})
    return checked


def test_an_array_that_fits_is_passed_on_as_it_is() -> None:
    array = np.zeros((2, 3), np.float32)
    assert check(FLOAT_23, array) is array


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (
            np.zeros((2, 3)),
            InputTypeError,
            r"Actual: \(tensor\(double\)\) .*tensor\(float\)\), for input 'x'",
        ),
        (np.zeros((2, 3), np.int64), InputTypeError, r"Actual: \(tensor\(int64\)\)"),
        (np.zeros(3, np.float32), InputError, r"rank for input: x Got: 1 Expected: 2"),
        (
            np.zeros((2, 4), np.float32),
            InputError,
            r"input: x .*\n index: 1 Got: 4 Expected: 3",
        ),
        ([["a", "b", "c"]], InputTypeError, r"'x' is a list of .*float32"),
        ([[1.0, 2.0], [3.0]], InputTypeError, r"'x' is a list that is no tensor"),
        (None, InputTypeError, r"'x' is None; expected a tensor"),
        (object(), InputTypeError, r"'x' is an object"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(
    value: Any, kind: type[InputError], expected: str
) -> None:
    with pytest.raises(kind, match=expected) as raised:
        check(FLOAT_23, value)
    assert raised.value.input == "x"


def test_refusals_are_the_builtin_errors_too() -> None:
    with pytest.raises(ValueError, match="rank"):
        check(FLOAT_23, np.zeros(3, np.float32))
    with pytest.raises(TypeError, match="data type"):
        check(FLOAT_23, np.zeros((2, 3)))


class Unwilling:
    """As PyTorch's tensors that require a gradient."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise RuntimeError("use tensor.detach().numpy() instead")


def test_what_another_library_keeps_is_refused_by_name() -> None:
    with pytest.raises(InputTypeError, match=r"'x' is a Unwilling .*detach") as raised:
        check(FLOAT_23, Unwilling())
    assert raised.value.input == "x"


def test_bytes_that_are_no_text_are_refused_by_name() -> None:
    with pytest.raises(InputTypeError, match="'x' has an element that is no text"):
        check(TensorType(DataType.STRING, (1,)), np.array([b"\xff"]))


@pytest.mark.parametrize("feed", [[np.zeros((2, 3), np.float32)], None, "x"])
def test_a_feed_that_is_no_mapping_is_refused(feed: Any) -> None:
    with pytest.raises(InputTypeError, match=r"the feed is a .*expected a dict"):
        InputChecker({"x": FLOAT_23}, {}).check(feed)


def test_missing_and_unknown_inputs_are_named() -> None:
    checker = InputChecker({"x": FLOAT_23, "y": FLOAT_23}, {})
    array = np.zeros((2, 3), np.float32)
    with pytest.raises(InputError, match=r"\(\['y'\]\) are missing") as missing:
        checker.check({"x": array})
    assert missing.value.input == "y"
    with pytest.raises(InputError, match="Invalid input name: z") as unknown:
        checker.check({"x": array, "y": array, "z": array})
    assert unknown.value.input == "z"


def test_an_input_with_a_default_may_be_left_out_or_fed() -> None:
    default = np.ones((2, 3), np.float32)
    checker = InputChecker({"x": FLOAT_23}, {"x": default})
    assert checker.check({})[0] is default
    fed = np.zeros((2, 3), np.float32)
    assert checker.check({"x": fed})[0] is fed
    with pytest.raises(InputError, match=r"name: xx; did you mean 'x'\?"):
        checker.check({"xx": fed})


def test_a_symbol_with_two_sizes_is_told_of() -> None:
    named = TensorType(DataType.FLOAT32, ("batch", 2))
    checker = InputChecker({"x": named, "y": named}, {})
    two, three = np.zeros((2, 2), np.float32), np.zeros((3, 2), np.float32)
    assert len(checker.check({"x": two, "y": two})) == 2
    with pytest.raises(BeliedSymbols) as raised:
        checker.check({"x": two, "y": three})
    assert raised.value.symbols == {("y", "batch")}
    assert checker.check({"x": three, "y": three})[0] is three


def test_unknown_sizes_and_ranks_accept_anything() -> None:
    for shape in [(0,), (2, 5), ()]:
        array = np.zeros(shape, np.float32)
        assert check(TensorType(DataType.FLOAT32), array) is array
    assert check(TensorType(DataType.FLOAT32, (None,)), np.zeros(7, np.float32)).size


@pytest.mark.parametrize(
    "value",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.arange(6, dtype=np.float32).reshape(3, 2).T.copy().T.T,
        np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
        np.arange(12, dtype=np.float32).reshape(2, 6)[:, ::2],
        np.arange(6, dtype=np.float32).reshape(2, 3)[::-1],
        [[0, 1, 2], [3, 4, 5]],
        [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]],
        ((True, False, True), (False, True, False)),
    ],
)
def test_other_layouts_and_lists_give_the_same_values(value: Any) -> None:
    checked = check(FLOAT_23, value)
    assert checked.dtype == np.float32
    assert checked.dtype.isnative and checked.flags.c_contiguous
    np.testing.assert_array_equal(checked, np.array(value).astype(np.float32))


@pytest.mark.parametrize("value", [3, 3.0, np.float32(3), np.array(3, np.float32)])
def test_scalars_fit_a_tensor_of_rank_0(value: Any) -> None:
    checked = check(TensorType(DataType.FLOAT32, ()), value)
    assert checked.shape == () and checked == 3


def test_python_numbers_that_would_change_are_refused() -> None:
    for dtype, value in [
        (DataType.INT64, [1.5]),
        (DataType.INT8, [300]),
        (DataType.UINT8, [-1]),
        (DataType.BOOL, [2]),
    ]:
        with pytest.raises(InputTypeError, match=f"expected element type {dtype}"):
            check(TensorType(dtype, (1,)), value)


def test_zero_size_arrays_and_empty_lists_pass() -> None:
    named = TensorType(DataType.INT64, ("n",))
    assert check(named, np.zeros(0, np.int64)).shape == (0,)
    assert check(named, []).dtype == np.int64


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "int4", "float4_e2m1fn"])
def test_narrow_types_are_those_of_ml_dtypes(name: str) -> None:
    array = np.ones((2, 3), getattr(ml_dtypes, name))
    assert check(TensorType(DataType(name), (2, 3)), array) is array
    with pytest.raises(InputTypeError, match=r"expected: \(tensor\(float\)\)"):
        check(FLOAT_23, array)


def test_bits_are_refused_with_the_way_to_say_that_they_are_numbers() -> None:
    expected = TensorType(DataType.BFLOAT16, (1,))
    with pytest.raises(InputTypeError, match=r"bits, \.view\(ml_dtypes\.bfloat16\)"):
        check(expected, np.zeros(1, np.uint16))
    with pytest.raises(InputTypeError, match=r"\.astype\('bfloat16'\)"):
        check(expected, np.zeros(1, np.float32))


@pytest.mark.parametrize(
    "value",
    [
        np.array(["ab", "", "ç"]),
        np.array([b"ab", b"", "ç".encode()]),
        np.array(["ab", "", "ç"], dtype=object),
        ["ab", "", "ç"],
    ],
)
def test_strings_come_in_any_of_pythons_forms(value: Any) -> None:
    checked = check(TensorType(DataType.STRING, (3,)), value)
    assert checked.tolist() == ["ab", "", "ç"]
    assert checked.dtype == object


def test_strings_do_not_take_numbers() -> None:
    with pytest.raises(InputTypeError, match=r"expected: \(tensor\(string\)\)"):
        check(TensorType(DataType.STRING, (1,)), np.zeros(1))
    with pytest.raises(InputTypeError, match="element of type int"):
        check(TensorType(DataType.STRING, (1,)), [1])


def test_sequences_optionals_and_maps() -> None:
    scalar = np.zeros((), np.float32)
    sequence = SequenceType(TensorType(DataType.FLOAT32, ()))
    assert check(sequence, [scalar])[0] is scalar
    with pytest.raises(InputTypeError, match="expected a list"):
        check(sequence, scalar)
    optional = OptionalType(TensorType(DataType.FLOAT32, ()))
    assert check(optional, None) is None
    assert check(optional, scalar) is scalar
    mapping = MapType(DataType.INT64, TensorType(DataType.FLOAT32, ()))
    assert check(mapping, {1: 2.0}) == {1: 2.0}
    with pytest.raises(InputTypeError, match="expected a dict"):
        check(mapping, [1])


def test_keys_and_values_of_maps_have_the_declared_types() -> None:
    mapping = MapType(DataType.INT64, TensorType(DataType.FLOAT64, (1,)))
    checked = check(mapping, {np.int32(1): 2})
    assert type(next(iter(checked))) is int
    assert type(checked[1]) is np.float64
    for wrong in ({"1": 2.0}, {True: 2.0}, {1.0: 2.0}, {2**63: 2.0}):
        with pytest.raises(InputTypeError, match=r"has the key .* int64"):
            check(mapping, wrong)
    with pytest.raises(InputTypeError, match="do not fit"):
        check(mapping, {1: "2"})
    texts = MapType(DataType.STRING, TensorType(DataType.STRING))
    assert check(texts, {b"a": np.str_("b")}) == {"a": "b"}
    with pytest.raises(InputTypeError, match="of type int; expected strings"):
        check(texts, {1: "b"})


def test_what_an_ort_value_holds_is_checked() -> None:
    scalar = np.zeros((), np.float32)
    tensor = TensorType(DataType.FLOAT32, ())
    assert check(SequenceType(tensor), OrtValue([scalar]))[0] is scalar
    assert check(OptionalType(tensor), OrtValue(None)) is None
    assert check(MapType(DataType.INT64, tensor), OrtValue({1: 2.0})) == {1: 2.0}
    with pytest.raises(InputTypeError, match="a list; expected a dict"):
        check(MapType(DataType.INT64, tensor), OrtValue([scalar]))


def test_sparse_tensors_are_checked() -> None:
    expected = SparseTensorType(DataType.FLOAT32, ("n", 3))
    values, indices = np.ones(2, np.float32), np.array([[0, 1], [1, 2]])
    fed = SparseTensor(values=values, indices=indices, shape=(2, 3))
    checked = check(expected, fed)
    assert checked.values is values and checked.indices is indices
    linear = SparseTensor(values=values, indices=np.array([1, 5]), shape=(2, 3))
    assert check(expected, linear).shape == (2, 3)
    with pytest.raises(InputError, match="index outside it: 6"):
        check(expected, replace(linear, indices=np.array([1, 6])))
    with pytest.raises(InputError, match=r"expected indices \[n\] or \[n, rank\]"):
        check(expected, replace(linear, indices=np.array([1])))
    with pytest.raises(InputError, match="Got: 4 Expected: 3"):
        check(expected, replace(linear, shape=(2, 4)))
    with pytest.raises(InputTypeError, match=r"tensor\(double\)"):
        check(expected, replace(linear, values=np.ones(2)))
    with pytest.raises(InputTypeError, match=r"a ndarray; expected an onnxplug\.ep"):
        check(expected, np.ones((2, 3), np.float32))
