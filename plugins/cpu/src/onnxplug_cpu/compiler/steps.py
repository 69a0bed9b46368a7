"""Segments of machine code, and functions of arrays, called one after the other."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, TypeAlias

from onnxplug import ep
from onnxplug.authoring.kernels import KernelSequence
from onnxplug.authoring.record import Record
from onnxplug_cpu.control_flow import ControlFlow
from onnxplug_cpu.threads import (
    called_on_arrays,
    computes,
    limiting,
    limits_itself,
    uses_blas,
)

FindFunction: TypeAlias = (
    "Callable[[ep.Graph, ep.Node], Callable[..., Any] | ep.Reason]"
)


class Runs(Protocol):
    """A segment.

    Attributes:
        outputs: names of its results.
    """

    @property
    def outputs(self) -> tuple[str, ...]: ...

    def run(
        self,
        arrays: Sequence[Any],
        bound: Sequence[Any | None],
        context: ep.RunContext | None = None,
    ) -> Sequence[Any]: ...


class SegmentFunction:
    """A segment as a function of arrays."""

    takes_context = True

    def __init__(self, segment: Runs) -> None:
        self._segment = segment
        self._unbound = (None,) * len(segment.outputs)

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        return tuple(self._segment.run(arrays, self._unbound, context))


class Step(Record):
    """One call of a function of arrays.

    Attributes:
        node: of the graph, or what stands for one.
        function: takes the node's inputs, and a context if it says that it does.
        computes: whether it is the kernel of the node.
    """

    node: Any
    function: Callable[..., Any]
    computes: bool = False


def step_of(
    function: Callable[..., Any],
    inputs: Sequence[str | None],
    outputs: Sequence[str | None],
    node: ep.Node | None = None,
) -> Step:
    """A step that is no node, or a part of one."""
    step = SimpleNamespace(op_type="Program", domain="", name="", index=-1)
    if node is not None:
        for fact in vars(step):
            setattr(step, fact, getattr(node, fact))
    step.inputs, step.outputs, step.captures = inputs, outputs, ()
    return Step(step, function)


class StepSequence(KernelSequence):
    """Segments, and calls on arrays.

    Args:
        partition: that they are of.
        inputs, outputs: names of what the sequence takes and gives.
        steps: in order.
        names: of values that are none of the partition's, and of those that they
            stand for.
        notes: why calls are on arrays, by the identity of the node.
        threads: of what runs on arrays; 0 for no limit.
    """

    tier = "array"

    def __init__(
        self,
        partition: ep.Partition,
        inputs: Sequence[str],
        outputs: Sequence[str],
        steps: Sequence[Step],
        names: Mapping[str, str],
        notes: Mapping[int, str],
        threads: int,
    ) -> None:
        functions = iter([_function(step, threads) for step in steps])

        def constant(name: str) -> Any:
            return None if name in names else partition.constant(name)

        def value(name: str) -> ep.ValueInfo:
            return partition.value(names.get(name, name))

        part: Any = SimpleNamespace(
            graph=partition.graph,
            nodes=[step.node for step in steps],
            inputs=inputs,
            outputs=outputs,
            constant=constant,
            value=value,
            infer=partition.infer,
        )
        super().__init__(part, lambda graph, node: next(functions))
        self._notes = notes
        self._context = _context(steps, threads)
        # arrays that may be large are asked about before each call
        self._written: Written | None = None
        if not self._may_be_large:
            written = written_out(
                [(call.kernel, call.inputs, call.outputs) for call in self._calls],
                range(self._first_input, self._input_end),
                self._outputs,
                self._template,
            )
            self._written = self._context(written)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call segments and functions in order."""
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
        results: Sequence[Any] = self._context(super().run)(inputs, outputs, context)
        return results

    def call(
        self,
        node: ep.Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: ep.RunContext,
    ) -> Any:
        """Call a kernel; a segment records its commands itself."""
        if getattr(kernel, "takes_context", False):
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


def _context(
    steps: Sequence[Step], threads: int
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """In what *steps* run: makes a function of one that is called so."""
    kinds = [(s.node.domain, s.node.op_type) for s in steps if s.computes]
    if any(uses_blas(*kind) and not limits_itself(*kind) for kind in kinds):
        return functools.partial(called_on_arrays, threads)
    if any(computes(*kind) for kind in kinds):
        return functools.partial(called_on_arrays, 0)
    return _as_it_is


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


def _function(step: Step, threads: int) -> Callable[..., Any]:
    """That of *step*, which sees to BLAS's threads where it may be quick."""
    node = step.node
    if threads and step.computes and limits_itself(node.domain, node.op_type):
        return limiting(step.function, threads)
    return step.function


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
