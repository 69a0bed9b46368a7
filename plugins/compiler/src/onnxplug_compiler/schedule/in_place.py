"""Outputs of a segment that may be in the memory of an input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.schedule.operations.registry import find_operation


def outputs_in_place(
    calls: Sequence[Call], inputs: Sequence[str], outputs: Sequence[str]
) -> dict[int, int]:
    """Positions of such outputs, each with that of its input, which nothing else reads.

    Args:
        inputs, outputs: names of values.
    """
    readers: dict[str, list[Call]] = {}
    producers: dict[str, Call] = {}
    for call in calls:
        for name in filter(None, call.inputs):
            readers.setdefault(name, []).append(call)
        producers |= {name: call for name in call.outputs if name is not None}
    found = {}
    for call in calls:
        operation = find_operation(call)
        for made, read in {} if operation is None else operation.in_place.items():
            after, before = call.output(made), call.input(read)
            if after not in outputs:
                after, before = _turned(after, before, producers, readers)
            if (
                after in outputs
                and before in inputs
                and before is not None
                and len(readers[before]) == 1
                and before not in outputs
            ):
                found[outputs.index(after)] = inputs.index(before)
    return found


def _turned(
    after: str | None,
    before: str | None,
    producers: Mapping[str, Call],
    readers: Mapping[str, Sequence[Call]],
) -> tuple[str | None, str | None]:
    """The values of which these have the axes in another order, if nothing else reads
    either of these, and the order is the same."""
    there, back = producers.get(before or ""), readers.get(after or "", ())
    if there is None or there.op_type != "Transpose" or len(back) != 1:
        return None, None
    orders = [each.attributes.get("perm") or () for each in (there, back[0])]
    if back[0].op_type != "Transpose" or len(readers[before or ""]) != 1:
        return None, None
    turned = [orders[0][axis] for axis in orders[1] if axis < len(orders[0])]
    if not turned or turned != list(range(len(orders[0]))):
        return None, None
    return back[0].output(0), there.input(0)
