"""How much a call makes is known, or taken for too much, before it is computed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from onnxplug_cpu.compiler.call import Call, NotCompiled
from onnxplug_cpu.compiler.extent import extent

I64 = np.dtype(np.int64)


def of(op_type: str, *contents: Any, inferred: Any = None) -> float:
    names = tuple(f"x{place}" for place in range(len(contents)))
    call = Call(op_type, "", 21, names, ("y",), {}, (), (I64,), lambda *_: 0)

    def infer() -> int:
        if inferred is None:
            raise NotCompiled("no rule")
        return int(inferred)

    return extent(call, contents, infer)


ROW, COLUMN = np.zeros((1, 3000), np.int64), np.zeros((3000, 1), np.int64)
FEW = np.zeros(5, np.int64)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # a few elements that may become any number
        (of("OneHot", FEW, np.array(10**12), np.array([0, 1])), math.inf),
        (of("Pad", FEW, np.array([0, 10**12])), math.inf),
        (of("CenterCropPad", FEW, np.array([10**12])), math.inf),
        (of("Resize", FEW, None, None, np.array([10**12])), math.inf),
        (of("Einsum", FEW, FEW, FEW, FEW), math.inf),
        (of("TfIdfVectorizer", FEW), math.inf),
        (of("Pad", FEW, np.array([0, 10**12]), inferred=10**12 + 5), 10**12 + 5),
        (
            of("Sum", *(np.zeros((1,) * k + (50,) + (1,) * (4 - k)) for k in range(5))),
            50**5,
        ),
        (of("Where", np.zeros((200, 1, 1)), np.zeros((200, 1)), np.zeros(200)), 200**3),
        # broadcasting
        (of("Greater", ROW, COLUMN), 9_000_000),
        (of("Mul", ROW, np.zeros((2, 1))), 6000),
        # what is given
        (of("ConstantOfShape", np.array([10**6, 10**6])), 10**12),
        (of("Expand", FEW, np.array([10**6, 5])), 5 * 10**6),
        (of("Tile", FEW, np.array([10**12])), 5 * 10**12),
        (of("Range", np.array(0), np.array(10**12), np.array(1)), 10**12),
        # small by small, and what does not grow
        (of("Gather", FEW, FEW), 0),
        (of("Add", FEW, FEW), 0),
        (of("Gather", ROW, COLUMN), 9_000_000),
        (of("Gather", ROW, COLUMN, inferred=17), 17),
        (of("Concat", ROW, ROW), 12_000),
        (of("Cast", ROW), 6000),
        # whose inputs do not fit fails when it is computed
        (of("Add", np.zeros(3000), np.zeros(7)), 0),
    ],
)
def test_the_elements_that_a_call_makes(found: float, expected: float) -> None:
    assert found == expected
