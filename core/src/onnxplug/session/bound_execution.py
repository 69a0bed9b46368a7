"""How a run on bound values begins and ends: order, capture, early return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.entries import GRAPH_ID, NOT_SYNCHRONISED, RUN
from onnxplug.errors import InvalidArgument

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.options import RunOptions
    from onnxplug.run.capture import CapturedRun
    from onnxplug.run.device import Device
    from onnxplug.run.events import OwnedEvent
    from onnxplug.run.plan import Plan
    from onnxplug.run.run import Run
    from onnxplug.session.io_binding import IOBinding


def captured_run(
    binding: IOBinding,
    built: BuiltModel,
    plan: Plan,
    values: Sequence[Any],
    bound: Sequence[Any | None],
    options: RunOptions | None,
) -> CapturedRun | None:
    """The captured runs that a run on what is bound is one of; ``None``: it is none.

    Raises:
        InvalidArgument: something is not bound to a value of the device.
    """
    device = built.captures
    assert device is not None
    config = options.config if options else {}
    graph_id = config.get(GRAPH_ID) or RUN[GRAPH_ID].default or ""
    if graph_id == "-1":
        return None
    places = {name: value.location for name, value in binding.inputs.items()}
    for name in plan.inputs:
        if places.get(name) != device.location:
            raise _not_bound("input", name, device)
    for name in plan.graph.outputs:
        output = binding.outputs.get(name)
        if output is None or output.value is None or output.device is None:
            raise _not_bound("output", name, device)
    return binding.runs.captured(built, device, graph_id, [*values, *bound])


def _not_bound(kind: str, name: str, device: Device) -> InvalidArgument:
    return InvalidArgument(
        f"{kind} {name!r} is not bound to a value in {device.location}, and the "
        "session captures graphs, for which addresses must not change; bind an "
        f"OrtValue there with bind_ortvalue_{kind}(), or run with {GRAPH_ID}=-1"
    )


def wait_for_work(binding: IOBinding, run: Run) -> None:
    """Order a run after the work that makes its inputs, and that uses its outputs."""
    for value in binding.inputs.values():
        if value.device is not None:
            for event in value.written:
                run.after(value.location, event)
    for output in binding.outputs.values():
        if output.value is not None and output.device is not None:
            for event in output.value.used:
                # one that failed has no content that this run would read
                if not event.done():
                    run.after(output.location, event)


def may_return_early(
    binding: IOBinding,
    results: Mapping[str, Any],
    values: Sequence[Any],
    options: RunOptions | None,
    *,
    replace: bool,
) -> bool:
    """Whether a run may return while its work is queued.

    It may where all that it reads and leaves in devices' memory is reached through
    values, which wait; or if the caller says that it waits itself.
    """
    outputs = [
        output for output in binding.outputs.values() if output.device is not None
    ]
    if not outputs or not binding.fits(results, values, replace=replace):
        return False
    config = options.config if options else {}
    said = config.get(NOT_SYNCHRONISED, "0")
    values_used = [*binding.inputs.values(), *(output.value for output in outputs)]
    return said == "1" or not any(
        value is not None and value.device is not None and value.is_shared
        for value in values_used
    )


def leave_queued(
    binding: IOBinding, run: Run, values: Sequence[Any]
) -> list[OwnedEvent]:
    """Let *run* return; what is bound knows when its work is done."""
    on_device = [value for value in binding.inputs.values() if value.device is not None]
    read = [value.raw for value in on_device]
    filled = [
        output.value.raw
        for output in binding.outputs.values()
        if output.device is not None and output.value is not None
    ]
    placed = {id(array) for array in read}
    on_host = [value for value in values if id(value) not in placed]
    events = list(run.leave_queued(on_host, [*read, *filled]).values())
    for value in on_device:
        value.note_read(events)
    return events
