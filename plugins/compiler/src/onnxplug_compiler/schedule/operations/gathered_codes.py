"""Rows taken out of a table of codes, which stays as it is: what is taken is made
floats."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug.ep import TensorFacts
from onnxplug_compiler.frontend.call import Call, NotCompiled
from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.quantization import dequantised
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import Support, Target
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.schedule.coded import as_shape
from onnxplug_compiler.schedule.operations.quantization import as_shape_in_place
from onnxplug_compiler.schedule.operations.registry import (
    F32,
    Dtypes,
    Facts,
    Inputs,
    Operation,
    Plan,
    Results,
    given,
    register,
)

_NAME: Final = "com.microsoft.GatherBlockQuantized"
_U8: Final = np.dtype(np.uint8)
_I64: Final = np.dtype(np.int64)
_INDICES: Final = (np.dtype(np.int32), _I64)


def _block(call: Call) -> int:
    return int(call.attributes.get("block_size", 128))


def _bits(call: Call) -> int:
    return int(call.attributes.get("bits", 4))


def _accepts(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    elements = target.elements(_NAME)
    if not elements:
        return "GatherBlockQuantized is not compiled"
    if dtypes[1] not in (None, *_INDICES):
        return f"GatherBlockQuantized is not compiled for indices of {dtypes[1]}"
    codes, scale = (dtypes[at] for at in (0, 2))
    zero = dtypes[3] if len(dtypes) > 3 else None
    if codes is not None and element_of(codes) not in elements:
        return f"GatherBlockQuantized is not compiled for {codes}"
    if scale is not None and element_of(scale) not in NARROW_FLOATS:
        return f"GatherBlockQuantized is not compiled for scales of {scale}"
    if zero is not None and codes is not None and zero != codes:
        return f"GatherBlockQuantized is not compiled for {codes} less {zero}"
    bits = _bits(call)
    if bits not in (2, 4, 8) or _block(call) < 1 or _block(call) * bits % 8:
        return f"GatherBlockQuantized is not compiled in blocks of {_block(call)}"
    return None


def _of_a_byte(call: Call, dtype: np.dtype[np.generic]) -> int:
    """Codes of an element of the table."""
    return 8 // _bits(call) if dtype == _U8 else 1


def _facts(call: Call, facts: Facts) -> list[TensorFacts]:
    data, indices, scale = facts[:3]
    assert data is not None and indices is not None and scale is not None
    assert data.dtype is not None and data.shape is not None
    assert indices.shape is not None
    size = data.shape[-1] * _of_a_byte(call, data.dtype.numpy)
    return [TensorFacts(scale.dtype, (*indices.shape, *data.shape[1:-1], size))]


def _check(call: Call, inputs: Inputs, results: Results) -> None:
    data, indices, scale = (given(inputs, at) for at in range(3))
    rank = len(data.shape)
    gathered, blocked = (
        normal_axis(int(call.attributes.get(name, default)), rank)
        for name, default in (("gather_axis", 0), ("quantize_axis", 1))
    )
    if rank < 2 or gathered or blocked != rank - 1 or not data.shape[0]:
        raise NotCompiled(
            f"rows along {gathered} of {data.shape} in blocks along {blocked}", call
        )
    size = data.shape[-1] * _of_a_byte(call, data.dtype)
    blocks = -(-size // _block(call))
    if scale.shape != (*data.shape[:-1], blocks):
        raise NotCompiled(f"scales of {scale.shape} for {data.shape}", call)
    if len(inputs) > 3 and inputs[3] is not None:
        packed = -(-blocks // _of_a_byte(call, data.dtype))
        if inputs[3].shape != (*data.shape[:-1], packed):
            raise NotCompiled(f"zero points of {inputs[3].shape}", call)
    if given(results).shape != (*indices.shape, *data.shape[1:-1], size):
        raise NotCompiled(f"a result of {given(results).shape}", call)


class _Rows(NamedTuple):
    """What was taken of a table, [indices, rows of each, ...].

    Attributes:
        codes: each byte has some.
        bits: of a code.
        block: codes that share a scale.
        scale, zero: of blocks; zero points are of any elements.
        middle: what is added to all codes.
        inside: whether there are such rows; ``None`` if there are no others.
    """

    codes: View
    bits: int
    block: int
    scale: View
    zero: View | None
    middle: int
    inside: View | None = None

    @property
    def of_a_byte(self) -> int:
        """Codes of an element of the table."""
        return 8 // self.bits if self.codes.dtype == _U8 else 1

    def record(self, plan: Plan, out: View, label: str) -> None:
        """Write what the codes stand for to *out*, [indices, rows of each, codes]."""
        count, many, nbytes = self.codes.shape
        each = self.of_a_byte
        # the last block may be shorter
        full, rest = divmod(nbytes, self.block // each)
        for first, blocks, size in (
            (0, full, self.block // each),
            (full, 1, rest),
        ):
            if not blocks * size:
                continue
            shape = (count, many, blocks, size)
            start, length = first * (self.block // each), blocks * size
            codes = self.codes.slice((0, 0, start), (count, many, length))
            some = out.slice((0, 0, start * each), (count, many, length * each))
            apart = as_shape_in_place(some, (*shape[:3], size * each))
            for part in range(each):
                chain = Formula("f32")
                read = chain.read(as_shape_in_place(codes, shape))
                code = self._code(chain, read, part)
                value = self._number(chain, code, first, shape)
                chain.record(plan.recorder, value, every(apart, part, each), label)

    def _code(self, chain: Formula, value: Number, part: int) -> Number:
        """The codes of a place within bytes, as float32."""
        if self.of_a_byte == 1:
            return chain.cast(value, "f32")
        return chain.cast(field(chain, value, part, self.bits), "f32")

    def _number(
        self, chain: Formula, code: Number, first: int, shape: tuple[int, ...]
    ) -> Number:
        """What codes of blocks from the *first* on stand for."""

        def of_blocks(view: View) -> Number:
            taken = view.slice((0, 0, first), shape[:3])
            lined = as_shape_in_place(taken, (*shape[:3], 1))
            return chain.read_wide(lined.broadcast_to(shape))

        zero = None if self.zero is None else of_blocks(self.zero)
        if self.middle:
            middle = chain.number(float(self.middle))
            zero = middle if zero is None else chain.step("Add", zero, middle)
        value: Number = dequantised(chain, code, of_blocks(self.scale), zero)
        if self.inside is None:
            return value
        lined = as_shape_in_place(self.inside, (shape[0], 1, 1, 1))
        inside = chain.read(lined.broadcast_to(shape))
        return chain.step("Where", inside, value, chain.number(0.0))


def every(view: View, first: int, step: int) -> View:
    """The elements of the last axis from the *first* on, each *step* apart."""
    *lead, size = view.shape
    *strides, last = view.strides
    start = view.offset + first * last * view.dtype.itemsize
    count = max(0, -(-(size - first) // step))
    shape = (*lead, count)
    return View(view.buffer, start, view.dtype, shape, (*strides, last * step))


def field(chain: Formula, value: Number, part: int, bits: int) -> Number:
    """The codes of a place within bytes, which are the first in the lowest bits."""
    if part:
        by = chain.number(part * bits, "u8")
        value = chain.step("BitShift", value, by, element="u8", direction="RIGHT")
    low = chain.number((1 << bits) - 1, "u8")
    return chain.step("BitwiseAnd", value, low, element="u8")


def _taken(plan: Plan, view: View, place: View, label: str) -> View:
    """The rows of *view* at places, each byte of codes as it is."""
    moved = _U8 if view.dtype.itemsize == _U8.itemsize else view.dtype
    rows = View(view.buffer, view.offset, moved, view.shape, view.strides)
    count = place.shape[0]
    target = plan.recorder.temporary(moved, (count, *view.shape[1:]))
    plan.recorder.target.indexing.record_gather(
        plan.recorder, rows, place, target, 0, label=label
    )
    shape = (count, math.prod(view.shape[1:-1]), view.shape[-1])
    flat = as_shape(plan, target, shape)
    return View(flat.buffer, flat.offset, view.dtype, flat.shape, flat.strides)


def _places(plan: Plan, indices: View, limit: int, label: str) -> tuple[View, View]:
    """Indices of rows that there are, and whether they are the ones given."""
    count, recorder = math.prod(indices.shape), plan.recorder
    place = recorder.temporary(_I64, (count,))
    inside = recorder.temporary(np.dtype(np.bool_), (count,))
    chain = Formula("i64")
    index = chain.read_wide(as_shape(plan, indices, (count,)))
    none, size = chain.number(0), chain.number(limit)
    below = chain.step("Less", index, none, element="i1")
    index = chain.step("Where", below, chain.step("Add", index, size), index)
    ends = (
        chain.step("Less", index, none, element="i1"),
        chain.step("GreaterOrEqual", index, size, element="i1"),
    )
    outside = chain.step("Or", *ends, element="i1")
    there = chain.step("Not", outside, element="i1")
    found = chain.step("Where", outside, none, index)
    chain.record_all(recorder, [found, there], [place, inside], label)
    return place, inside


def _unpacked(plan: Plan, packed: View, shape: tuple[int, ...], bits: int) -> View:
    """Zero points, of which bytes have several, as float32."""
    found, each = plan.recorder.temporary(F32, shape), 8 // bits
    for part in range(each):
        target = every(found, part, each)
        if target.size:
            source, chain = packed.slice((0, 0, 0), target.shape), Formula("f32")
            code = field(chain, chain.read(source), part, bits)
            chain.record(plan.recorder, code, target, "GatherBlockQuantized")
    return found


def _record(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    out = plan.destination(output)
    if not out.size:
        return
    table, indices, scales = (plan.view(_name(call, at)) for at in range(3))
    label, zero = call.op_type, call.input(3)
    place, inside = _places(plan, indices, table.shape[0], label)
    codes, scale = (_taken(plan, each, place, label) for each in (table, scales))
    zeros = None if zero is None else _taken(plan, plan.view(zero), place, label)
    bits = _bits(call) if table.dtype == _U8 else 8
    if zeros is not None and bits < 8:
        zeros = _unpacked(plan, zeros, scale.shape, bits)
    middle = 1 << bits - 1 if zero is None and table.dtype == _U8 else 0
    rows = _Rows(codes, bits, _block(call), scale, zeros, middle, inside)
    whole = (*codes.shape[:2], codes.shape[2] * rows.of_a_byte)
    rows.record(plan, as_shape_in_place(out, whole), label)


def _name(call: Call, position: int) -> str:
    name = call.inputs[position]
    assert name is not None
    return name


register(_NAME, Operation(_record, _accepts, _check, facts=_facts))


# what a pattern made: a table that was dequantised before


def _accepts_dequantized(call: Call, dtypes: Dtypes, target: Support) -> str | None:
    raise AssertionError("a pattern makes it of what is compiled")


def _check_dequantized(call: Call, inputs: Inputs, results: Results) -> None:
    table, indices = given(inputs), given(inputs, 1)
    if not table.shape[0]:
        raise NotCompiled("nothing to gather from", call)
    if given(results).shape != (*indices.shape, table.shape[1]):
        raise NotCompiled(f"a result of {given(results).shape}", call)


def _packed(plan: Plan, table: View, bits: int, middle: int) -> View:
    """Codes of which hosts have one in each byte, several in each, and without a
    sign."""
    each = 8 // bits
    rows, size = table.shape
    shape = (rows, size // each)
    layout = f"rows({table.dtype_name},{table.offset},{rows},{size},{table.strides})"

    def record(recorder: Recorder[Target], source: View, target: Address) -> None:
        chain, value = Formula("u8"), None
        low = chain.number((1 << bits) - 1)
        for part in range(each):
            code = chain.step("BitwiseAnd", chain.read(every(source, part, each)), low)
            code = chain.step("BitwiseXor", code, chain.number(middle))
            if part:
                by = chain.number(part * bits)
                code = chain.step("BitShift", code, by, direction="LEFT")
            value = code if value is None else chain.step("BitwiseOr", value, code)
        assert value is not None
        out = View.contiguous(target.buffer, _U8, shape, target.offset)
        chain.record(recorder, value, out, "Codes")

    source = View(table.buffer, table.offset, _U8, table.shape, table.strides)
    address = plan.recorder.packed(source, layout, math.prod(shape), record)
    return View.contiguous(address.buffer, _U8, shape, address.offset)


def _record_dequantized(plan: Plan, call: Call) -> None:
    output = call.outputs[0]
    assert output is not None
    out, label = plan.destination(output), call.op_type
    if not out.size:
        return
    table, indices = (plan.view(_name(call, at)) for at in range(2))
    element, size = element_of(table.dtype), table.shape[1]
    assert element is not None
    bits, middle = int(element[1:]), 0
    if bits < 8:
        if not isinstance(table.buffer, Constant) or size * bits % 8:
            raise NotCompiled(f"rows of a table {table.shape} of {element}", call)
        middle = 1 << bits - 1 if element[0] == "i" else 0
        table = _packed(plan, table, bits, middle)
    count = math.prod(indices.shape)
    place = as_shape(plan, indices, (count,))

    def of_rows(view: View) -> View:
        if view.size == 1:
            return as_shape(plan, view, (1, 1, 1)).broadcast_to((count, 1, 1))
        rows = view if len(view.shape) > 1 else as_shape(plan, view, (view.shape[0], 1))
        return _taken(plan, rows, place, label)

    zero = call.input(3)
    rows = _Rows(
        _taken(plan, table, place, label),
        bits,
        int(call.attributes["block_size"]) or size,
        of_rows(plan.view(_name(call, 2))),
        None if zero is None else of_rows(plan.view(zero)),
        middle,
    )
    rows.record(plan, as_shape_in_place(out, (count, 1, size)), label)


register(
    "DequantizedGather",
    Operation(_record_dequantized, _accepts_dequantized, _check_dequantized),
)
