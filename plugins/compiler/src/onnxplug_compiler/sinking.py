"""Lets codes be moved as they are: what dequantises them comes after what moves them.

Quantizers dequantise once, where codes are made, and let exporters' ``Split``,
``Concat``, ``Reshape`` and the like stand before what multiplies.  Elements that are
moved are the same in either order, to the bit; and behind what moves them codes are
found by what multiplies them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.moves import MOVES, added_by_pad, only_moves
from onnxplug_compiler.frontend.patterns.quantised import EXACT
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.widening import Dtypes, Followed, with_values

_F32: Final = np.dtype(np.float32)
_BYTES: Final = frozenset({"i8", "u8"})
_FACTORS: Final = {"Conv": 1, "Gemm": 2, "MatMul": 2, "QuantizeLinear": 1}
"""Operators for which codes are looked for, and how many inputs may be these."""


class Sunk(Record):
    """The calls of a partition, with codes moved where that is of use.

    Attributes:
        calls: in topological order.
        dtypes: of values that only they have.
        names: of these, and of the values whose places they take.
    """

    calls: tuple[Call, ...]
    dtypes: Mapping[str, np.dtype[Any]]
    names: Mapping[str, str]


def sunk(
    calls: Sequence[Call],
    dtypes: Dtypes,
    constants: Constants,
    target: Support,
    kinds: dict[Any, int],
) -> Sunk:
    """The calls with what dequantises behind what moves, before what takes codes.

    Args:
        calls: in topological order.
        dtypes: of all values that calls read.
        constants: values that never change.
        target: what they are compiled for.
        kinds: of :func:`~.frontend.call.call_of`; grows.
    """
    operators = {call.op_type for call in calls}
    if "DequantizeLinear" not in operators or operators.isdisjoint(MOVES):
        return Sunk(tuple(calls), {}, {})
    sinking = _Sinking(dtypes, constants, target, kinds, _wanted(calls))
    for call in calls:
        sinking.add(call)
    return Sunk(tuple(sinking.calls), sinking.made, sinking.names)


def _moved(call: Call) -> tuple[str | None, ...]:
    """The inputs whose elements *call* moves; none if it computes."""
    if call.domain or call.op_type not in MOVES:
        return ()
    if not only_moves(call.op_type, call.version, call.attributes):
        return ()
    return call.inputs if call.op_type == "Concat" else call.inputs[:1]


def _wanted(calls: Sequence[Call]) -> set[str | None]:
    """Values that something would take as codes, at once or where they are moved."""
    wanted: set[str | None] = set()
    for call in reversed(calls):
        if not call.domain and call.op_type in _FACTORS:
            wanted.update(call.inputs[: _FACTORS[call.op_type]])
        elif not wanted.isdisjoint(call.outputs):
            wanted.update(_moved(call))
    return wanted


class _Codes(NamedTuple):
    """What a value is dequantised from.

    Attributes:
        name: of the codes.
        dtype: theirs.
        maker: dequantises them.
        scale, zero: one number each.
    """

    name: str
    dtype: np.dtype[Any]
    maker: Call
    scale: float
    zero: int


class _Sinking:
    """Adds one call after the other.

    Attributes:
        calls: those so far.
        made: dtypes of values that only they have.
        names: of these, and of the values whose places they take.
    """

    def __init__(
        self,
        dtypes: Dtypes,
        constants: Constants,
        target: Support,
        kinds: dict[Any, int],
        wanted: set[str | None],
    ) -> None:
        self.calls: list[Call] = []
        self.made: dict[str, np.dtype[Any]] = {}
        self.names: dict[str, str] = {}
        self._dtypes, self._constants = dtypes, constants
        self._target, self._kinds, self._wanted = target, kinds, wanted
        self._codes: dict[str | None, _Codes] = {}

    def add(self, call: Call) -> None:
        """Add *call*, or what moves codes in its place."""
        if call.op_type == "DequantizeLinear":
            self._note(call)
        codes = [self._codes.get(name) for name in _moved(call)]
        found = [each for each in codes if each is not None]
        if (
            not found
            or len(found) < len(codes)
            or self._wanted.isdisjoint(call.outputs)
            or not all(_are_alike(found[0], each) for each in found[1:])
            or not self._takes(call, found[0].dtype)
        ):
            self.calls.append(call)
            return
        self._move(call, found)

    def _note(self, call: Call) -> None:
        """Take down what a call dequantises, with one scale for all."""
        name, scale, zero = call.input(0), call.input(1), call.input(2)
        dtype = None if name is None else self._dtypes.get(name)
        if (
            call.domain
            or name is None
            or name in self._constants
            or element_of(dtype) not in _BYTES
            or dtype is None
            or call.dtypes[0] != _F32
            or call.function is None
            or call.attributes.get("block_size")
        ):
            return
        step = self._number(scale)
        point = np.zeros((), dtype) if zero is None else self._number(zero)
        if step is None or point is None or step.dtype != _F32 or not step > 0:
            return
        if point.dtype == dtype:
            self._codes[call.outputs[0]] = _Codes(
                name, dtype, call, float(step), int(point)
            )

    def _number(self, name: str | None) -> np.ndarray[Any, Any] | None:
        """The one number that a value is in all runs."""
        if name is None or name not in self._constants:
            return None
        value: Abstract = self._constants.known(name)
        if value.content is None or value.size != 1:
            return None
        return value.content.reshape(())

    def _takes(self, call: Call, dtype: np.dtype[Any]) -> bool:
        """Whether the target moves codes as *call* does, and nothing else is made."""
        if call.op_type == "Pad":
            added = added_by_pad(call.attributes, call.inputs)
            number = None if added is None else self._number(added)
            if added is not None and (number is None or number != 0):
                return False
        operator = "Gather" if call.op_type in ("Resize", "Upsample") else call.op_type
        return (
            element_of(dtype) in self._target.elements(operator)
            and call.function is not None
            and call.infer is not None
            and all(made == _F32 for made in call.dtypes)
            and (call.op_type == "Split" or not any(call.outputs[1:]))
        )

    def _move(self, call: Call, codes: Sequence[_Codes]) -> None:
        first, count = codes[0], len(codes)
        rest = list(call.inputs[count:])
        given = [_F32] * count + [
            None if name is None else self._dtypes.get(name) for name in rest
        ]
        if call.op_type == "Pad" and call.attributes.get("mode", "constant") == (
            "constant"
        ):  # what stands for 0
            rest[1:2], given[2:3] = [first.maker.input(2)], [_F32]
        inputs = (*(each.name for each in codes), *rest)
        outputs = tuple(
            None if name is None else self._name(name, first.dtype)
            for name in call.outputs
        )
        made = (first.dtype,) * len(outputs)
        assert call.infer is not None
        infer, kind = Followed(call.infer, given, made), None
        if call.kind is not None:
            signature = "sunk", call.kind, first.dtype.str
            kind = self._kinds.setdefault(signature, len(self._kinds))
        moved = with_values(call, inputs, outputs, made, infer, kind)
        moved.note = EXACT
        self.calls.append(moved)
        for name, own in zip(call.outputs, outputs, strict=True):
            if name is None or own is None:
                continue
            maker = first.maker
            back = with_values(
                maker,
                (own, *maker.inputs[1:]),
                (name,),
                maker.dtypes,
                maker.infer,
                maker.kind,
            )
            self.calls.append(back)
            self._codes[name] = first._replace(name=own, maker=back)

    def _name(self, name: str, dtype: np.dtype[Any]) -> str:
        """Of the codes of a value, which no value of the model has."""
        own = f"{name} as codes"
        while own in self._dtypes or own in self.made:
            own += "'"
        self.names[own], self.made[own] = name, dtype
        return own


def _are_alike(one: _Codes, other: _Codes) -> bool:
    """Whether equal codes stand for equal numbers."""
    return (one.dtype, one.scale, one.zero) == (other.dtype, other.scale, other.zero)
