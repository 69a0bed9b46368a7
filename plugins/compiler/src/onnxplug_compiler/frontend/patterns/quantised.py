"""Operators between numbers that are dequantised, and are quantised again, take codes.

A product or convolution whose factors are both made of 8-bit codes has sums of
integers, which are exact, and scales them; the calls behind become a chain as ever.  A
call that only moves elements, or chooses among them, between equal scales and zero
points moves codes, to the bit.  What is computed row by row becomes floats, and codes
again, some rows at a time.

What made the numbers goes when nobody reads them any more.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug.authoring.operators import having
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.facts import (
    Facts,
    dtype_of,
    is_fixed,
    rank_of,
    shape_of,
)
from onnxplug_compiler.frontend.traits import CODED, CODED_IMAGES
from onnxplug_compiler.ir.coded import PIXEL
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.target import Target
from onnxplug_compiler.ir.windows import MOST_CODED_TERMS

_BYTES: Final = frozenset({"i8", "u8"})
_F32: Final = np.dtype(np.float32)
_PRODUCTS: Final = {
    "MatMul": "MatMulInteger",
    "Gemm": "MatMulInteger",
    "Conv": "ConvInteger",
}
"""Operators, and those of whose elements their factors must be."""

_PLAIN: Final = {"transA": 0, "transB": 0, "alpha": 1.0, "beta": 1.0}
"""Attributes of Gemm, of a product as it is."""

_MOVES: Final = having("reshapes") | frozenset(
    "Transpose Slice Identity Expand Tile DepthToSpace SpaceToDepth Gather "
    "GatherElements GatherND MaxPool".split()
)
"""Operators whose result has elements of the first input and no others."""

_SUMS: Final = (
    "multiplies codes: sums of integers, which are exact, are scaled, so that what is "
    "quantised is at most one step from the model's float32"
)
EXACT: Final = "moves codes, to the bit as the model's float32"

_ROWS: Final = frozenset({"Softmax", "LayerNormalization", "RMSNormalization"})
_OF_ROWS: Final = "computes rows of codes, to the bit as the model's float32"

_BROADCAST_SINCE: Final = 7
"""The opset before which Gemm broadcast its addend by an attribute."""


def take_codes(
    calls: Sequence[Call], facts: Facts, wanted: Collection[str], target: Target
) -> list[Call]:
    """*calls* with those replaced that can take codes.

    Args:
        calls: in topological order.
        facts: of the calls' values.
        wanted: values that are needed outside.
        target: what they are compiled for.
    """
    if not any(call.op_type == "DequantizeLinear" for call in calls):
        return list(calls)
    rewriter = _Rewriter(calls, facts, wanted, target)
    return _read([rewriter.replaced(call) for call in calls], wanted)


def _read(calls: Sequence[Call], wanted: Collection[str]) -> list[Call]:
    """Without calls whose results nobody reads."""
    read = set(wanted)
    found: list[Call] = []
    for call in reversed(calls):
        if not read.isdisjoint(call.outputs):
            found.append(call)
            read.update(name for name in call.inputs if name is not None)
    return found[::-1]


class _Numbers(NamedTuple):
    """What a value is made of.

    Attributes:
        codes, scale, zero: names; ``None``: the zero point is 0.
        axis: of scales.
        turned: whether the axes of the codes, which are two, are swapped.
    """

    codes: str
    scale: str
    zero: str | None
    axis: int
    turned: bool = False


class _Rewriter:
    def __init__(
        self,
        calls: Sequence[Call],
        facts: Facts,
        wanted: Collection[str],
        target: Target,
    ) -> None:
        self.facts = facts
        self.readers = Counter(wanted)
        for each in calls:
            self.readers.update(name for name in each.inputs if name is not None)
        self.target = target
        self.producer = {
            name: call for call in calls for name in call.outputs if name is not None
        }

    def replaced(self, call: Call) -> Call:
        """What takes codes in the place of *call*, or that itself."""
        if call.domain:
            return call
        made = None
        if call.op_type in _PRODUCTS and call.dtypes[0] == _F32:
            made = self._product(call)
        elif call.op_type == "QuantizeLinear":
            made = self._moved(call) or self._rows(call)
        return made or call

    def _numbers(self, name: str | None) -> _Numbers | None:
        """What the value *name* is made of, if it is floats of bytes."""
        call = self.producer.get(name or "")
        if call is None or call.op_type != "DequantizeLinear":
            return None
        codes, scale = call.inputs[:2]
        if codes is None or scale is None or call.attributes.get("block_size"):
            return None
        if call.dtypes[0] != _F32 or self.facts.ask(dtype_of, scale) != _F32:
            return None
        if element_of(self.facts.ask(dtype_of, codes)) not in _BYTES:
            return None
        axis = int(call.attributes.get("axis", 1))
        return _Numbers(codes, scale, call.input(2), axis)

    # products

    def _product(self, call: Call) -> Call | None:
        elements = self.target.elements(_PRODUCTS[call.op_type])
        if self.target.coded_products is None or not _BYTES.issubset(elements):
            return None
        a, b = self._numbers(call.inputs[0]), self._factor(call)
        if a is None or b is None:
            return None
        if not all(self._has_zeros_as_scales(each) for each in (a, b)):
            return None
        if not self.facts.ask(_scales_multiply, a.scale, b.scale):
            return None
        if not self.facts.ask(_has_one, a.scale):
            if not self._has_steps_of_channels(call, a, b):
                return None
            a = a._replace(zero=None)
        along_last = b.turned != bool(call.attributes.get("transB", 0))
        if call.op_type == "Conv":
            fits = self.facts.ask(_fits_window, b.codes)
        else:
            fits = self.facts.ask(_fits_row if along_last else _fits_column, b.codes)
        if not fits:
            return None
        if call.op_type == "Conv":
            return self._convolution(call, a, b)
        return self._matrix_product(call, a, b)

    def _has_steps_of_channels(self, call: Call, a: _Numbers, b: _Numbers) -> bool:
        """Whether each channel has its own scale, no zero point, and is convolved by
        itself."""
        groups = int(call.attributes.get("group", 1))
        return (
            call.op_type == "Conv"
            and groups > 1
            and self._takes_windows(groups, b.codes)
            and a.axis in (1, 1 - self.facts.ask(rank_of, a.codes))
            and (a.zero is None or bool(self.facts.ask(_is_nothing, a.zero)))
        )

    def _factor(self, call: Call) -> _Numbers | None:
        """The second factor; of a product its axes may be swapped on the way."""
        name = call.inputs[1]
        turn = self.producer.get(name or "")
        if call.op_type == "Conv" or turn is None or turn.op_type != "Transpose":
            return self._numbers(name)
        found = self._numbers(turn.inputs[0])
        if found is None or self.facts.ask(rank_of, found.codes) != 2:
            return None
        order = turn.attributes.get("perm")
        if order is not None and list(order) != [1, 0]:
            return None
        return found._replace(turned=True)

    def _has_zeros_as_scales(self, numbers: _Numbers) -> bool:
        """Whether there are as many zero points as scales."""
        zero = numbers.zero
        if zero is None or self.facts.same_shape(numbers.scale, zero):
            return True
        return all(self.facts.ask(_has_one, name) for name in (numbers.scale, zero))

    def _matrix_product(self, call: Call, a: _Numbers, b: _Numbers) -> Call | None:
        ask = self.facts.ask
        rank_a, rank_b = ask(rank_of, a.codes), ask(rank_of, b.codes)
        if min(rank_a, rank_b) < 2:
            return None
        attributes: dict[str, Any] = dict(_PLAIN)
        if call.op_type == "Gemm":
            if call.version < _BROADCAST_SINCE:
                return None
            attributes |= {key: call.attributes[key] for key in attributes}
        attributes["transB"] ^= int(b.turned)
        if not ask(_has_one, b.scale):
            # one for each column
            axis = b.axis % rank_b if -rank_b <= b.axis < rank_b else -1
            columns = rank_b - 1 - attributes["transB"]
            if rank_b != 2 or axis != columns:
                return None
        return self._made(call, "QuantizedMatMul", a, b, attributes)

    def _convolution(self, call: Call, a: _Numbers, b: _Numbers) -> Call | None:
        if len(call.inputs) > 3:
            return None
        groups = int(call.attributes.get("group", 1))
        if groups != 1 and not self._takes_groups(groups, b.codes):
            return None
        rank = self.facts.ask(rank_of, b.codes)
        # one for all, or one for each filter
        if not self.facts.ask(_has_one, b.scale) and b.axis not in (0, -rank):
            return None
        return self._made(call, "QuantizedConv", a, b, call.attributes)

    def _takes_groups(self, groups: int, filters: str) -> bool:
        """Whether the target convolves groups of codes."""
        if self._takes_windows(groups, filters):
            return True
        family = self.target.coded_products
        if family is None or not family.takes_groups():
            return False
        shape = self.facts.ask(shape_of, filters)
        return are_of_quads(shape) and bool(self.facts.ask(_is_constant, filters))

    def _takes_windows(self, groups: int, filters: str) -> bool:
        """Whether the target convolves groups in windows of codes."""
        windows, shape = self.target.windows, self.facts.ask(shape_of, filters)
        takes_codes = windows is not None and windows.takes_codes()
        return takes_codes and are_windows(groups, shape)

    def _made(
        self, call: Call, op_type: str, a: _Numbers, b: _Numbers, attributes: Any
    ) -> Call:
        made = Call(
            op_type,
            "",
            call.version,
            (a.codes, a.scale, a.zero, b.codes, b.scale, b.zero, call.input(2)),
            call.outputs,
            attributes,
            call.nodes,
            call.dtypes,
        )
        made.traits = CODED_IMAGES if op_type == "QuantizedConv" else CODED
        made.note = _SUMS
        return made

    # moves

    def _moved(self, call: Call) -> Call | None:
        """The call that moves codes to where *call* writes them."""
        move = self.producer.get(call.inputs[0] or "")
        if move is None or call.attributes.get("block_size"):
            return None
        if move.op_type == "Concat" and not move.domain:
            return self._joined(call, move)
        op_type, source, *rest = move.op_type, *move.inputs
        if op_type == "DequantizeLinear":
            op_type, source, rest = "Identity", call.inputs[0], []
        elif move.domain or op_type not in _MOVES or any(move.outputs[1:]):
            return None
        numbers = self._numbers(source)
        if numbers is None or not self._is_as(call, numbers):
            return None
        element = element_of(self.facts.ask(dtype_of, numbers.codes))
        if element not in self.target.elements(op_type):
            return None
        moved = Call(
            op_type,
            "",
            move.version,
            (numbers.codes, *rest),
            call.outputs,
            {} if op_type == "Identity" else move.attributes,
            tuple(sorted({*move.nodes, *call.nodes})),
            call.dtypes,
        )
        moved.note = EXACT
        return moved

    def _rows(self, call: Call) -> Call | None:
        """The call that computes rows of codes to where *call* quantises them."""
        ask, name = self.facts.ask, call.inputs[0]
        rows, dtype = self.producer.get(name or ""), call.dtypes[0]
        if rows is None or name is None or dtype is None or self.readers[name] > 1:
            return None
        if rows.domain or rows.op_type not in _ROWS or any(rows.outputs[1:]):
            return None
        numbers, scale = self._numbers(rows.inputs[0]), call.inputs[1]
        if numbers is None or scale is None or ask(dtype_of, scale) != _F32:
            return None
        axis = int(rows.attributes["axis"])
        if axis not in (-1, ask(rank_of, numbers.codes) - 1):
            return None
        if self.target.coded_rows is None or element_of(dtype) not in _BYTES:
            return None
        steps = numbers.scale, numbers.zero, scale, call.input(2)
        if not all(each is None or ask(_has_one, each) for each in steps):
            return None
        weights = rows.input(1), rows.input(2)
        if any(each is not None and ask(rank_of, each) != 1 for each in weights):
            return None
        if call.attributes.get("block_size") or call.attributes.get("precision"):
            return None
        made = Call(
            "QuantizedRows",
            "",
            rows.version,
            (numbers.codes, *steps, *weights),
            call.outputs,
            {**rows.attributes, "operator": rows.op_type},
            tuple(sorted({*rows.nodes, *call.nodes})),
            call.dtypes,
        )
        made.note = _OF_ROWS
        return made

    def _joined(self, call: Call, join: Call) -> Call | None:
        """The call that joins codes where *call* writes them: as they are, if all have
        the scale of the result; otherwise each part is quantised by itself."""
        ask, scale, zero = self.facts.ask, call.inputs[1], call.input(2)
        parts = [self._numbers(name) for name in join.inputs]
        found = [part for part in parts if part is not None]
        dtype = call.dtypes[0]
        if len(found) < len(parts) or not found or scale is None or dtype is None:
            return None
        element = element_of(dtype)
        if all(self._is_as(call, part) for part in found):
            if element not in self.target.elements("Concat"):
                return None
            names: list[str | None] = [part.codes for part in found]
            domain, op_type = "", "Concat"
        else:
            domain, op_type = "com.microsoft", "QLinearConcat"
            if not _BYTES.issubset(self.target.elements(f"{domain}.{op_type}")):
                return None
            if element not in _BYTES or ask(dtype_of, scale) != _F32:
                return None
            names = [scale, zero]
            for part in found:
                names += part.codes, part.scale, part.zero
            of_all = [name for at, name in enumerate(names) if at < 2 or at % 3 != 2]
            if not all(name is None or ask(_has_one, name) for name in of_all):
                return None
        joined = Call(
            op_type,
            domain,
            join.version,
            tuple(names),
            call.outputs,
            join.attributes,
            tuple(sorted({*join.nodes, *call.nodes})),
            call.dtypes,
        )
        joined.note = EXACT
        return joined

    def _is_as(self, call: Call, numbers: _Numbers) -> bool:
        """Whether *call* quantises to what *numbers* are of, with one scale for all
        that takes all codes there and back."""
        ask, scale, zero = self.facts.ask, call.inputs[1], call.input(2)
        if scale is None or call.dtypes[0] != ask(dtype_of, numbers.codes):
            return False
        if not (ask(_is_plain, scale) and self._equal(scale, numbers.scale)):
            return False
        if zero is None or numbers.zero is None:
            return (zero is None or ask(_is_nothing, zero)) and (
                numbers.zero is None or ask(_is_nothing, numbers.zero)
            )
        return self._equal(zero, numbers.zero)

    def _equal(self, one: str, other: str) -> bool:
        """Whether two values are the same number in all runs."""
        return one == other or bool(self.facts.ask(_same_number, one, other))


_SMALLEST: Final = 2.0**-126
_LARGEST: Final = 2.0**96
"""Float32 holds the product with any int32."""

MOST_TERMS: Final = ((1 << 31) - 1) // 255**2
"""Of a sum that int32 holds, whatever the codes and zero points."""


def are_windows(groups: int, filters: Sequence[int]) -> bool:
    """Whether filters of that shape are one for each channel, whose codes can be
    multiplied in windows."""
    alone = filters[0] == groups and filters[1] == 1
    return alone and math.prod(filters[2:]) <= MOST_CODED_TERMS


def are_of_quads(filters: Sequence[int]) -> bool:
    """Whether filters of that shape have channels of which fours can be multiplied, in
    each group."""
    return filters[1] % PIXEL == 0


def _is_constant(value: Abstract) -> bool:
    """Whether a value is the same in all runs."""
    return is_fixed(value) or value.load is not None


def _fits_row(factor: Abstract) -> bool:
    """Whether int32 holds the sums along the last axis."""
    return 0 < factor.shape[-1] <= MOST_TERMS


def _fits_column(factor: Abstract) -> bool:
    """Whether int32 holds those along the axis before."""
    return len(factor.shape) > 1 and 0 < factor.shape[-2] <= MOST_TERMS


def _fits_window(filters: Abstract) -> bool:
    """Whether int32 holds those of a filter."""
    return 0 < math.prod(filters.shape[1:]) <= MOST_TERMS


def _has_one(value: Abstract) -> bool:
    """Whether a value has one element."""
    return math.prod(value.shape) == 1


def _same_number(one: Abstract, other: Abstract) -> bool:
    """Whether two values are known, and the same number."""
    return (
        is_fixed(one)
        and is_fixed(other)
        and one.size == other.size == 1
        and one.content is not None
        and other.content is not None
        and bool(one.content.reshape(()) == other.content.reshape(()))
    )


def _scales_multiply(one: Abstract, other: Abstract) -> bool:
    """Whether products of scales, where these are known, are 0 or numbers of which
    sums of codes have all digits of float32, and no infinity."""
    contents = one.content, other.content
    known = [np.abs(each.astype(np.float64)) for each in contents if each is not None]
    if len(known) < len(contents):
        return True
    with np.errstate(all="ignore"):
        products = np.multiply.outer(*known)
    is_usual = (products == 0) | ((products > _SMALLEST) & (products < _LARGEST))
    return bool(is_usual.all())


def _is_plain(scale: Abstract) -> bool:
    """Whether a scale is one number, known, and neither so small nor so large that what
    codes stand for is rounded to nothing or to infinity."""
    if scale.content is None or scale.varies or scale.size != 1:
        return False
    return bool(1e-30 < float(scale.content.reshape(())) < 1e30)


def _is_nothing(zero: Abstract) -> bool:
    """Whether zero points are known to be 0."""
    return is_fixed(zero) and zero.content is not None and not zero.content.any()
