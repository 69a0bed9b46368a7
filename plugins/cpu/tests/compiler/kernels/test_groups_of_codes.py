"""Windows of codes in groups, of any lines and rows, by all instructions there are for
bytes, against numpy in int64."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded, takes_groups
from onnxplug_cpu.compiler.kernels.coded.joined_groups import most_joined
from onnxplug_cpu.compiler.machine.isa import AMX, AVX512, Isa, host_isa

from ..integer_isas import NAMES, arm_here
from ..interpreter import Interpreter
from .test_coded_integers import KINDS, codes, trained


class Sizes(NamedTuple):
    """Of a convolution: *depth* channels of a group give *columns*."""

    groups: int
    lines: int
    rows: int
    depth: int
    columns: int
    kernel: tuple[int, int] = (1, 1)
    stride: int = 1


CASES = [
    Sizes(1, 3, 15, 68, 40, (2, 2)),  # lines of one tile, of whose steps one is not new
    Sizes(1, 5, 17, 16, 17, (1, 3)),  # lines of two that are not equally high
    Sizes(1, 4, 33, 132, 70, (1, 1), 2),
    Sizes(1, 7, 7, 76, 33, (3, 3)),
    Sizes(8, 3, 14, 4, 4, (3, 3)),
    Sizes(6, 2, 9, 8, 5, (2, 3), 2),
    Sizes(4, 1, 35, 20, 8),
    Sizes(3, 2, 20, 72, 20, (1, 2)),
]

ON = {**NAMES}
"""With the processor's own tiles, if it has some."""
_HOST = host_isa()
if _HOST is not None and _HOST.multiplies_byte_tiles:
    ON[_HOST] = "host"


@pytest.fixture(autouse=True)
def _arm_here() -> Iterator[None]:
    with arm_here():
        yield


def convolved(
    isa: Isa, kind: Any, case: Sizes, *, doubled: bool, workers: int
) -> tuple[Any, Any]:
    """The sums, and what they should be.

    Args:
        doubled: an epilogue adds sums to themselves, and to one number of each column.
    """
    rng = np.random.default_rng(3)
    (high, wide), stride = case.kernel, case.stride
    tall, long = (
        stride * (n - 1) + k for n, k in zip(case[1:3], case.kernel, strict=True)
    )
    x = codes(rng, kind, 2, tall, long, case.groups * case.depth)
    w = trained(rng, case.groups, high, wide, case.depth, case.columns)
    interpreter = Interpreter(isa, workers)
    whole = interpreter.input(x)
    image, line, pixel, _ = whole.strides
    sizes = (2, case.groups, *case[1:3], high, wide, case.depth)
    steps = (image, case.depth, stride * line, stride * pixel, line, pixel, 1)
    a = View(whole.buffer, 0, whole.dtype, sizes, steps)
    b = interpreter.recorder.constant(w).broadcast_to((2, *w.shape))
    shape = 2, *case[1:3], case.groups, case.columns
    place = interpreter.output(np.int32, shape).transpose((0, 3, 1, 2, 4))
    more, after = rng.integers(-99, 99, case.groups * case.columns, np.int32), None
    out = place
    if doubled:
        chain = Formula("i32")
        total = chain.tile()
        of_columns = interpreter.input(more.reshape(case.groups, 1, 1, case.columns))
        added = chain.read_wide(of_columns.broadcast_to(place.shape))
        twice = chain.step("Add", chain.step("Add", total, total), added)
        after = chain.epilogue([twice], [place])
    if not doubled:
        out = interpreter.output(np.int32, place.shape)
    point = -5 if kind == np.int8 else 3
    factors = Factor(Codes(a), offset=point), Factor(Codes(b))
    record_coded(interpreter.recorder, *factors, out, epilogue=after)
    interpreter.run()
    windows = interpreter.read(a).astype(np.int64) - point
    wanted = np.einsum("igyxhwc,ghwcn->igyxn", windows, w.astype(np.int64))
    if doubled:
        wanted = 2 * wanted + more.reshape(case.groups, 1, 1, case.columns)
    return interpreter.read(place if doubled else out), wanted


@pytest.mark.parametrize("isa", ON, ids=ON.get)
@pytest.mark.parametrize("kind", KINDS)
def test_windows_of_lines_and_groups(isa: Isa, kind: Any) -> None:
    for number, case in enumerate(CASES):
        doubled = number % 3 != 2
        workers = 1 + number % 2
        found, wanted = convolved(isa, kind, case, doubled=doubled, workers=workers)
        np.testing.assert_array_equal(found, wanted, str(case))


def test_as_many_groups_are_one_as_tiles_have_columns() -> None:
    assert takes_groups()
    assert [most_joined(AMX, 32, n) for n in (4, 8, 16, 17, 33)] == [8, 4, 2, 1, 1]
    assert [most_joined(AVX512, 32, n) for n in (4, 8, 16, 17)] == [4, 2, 1, 1]
    assert most_joined(AMX, 3, 8) == 3
    assert most_joined(AMX, 10, 8) == 2
