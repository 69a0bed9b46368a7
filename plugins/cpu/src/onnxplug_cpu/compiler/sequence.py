"""Segments of machine code and calls on arrays, one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug_compiler.frontend.border import Border
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.segmentation import Analysis, Unit
from onnxplug_cpu.compiler.segment import Segment
from onnxplug_cpu.compiler.varying import VaryingSegment, is_simple, varying_values
from onnxplug_cpu.control_flow import ControlFlow
from onnxplug_cpu.threads import computes, on_arrays, uses_blas

FindFunction: TypeAlias = (
    "Callable[[ep.Graph, ep.Node], Callable[..., Any] | ep.Reason]"
)


def sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    threads: int,
) -> KernelSequence:
    """The units of a partition as calls over slots.

    Args:
        threads: of what runs on arrays; 0 for no limit.
    """
    whole = Unit((), tuple(partition.inputs), tuple(partition.outputs), compiled=False)
    return _sequence(partition, of_index, whole, units, segments, analysis, threads)


def _sequence(
    partition: ep.Partition,
    of_index: Mapping[int, ep.Node],
    whole: Unit,
    units: Sequence[Unit],
    segments: Sequence[Segment | None],
    analysis: Analysis,
    threads: int,
) -> KernelSequence:
    """The same of a part, of which *whole* has the inputs and outputs."""
    functions: dict[int, Callable[..., Any]] = {}
    nodes: list[Any] = []
    notes = {}
    limit: int | None = None
    varying = varying_values(units)
    axes = {name: each.axis for unit in units for name, each in unit.counted.items()}
    for index, (unit, segment) in enumerate(zip(units, segments, strict=True)):
        if segment is not None:
            functions[index] = _SegmentFunction(segment)
            if not varying.isdisjoint(unit.inputs) and is_simple(unit.calls):
                calls = [Unit((call,), (), (), compiled=False) for call in unit.calls]
                alone = [None] * len(calls)
                on_arrays_ = _sequence(
                    partition, of_index, unit, calls, alone, analysis, threads
                )
                functions[index] = VaryingSegment(segment, on_arrays_, varying, axes)
            nodes.append(_step(unit, op_type="Program", domain="", name="", index=-1))
            continue
        (call,) = unit.calls
        assert call.function is not None
        functions[index] = call.function
        node: Any = of_index[call.nodes[0]]
        if isinstance(call, Border):  # which computes no numbers
            facts = {key: getattr(node, key) for key in ("domain", "name", "index")}
            node = _step(call, op_type=node.op_type, **facts)
        elif _takes_texts(partition, call):
            pass  # of which no number is computed
        elif uses_blas(node.domain, node.op_type):
            limit = threads
        elif limit is None and computes(node.domain, node.op_type):
            limit = 0
        nodes.append(node)
        if call in analysis.reasons:
            notes[id(node)] = analysis.reasons[call]
    order = iter(range(len(nodes)))

    def constant(name: str) -> Any:
        return None if name in analysis.numbers else partition.constant(name)

    def value(name: str) -> ep.ValueInfo:
        return partition.value(analysis.numbers.get(name, name))

    part = SimpleNamespace(
        graph=partition.graph,
        nodes=nodes,
        inputs=whole.inputs,
        outputs=whole.outputs,
        constant=constant,
        value=value,
        infer=partition.infer,
    )
    return _Sequence(part, lambda graph, node: functions[next(order)], notes, limit)


def _takes_texts(partition: ep.Partition, call: Call) -> bool:
    return any(
        partition.value(name).dtype is ep.DataType.STRING
        for name in call.inputs
        if name is not None
    )


def _step(part: Unit | Call, **facts: Any) -> SimpleNamespace:
    """What a sequence asks of a node, of what is none."""
    return SimpleNamespace(
        inputs=part.inputs, outputs=part.outputs, captures=(), **facts
    )


class _Sequence(KernelSequence):
    """Segments, and calls on arrays.

    Args:
        notes: why calls are on arrays, by the identity of the node.
        threads: of what runs on arrays; 0 for no limit, ``None`` if nothing computes
            there.
    """

    tier = "array"

    def __init__(
        self,
        partition: Any,
        find_kernel: FindFunction,
        notes: Mapping[int, str],
        threads: int | None,
    ) -> None:
        super().__init__(partition, find_kernel)
        self._notes = notes
        self._threads = threads
        # arrays that may be large are asked about before each call
        self._written: Written | None = None
        if not self._may_be_large:
            self._written = written_out(
                [(call.kernel, call.inputs, call.outputs) for call in self._calls],
                range(self._first_input, self._input_end),
                self._outputs,
                self._template,
            )

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call segments and functions in order."""
        if self._threads is None:
            return self._run(inputs, outputs, context)
        with on_arrays(self._threads):
            return self._run(inputs, outputs, context)

    def _run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        if context is None and self._written is not None:
            for array in outputs:
                if array is not None:
                    break
            else:
                try:
                    return self._written(inputs)
                except Exception as error:  # noqa: BLE001
                    # whatever it is, it happens again, and is told of the node
                    ep.raise_interruption(error)
        return super().run(inputs, outputs, context)

    def call(
        self,
        node: ep.Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: ep.RunContext,
    ) -> Any:
        """Call a kernel; a segment records its commands itself."""
        if isinstance(kernel, _SegmentFunction | VaryingSegment):
            return kernel(*arguments, context=context)
        if isinstance(kernel, ControlFlow):
            kernel = functools.partial(kernel, context=context)
        return super().call(node, kernel, arguments, context)

    def details(
        self, node: ep.Node, arguments: Sequence[Any], results: Any
    ) -> dict[str, object]:
        """What a profile has of a call on arrays: why it is not compiled, too."""
        note = self._notes.get(id(node))
        facts = super().details(node, arguments, results)
        return facts if note is None else facts | {"note": note}


Written: TypeAlias = "Callable[[Sequence[Any]], list[Any]]"
"""Of the inputs the outputs."""


def written_out(
    calls: Sequence[tuple[Callable[..., Any], Sequence[int], Sequence[int]]],
    inputs: Sequence[int],
    outputs: Sequence[int],
    constants: Sequence[Any],
) -> Written:
    """Calls over slots as a function of Python's, written for them.

    A slot is a variable, and nothing is looked up: where calls take a microsecond, as
    on a row of a table, a loop over them would take as long again.  A call that raises
    anything, or gives too little, is for a slower way to tell of.

    Args:
        calls: functions, slots of their arguments, and of their results.
        inputs, outputs: slots of what is given and wanted.
        constants: by slot; ``None`` for what is computed.
    """
    names: dict[str, Any] = {"tuple": tuple}
    names |= {f"s{slot}": value for slot, value in enumerate(constants)}
    given = {*inputs, *(slot for _, _, made in calls for slot in made)}
    last = {
        slot: number for number, (_, taken, _) in enumerate(calls) for slot in taken
    }
    lines = [f"{_variables(inputs)} = inputs"] if inputs else []
    for number, (function, taken, made) in enumerate(calls):
        names[f"f{number}"] = function
        arguments = ", ".join(f"s{slot}" for slot in taken)
        call = f"f{number}({arguments})"
        # what nobody wants has slot 0, which later calls see as an input left out
        targets = [f"s{slot}" if slot else "_" for slot in made]
        if len(made) > 1:
            lines.append(f"{', '.join(targets)}, *_ = {call}")
        else:
            (target,) = targets
            lines.append(f"{target} = {call}")
            lines.append(f"if type({target}) is tuple: {target} = {target}[0]")
        ended = [slot for slot, end in last.items() if end == number]
        freed = [slot for slot in ended if slot in given and slot not in outputs]
        lines += [f"s{slot} = None" for slot in freed]
    body = "\n    ".join([*lines, f"return [{_variables(outputs)}]"])
    exec(f"def run(inputs):\n    {body}", names)
    written: Written = names["run"]
    return written


def _variables(slots: Sequence[int]) -> str:
    return "".join(f"s{slot}, " for slot in slots)


class _SegmentFunction:
    """A segment as a function of arrays."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self._unbound = (None,) * len(segment.outputs)

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        return tuple(self._segment.run(arrays, self._unbound, context))
