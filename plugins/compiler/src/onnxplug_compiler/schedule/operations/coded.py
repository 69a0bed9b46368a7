"""Products of small integers: weights of few bits with their scales, and integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.frontend.call import (
    Call,
    NotCompiled,
    broadcast_shape,
    broadcasts_to,
)
from onnxplug_compiler.frontend.quantization import mixed_types
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import NARROW_FLOATS, described, element_of
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import (
    BYTES_LEVEL,
    MAKERS,
    CodedProduct,
    as_shape,
)
from onnxplug_compiler.schedule.copies import record_copy, record_zeros
from onnxplug_compiler.schedule.elementwise import Finish
from onnxplug_compiler.schedule.operations.registry import (
    Dtypes,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_U8: Final = np.dtype(np.uint8)
_BYTES: Final = frozenset({"i8", "u8"})


def _record(plan: Plan, call: Call) -> None:
    raise AssertionError("products are recorded with their chains")


def _name(call: Call, position: int) -> str:
    name = call.inputs[position]
    assert name is not None
    return name


# weights of few bits


def _numbers(call: Call) -> tuple[int, int, int, int]:
    """Rows and columns of the weights, how long their blocks are, and the bits."""
    attributes = call.attributes
    return (
        int(attributes["K"]),
        int(attributes["N"]),
        int(attributes["block_size"]),
        int(attributes.get("bits", 4)),
    )


def _accepts_n_bits(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    attributes = call.attributes
    named = "com.microsoft.MatMulNBits"
    if not target.elements(named):
        return "MatMulNBits is not compiled"
    if not {"K", "N", "block_size"} <= attributes.keys():
        return "MatMulNBits lacks an attribute of 'K', 'N' and 'block_size'"
    inner, columns, block, bits = _numbers(call)
    if attributes.get("weight_prepacked") or call.input(4) is not None:
        return "MatMulNBits is compiled without 'g_idx' and 'weight_prepacked'"
    if (
        bits not in (2, 4, 8)
        or block < 1
        or block * bits % 8
        or min(inner, columns) < 1
    ):
        return f"MatMulNBits is not compiled for {bits} bits in blocks of {block}"
    elements = [None if each is None else element_of(each) for each in dtypes]
    elements += [None] * (6 - len(elements))
    floats = [elements[0], elements[2], elements[5]]
    floats += [elements[3]] if elements[3] != "u8" else []
    taken = NARROW_FLOATS.intersection(target.elements(named))
    if elements[1] != "u8" or not {e for e in floats if e is not None} <= taken:
        return (
            f"MatMulNBits is compiled for {described(taken)} and weights in uint8; "
            f"found {', '.join(map(str, dtypes))}"
        )
    return None


def _check_n_bits(call: Call, inputs: Inputs, results: Results) -> None:
    inner, columns, block, bits = _numbers(call)
    blocks = -(-inner // block)
    wanted = {1: columns * blocks * (block * bits // 8), 2: columns * blocks}
    zeros = inputs[3] if len(inputs) > 3 else None
    if zeros is not None:
        packed = zeros.dtype == _U8
        wanted[3] = columns * (-(-blocks * bits // 8) if packed else blocks)
    if len(inputs) > 5 and inputs[5] is not None:
        wanted[5] = columns
    for position, size in wanted.items():
        if given(inputs, position).size != size:
            raise NotCompiled(
                f"input {position} of MatMulNBits has "
                f"{given(inputs, position).size} elements; expected {size}",
                call,
            )
    x = given(inputs)
    if not x.shape or x.shape[-1] != inner:
        raise NotCompiled(f"{x.shape} and {(inner, columns)} do not multiply", call)
    if given(results).shape != (*x.shape[:-1], columns):
        raise NotCompiled(f"a result of {given(results).shape}", call)


def _n_bits(plan: Plan, call: Call) -> CodedProduct:
    inner, columns, block, bits = _numbers(call)
    blocks = -(-inner // block)
    x = plan.view(_name(call, 0))
    rows = math.prod(x.shape[:-1])
    a = as_shape(plan, x, (rows, inner))
    if inner != blocks * block:
        a = _longer(plan, a, blocks * block)
    rounds = int(call.attributes.get("accuracy_level", 0)) == BYTES_LEVEL
    shape = (1, 1, rows, blocks, block)
    left = Factor(Codes(as_shape(plan, a, shape)), rounds=rounds)

    def of_blocks(position: int, sizes: tuple[int, ...]) -> View:
        """[columns, *sizes] as [1, 1, *sizes, columns]."""
        view = as_shape(plan, plan.view(_name(call, position)), (columns, *sizes))
        turned = view.transpose((*range(1, 1 + len(sizes)), 0))
        return as_shape(plan, turned, (1, 1, *turned.shape))

    def repeated(view: View) -> View:
        return view.broadcast_to((*view.shape[:3], block, columns))

    codes = Codes(of_blocks(1, (blocks, block * bits // 8)), bits % 8, 3)
    scale = repeated(of_blocks(2, (blocks, 1)))
    if call.input(3) is None:
        return CodedProduct(
            left,
            Factor(codes, offset=1 << bits - 1, scale=scale),
            (*x.shape[:-1], columns),
            Finish(addend=call.input(5)),
        )
    if plan.known(_name(call, 3)).dtype == _U8:
        zeros = repeated(of_blocks(3, (-(-blocks * bits // 8), 1)))
        zero = Codes(zeros, bits % 8, 2)
    else:
        zero = Codes(repeated(of_blocks(3, (blocks, 1))))
    return CodedProduct(
        left,
        Factor(codes, zero=zero, scale=scale),
        (*x.shape[:-1], columns),
        Finish(addend=call.input(5)),
    )


def _longer(plan: Plan, a: View, inner: int) -> View:
    """Rows with zeros behind them."""
    whole = plan.recorder.temporary(a.dtype, (a.shape[0], inner))
    record_zeros(plan.recorder, whole, (0, 0), a.shape)
    record_copy(plan.recorder, a, whole.slice((0, 0), a.shape))
    return whole


MAKERS["com.microsoft.MatMulNBits"] = _n_bits
register(
    "com.microsoft.MatMulNBits", Operation(_record, _accepts_n_bits, _check_n_bits)
)


# integers


def _accepts_integer(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    elements = target.elements(call.op_type)
    found = {element_of(dtype) for dtype in dtypes if dtype is not None}
    if reason := mixed_types(call, dtypes, [(0, 2), (1, 3)]):
        return reason
    if found <= _BYTES.intersection(elements):
        return None
    if not elements:
        return f"{call.op_type} is not compiled"
    return f"{call.op_type} is not compiled for {', '.join(map(str, dtypes))}"


def _check_integer(call: Call, inputs: Inputs, results: Results) -> None:
    a, b = given(inputs).shape, given(inputs, 1).shape
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise NotCompiled(f"{a} and {b} do not multiply", call)
    shape = (*broadcast_shape([a[:-2], b[:-2]]), a[-2], b[-1])
    if given(results).shape != shape:
        raise NotCompiled(f"a result of {given(results).shape}", call)


def zero_point(
    plan: Plan, name: str | None, shape: tuple[int, ...], *, rows: bool
) -> View | None:
    """A zero point or scale, repeated to *shape*.

    Args:
        rows: a vector has one for each row, not for each column.
    """
    return None if name is None else repeated(plan, plan.view(name), shape, rows=rows)


def repeated(plan: Plan, view: View, shape: tuple[int, ...], *, rows: bool) -> View:
    """The same of a view."""
    if len(view.shape) == 1 and view.shape[0] == 1:
        view = as_shape(plan, view, ())
    elif len(view.shape) == 1 and rows:
        view = as_shape(plan, view, (view.shape[0], 1))
    try:
        return view.broadcast_to(shape)
    except ValueError as error:
        raise NotCompiled(f"zero points of {view.shape} for {shape}") from error


def integer_product(
    plan: Plan,
    names: Sequence[str | None],
    shape: tuple[int, ...],
) -> CodedProduct:
    """The product of integers.

    Args:
        names: of both factors, and of their zero points.
        shape: of the result.
    """
    a_name, b_name, a_zero, b_zero = names
    assert a_name is not None and b_name is not None
    a, b = plan.view(a_name), plan.view(b_name)
    offset, of_columns = zero_of_weights(plan, b_zero)
    zeros = (
        zero_point(plan, a_zero, a.shape, rows=True),
        None if of_columns is None else repeated(plan, of_columns, b.shape, rows=False),
    )
    return product_of_views(plan, (a, b), zeros, shape, offset)


def zero_of_weights(plan: Plan, name: str | None) -> tuple[int, View | None]:
    """The zero points of a second factor: a number if all are known to be that, and
    otherwise an array, of which the content is at hand if it is known."""
    if name is None:
        return 0, None
    content = plan.known(name).content
    if content is None:
        return 0, plan.view(name)
    if content.size and (content == content.flat[0]).all():
        return int(content.flat[0]), None
    return 0, plan.recorder.constant(content)


def product_of_views(
    plan: Plan,
    factors: tuple[View, View],
    zeros: tuple[View | None, View | None],
    shape: tuple[int, ...],
    offset: int = 0,
) -> CodedProduct:
    """The same of views, with zero points of their shapes.

    Args:
        offset: a zero point of all of the second.
    """
    a, b = factors
    *lead, rows, columns = shape
    inner = a.shape[-1]
    left, right = (*lead, rows, inner), (*lead, inner, columns)
    batch = (1, 1)
    if math.prod(b.shape[:-2]) == 1:
        right, rows = b.shape, math.prod(lead) * rows
    else:
        batch = math.prod(lead[:-1]), lead[-1]

    def factor(
        view: View,
        zero: View | None,
        whole: tuple[int, ...],
        folded: tuple[int, ...],
        offset: int = 0,
    ) -> Factor:
        parts = [
            None if each is None else as_shape(plan, each.broadcast_to(whole), folded)
            for each in (view, zero)
        ]
        assert parts[0] is not None
        found = None if parts[1] is None else Codes(parts[1])
        return Factor(Codes(parts[0]), found, offset)

    return CodedProduct(
        factor(a, zeros[0], left, (*batch, rows, inner)),
        factor(b, zeros[1], right, (*batch, inner, columns), offset),
        shape,
    )


def _integer(plan: Plan, call: Call) -> CodedProduct:
    output = call.outputs[0]
    assert output is not None
    names = [call.inputs[0], call.inputs[1], call.input(2), call.input(3)]
    return integer_product(plan, names, given(plan.results(call)).shape)


MAKERS["MatMulInteger"] = _integer
register("MatMulInteger", Operation(_record, _accepts_integer, _check_integer))


# what a pattern made: weights are codes


def _accepts_dequantized(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _check_dequantized(call: Call, inputs: Inputs, results: Results) -> None:
    x, codes, scale = (given(inputs, position) for position in range(3))
    zero = inputs[3] if len(inputs) > 3 else None
    turned_x, turned = call.attributes["transA"], call.attributes["transB"]
    inner, columns = codes.shape[::-1] if turned else codes.shape
    *lead, rows, depth = x.shape
    if turned_x:
        rows, depth = depth, rows
    if depth != inner:
        raise NotCompiled(f"{x.shape} and {codes.shape} do not multiply", call)
    if zero is not None and zero.shape != scale.shape and zero.size * scale.size != 1:
        raise NotCompiled(f"zero points of {zero.shape} for {scale.shape}", call)
    shape = (*lead, rows, columns)
    if given(results).shape != shape:
        raise NotCompiled(f"a result of {given(results).shape}", call)
    addend = inputs[4] if len(inputs) > 4 else None
    if addend is not None and not broadcasts_to(addend.shape, shape):
        raise NotCompiled(f"{addend.shape} does not broadcast to {shape}", call)


def _dequantized(plan: Plan, call: Call) -> CodedProduct:
    attributes = call.attributes
    x, codes = plan.view(_name(call, 0)), plan.view(_name(call, 1))
    x = x.transpose((1, 0)) if attributes["transA"] else x
    turned, block = attributes["transB"], int(attributes["block_size"])
    *lead, rows, inner = x.shape
    columns = codes.shape[0 if turned else 1]
    in_blocks = attributes["scales"] == "blocks"
    sums = (inner // block, block) if in_blocks else (inner,)

    def of_codes(view: View, sizes: tuple[int, ...]) -> View:
        """An array of the matrix's axes, the sums first."""
        matrix = view.transpose((1, 0)) if turned else view
        return as_shape(plan, matrix, (1, 1, *sizes, columns))

    def of_scales(name: str) -> View:
        view = plan.view(name)
        if in_blocks:
            found = of_codes(view, (inner // block, 1))
        elif view.size == 1:
            found = as_shape(plan, view, ())
        else:
            is_inner = (attributes["scales"] == "rows") != bool(turned)
            found = as_shape(plan, view, (view.size, *[1] * is_inner))
        return found.broadcast_to((1, 1, *sums, columns))

    zero = call.input(3)
    right = Factor(
        Codes(of_codes(codes, sums)),
        None if zero is None else Codes(of_scales(zero)),
        scale=of_scales(_name(call, 2)),
    )
    left = as_shape(plan, x, (1, 1, math.prod(lead) * rows, *sums))
    return CodedProduct(
        Factor(Codes(left)),
        right,
        (*lead, rows, columns),
        Finish(
            alpha=float(attributes["alpha"]),
            addend=call.input(4),
            beta=float(attributes["beta"]),
        ),
    )


MAKERS["DequantizedMatMul"] = _dequantized
register(
    "DequantizedMatMul", Operation(_record, _accepts_dequantized, _check_dequantized)
)
