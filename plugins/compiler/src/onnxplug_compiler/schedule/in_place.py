"""Outputs of a segment that may be in the memory of an input."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule.operations.registry import find_operation


def outputs_in_place(
    calls: Sequence[Call], inputs: Sequence[str], outputs: Sequence[str]
) -> dict[int, int]:
    """Positions of such outputs, each with that of its input, which nothing else reads.

    Args:
        inputs, outputs: names of values.
    """
    readers: dict[str, int] = {}
    for call in calls:
        for name in call.inputs:
            if name is not None:
                readers[name] = readers.get(name, 0) + 1
    found = {}
    for call in calls:
        operation = find_operation(call)
        for made, read in {} if operation is None else operation.in_place.items():
            after, before = call.output(made), call.input(read)
            if (
                after in outputs
                and before in inputs
                and before is not None
                and readers[before] == 1
                and before not in outputs
            ):
                found[outputs.index(after)] = inputs.index(before)
    return found
