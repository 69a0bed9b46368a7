"""Products of codes as they are: quads of 8 bits.

Which signs the first factor may have depends on the processor; codes of the other kind
are moved by 128, in the tiles if they are whole quads and the processor has time for it
there, and otherwise while they are copied.  That and zero points of the first factor
are subtracted from the sums, as multiples of the sums of the constant second one's
columns.  Of the second one differences from zero points are packed; where these have
nine bits, its codes are, and zero points subtracted as multiples of the sums of the
first factor's rows.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from onnxplug_compiler.ir.buffers import Address
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View, c_strides
from onnxplug_cpu.compiler.codegen.integer_products import (
    instruction_for_bytes,
)
from onnxplug_cpu.compiler.kernels.coded.corrections import (
    Missing,
    completed,
    of_columns,
    of_rows,
)
from onnxplug_cpu.compiler.kernels.coded.factors import (
    BATCHES,
    I32,
    LEAD,
    described,
    first_of,
    is_constant,
    once,
    record_differences,
)
from onnxplug_cpu.compiler.kernels.coded.joined_groups import (
    Joined,
    joined,
    most_joined,
)
from onnxplug_cpu.compiler.kernels.coded.quad_product import (
    QuadProduct,
    depths_of,
    layout_of,
)
from onnxplug_cpu.compiler.kernels.coded.tiled_quads import TiledQuads
from onnxplug_cpu.compiler.kernels.contraction.left_factor import left_factor
from onnxplug_cpu.compiler.kernels.contraction.operands import fold
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    MOVED_QUADS,
    SIGNED_QUADS,
    elements_of_quads,
    moves_quads,
)
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.kernels.reduction.commands import record_reduce
from onnxplug_cpu.compiler.machine.isa import Isa

if TYPE_CHECKING:
    from onnxplug_compiler.ir.epilogue import Epilogue
    from onnxplug_cpu.compiler.commands.recording import Recorder

_MOVED: Final = 128
"""Between equal bytes with and without a sign."""

_FEWEST_TERMS: Final = 16
"""Of sums, below which columns' sums and epilogues take longer than is won."""

_FEWEST_COLUMNS: Final = 32
"""Of results, below which sums of rows take longer than pairs."""


def takes_quads(recorder: Recorder, a: Factor, b: Factor) -> bool:
    """Whether a product of factors with lines is one of quads."""
    isa, codes = recorder.target.isa_of_bytes, a.codes.view
    sums = range(LEAD, len(codes.shape))
    return (
        bool(elements_of_quads(isa))
        and codes.dtype.itemsize == 1
        and is_constant(b)
        and math.prod(codes.shape[LEAD:]) >= _FEWEST_TERMS
        and (a.zero is None or not any(a.zero.view.strides[axis] for axis in sums))
        and _packable(recorder, b) is not None
    )


def reads_quads(recorder: Recorder, a: Factor, b: Factor) -> bool:
    """Whether such a product reads its first factor where it is."""
    codes = a.codes.view
    if not takes_quads(recorder, a, b):
        return False
    element = element_of_a(recorder.target.isa_of_bytes, codes)
    return _in_place(codes, element) is not None


def _packable(recorder: Recorder, b: Factor) -> Factor | None:
    """B once, in a form whose packing nobody refused."""
    isa, b = recorder.target.isa_of_bytes, once(b)
    _, groups, *sums, columns = b.codes.shape
    *taps, depth = sums
    counts = {1, most_joined(isa, groups, columns)}
    ways = [(of_tap, n) for n in counts for of_tap in depths_of([*taps, n * depth])]
    forms = [b]
    if b.codes.shape[-1] >= _FEWEST_COLUMNS:
        offset = _MOVED if b.codes.view.dtype == np.uint8 else 0
        forms.append(Factor(b.codes, offset=offset))
    for form in forms:
        layouts = (layout_of(isa, form, *way) for way in ways)
        if not any(recorder.is_refused(b.codes.view, each) for each in layouts):
            return form
    return None


def element_of_a(isa: Isa, codes: View) -> str:
    """Which quads codes are multiplied as."""
    possible = elements_of_quads(isa)
    found = element_of(codes.dtype)
    if found in possible:
        return found
    in_tiles = moves_quads(isa) and _in_place(codes, MOVED_QUADS) is not None
    return MOVED_QUADS if in_tiles else possible[0]


def record_quads(
    recorder: Recorder,
    a: Factor,
    b: Factor,
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product of factors with lines; see :func:`~.integers.record_integers`.

    Args:
        label: with the sizes.
    """
    isa, packed = recorder.target.isa_of_bytes, _packable(recorder, b)
    assert packed is not None, "takes_quads said so"
    element = element_of_a(isa, a.codes.view)
    left = quads_of_a(recorder, a, element)
    label = f"{label} by {instruction_for_bytes(isa, element)}"
    _record(recorder, Quads(a, left, element), (b, packed), out, epilogue, label)


class Quads(NamedTuple):
    """A first factor, also as int32 of four codes each, of *element*."""

    factor: Factor
    view: View
    element: str


def _record(
    recorder: Recorder,
    a: Quads,
    b: tuple[Factor, Factor],
    out: View,
    epilogue: Epilogue | None,
    label: str,
) -> None:
    """Record a product of quads.

    Args:
        b: also as it is packed, once.
    """
    missing = _missing(recorder, a, *b, label)
    after = completed(recorder, missing, out, epilogue)
    isa, packed = recorder.target.isa_of_bytes, b[1]
    way = Joined(1, a.view, b[0].codes.view, out, after)
    if described(packed) == described(b[0]):
        way = joined(isa, a.view, packed.codes.view, out, after) or way
    contraction = fold(way.a, way.b, way.out, way.epilogue)
    product = TiledQuads if isa.multiplies_byte_tiles else QuadProduct
    product(recorder, contraction, label, packed, a.element, way.joins).record()


def _moved(codes: View, element: str) -> int:
    """By how much codes as quads of *element* are larger."""
    if element == element_of(codes.dtype):
        return 0
    return -_MOVED if element == SIGNED_QUADS else _MOVED


def quads_of_a(recorder: Recorder, a: Factor, element: str) -> View:
    """The first factor as int32 of four codes each that are next to each other along
    the sums, which are one axis if it is copied; see :func:`_moved`."""
    view = a.codes.view
    in_place = _in_place(view, element)
    if in_place is not None:
        return in_place
    lead = once(a, LEAD).codes.shape[:LEAD]
    sums = view.shape[LEAD:]
    quads = left_factor(recorder, I32, (*lead, -(-math.prod(sums) // 4)))
    target = View(
        quads.buffer,
        0,
        np.dtype(np.int8 if element == SIGNED_QUADS else np.uint8),
        (*lead, *sums),
        (*(4 * stride for stride in quads.strides[:LEAD]), *c_strides(sums)),
    )
    source = first_of(view, target.shape)
    moved = _moved(view, element)
    if not moved:
        record_copy(recorder, source, target, label="Codes")
    else:
        chain = Formula("i16")
        value = chain.step("Add", chain.read_wide(source), chain.number(moved))
        chain.record(recorder, value, target, "Codes")
    return quads.broadcast_to((*view.shape[:LEAD], quads.shape[-1]))


def _in_place(codes: View, element: str) -> View | None:
    """Codes as quads of *element* where they are, if these are whole."""
    *shape, depth = codes.shape
    *strides, step = codes.strides
    if (_moved(codes, element) and element != MOVED_QUADS) or step != 1:
        return None
    if depth % 4 or any(stride % 4 for stride in strides):
        return None
    fourths = tuple(stride // 4 for stride in strides)
    return View(codes.buffer, codes.offset, I32, (*shape, depth // 4), (*fourths, 1))


# zero points


def _missing(
    recorder: Recorder, a: Quads, b: Factor, packed: Factor, label: str
) -> list[Missing]:
    """What sums lack, as zero points of neither factor were subtracted.

    Args:
        packed: B as it is packed, once.
    """
    found = []
    of_a = missing_of_a(a, packed.codes.view)
    if not of_a.is_nothing:
        found.append(of_a._replace(sums=_sums_of_columns(recorder, packed)))
    if described(packed) != described(b):
        sums = sums_of_rows(recorder, a, b, label)
        zero = None if b.zero is None else of_columns(b.zero.view)
        found.append(Missing(zero, b.offset - packed.offset, sums))
    return found


def missing_of_a(a: Quads, sums: View) -> Missing:
    """What sums lack of the first factor's zero points, times *sums* of columns."""
    zero, codes = a.factor.zero, a.factor.codes.view
    offset = a.factor.offset + _moved(codes, a.element)
    return Missing(None if zero is None else of_rows(zero.view), offset, sums)


def sums_of_rows(recorder: Recorder, a: Quads, b: Factor, label: str) -> View:
    """[batch0, batch1, lines, rows, 1] of int32: of differences from zero points.

    Args:
        b: the other factor of the product.
    """
    batches, rest = b.codes.shape[:BATCHES], (*b.codes.shape[BATCHES:-1], 1)
    one = recorder.constant(np.ones((1, 1, *rest), np.int8))
    ones = Factor(Codes(one.broadcast_to((*batches, *rest))))
    sums = recorder.temporary(I32, (*a.view.shape[:LEAD], 1))
    both = ones, once(ones)
    _record(recorder, a, both, sums, None, f"{label}: sums of rows")
    return sums


def _sums_of_columns(recorder: Recorder, b: Factor) -> View:
    """[batch0, batch1, 1, 1, columns] of int32."""
    view = b.codes.view
    *batches, columns = *view.shape[:BATCHES], view.shape[-1]
    sums = view.shape[BATCHES:-1]
    form = view.offset, view.shape, view.strides

    def record(recorder: Recorder, source: View, target: Address) -> None:
        factor = b._replace(codes=Codes(source))
        wide = recorder.temporary(I32, source.shape)
        record_differences(recorder, factor, wide)
        shape = (*batches, *(1 for _ in sums), columns)
        found = View.contiguous(target.buffer, I32, shape, target.offset)
        axes = tuple(range(BATCHES, BATCHES + len(sums)))
        record_reduce(recorder, "ReduceSum", wide, found, axes)

    address = recorder.packed(
        view,
        f"sums of columns({described(b)},{','.join(map(str, form))})",
        math.prod(batches) * columns * I32.itemsize,
        record,
    )
    shape = (*batches, 1, 1, columns)
    return View.contiguous(address.buffer, I32, shape, address.offset)
