"""Inputs and outputs bound once, for many runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from onnxplug.authoring.arrays import has_element_twice
from onnxplug.authoring.record import Record
from onnxplug.ep import HOST, MemoryLocation
from onnxplug.errors import (
    InputError,
    InvalidArgument,
    UnknownOutput,
)
from onnxplug.escape import escape
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins import registry as registry_of_process
from onnxplug.run.aliasing import overlap, sharing
from onnxplug.session.addresses import array_at
from onnxplug.session.bound_runs import BoundRuns
from onnxplug.session.described import as_data_type, as_sizes, is_host
from onnxplug.session.ort_value import OrtValue
from onnxplug.session.outputs import check_bound_output, own

if TYPE_CHECKING:
    from onnxplug.run.device import Device
    from onnxplug.run.events import OwnedEvent


class BoundOutput(Record):
    """Where an output is wanted.

    Attributes:
        location: the memory.
        device: what is there; ``None`` for the host.
        value: the value to fill; ``None`` for a new one each run.
    """

    location: MemoryLocation
    device: Device | None
    value: OrtValue | None


class Described(Protocol):
    """What a binding has to know of its session."""

    def _names_to_bind(self) -> tuple[Sequence[str], Sequence[str]]:
        """Those of the inputs, also of those with defaults, and of the outputs."""


class IOBinding:
    """The inputs and outputs of a session's runs, and where they are.

    Names are checked when they are bound.  It is used by one thread at a time.

    Args:
        session: whose inputs and outputs they are.
        registry: where the EPs of memories are looked up.

    Attributes:
        runs: what its runs keep.
        version: grows with each change of what is bound.
    """

    def __init__(
        self, session: Described, registry: PluginRegistry = registry_of_process
    ) -> None:
        self._session = session
        self._registry = registry
        self._input_names, self._output_names = session._names_to_bind()
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, BoundOutput] = {}
        self.results: list[OrtValue] | None = None
        self.runs = BoundRuns()
        self.version = 0
        self._parted = 0  # the last version that check_parted() has seen

    # inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray[Any, Any]) -> None:
        """Feed *arr_on_cpu*; a later change of its elements is seen by later runs.

        Raises:
            InputError: there is no such input.
            InvalidArgument: it is no numpy array of numbers in C layout, aligned and of
                native byte order, so that a copy would be fed instead.
        """
        if not isinstance(arr_on_cpu, np.ndarray):
            raise InvalidArgument(
                f"input {name!r} is bound to a {type(arr_on_cpu).__name__}; expected a "
                "numpy array"
            )
        value = OrtValue.ortvalue_from_numpy(arr_on_cpu)
        stored = value.raw
        is_same = stored is arr_on_cpu or np.shares_memory(stored, arr_on_cpu)
        if not is_same and arr_on_cpu.size:
            raise InvalidArgument(
                f"input {name!r} is bound to an array that is not C-contiguous, not "
                "aligned or not of native byte order, so later changes of it would not "
                f"be seen; bind array.astype({str(value.numpy().dtype)!r}, order='C')"
            )
        self.bind_ortvalue_input(name, value)

    def bind_input(
        self,
        name: str,
        device_type: str,
        device_id: int,
        element_type: Any,
        shape: Sequence[int],
        buffer_ptr: int,
    ) -> None:
        """Feed the tensor at an address of host memory.

        The memory must outlive the binding.

        Raises:
            InvalidArgument: the memory is not the host's, for which an ``OrtValue`` is
                bound, or no process has memory at the address; or there is no such
                shape or element type.
        """
        value = _at_address(device_type, element_type, shape, buffer_ptr)
        self.bind_ortvalue_input(name, value)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Feed *ortvalue* from where it is.

        Raises:
            InputError: there is no such input.
            InvalidArgument: *ortvalue* is no ``OrtValue``.
        """
        if name not in self._input_names:
            raise InputError(
                f"Failed to find NodeArg with name: {escape(name)} in the def list; "
                f"the model's inputs are {self._input_names}",
                input=name,
            )
        if not isinstance(ortvalue, OrtValue):
            raise InvalidArgument(
                f"input {name!r} is a {type(ortvalue).__name__}; expected an OrtValue, "
                "such as OrtValue.ortvalue_from_numpy(array)"
            )
        self.inputs[name] = ortvalue
        self.version += 1

    # outputs

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Leave an output in a device's memory, in a new array or at an address.

        Raises:
            UnknownOutput: there is no such output.
            InvalidArgument: there is no such device; or, with an address, see
                :meth:`bind_input`.
        """
        if buffer_ptr is not None:
            value = _at_address(device_type, element_type, shape, buffer_ptr)
            self.bind_ortvalue_output(name, value)
            return
        self._check_output(name)
        self.version += 1
        if is_host(device_type):
            self.outputs[name] = BoundOutput(HOST, None, None)
        else:
            from onnxplug.run.device import find_device  # few programs have one

            device = find_device(device_type, device_id, self._registry)
            self.outputs[name] = BoundOutput(device.location, device, None)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Fill *ortvalue* with an output, where it is.

        It may be the value of an input, which is then read before it is written.  In
        a device's memory nothing is copied for that: the value has the new array.

        Raises:
            UnknownOutput: there is no such output.
            InvalidArgument: *ortvalue* is no ``OrtValue``, or an array that cannot be
                written to or has an element twice.
        """
        self._check_output(name)
        if not isinstance(ortvalue, OrtValue):
            raise InvalidArgument(
                f"output {name!r} is bound to a {type(ortvalue).__name__}; expected an "
                "OrtValue, such as OrtValue.ortvalue_from_numpy(array)"
            )
        _check_fillable(name, ortvalue.raw)
        self.outputs[name] = BoundOutput(ortvalue.location, ortvalue.device, ortvalue)
        self.version += 1

    def _check_output(self, name: str) -> None:
        if name not in self._output_names:
            raise UnknownOutput(
                f"Invalid output name: {escape(name)}; the model's outputs are "
                f"{self._output_names}"
            )

    def check_parted(self) -> None:
        """Check that no two outputs are bound to the same memory.

        It is asked when a run begins: until then the memory of an output may be bound
        to another one, such as an address that was freed and is in use anew.

        Raises:
            InvalidArgument: two are.
        """
        if self._parted == self.version:
            return
        if len(self.outputs) > 1:
            self._check_pairs()
        self._parted = self.version

    def _check_pairs(self) -> None:
        bound = self._bound()
        names, arrays = list(bound), list(bound.values())
        for number, places in enumerate(sharing(arrays, arrays)):
            for place in places:
                if place > number:
                    raise InvalidArgument(
                        f"output {names[place]!r} is bound to an array that shares "
                        f"memory with the one bound to output {names[number]!r}; one "
                        "would overwrite the other, so bind arrays of their own"
                    )

    # results

    def fits(
        self, results: Mapping[str, Any], inputs: Sequence[Any], *, replace: bool
    ) -> bool:
        """Whether :meth:`receive` has nothing to copy in the memory of a device."""
        taken = [*inputs, *self._bound().values()]
        for name, output in self.outputs.items():
            if output.device is None:
                continue
            result, value = results[name], output.value
            if value is not None and result is value.raw:
                continue
            if any(result is other for other in taken):
                return False
            if value is not None and not (
                replace
                and value.is_replaceable
                and output.device.what_is_wrong(result, value.raw.shape, value.dtype)
                is None
            ):
                return False
            taken.append(result)
        return True

    def _bound(self) -> dict[str, Any]:
        """The arrays that outputs are bound to."""
        return {
            name: output.value.raw
            for name, output in self.outputs.items()
            if output.value is not None
        }

    def receive(
        self,
        results: Mapping[str, Any],
        inputs: Sequence[Any],
        events: Sequence[OwnedEvent] = (),
        *,
        replace: bool,
    ) -> None:
        """Take the results of a run on *inputs*, by name, as the bound outputs.

        No two of them, and none and an input, are the same array.

        Args:
            replace: values on devices may have results for their arrays, where the EP
                was not given those to fill.
            events: after them those in the memory of devices are there; none if they
                are, which they have to be unless they :meth:`fits`.

        Raises:
            OutputMismatch: a bound array has not the output's shape or element type.
        """
        bound = self._bound()
        # what the EP has filled is done
        unfilled = {
            name: results[name]
            for name, target in bound.items()
            if results[name] is not target
        }
        for name, result in unfilled.items():
            check_bound_output(name, result, bound[name], self.outputs[name].device)
        taken = [*inputs, *bound.values()]
        new = [name for name in self.outputs if name not in bound]
        on_host = [name for name in new if self.outputs[name].device is None]
        # first, as a result may be a view of an input, which a bound array may be too
        owned = own([results[name] for name in on_host], taken)
        values = dict(zip(on_host, owned, strict=True))
        for name in new:
            device = self.outputs[name].device
            if device is not None:
                result = results[name]
                if any(result is other for other in taken):
                    result = device.duplicate(result)
                taken.append(result)
                values[name] = result
        for name in list(unfilled):
            device, value = self.outputs[name].device, self.outputs[name].value
            if replace and device is not None and value and value.is_replaceable:
                result = unfilled.pop(name)
                if any(result is other for other in taken):
                    result = device.duplicate(result)
                taken.append(result)
                value.replace(result)
        for name, result in unfilled.items():
            if any(
                overlap(bound[other], result) for other in unfilled if other != name
            ):
                unfilled[name] = _copy(result, self.outputs[name].device)
        for name, result in unfilled.items():
            device = self.outputs[name].device
            if device is None:
                np.copyto(bound[name], result)
            else:
                device.copy(result, bound[name])
        self.results = []
        for name, output in self.outputs.items():
            value = output.value
            if value is None:
                value = OrtValue(values[name], output.location, output.device)
            if output.device is not None:
                value.note_written(events)
            self.results.append(value)

    def in_order(
        self, outputs: Sequence[OrtValue], names: Sequence[str]
    ) -> list[OrtValue]:
        """*outputs*, of these *names*, in the order in which they were bound."""
        by_name = dict(zip(names, outputs, strict=True))
        return [by_name[name] for name in self.outputs]

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the last run, in the order they were bound.

        Before a run, these are the values that outputs are bound to.
        """
        if self.results is not None:
            return list(self.results)
        bound = (output.value for output in self.outputs.values())
        return [value for value in bound if value is not None]

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the last run as numpy arrays."""
        return [
            value.numpy() if value.is_tensor() else value.raw
            for value in self.get_outputs()
        ]

    def synchronize_inputs(self) -> None:
        """Wait for the inputs.

        Raises:
            EpError: the run that was to make one failed.
        """
        for value in self.inputs.values():
            value.wait()

    def synchronize_outputs(self) -> None:
        """Wait for the outputs of the last run.

        Raises:
            EpError: it failed.
        """
        for value in self.results or ():
            value.wait()
        self.runs.release_done()

    def release_captured_graph(self, graph_id: int = 0) -> None:
        """Release what runs captured as ``gpu_graph_id``, if anything."""
        self.runs.release(str(graph_id))

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()
        self.version += 1
        self.runs.forget()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs and the results."""
        self.outputs.clear()
        self.version += 1
        self.runs.forget()
        self.results = None

    def belongs_to(self, session: Described) -> bool:
        """Whether the binding was made by *session*."""
        return self._session is session


def _check_fillable(name: str, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        return
    what = f"output {name!r} is bound to an array that"
    if not array.flags.writeable:
        raise InvalidArgument(
            f"{what} is read-only; bind a copy of it, or bind no value"
        )
    if has_element_twice(array):
        raise InvalidArgument(
            f"{what} has several elements in one place of memory (shape "
            f"{list(array.shape)}, strides {list(array.strides)}); bind a copy"
        )


def _copy(result: Any, device: Device | None) -> Any:
    return result.copy() if device is None else device.duplicate(result)


def _at_address(
    device_type: str, element_type: Any, shape: Sequence[int] | None, address: Any
) -> OrtValue:
    if not is_host(device_type):
        raise InvalidArgument(
            f"an address of {device_type!r} memory cannot be bound; bind an OrtValue "
            "made by OrtValue.ortvalue_from_shape_and_type or from_dlpack"
        )
    data_type = as_data_type(element_type)
    return OrtValue(array_at(address, data_type, as_sizes(shape, data_type)))
