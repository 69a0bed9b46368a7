"""Runs on bound values: how they begin and end, with order, capture, early return."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.entries import GRAPH_ID, NOT_SYNCHRONISED, RUN
from onnxplug.ep import HOST
from onnxplug.errors import InvalidArgument
from onnxplug.run.execute import execute
from onnxplug.run.run import Run
from onnxplug.session.bound_call import prepare_bound, prepare_host
from onnxplug.session.prepared_call import not_prepared
from onnxplug.session.profiling import recorded_execution, recorded_run

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.options import RunOptions
    from onnxplug.run.capture import CapturedRun
    from onnxplug.run.device import Device
    from onnxplug.run.events import OwnedEvent
    from onnxplug.run.plan import Plan
    from onnxplug.run.profiling import Profile
    from onnxplug.session.inputs import InputChecker
    from onnxplug.session.io_binding import IOBinding


class BoundRunner:
    """The runs of one built model on what is bound, from any number of threads."""

    def __init__(
        self, built: BuiltModel, checker: InputChecker, names: Sequence[str]
    ) -> None:
        """*names* are those of the outputs."""
        self._built = built
        self._checker = checker
        self._names = names
        self._call_on_host = prepare_host(built, checker)

    def run(
        self,
        binding: IOBinding,
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> None:
        """Run on what is bound; the outputs are then at the binding.

        Raises:
            InvalidArgument: two outputs are bound to the same memory.
            InputError: a bound input is missing or does not fit.
            OutputMismatch: a bound output has not the shape or element type produced.
            OptionError: a config entry of the run is nobody's, or of no such value.
            RunError: an EP failed while running.
        """
        built, runs = self._built, binding.runs
        is_plain = run_options is None and profile is None
        binding.check_parted()
        if is_plain and self._call_on_host(binding) is not None:
            return
        call = runs.prepared(built, binding.version) if is_plain else not_prepared
        if call is not None and call(binding) is not None:
            return
        with recorded_run(profile):
            values = self._checker.check(
                {name: value.raw for name, value in binding.inputs.items()},
                placed={
                    name: value.dtype
                    for name, value in binding.inputs.items()
                    if value.location != HOST and value.is_tensor()
                },
            )
            bound = [
                output.value.raw
                if output is not None and output.value is not None
                else None
                for output in map(binding.outputs.get, self._names)
            ]
            places = {name: value.location for name, value in binding.inputs.items()}
            wanted = {name: output.location for name, output in binding.outputs.items()}
            plan = built.plan_for(places, wanted)
            with recorded_execution(profile):
                self._execute(binding, plan, values, bound, run_options, profile)
            if call is None:
                call = prepare_bound(binding, built, plan)
                runs.prepare(built, binding.version, call)

    def _execute(
        self,
        binding: IOBinding,
        plan: Plan,
        values: Sequence[Any],
        bound: Sequence[Any | None],
        run_options: RunOptions | None,
        profile: Profile | None,
    ) -> None:
        built = self._built
        # what was captured has the addresses of arrays
        replace = built.captures is None
        captured = None
        if built.captures is not None:
            captured = _captured_run(binding, built, plan, values, bound, run_options)
        with Run(
            built.memory,
            built.streams,
            built.run_entries.read(run_options),
            run_options,
            profile,
            streams=functools.partial(binding.runs.streams, built),
            capture=None if captured is None else captured.phase,
        ) as run:
            _wait_for_work(binding, run)
            results: Sequence[Any | None]
            if captured is None:
                results = execute(plan, values, run, bound)
            else:
                compute = functools.partial(execute, plan, values, run, bound)
                results = captured.run(plan, run, bound, compute)
            by_name = dict(zip(self._names, results, strict=True))
            events: list[OwnedEvent] = []
            if _may_return_early(
                binding, by_name, values, run_options, replace=replace
            ):
                events = _leave_queued(binding, run, values)
        binding.receive(by_name, values, events, replace=replace)


def _captured_run(
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


def _wait_for_work(binding: IOBinding, run: Run) -> None:
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


def _may_return_early(
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


def _leave_queued(
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
