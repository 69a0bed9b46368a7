"""Splits a partition into segments that are compiled, and calls that are not.

A value is *known* when it follows from constants and shapes.  Calls that compute known
values belong to no unit: every segment that needs them computes them while planning,
and gives those that are wanted as arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from onnxplug.authoring.record import Record
from onnxplug_compiler.frontend.border import Border, apart
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.frontend.elementwise import StepForm, step_form
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.schedule.operations.registry import Extent, find_operation
from onnxplug_kernels import find_kernel, is_refusal


class Counted(Record):
    """How much of an output there is, after a run.

    Attributes:
        number: the name of another output: how many places there are along an axis.
        axis: that axis; counted from the end if negative.
    """

    number: str
    axis: int


class Unit(Record):
    """A part of a partition.

    Attributes:
        calls: of a segment those to compile, with those that compute known values;
            otherwise one call.
        inputs, outputs: names of values that come from and go to other units.
        compiled: whether it is a segment.
        counted: outputs, of a segment, whose sizes depend on elements.
        uncounted: the calls of a segment as they are on arrays.
    """

    calls: tuple[Call, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    compiled: bool
    counted: Mapping[str, Counted] = MappingProxyType({})
    uncounted: tuple[Call, ...] = ()


class Analysis(Record):
    """What is known of a partition's calls before any shape is.

    Attributes:
        calls: those that were given; one on texts in two where that about numbers is
            compiled.
        numbers: names of values between these two, int64, and the names of the texts
            that they stand for.
        forms: the element-wise calls, as steps of chains.
        reasons: why a call is not compiled.
        known: the calls whose results follow from constants and shapes.
    """

    calls: tuple[Call, ...]
    numbers: dict[str, str]
    forms: dict[Call, StepForm]
    reasons: dict[Call, str]
    known: frozenset[Call]


def analyse(
    calls: Sequence[Call],
    dtypes: Mapping[str, np.dtype[np.generic] | None],
    constants: Collection[str],
    refused: Mapping[int, str],
    target: Support,
) -> Analysis:
    """Which calls can be compiled.

    Args:
        calls: in topological order.
        dtypes: of all values.
        constants: names of values that never change.
        refused: nodes, by index, that are to run on arrays, and why.
        target: what they are compiled for.
    """
    halves = {call: parts for call in calls if (parts := apart(call))}
    while True:
        every = [part for call in calls for part in halves.get(call, (call,))]
        numbers = dict(_between(both) for both in halves.values() if len(both) > 1)
        found = {**dtypes, **dict.fromkeys(numbers, np.dtype(np.int64))}
        analysis = _analyse(every, numbers, found, constants, refused, target)
        whole = [call for call, both in halves.items() if not _helps(both, analysis)]
        if not whole:
            return analysis
        for call in whole:
            del halves[call]


def _between(parts: Sequence[Call]) -> tuple[str, str]:
    """The name of the numbers between the two calls, and that of their texts."""
    _, second = parts
    (border,) = (call for call in parts if isinstance(call, Border))
    number, texts = border.outputs[0], border.inputs[0]
    if border is second:
        number, texts = texts, number
    assert number is not None and texts is not None
    return number, texts


def _helps(parts: Sequence[Call], analysis: Analysis) -> bool:
    """Whether the call about numbers is compiled."""
    return not any(
        call in analysis.reasons for call in parts if not isinstance(call, Border)
    )


def _analyse(
    calls: Sequence[Call],
    numbers: dict[str, str],
    dtypes: Mapping[str, np.dtype[np.generic] | None],
    constants: Collection[str],
    refused: Mapping[int, str],
    target: Support,
) -> Analysis:
    forms: dict[Call, StepForm] = {}
    reasons: dict[Call, str] = {}
    known_calls: set[Call] = set()
    known = set(constants)
    for call in calls:
        refusal = next((refused[node] for node in call.nodes if node in refused), None)
        if refusal is not None:
            reasons[call] = refusal
            continue
        if isinstance(call, Border):
            what = "maps" if call.op_type == "ZipMap" else "texts"
            done = "made" if what == "maps" else "looked up"
            reasons[call] = f"{what} of {call.op_type} are {done} on arrays"
            continue
        if is_refusal(call.function):
            reasons[call] = "an attribute has a value that ONNX does not allow"
            continue
        names = [name for name in call.inputs if name is not None]
        is_known = call.traits.of_shapes or (
            bool(names)
            and known.issuperset(names)
            and call.traits.follows
            and call.function is not None
        )
        found = tuple(
            None if name is None else dtypes.get(name) for name in call.inputs
        )
        form = step_form(call, found, target)
        if form is not None:
            forms[call] = form
        if is_known and call.domain == "":
            # what is too large for a plan has its form still, for the runs
            known_calls.add(call)
            known.update(name for name in call.outputs if name is not None)
            continue
        if form is not None:
            continue
        reason = why_not(call, found, known, target)
        if reason is not None:
            reasons[call] = reason
    return Analysis(tuple(calls), numbers, forms, reasons, frozenset(known_calls))


def forms_of_all(
    calls: Sequence[Call],
    dtypes: Mapping[str, np.dtype[np.generic] | None],
    constants: Collection[str],
    target: Support,
) -> dict[Call, StepForm] | str:
    """The element-wise calls of a body, as steps of chains, if all are compiled; else
    why one of them is not."""
    analysis = analyse(calls, dtypes, constants, {}, target)
    for call, reason in analysis.reasons.items():
        return f"{call.op_type} of a body: {reason}"
    return analysis.forms


def why_not(
    call: Call,
    dtypes: tuple[np.dtype[np.generic] | None, ...],
    known: Collection[str],
    target: Support,
) -> str | None:
    """Why *call*, which is no step, is not compiled; ``None`` if it is.

    Args:
        dtypes: of its inputs.
        known: names of values that follow from constants and shapes.
    """
    operation = find_operation(call)
    if operation is None:
        if call.traits.varies:
            return f"of {call.op_type}'s random numbers ONNX names no generator"
        types = ", ".join(str(dtype) for dtype in dtypes if dtype is not None)
        return f"{call.op_type} has no compiled kernel for {types or 'no input'}"
    for position in operation.known:
        name = call.input(position)
        if name is not None and name not in known:
            return f"input {position} of {call.op_type} does not follow from shapes"
    if call.output(0) is None and not operation.any_output:
        return f"{call.op_type} is compiled with its first output only"
    for what, names, known_types in (
        ("input", call.inputs, dtypes),
        ("output", call.outputs, call.dtypes),
    ):
        if any(
            dtype is None and name is not None
            for dtype, name in zip(known_types, names, strict=True)
        ):
            return f"the type of an {what} of {call.op_type} is unknown"
    return operation.accepts(call, dtypes, target)


def split(
    analysis: Analysis, outputs: Sequence[str], constants: Collection[str]
) -> list[Unit]:
    """The units, in an order in which they can run; as few segments as possible.

    Args:
        outputs: names of what the partition gives out.
        constants: names of values that never change.
    """
    return _Splitter(analysis, outputs, constants).split()


_NEVER: Final = 1 << 62


def sizes_depend(call: Call) -> bool:
    """Whether sizes of what a call on arrays gives depend on elements, or may."""
    kernel = find_kernel(call.domain, call.op_type, call.version)
    return kernel is None or kernel.data_dependent


class _Splitter:
    def __init__(
        self, analysis: Analysis, outputs: Sequence[str], constants: Collection[str]
    ) -> None:
        calls = analysis.calls
        self.calls = calls
        self.analysis = analysis
        self.outputs = outputs
        self.constants = frozenset(constants)
        self.producer = {
            name: call for call in calls for name in call.outputs if name is not None
        }
        self.positions = {call: position for position, call in enumerate(calls)}
        self.names = {name for call in calls for name in (*call.inputs, *call.outputs)}
        self.plain = {call for call in calls if call in analysis.reasons}
        self.read_on_arrays = {
            name for call in self.plain for name in call.inputs if name is not None
        }

    def split(self) -> list[Unit]:
        """Take what can run on arrays, then what else can run, and so on."""
        # of each value the round after which it is there, plain calls in even ones; a
        # value that follows from others is there when they are
        there: dict[str, int] = {}
        rounds: dict[int, list[Call]] = {}
        known: dict[Call, int] = {}
        varying: set[str | None] = set()
        alone: set[Call] = set()
        unpacked: list[Call] = []
        for call in self.calls:
            first = max((there.get(name or "", 0) for name in call.inputs), default=0)
            is_plain, is_counted = call in self.plain, self._extent(call) is not None
            varies = not varying.isdisjoint(call.inputs)
            if call in self.analysis.known:
                number = known[call] = first
            elif self._unpacks(call):
                number = first
                unpacked.append(call)
            else:
                if is_counted and varies:  # what is before has plans of its own
                    alone.add(call)
                between = is_plain or call in alone
                number = first + (first % 2 if between else 1 - first % 2)
                rounds.setdefault(number, []).append(call)
            # plans of what reads a value of an unknown size are for its size
            ready = number + (number % 2 and is_counted)
            there.update((name, ready) for name in call.outputs if name is not None)
            if varies or is_counted or (is_plain and sizes_depend(call)):
                varying.update(name for name in call.outputs if name is not None)
        self._place_unpacked(unpacked, rounds)
        self._place_known(known, rounds)
        drafts: list[tuple[list[Call], bool]] = []
        for number, taken in sorted(rounds.items()):
            taken.sort(key=self.positions.__getitem__)
            if number % 2:
                drafts.append((taken, True))
            else:
                drafts += [([call], call in alone) for call in taken]
        return self._units(drafts)

    def _unpacks(self, call: Call) -> bool:
        """Whether a call makes what is large of constants, for compiled calls alone."""
        return (
            call.traits.unpacks
            and call not in self.plain
            and self.constants.issuperset(filter(None, call.inputs))
            and self.read_on_arrays.isdisjoint(call.outputs)
        )

    def _place_unpacked(
        self, calls: Sequence[Call], rounds: dict[int, list[Call]]
    ) -> None:
        """Put calls that unpack constants into the segment of the first of their
        readers, or the one before."""
        first: dict[str, int] = {}
        for number, taken in sorted(rounds.items()):
            for name in (name for call in taken for name in call.inputs if name):
                first.setdefault(name, number)
        for call in calls:
            number = min(first.get(name or "", _NEVER) for name in call.outputs)
            number = 1 if number == _NEVER else number - (1 - number % 2)
            rounds.setdefault(max(number, 1), []).append(call)

    def _place_known(
        self, first: Mapping[Call, int], rounds: dict[int, list[Call]]
    ) -> None:
        """Let the known values that plain calls, or the caller, want as arrays be given
        by a segment that there is before; else by plain calls.

        Args:
            first: the round from which on what each follows from is there.
            rounds: those of the other calls; takes these.
        """
        segments = sorted(number for number in rounds if number % 2)
        before = {call: n for n, taken in rounds.items() for call in taken}
        wanted = dict.fromkeys(self.outputs, max(rounds, default=0) + 2)
        for call in reversed(self.calls):
            if call in first:
                limit = min(wanted.get(name or "", _NEVER) for name in call.outputs)
                if limit == _NEVER:
                    continue
                number = next((n for n in segments if first[call] <= n < limit), None)
                if number is None:
                    number = first[call] + first[call] % 2
                    self.plain.add(call)
                before[call] = number
                rounds.setdefault(number, []).append(call)
            if call in self.plain:
                for name in call.inputs:
                    if name is not None:
                        wanted[name] = min(before[call], wanted.get(name, _NEVER))

    def _needs(self, calls: Sequence[Call]) -> list[str]:
        """Values that must exist before *calls* can be computed, or planned, if there
        are no others; those that *calls* make are among them."""
        needs: dict[str, None] = {}
        seen: set[str] = set()
        for call in calls:
            is_plain = call in self.plain
            stack = [name for name in reversed(call.inputs) if name is not None]
            while stack:
                name = stack.pop()
                if name in self.constants or name in seen:
                    continue
                seen.add(name)
                source = self.producer.get(name)
                if source is None or is_plain or source not in self.analysis.known:
                    needs[name] = None
                else:
                    stack += [n for n in reversed(source.inputs) if n is not None]
        return list(needs)

    def _units(self, drafts: Sequence[tuple[list[Call], bool]]) -> list[Unit]:
        units: list[Unit] = []
        later = set(self.outputs)
        for calls, compiled in reversed(drafts):
            made = [name for call in calls for name in call.outputs if name is not None]
            inside = set(made)
            needs = self._needs(calls)
            counted: dict[str, Counted] = {}
            whole: list[Call] = []
            if compiled:
                whole = self._with_known(calls)
                calls = [self._with_count(call, counted) for call in whole]
            units.append(
                Unit(
                    tuple(calls),
                    tuple(name for name in needs if name not in inside),
                    tuple(name for name in made if name in later),
                    compiled,
                    counted,
                    tuple(whole),
                )
            )
            later.update(needs)
        return units[::-1]

    def _with_known(self, calls: Sequence[Call]) -> list[Call]:
        """The calls and those that compute the known values that they read."""
        needed = set(calls)
        stack = list(calls)
        while stack:
            for name in stack.pop().inputs:
                source = self.producer.get(name or "")
                if source in self.analysis.known and source not in needed:
                    assert source is not None
                    needed.add(source)
                    stack.append(source)
        return sorted(needed, key=self.positions.__getitem__)

    def _extent(self, call: Call) -> Extent | None:
        """Of a call that is compiled, if sizes of its outputs depend on elements."""
        analysis = self.analysis
        if call in self.plain or call in analysis.forms or call in analysis.known:
            return None
        operation = find_operation(call)
        return None if operation is None else operation.extent

    def _with_count(self, call: Call, counted: dict[str, Counted]) -> Call:
        """The call, with the number of what it gives if that depends on elements.

        Args:
            counted: takes its outputs.
        """
        extent = self._extent(call)
        if extent is None:
            return call
        count = f"places of {call.outputs[0]}"
        while count in self.names:
            count += "'"
        for name, axis in zip(call.outputs, extent.axes(call), strict=False):
            if name is not None and axis is not None:
                counted[name] = Counted(count, axis)
        return call.counted(count, functools.partial(extent.facts, call))
