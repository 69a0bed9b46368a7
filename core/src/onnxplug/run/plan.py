"""How a graph is executed: steps over numbered slots.

A slot holds one value at one location.  Each step names its slots, so that executing
looks nothing up; slots are cleared after their last use.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

from onnxplug.authoring.control_flow import Placement
from onnxplug.authoring.record import Record
from onnxplug.ep import MemoryLocation
from onnxplug.graph import Graph, Node
from onnxplug.guard import GuardedRun
from onnxplug.run.aliasing import sharing
from onnxplug.run.concurrency_limit import ConcurrencyLimit
from onnxplug.run.memory import Hop


class RunPartition(Record):
    """Runs one partition.

    Attributes:
        number: that of the partition in the session's report.
        run: the bound method, or native function, of the compiled partition, guarded.
        concurrency_limit: taken while running, when the EP limits concurrent runs.
        doubts: as of :class:`~onnxplug.run.results.ResultCheck`.
        in_place: it fills arrays of inputs.
    """

    ep: str
    number: int
    run: GuardedRun
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    location: MemoryLocation
    concurrency_limit: ConcurrencyLimit | None
    doubts: Sequence[str] | None
    in_place: bool = False
    frees: tuple[int, ...] = ()


class CopyValue(Record):
    """Copies one value along a hop.

    Attributes:
        is_result: the copy is given to the caller of the session.
    """

    name: str
    hop: Hop
    source: int
    target: int
    is_result: bool = False
    frees: tuple[int, ...] = ()


class RunBodies(Record):
    """Runs a control-flow node by the plans of its bodies.

    Attributes:
        inputs: slots of the node's inputs, 0 for those left out.
        captured: for each body the slots of what it captures, in its plan's order.
        placement: where its inputs and outputs are.
    """

    node: Node
    bodies: dict[str, Plan]
    inputs: tuple[int, ...]
    captured: dict[str, tuple[int, ...]]
    outputs: tuple[int, ...]
    placement: Placement
    frees: tuple[int, ...] = ()


Step: TypeAlias = RunPartition | CopyValue | RunBodies


class Plan(Record):
    """How one graph is executed.

    Attributes:
        graph: the graph.
        inputs: what is fed, by name: the graph's inputs, then inputs with defaults;
            slots 1, 2, … hold them.
        captured: what a body captures, and where it wants it; one value may be wanted
            in several places.
        captured_slots: the slots that hold these.
        template: the slots' content before a run: constants that are needed as they
            are, ``None`` elsewhere.  Slot 0 is always ``None``.
        outputs: the slots of the graph's outputs.
    """

    graph: Graph
    inputs: tuple[str, ...]
    captured: tuple[tuple[str, MemoryLocation], ...]
    captured_slots: tuple[int, ...]
    template: list[Any]
    steps: list[Step]
    outputs: tuple[int, ...]


def fillable(
    plan: Plan, outputs: Sequence[tuple[int, Any]], inputs: Sequence[Any]
) -> list[bool]:
    """Whether steps may fill arrays, each with what is in the slot of an output.

    Not what shares memory with an input, which is read until the run ends; but for the
    array of one input itself, of which the step takes care, if nothing else reads it.

    Args:
        outputs: slots and their arrays.
    """
    found = sharing([array for _, array in outputs], inputs)
    return [
        not shared or _in_place(plan, slot, array, shared, inputs)
        for (slot, array), shared in zip(outputs, found, strict=True)
    ]


def _in_place(
    plan: Plan, output: int, array: Any, shared: Sequence[int], inputs: Sequence[Any]
) -> bool:
    """Whether *array* is an input itself that only the step reads which makes
    *output*, and takes care of that."""
    if len(shared) > 1 or array is not inputs[shared[0]]:
        return False
    slot = shared[0] + 1
    if slot in plan.outputs:
        return False
    readers = [step for step in plan.steps if slot in _read(step)]
    return (
        all(
            isinstance(step, RunPartition) and step.in_place and output in step.outputs
            for step in readers
        )
        and len(readers) == 1
    )


def _read(step: Step) -> Collection[int]:
    """The slots that a step reads."""
    match step:
        case RunPartition():
            return step.inputs
        case CopyValue():
            return (step.source,)
        case RunBodies():
            return {*step.inputs, *itertools.chain(*step.captured.values())}


def only_partition(plan: Plan, location: MemoryLocation) -> RunPartition | None:
    """The step of *plan* if it has one, which is at *location* and runs whenever it is
    called, on nothing but what is fed; ``None`` if it is not so."""
    if len(plan.steps) != 1:
        return None
    (step,) = plan.steps
    if (
        not isinstance(step, RunPartition)
        or step.location != location
        or step.concurrency_limit is not None
        or not set(step.inputs) <= set(range(1, len(plan.inputs) + 1))
        or not set(plan.outputs) <= set(step.outputs)
    ):
        return None
    return step
