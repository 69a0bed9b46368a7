"""Prepared calls of a binding: on the host, or in the memory of one device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.ep import HOST
from onnxplug.run.plan import fillable, only_partition
from onnxplug.session.bound_runs import HostOutputs
from onnxplug.session.ort_value import OrtValue
from onnxplug.session.outputs import check_bound_output, own
from onnxplug.session.prepared_call import PreparedCall, not_prepared

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import CapturePhase, OptionValue, Stream
    from onnxplug.guard import GuardedRun
    from onnxplug.run.device import Device
    from onnxplug.run.plan import Plan, RunPartition
    from onnxplug.session.inputs import InputChecker
    from onnxplug.session.io_binding import IOBinding


def prepare_bound(binding: IOBinding, built: BuiltModel, plan: Plan) -> PreparedCall:
    """Calls with *binding* as it is now, by *plan*, on one device.

    Each is given the binding, and leaves the results there.
    """
    places = {value.location for value in binding.inputs.values()}
    places |= {output.location for output in binding.outputs.values()}
    step = only_partition(plan, *places) if len(places) == 1 else None
    if step is None or built.captures is not None or step.location == HOST:
        return not_prepared
    names = {plan.inputs[slot - 1] for slot in step.inputs}
    device = built.memory.device(step.location)
    if (
        device is None
        or step.location.host_accessible
        or not names <= set(binding.inputs)
        or step.outputs != plan.outputs
        or set(binding.outputs) != set(plan.graph.outputs)
    ):
        return not_prepared
    return _DeviceCalls(binding, built, plan, step, device).call


def prepare_host(built: BuiltModel, checker: InputChecker) -> PreparedCall:
    """Calls with a binding of whatever is on the host, which is looked at each time."""
    compute = built.direct_call
    if compute is None or built.captures is not None:
        return not_prepared
    return _HostCalls(compute, checker, built.plan).call


class _HostCalls:
    """Calls of bindings on the host, by a plan that is one partition."""

    def __init__(self, compute: GuardedRun, checker: InputChecker, plan: Plan) -> None:
        """*compute* is all of the plan."""
        self._compute = compute
        self._pass_on = checker.pass_on
        self._plan = plan
        self._names = plan.graph.outputs

    def call(self, binding: IOBinding) -> list[Any] | None:
        """See :func:`prepare_host`."""
        outputs = binding.runs.outputs
        if outputs is None or outputs.version != binding.version:
            outputs = _host_outputs(binding, self._plan)
            if outputs is None:
                return None
            binding.runs.outputs = outputs
        feed = {name: value.raw for name, value in binding.inputs.items()}
        values = self._pass_on(feed)
        if values is None:
            return None
        results = self._compute(values, outputs.filled)
        if not outputs.values:
            owned = own(results, values)
            binding.results = [OrtValue(owned[place]) for place in outputs.places]
            return binding.results
        for place in outputs.places:
            if results[place] is not outputs.filled[place]:
                by_name = dict(zip(self._names, results, strict=True))
                binding.receive(by_name, values, replace=True)
                return binding.results
        binding.results = list(outputs.values)
        return binding.results


def _host_outputs(binding: IOBinding, plan: Plan) -> HostOutputs | None:
    """The outputs of a binding; ``None`` where not all that is bound is on the host."""
    names = plan.graph.outputs
    for value in binding.inputs.values():
        if value.device is not None and value.location != HOST:
            return None
    places, given = [], []
    for name, (location, device, target) in binding.outputs.items():
        if device is not None and location != HOST:
            return None
        places.append(names.index(name))
        if target is not None:
            given.append(target)
    filled: list[Any] = [None] * len(names)
    if given:
        fillable = _fillable(binding, plan)
        filled = [None if value is None else value.raw for value in fillable]
    return HostOutputs(binding.version, filled, places, given)


def _fillable(binding: IOBinding, plan: Plan) -> list[OrtValue | None]:
    """The values on the host that the only step of *plan* may fill.

    Not what is an input, which is read until the run ends, and has another array then,
    where the step does not take care of that.
    """
    inputs = [binding.inputs.get(name) for name in plan.inputs]
    arrays = [None if value is None else value.raw for value in inputs]
    outputs = [binding.outputs.get(name) for name in plan.graph.outputs]
    values = [None if output is None else output.value for output in outputs]
    return _filled(plan, values, arrays)


def _filled(
    plan: Plan, values: Sequence[OrtValue | None], inputs: Sequence[Any]
) -> list[OrtValue | None]:
    """The *values* of the outputs that steps may fill, and ``None`` for others."""
    given = [
        (slot, value.raw)
        for slot, value in zip(plan.outputs, values, strict=True)
        if value is not None
    ]
    found = iter(fillable(plan, given, inputs))
    return [value if value is not None and next(found) else None for value in values]


class _Context:
    """A run without options; see :class:`onnxplug.ep.RunContext`."""

    __slots__ = ("options", "stream")

    deadline: float | None = None
    cancelled = False
    profiler = None
    capture: CapturePhase | None = None

    def __init__(
        self, stream: Stream | None, options: Mapping[str, OptionValue]
    ) -> None:
        self.stream = stream
        self.options = options


class _DeviceCalls:
    """Calls of a binding in the memory of a device, where nothing is checked again."""

    def __init__(
        self,
        binding: IOBinding,
        built: BuiltModel,
        plan: Plan,
        step: RunPartition,
        device: Device,
    ) -> None:
        """*step* is all of the plan."""
        self._built = built
        self._step = step
        self._options = built.run_entries.read(None)[step.ep]
        self._device = device
        self._names = built.graph.outputs
        names = [plan.inputs[slot - 1] for slot in step.inputs]
        self._inputs = [binding.inputs[name] for name in names]
        self._outputs = [binding.outputs[name].value for name in self._names]
        self._given = [value for value in self._outputs if value is not None]
        inputs = [binding.inputs.get(name) for name in plan.inputs]
        arrays = [None if value is None else value.raw for value in inputs]
        self._filled = _filled(plan, self._outputs, arrays)

    def call(self, binding: IOBinding) -> list[Any] | None:
        """See :func:`prepare_bound`."""
        device, location = self._device, self._device.location
        for value in (*self._inputs, *self._given):
            if value.is_shared:
                return None
        # asked anew, since a run may have left a value with another array
        arrays = [value.raw for value in self._inputs]
        bound = [None if value is None else value.raw for value in self._filled]
        taken = [*arrays, *[value.raw for value in self._given]]
        streams = binding.runs.streams(self._built)
        with streams.lock:
            try:
                streams.renew()
                stream = streams.at(location)
                if stream is not None:
                    self._order(stream)
                context = _Context(stream, self._options)
                results = self._step.run(arrays, bound, context)
                outputs = self._received(results, taken, stream)
                if stream is not None:
                    events = [device.record(stream)]
                    streams.keep(taken, events)
                    for value in self._inputs:
                        value.note_read(events)
                    for value in outputs:
                        value.note_written(events)
            except BaseException:
                self._built.streams.discard(streams)
                raise
        binding.results = binding.in_order(outputs, self._names)
        return binding.results

    def _received(
        self, results: Sequence[Any], taken: Sequence[Any], stream: Stream | None
    ) -> list[OrtValue]:
        device, outputs = self._device, []
        taken = list(taken)
        for name, value, result in zip(
            self._names, self._outputs, results, strict=True
        ):
            if value is not None and result is not value.raw:
                check_bound_output(name, result, value.raw, device)
        for value, result in zip(self._outputs, results, strict=True):
            if value is not None and result is value.raw:
                outputs.append(value)
                continue
            array = result
            if any(result is other for other in taken):
                # an array that the caller has is not given again
                shape, dtype = tuple(result.shape), device.data_type(result)
                array = device.empty(shape, dtype, stream)
                device.copy(result, array, stream)
            taken.append(array)
            if value is None:
                value = OrtValue(array, device.location, device)
            else:
                value.replace(array)
            outputs.append(value)
        return outputs

    def _order(self, stream: Stream) -> None:
        device = self._device
        for value in self._inputs:
            for event in value.written:
                device.wait(stream, event)
        for output in self._outputs:
            if output is not None:
                for event in output.used:
                    if not event.done():
                        device.wait(stream, event)
