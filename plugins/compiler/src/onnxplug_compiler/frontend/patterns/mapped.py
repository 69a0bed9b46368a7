"""What follows from one 8-bit code alone is looked up: 256 codes have a table.

Between a ``DequantizeLinear`` of codes and a ``QuantizeLinear`` may be any element-wise
operators that read nothing else but numbers that never change, codes in between
included.  A table has what the array tier gives for each code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug.ep import raise_interruption
from onnxplug_compiler.frontend.call import Abstract, Call
from onnxplug_compiler.frontend.elementwise import StepForm
from onnxplug_compiler.frontend.facts import Facts, dtype_of, is_fixed
from onnxplug_compiler.frontend.traits import MAPPED
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.target import Target

OPERATOR: Final = "MappedCodes"
"""What takes the place of the calls: its attribute ``table`` has the bytes of what each
code becomes, in the order of the codes without a sign."""

_BYTES: Final = frozenset({"i8", "u8"})
_SLOW: Final = frozenset(
    "Sigmoid Tanh Erf Gelu Exp Log Softplus Softsign Mish Elu Selu Celu Swish "
    "HardSwish HardSigmoid Pow Sqrt Reciprocal Sin Cos Tan Asin Acos Atan Sinh Cosh "
    "Asinh Acosh Atanh QLinearSigmoid".split()
)
"""Operators for which a table is worth a pass over the codes; others cost less in the
chain of what is before."""

_WHOLE: Final = frozenset({"QLinearSigmoid", "QLinearLeakyRelu"})
"""ONNX Runtime's operators from codes to codes."""

_MOST: Final = 64
"""Calls of a table."""

_NOTE: Final = "codes are looked up, to the bit as on arrays"


def take_tables(
    calls: Sequence[Call],
    forms: Mapping[Call, StepForm],
    facts: Facts,
    target: Target,
) -> list[Call]:
    """*calls* with look-ups in the place of those that give codes of codes.

    Args:
        calls: in topological order.
        forms: the calls that are element-wise.
        facts: of the calls' values.
        target: what they are compiled for.
    """
    if not _BYTES.issubset(target.elements(OPERATOR)):
        return list(calls)
    if _SLOW.isdisjoint(call.op_type for call in calls):
        return list(calls)
    finder = _Finder(calls, forms, facts)
    return [finder.replaced(call) for call in calls]


class _Function(NamedTuple):
    """Calls between codes.

    Attributes:
        source: the name of the codes that they are of.
        members: in topological order.
    """

    source: str
    members: list[Call]


class _Finder:
    def __init__(
        self, calls: Sequence[Call], forms: Mapping[Call, StepForm], facts: Facts
    ) -> None:
        self.forms, self.facts = forms, facts
        self.positions = {call: number for number, call in enumerate(calls)}
        self.producer = {
            name: call for call in calls for name in call.outputs if name is not None
        }

    def replaced(self, call: Call) -> Call:
        """What looks up the result of *call*, or that itself."""
        if not self._gives_codes(call):
            return call
        found = self._function(call)
        if found is None or _SLOW.isdisjoint(each.op_type for each in found.members):
            return call
        table = self._table(found, call)
        if table is None:
            return call
        nodes = {node for each in found.members for node in each.nodes}
        made = Call(
            OPERATOR,
            "",
            call.version,
            (found.source,),
            call.outputs,
            {"table": table},
            tuple(sorted(nodes)),
            call.dtypes,
        )
        made.traits, made.note = MAPPED, _NOTE
        return made

    def _gives_codes(self, call: Call) -> bool:
        dtype = call.dtypes[0] if len(call.outputs) == 1 else None
        if dtype is None or element_of(dtype) not in _BYTES:
            return False
        if call.domain == "com.microsoft" and call.op_type in _WHOLE:
            return True
        return call.op_type == "QuantizeLinear" and call in self.forms

    def _function(self, call: Call) -> _Function | None:
        """What *call* ends: of the codes farthest before it that it follows from."""
        members, sources = {call}, set[str]()
        if not self._take(call, call, members, sources):
            return None
        found = None
        while sources:
            if len(sources) == 1:
                (source,) = sources
                ordered = sorted(members, key=self.positions.__getitem__)
                found = _Function(source, ordered)
            latest = max(sources, key=self._position)
            maker = self.producer.get(latest)
            if maker is None or not self._gives_codes(maker):
                break
            sources.remove(latest)
            members.add(maker)
            if not self._take(maker, call, members, sources):
                break
        return found

    def _position(self, name: str) -> int:
        maker = self.producer.get(name)
        return -1 if maker is None else self.positions[maker]

    def _take(
        self, first: Call, last: Call, members: set[Call], sources: set[str]
    ) -> bool:
        """Add all that *first* follows from to *members*, up to codes, which are
        *sources*; false if it follows from something else."""
        waiting = [first]
        while waiting:
            call = waiting.pop()
            if call.function is None or len(members) > _MOST:
                return False
            if not self.facts.same_shape(call.outputs[0] or "", last.outputs[0] or ""):
                return False
            for name in call.inputs:
                if name is None or name in sources or self.facts.ask(_is_number, name):
                    continue
                if element_of(self.facts.ask(dtype_of, name)) in _BYTES:
                    if not self.facts.same_shape(name, last.outputs[0] or ""):
                        return False
                    sources.add(name)
                    continue
                maker = self.producer.get(name)
                if maker is None or maker not in self.forms:
                    return False
                if maker not in members:
                    members.add(maker)
                    waiting.append(maker)
        return True

    def _table(self, found: _Function, last: Call) -> bytes | None:
        """What each code becomes; ``None`` if that cannot be computed."""
        dtype = self.facts.ask(dtype_of, found.source)
        values: dict[str, Any] = {found.source: np.arange(256, dtype="u1").view(dtype)}
        for call in found.members:
            for name in call.inputs:
                if name is not None and name not in values:
                    values[name] = self.facts.ask(_number, name)
            given = [None if name is None else values[name] for name in call.inputs]
            assert call.function is not None
            try:
                with np.errstate(all="ignore"):
                    result = call.function(*given)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise_interruption(error)
                return None
            values[call.outputs[0] or ""] = np.asarray(result)
        codes = values[last.outputs[0] or ""]
        if codes.dtype != last.dtypes[0] or codes.size != 256:
            return None
        return bytes(codes.tobytes())


def _is_number(value: Abstract) -> bool:
    """Whether a value is one number in all runs."""
    return is_fixed(value) and value.size == 1


def _number(value: Abstract) -> np.ndarray[Any, Any]:
    """That number, without axes."""
    assert value.content is not None
    return value.content.reshape(())
