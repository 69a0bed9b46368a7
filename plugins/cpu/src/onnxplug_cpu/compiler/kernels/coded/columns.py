"""Weights whose columns are packed once, so that kernels find their codes next to each
other: those of fewer than 8 bits several in a byte.

That is as much memory as a model file has for them, though hosts keep a byte for each.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import SUB_BYTE, element_of
from onnxplug_compiler.ir.elementwise import Number
from onnxplug_compiler.ir.formula import Formula
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.coded.factors import record_zeros
from onnxplug_cpu.compiler.kernels.movement.copy import record_copy
from onnxplug_cpu.compiler.machine.isa import LANES

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.recording import Recorder

_LEAD: Final = 2
_U8: Final = np.dtype(np.uint8)


def in_columns(recorder: Recorder, b: Factor) -> Factor | None:
    """A factor of floats with the codes of each column next to each other.

    Columns of one block may have zeros behind their codes, for whole vectors.

    Returns:
        *b* itself if that is so; ``None`` if it is no constant that can be packed.
    """
    view, element = b.codes.view, element_of(b.codes.view.dtype)
    if b.codes.bits:
        return b
    if view.shape[:_LEAD] != (1, 1) or not _LEAD + 2 <= len(view.shape) <= _LEAD + 3:
        return None
    if b.scale is None or not (element in SUB_BYTE or element in ("i8", "u8")):
        return None
    parameters = [b.scale, *([] if b.zero is None else [b.zero.view])]
    if any(each.strides[-2] and each.shape[-2] > 1 for each in parameters):
        return None
    is_whole = not view.shape[-2] % LANES or math.prod(view.shape[:-2]) > 1
    lies_so = view.strides[-2] == 1 or view.shape[-2] == 1
    if element not in SUB_BYTE and lies_so and is_whole:
        return b
    if not isinstance(view.buffer, Constant):
        return b if element not in SUB_BYTE and lies_so else None
    return _Columns(recorder, b).factor()


class _Columns:
    """A factor while it is packed.

    Attributes:
        bits: of a code.
        middle: what is added to codes with a sign, which others have not.
        per_byte: codes of a byte.
        block: codes of a block, with what is behind them.
    """

    def __init__(self, recorder: Recorder, b: Factor) -> None:
        self.recorder, self.b = recorder, b
        element = element_of(b.codes.view.dtype)
        assert element is not None
        self.bits = int(element[1:])
        self.middle = 1 << self.bits - 1 if element in ("i2", "i4") else 0
        _, _, *blocks, block, self.columns = b.codes.shape
        self.blocks, self.length = math.prod(blocks), block
        self.per_byte, self.block = 8 // self.bits, block
        if self.blocks == 1:
            step = LANES * self.per_byte
            self.block = -(-block // step) * step
        elif block % self.per_byte:
            self.per_byte = 1

    def factor(self) -> Factor:
        """The factor, packed."""
        b = self.b
        assert b.scale is not None
        codes = Codes(self._codes(), self.bits if self.per_byte > 1 else 0, 3)
        zero = None if b.zero is None else Codes(self._of_blocks(b.zero.view))
        scale = self._of_blocks(b.scale)
        return Factor(codes, zero, b.offset + self.middle, scale, b.rounds)

    def _turned(self, view: View) -> View:
        """[columns, blocks, n] as a factor's arrays lie."""
        return View(
            view.buffer,
            view.offset,
            view.dtype,
            (1, 1, *view.shape[1:], view.shape[0]),
            (0, 0, *view.strides[1:], view.strides[0]),
        )

    def _codes(self) -> View:
        view = self.b.codes.view
        shape = (self.columns, self.blocks, self.block // self.per_byte)
        dtype = _U8 if self.bits < 8 else view.dtype
        stride = view.strides[2] if len(view.shape) > _LEAD + 2 else 0
        matrix = View(
            view.buffer,
            view.offset,
            dtype,
            (self.blocks, self.length, self.columns),
            (stride, *view.strides[-2:]),
        )
        form = view.dtype_name, view.offset, matrix.shape, matrix.strides
        address = self.recorder.packed(
            matrix,
            f"columns({','.join(map(str, form))},{self.block},{self.per_byte})",
            math.prod(shape),
            functools.partial(self._pack, shape=shape),
        )
        found = View.contiguous(address.buffer, dtype, shape, address.offset)
        return self._turned(found)

    def _pack(
        self,
        recorder: Recorder,
        source: View,
        target: Address,
        *,
        shape: tuple[int, int, int],
    ) -> None:
        out = View.contiguous(target.buffer, source.dtype, shape, target.offset)
        used = -(-self.length // self.per_byte)
        if used < shape[2]:
            rest = shape[2] - used
            record_zeros(recorder, out.slice((0, 0, used), (*shape[:2], rest)))
        out = out.slice((0, 0, 0), (*shape[:2], used)).transpose((1, 2, 0))
        if self.bits == _U8.itemsize * 8:
            record_copy(recorder, source, out, label="Codes")
            return
        made = recorder.temporary(_U8, (self.blocks, used, self.columns))
        whole = self.length // self.per_byte
        for first, count in ((0, whole), (whole, used - whole)):
            if not count:
                continue
            left = min(self.length - first * self.per_byte, self.per_byte)
            some = made.slice((0, first, 0), (self.blocks, count, self.columns))
            self._join(recorder, source, some, first * self.per_byte, left)
        record_copy(recorder, made, out, label="Codes")

    def _join(
        self, recorder: Recorder, source: View, target: View, first: int, parts: int
    ) -> None:
        """Put *parts* codes, one after the other, into each byte."""
        blocks, block, columns = source.strides
        chain = Formula("u8")
        value = None
        for part in range(parts):
            place = source.offset + (first + part) * block
            strides = (blocks, block * self.per_byte, columns)
            view = View(source.buffer, place, _U8, target.shape, strides)
            code = self._unsigned(chain, view)
            if part:
                by = chain.number(part * self.bits)
                code = chain.step("BitShift", code, by, direction="LEFT")
            value = code if value is None else chain.step("BitwiseOr", value, code)
        assert value is not None
        chain.record(recorder, value, target, "Codes")

    def _unsigned(self, chain: Formula, view: View) -> Number:
        """Codes of fewer than 8 bits without a sign, each in a byte."""
        low = chain.number((1 << self.bits) - 1)
        code = chain.step("BitwiseAnd", chain.read(view), low)
        if self.middle:
            code = chain.step("BitwiseXor", code, chain.number(self.middle))
        return code

    def _of_blocks(self, view: View) -> View:
        """Scales or zero points, those of a column next to each other."""
        is_code = element_of(view.dtype) in SUB_BYTE
        stride = view.strides[2] if len(view.shape) > _LEAD + 2 else 0
        strides = (view.strides[-1], stride, 0)
        dtype = _U8 if is_code else view.dtype
        repeated = (1, 1, self.blocks, self.block, self.columns)
        shape = (self.columns if strides[0] else 1, self.blocks if stride else 1, 1)
        matrix = View(view.buffer, view.offset, dtype, shape, strides)
        if not is_code and (not stride or not isinstance(view.buffer, Constant)):
            return self._turned(matrix).broadcast_to(repeated)

        def record(recorder: Recorder, source: View, target: Address) -> None:
            out = View.contiguous(target.buffer, dtype, shape, target.offset)
            if not is_code:
                record_copy(recorder, source, out, label="Codes")
                return
            chain = Formula("u8")
            chain.record(recorder, self._unsigned(chain, source), out, "Codes")

        if isinstance(view.buffer, Constant):
            form = view.dtype_name, view.offset, *shape, *strides
            layout = f"of columns({','.join(map(str, form))})"
            nbytes = math.prod(shape) * dtype.itemsize
            address = self.recorder.packed(matrix, layout, nbytes, record)
        else:
            address = self.recorder.temporary(dtype, shape).address
            record(self.recorder, matrix, address)
        found = View.contiguous(address.buffer, dtype, shape, address.offset)
        return self._turned(found).broadcast_to(repeated)
