"""Counts that cannot be, and arrays where nothing is: refused before they are read.

Entries are called as a library would, without one.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import onnxplug
from onnxplug import ep, errors
from onnxplug_native.functions.node import Attribute, AttributeType
from onnxplug_native.functions.tensor import Value
from onnxplug_native.functions.types import ShapeInfo
from onnxplug_native.interface.handles import find, live
from onnxplug_native.interface.readable import is_readable

from .conftest import product
from .test_entries import POINTER, entry, told

NOWHERE = 0x1238


MADE = (Attribute, ShapeInfo, Value)


@pytest.fixture(autouse=True)
def released() -> Iterator[None]:
    """Whatever entries made is released, for other tests to look for leaks."""
    before = {id(handle) for handle in live()}
    yield
    for handle in live():
        if id(handle) not in before and isinstance(handle, MADE):
            handle.release()


KEPT: list[Any] = []


def numbers(*values: int) -> Any:
    KEPT.append((ctypes.c_int64 * len(values))(*values))
    return KEPT[-1]


def at(array: Any) -> int:
    return ctypes.addressof(array)


def test_what_is_readable_is_asked_to_its_end() -> None:
    held = ctypes.create_string_buffer(1 << 20)
    assert is_readable(at(held), 1 << 20)
    assert not is_readable(at(held), 1 << 62)
    assert not is_readable((1 << 63) - 8, 16)
    assert not is_readable(NOWHERE, 8)


@pytest.mark.parametrize(
    ("count", "words"),
    [
        (65, "65 dimensions are given; there can be 64 at most"),
        ((1 << 64) - 1, f"{(1 << 64) - 1} dimensions are given"),
    ],
)
def test_a_shape_has_no_more_dimensions_than_arrays(count: int, words: str) -> None:
    info, out, few = ShapeInfo(), POINTER(), numbers(2)
    assert words in told(entry("SetDimensions")(info.address, at(few), count))
    create = entry("CreateTensorAsOrtValue")
    assert words in told(create(None, at(few), count, 1, at(out)))
    create_on = entry("CreateTensorWithDataAsOrtValue")
    status = create_on(0, at(few), 8, at(few), count, 1, at(out))
    assert words in told(status)
    named = entry("SetSymbolicDimensions")(info.address, at(few), count)
    assert "names of dimensions are given; there can be 64" in told(named)
    assert not info.dimensions and not out.value


def test_names_of_dimensions_are_texts_where_something_is() -> None:
    info, name = ShapeInfo(), ctypes.create_string_buffer(b"batch")
    for pointers, words in (
        (at(numbers(NOWHERE)), "a text is at 0x1238, where nothing is"),
        (NOWHERE, "1 names of dimensions are given at 0x1238, where nothing is"),
        (at(numbers(at(name))), ""),
    ):
        assert words in told(entry("SetSymbolicDimensions")(info.address, pointers, 1))
    assert info.symbols == ["batch"]


NODE = ("inputs", "outputs", "attributes")


@pytest.mark.parametrize("wrong", NODE)
@pytest.mark.parametrize(
    ("address", "count", "words"),
    [
        (None, 1 << 60, f"{1 << 60} %s are given; there can be 1048576 at most"),
        (None, 1, "an array is null"),
        (NOWHERE, 2, "2 %s are given at 0x1238, where nothing is"),
    ],
)
def test_a_node_is_made_of_what_is_there(
    wrong: str, address: int | None, count: int, words: str
) -> None:
    given = dict.fromkeys(NODE, (None, 0)) | {wrong: (address, count)}
    arguments = [each for kind in NODE for each in given[kind]]
    out = POINTER()
    create = entry("CreateNode", "OrtModelEditorApi")
    found = told(create(b"EPContext", b"", b"n", *arguments, at(out)))
    assert words.replace("%s", wrong) in found
    assert not out.value


KINDS = AttributeType


@pytest.mark.parametrize(
    ("kind", "data", "length", "words"),
    [
        (KINDS.INT, None, 0, "'a' has no data"),
        (KINDS.FLOAT, None, 0, "'a' has no data"),
        (
            AttributeType.INT,
            NOWHERE,
            1,
            "1 values of attribute 'a' are given at 0x1238",
        ),
        (
            AttributeType.INTS,
            NOWHERE,
            3,
            "3 values of attribute 'a' are given at 0x1238",
        ),
        (
            AttributeType.FLOATS,
            NOWHERE,
            3,
            "3 values of attribute 'a' are given at 0x1238",
        ),
        (
            AttributeType.STRING,
            NOWHERE,
            3,
            "3 values of attribute 'a' are given at 0x1238",
        ),
        (
            AttributeType.STRINGS,
            NOWHERE,
            3,
            "3 values of attribute 'a' are given at 0x1238",
        ),
        (
            AttributeType.INTS,
            at(numbers(7)),
            (1 << 31) - 1,
            "where nothing is, or less",
        ),
        (KINDS.STRINGS, at(numbers(NOWHERE)), 1, "a text is at 0x1238"),
        (KINDS.INTS, at(numbers(7)), -1, "'a' has no data"),
    ],
    # addresses differ from process to process
    ids=lambda value: "there" if isinstance(value, int) and value > 1 << 40 else None,
)
def test_an_attribute_is_made_of_what_is_there(
    kind: int, data: int | None, length: int, words: str
) -> None:
    out = POINTER()
    assert words in told(entry("CreateOpAttr")(b"a", data, length, kind, at(out)))
    assert not out.value


def test_attributes_that_are_there_are_made() -> None:
    out, held = POINTER(), numbers(7, 8, 9)
    for kind, length, value in (
        (KINDS.INT, 0, 7),
        (KINDS.INTS, 3, (7, 8, 9)),
        (KINDS.INTS, 0, ()),
    ):
        status = entry("CreateOpAttr")(b"a", at(held), length, kind, at(out))
        assert told(status) == ""
        assert find(Attribute, out.value).value == value


def test_texts_of_a_tensor_go_somewhere_and_come_from_somewhere() -> None:
    value = Value.of(np.array(["ab", "c"], object), ep.DataType.STRING)
    offsets = (ctypes.c_size_t * 2)()
    content = entry("GetStringTensorContent")
    words = "where to put the text is null"
    assert words in told(content(value.address, None, 3, at(offsets), 2))
    assert words in told(entry("GetStringTensorElement")(value.address, 2, 0, None))
    fill = entry("FillStringTensor")
    for array, words in (
        (at(numbers(NOWHERE, NOWHERE)), "a text is at 0x1238, where nothing is"),
        (NOWHERE, "2 strings are given at 0x1238, where nothing is"),
    ):
        assert words in told(fill(value.address, array, 2))
    assert value.array.tolist() == ["ab", "c"]


def test_a_kernel_takes_no_more_types_than_there_are(
    register: Callable[..., Any],
) -> None:
    register("KERNELS", "TYPES=1000000")
    words = "1000000 element types are given; there can be 28 at most"
    with pytest.raises(errors.OnnxplugError, match=words):
        onnxplug.InferenceSession(product(2, 3), providers=["ExampleExecutionProvider"])
