"""Calls a program's steps, and says of which node what they raise."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import Any

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_torch.dtypes import data_type
from onnxplug_torch.program import Program, Step


def execute(
    program: Program, arguments: Sequence[Any], context: ep.RunContext | None
) -> list[Any]:
    """Call the steps in order.

    Raises:
        NodeError: one of them fails, of whatever it raises.
        OutOfMemory: likewise, for want of memory.
        RunCancelled: the run was cancelled.
    """
    slots = list(program.template)
    for slot, argument in zip(program.inputs, arguments, strict=True):
        slots[slot] = argument
    profiler = None if context is None else context.profiler
    for step in program.steps:
        if context is not None and context.cancelled:
            raise ep.RunCancelled(f"the run was cancelled before {describe(step.node)}")
        given = [slots[slot] for slot in step.inputs]
        started = 0 if profiler is None else perf_counter_ns()
        # any exception is reported with the node that it happened in
        try:
            results = step.function(*given)
        except Exception as error:
            raise _located(step, given, error) from error
        if profiler is not None:
            _record(profiler, step, started)
        _store(slots, step, results)
    return [slots[slot] for slot in program.outputs]


def _store(slots: list[Any], step: Step, results: Any) -> None:
    if isinstance(results, tuple):
        if len(results) < len(step.outputs):
            raise ep.NodeError(
                f"{describe(step.node)} has {len(step.outputs)} outputs, but its "
                f"operator makes {len(results)}",
                node=step.node.name or describe(step.node),
            )
        for slot, result in zip(step.outputs, results, strict=False):
            slots[slot] = result
    else:
        slots[step.outputs[0]] = results
    for slot in step.frees:
        slots[slot] = None


def _record(profiler: ep.Profiler, step: Step, started: int) -> None:
    profiler.record(
        step.node.name or describe(step.node),
        category="Node",
        start_ns=started,
        duration_ns=perf_counter_ns() - started,
        details={"op_name": step.node.op_type, "node_index": step.node.index},
    )


def _located(
    step: Step, given: Sequence[Any], error: Exception
) -> ep.NodeError | ep.OutOfMemory:
    found = ", ".join(map(_summary, given)) or "no inputs"
    what = f"{describe(step.node)} on {found}"
    name = step.node.name or describe(step.node)
    if isinstance(error, MemoryError) or any(each in str(error) for each in _NO_MEMORY):
        return ep.OutOfMemory.of(error, what, node=name)
    return ep.NodeError(
        f"{describe(step.node)} failed on {found}: {type(error).__name__}: {error}",
        node=name,
    )


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def _summary(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{data_type(value.dtype)}{list(value.shape)}"
    return "nothing" if value is None else str(value)[:60]
