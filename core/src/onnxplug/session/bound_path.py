"""The straight path of bound runs: one partition, on one device, nothing to copy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.run.aliasing import overlap
from onnxplug.session.ort_value import OrtValue
from onnxplug.session.outputs import check_bound_output

if TYPE_CHECKING:
    from onnxplug.compile.model import BuiltModel
    from onnxplug.ep import CapturePhase, OptionValue, Stream
    from onnxplug.run.device import Device
    from onnxplug.run.plan import RunPartition
    from onnxplug.run.streams import Streams


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


class BoundPath:
    """Runs of a binding in which nothing is checked or looked up again.

    Made after a run that took the ordinary way, for what was bound then; whatever is
    out of the ordinary is left to that way.
    """

    def __init__(
        self,
        version: int,
        built: BuiltModel,
        step: RunPartition,
        device: Device,
        inputs: Sequence[OrtValue],
        outputs: Sequence[OrtValue | None],
        names: Sequence[str],
    ) -> None:
        """*inputs* and *outputs*, which have *names*, are the step's, of the binding's
        *version*."""
        self._version = version
        self._built = built
        self._step = step
        self._options = built.run_entries.read(None)[step.ep]
        self._device = device
        self._inputs = inputs
        self._outputs = outputs
        self._names = names
        self._given = [value for value in outputs if value is not None]
        # what is an input is read until the run ends, and has another array then
        arrays = [value.raw for value in inputs]
        self._filled = [
            None
            if value is None or any(overlap(value.raw, array) for array in arrays)
            else value
            for value in outputs
        ]

    def is_for(self, version: int, built: BuiltModel) -> bool:
        """Whether nothing was bound since."""
        return self._version == version and self._built is built

    def run(self, streams: Streams) -> list[OrtValue] | None:
        """The outputs; ``None``, and nothing done, if the run is not for this path."""
        device, location = self._device, self._device.location
        for value in (*self._inputs, *self._given):
            if value.is_shared:
                return None
        # asked anew, since a run may have left a value with another array
        arrays = [value.raw for value in self._inputs]
        bound = [None if value is None else value.raw for value in self._filled]
        taken = [*arrays, *[value.raw for value in self._given]]
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
            return outputs

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
