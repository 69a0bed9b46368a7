"""Compiled partitions: models of OpenVINO, and their infer requests.

Owns: how models are compiled, and which infer request a run gets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.record import Record
from onnxplug_openvino.engine import import_openvino
from onnxplug_openvino.lookups import guarded_nodes
from onnxplug_openvino.model import writable
from onnxplug_openvino.options import Settings
from onnxplug_openvino.request import Request, make_port

_NO_MEMORY: Final = "Failed to allocate"
"""What OpenVINO's plugin for CPUs says in a ``RuntimeError`` of no kind of its own."""


_RESTORED_WRONGLY: Final = frozenset({"RoPE"})
"""Layers of OpenVINO's that compute something else where they were exported and
imported, or read from its cache, as seen in version 2026.4."""


def layers_restored_wrongly(compiled: Any) -> Sequence[str]:
    """The kinds of layers in *compiled* that OpenVINO does not restore rightly.

    Of devices that do not tell their layers none are known.
    """
    kinds = set()
    try:
        model = compiled.get_runtime_model()
    except RuntimeError:
        return ()
    for layer in model.get_ops():
        about = layer.get_rt_info()
        if "layerType" in about:
            kinds.add(about["layerType"].astype(str))
    return sorted(kinds & _RESTORED_WRONGLY)


def _why_not_restored(layers: Sequence[str]) -> ep.Reason:
    names = ", ".join(layers)
    return ep.Reason(
        ep.RefusalCode.OTHER,
        f"OpenVINO fuses nodes to {names}, which computes something else once restored",
    )


def _may_be_from_cache(compiled: Any) -> bool:
    try:
        return bool(compiled.get_property("LOADED_FROM_CACHE"))
    except RuntimeError:  # the device does not say
        return True


class PortTypes(Record):
    """The element types of a partition's inputs and outputs, in order.

    Attributes:
        narrowed: the names of inputs of int64 that are read as int32, by position.
    """

    inputs: tuple[ep.DataType, ...]
    outputs: tuple[ep.DataType, ...]
    narrowed: Mapping[int, str]


class Compiler:
    """Compiles models for one device, with one set of properties."""

    def __init__(self, core: Any, settings: Settings) -> None:
        self._core = core
        self._device = settings.device
        self._properties: dict[str, Any] = {}
        there = {name.partition(".")[0] for name in core.available_devices}
        for name, value in settings.properties.items():
            kind, _, device = name.partition(" ")
            if kind != "DEVICE_PROPERTIES":
                self._properties[name] = value
            elif device.partition(".")[0] in there:
                self._properties.setdefault(kind, {})[device] = dict(value)

    def __call__(self, model: Any) -> Any:
        """OpenVINO's compiled model.

        Raises:
            RuntimeError: OpenVINO cannot compile it.
        """
        compiled = self._core.compile_model(model, self._device, self._properties)
        if (
            "CACHE_DIR" in self._properties
            and _may_be_from_cache(compiled)
            and layers_restored_wrongly(compiled)
        ):
            without = {**self._properties}
            del without["CACHE_DIR"]
            return self._core.compile_model(model, self._device, without)
        return compiled

    def restore(self, blob: np.ndarray[Any, Any]) -> Any:
        """OpenVINO's compiled model of what it has exported, whose memory it uses.

        Raises:
            Declined: it has layers that OpenVINO does not restore rightly.
            RuntimeError: OpenVINO cannot import it.
        """
        tensor = import_openvino().Tensor(writable(blob), shared_memory=True)
        compiled = self._core.import_model(tensor, self._device, self._properties)
        wrong = layers_restored_wrongly(compiled)
        if wrong:
            raise ep.Declined(_why_not_restored(wrong))
        return compiled


class OpenVINOPartition(ep.CompiledPartition):
    """A compiled model with its infer requests.

    Runs may overlap: each takes a request that is idle, or makes another.

    Args:
        again: compiles the model once more.
    """

    def __init__(
        self,
        compiled: Any,
        types: PortTypes,
        weights: Sequence[Any],
        again: Callable[[], Any],
    ) -> None:
        self._compiled = compiled
        self._again: Callable[[], Any] | None = again
        self._lock = new_lock()
        self._weights = weights  # or a blob: OpenVINO uses their memory
        self._inputs = [
            make_port(*pair) for pair in zip(compiled.inputs, types.inputs, strict=True)
        ]
        self._narrowed = types.narrowed
        self._guarded = guarded_nodes(compiled.outputs)
        given = [*types.outputs, *[ep.DataType.BOOL] * bool(self._guarded)]
        self._outputs = [
            make_port(*pair) for pair in zip(compiled.outputs, given, strict=True)
        ]
        self._idle = deque([self._make_request()])

    def _make_request(self) -> Request:
        if self._compiled is None:
            raise RuntimeError("the partition was closed")
        ports = self._inputs, self._outputs
        return Request(self._compiled, *ports, self._narrowed, self._guarded)

    def _start_anew(self, idle: deque[Request]) -> None:
        """Compile again, unless another run has since *idle* was in use.

        A compiled model of OpenVINO's keeps asking for the memory that it did not get,
        whatever it is given next, through each of its requests.
        """
        with self._lock:
            if self._idle is idle and self._again is not None:
                self._compiled = self._again()
                self._idle = deque()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Infer; GIL released.

        Raises:
            IndexError: an index is out of range.
            OverflowError: an input of int64 does not fit in 32 bits.
            MemoryError: OpenVINO did not get the memory that it needs.
        """
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before OpenVINO began")
        idle = self._idle
        try:
            request = idle.pop()
        except IndexError:
            request = self._make_request()
        try:
            results = request.run(inputs, outputs)
        except RuntimeError as error:
            if _NO_MEMORY not in str(error):
                raise
            self._start_anew(idle)
            raise MemoryError(str(error).strip().splitlines()[-1]) from error
        # after a failure a request is not used again: its tensors are in doubt
        idle.append(request)
        return results

    def exported(self) -> memoryview:
        """The compiled model as OpenVINO exports it.

        Raises:
            Declined: OpenVINO exports none for this device, or would restore another.
        """
        wrong = layers_restored_wrongly(self._compiled)
        if wrong:
            raise ep.Declined(_why_not_restored(wrong))
        try:
            exported = self._compiled.export_model()
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ep.Declined(
                ep.Reason(
                    ep.RefusalCode.OTHER,
                    f"OpenVINO does not export what it compiled: {reason}",
                )
            ) from error
        content: memoryview = exported.getbuffer()
        return content

    def close(self) -> None:
        """Release the requests and the compiled model, then the weights' memory."""
        with self._lock:
            self._idle.clear()
            self._compiled = self._again = None
        self._weights = ()
