"""Constants, sequences, diagonals, random bits: examples of the pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..standin.operators import Tensor
from .examples import assert_documented, assert_rejected, evaluate, f32, u32, union


def test_fill_value_constant() -> None:
    fields: dict[str, Any] = {"Value": union(np.float32(13))}
    full = f32(np.full((1, 1, 2, 4), 13))
    assert_documented(
        "FILL_VALUE_CONSTANT", **fields, ValueDataType="FLOAT32", OutputTensor=full
    )
    assert_rejected(
        "FILL_VALUE_CONSTANT",
        "is INT32",
        **fields,
        ValueDataType="INT32",
        OutputTensor=full,
    )


def test_fill_value_sequence() -> None:
    assert_documented(
        "FILL_VALUE_SEQUENCE",
        ValueDataType="FLOAT32",
        ValueStart=union(np.float32(3)),
        ValueDelta=union(np.float32(2)),
        OutputTensor=f32([[[[3, 5, 7]]]]),
    )
    assert_documented(
        "FILL_VALUE_SEQUENCE",
        ValueDataType="UINT8",
        ValueStart=union(np.uint8(10)),
        ValueDelta=union(np.int8(-2)),
        OutputTensor=np.array([[[[10, 8], [6, 4]]]], np.uint8),
    )
    assert_documented(
        "FILL_VALUE_SEQUENCE",
        ValueDataType="INT64",
        ValueStart=union(np.int64(2**60 + 1)),
        ValueDelta=union(np.int64(-3)),
        OutputTensor=np.array([2**60 + 1, 2**60 - 2, 2**60 - 5], np.int64),
    )


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (0, np.eye(3)),
        (1, np.eye(3, k=1)),
        (-1, np.eye(3, 2, k=-1)),
        (-3, np.zeros((3, 2))),
    ],
)
def test_diagonal_matrix(offset: int, expected: Any) -> None:
    ones = f32([[expected]])
    assert_documented("DIAGONAL_MATRIX", Offset=offset, Value=1.0, OutputTensor=ones)
    tens = np.stack([expected * 10, expected * 10]).astype(np.int32)
    assert_documented("DIAGONAL_MATRIX", Offset=offset, Value=10.6, OutputTensor=tens)
    assert_documented(
        "DIAGONAL_MATRIX1",
        ValueDataType="FLOAT32",
        Value=union(np.float32(1)),
        DiagonalFillBegin=offset,
        DiagonalFillEnd=offset + 1,
        OutputTensor=ones,
    )


SOURCE = f32([[4, 7, 3, 7, 9], [1, 2, 8, 6, 9], [9, 4, 1, 8, 7], [4, 3, 4, 2, 4]])


@pytest.mark.parametrize(
    ("values", "value", "begin", "end", "expected"),
    [
        # the page's first example fills with 7 and shows ones
        (None, 1, 0, 1, np.eye(4, 5)),
        (
            None,
            7,
            0,
            3,
            [[7, 7, 7, 0, 0], [0, 7, 7, 7, 0], [0, 0, 7, 7, 7], [0, 0, 0, 7, 7]],
        ),
        (
            SOURCE,
            0,
            -(2**31),
            1,
            [[0, 7, 3, 7, 9], [0, 0, 8, 6, 9], [0, 0, 0, 8, 7], [0, 0, 0, 0, 4]],
        ),
        (
            SOURCE,
            0,
            1,
            0,
            [[4, 0, 0, 0, 0], [0, 2, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 2, 0]],
        ),
    ],
)
def test_diagonal_matrix1(
    values: Any, value: int, begin: int, end: int, expected: Any
) -> None:
    assert_documented(
        "DIAGONAL_MATRIX1",
        InputTensor=values,
        ValueDataType="FLOAT32",
        Value=union(np.float32(value)),
        DiagonalFillBegin=begin,
        DiagonalFillEnd=end,
        OutputTensor=f32(expected),
    )


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ("0 0 0 0", "0 0", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (
            "ffffffff ffffffff ffffffff ffffffff",
            "ffffffff ffffffff",
            "408f276d 41c83b0e a20bc7c6 6d5451fd",
        ),
        (
            "243f6a88 85a308d3 13198a2e 03707344",
            "a4093822 299f31d0",
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_random_generator(counter: str, key: str, expected: str) -> None:
    """By the known answers that the algorithm's authors publish with Random123."""
    words = [int(word, 16) for word in f"{counter} {key}".split()]
    state = u32(words).reshape(1, 1, 1, 6)
    bits, after = evaluate(
        "RANDOM_GENERATOR",
        InputStateTensor=state,
        OutputTensor=Tensor(np.dtype(np.uint32), (1, 1, 5, 1)),
        OutputStateTensor=Tensor(np.dtype(np.uint32), (1, 1, 1, 6)),
        Type="PHILOX_4X32_10",
    )
    assert [f"{word:08x}" for word in bits.flat[:4]] == expected.split()
    # five numbers took two blocks; the second is what comes next of the first
    number = sum(word << 32 * at for at, word in enumerate(words[:4])) + 2
    assert after.reshape(-1).tolist() == [
        *(number >> 32 * at & 0xFFFFFFFF for at in range(4)),
        *words[4:],
    ]
    after[..., 0] -= np.uint32(1)  # no carry in these
    next_, none = evaluate(
        "RANDOM_GENERATOR",
        InputStateTensor=after,
        OutputTensor=Tensor(np.dtype(np.uint32), (1,)),
        Type="PHILOX_4X32_10",
    )
    assert next_[0] == bits.flat[4]
    assert none is None


def test_the_state_has_six_words() -> None:
    output = Tensor(np.dtype(np.uint32), (1,))
    state = {"InputStateTensor": u32(np.zeros(5)), "Type": "PHILOX_4X32_10"}
    assert_rejected("RANDOM_GENERATOR", "has Sizes", **state, OutputTensor=output)
