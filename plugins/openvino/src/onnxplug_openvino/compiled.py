"""Compiled partitions: one model of OpenVINO, or one for each set of input shapes.

Owns: how models are compiled, and which infer request a run gets.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from onnxplug import ep
from onnxplug.ep.locks import new_lock
from onnxplug_openvino.engine import import_openvino
from onnxplug_openvino.model import writable
from onnxplug_openvino.options import Settings
from onnxplug_openvino.request import Request, make_port

openvino: Final = import_openvino()
_SHAPES_KEPT: Final = 8


class PortTypes(NamedTuple):
    """The element types of a partition's inputs and outputs, in order."""

    inputs: tuple[ep.DataType, ...]
    outputs: tuple[ep.DataType, ...]


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
        return self._core.compile_model(model, self._device, self._properties)

    def restore(self, blob: np.ndarray[Any, Any]) -> Any:
        """OpenVINO's compiled model of what it has exported, whose memory it uses.

        Raises:
            RuntimeError: OpenVINO cannot import it.
        """
        tensor = openvino.Tensor(writable(blob), shared_memory=True)
        return self._core.import_model(tensor, self._device, self._properties)


class OpenVINOPartition(ep.CompiledPartition):
    """A compiled model with its infer requests.

    Runs may overlap: each takes a request that is idle, or makes another.
    """

    def __init__(self, compiled: Any, types: PortTypes, weights: Sequence[Any]) -> None:
        self._compiled = compiled
        self._weights = weights  # or a blob: OpenVINO uses their memory
        self._inputs = [
            make_port(*pair) for pair in zip(compiled.inputs, types.inputs, strict=True)
        ]
        self._outputs = [
            make_port(*pair)
            for pair in zip(compiled.outputs, types.outputs, strict=True)
        ]
        self._idle = deque([self._make_request()])

    def _make_request(self) -> Request:
        if self._compiled is None:
            raise RuntimeError("the partition was closed")
        return Request(self._compiled, self._inputs, self._outputs)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Infer; GIL released."""
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before OpenVINO began")
        try:
            request = self._idle.pop()
        except IndexError:
            request = self._make_request()
        results = request.run(inputs, outputs)
        # after a failure a request is not used again: its tensors are in doubt
        self._idle.append(request)
        return results

    def serialize(self) -> memoryview:
        """The compiled model as OpenVINO exports it.

        Raises:
            Declined: OpenVINO exports none for this device.
        """
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
        self._idle.clear()
        self._compiled = None
        self._weights = ()


class ShapedPartition(ep.CompiledPartition):
    """A model compiled anew for each set of input shapes, the last few kept."""

    def __init__(
        self, compiler: Compiler, model: Any, types: PortTypes, weights: Sequence[Any]
    ) -> None:
        self._compiler = compiler
        self._model = model
        self._types = types
        self._weights = weights
        self._kept: OrderedDict[tuple[tuple[int, ...], ...], OpenVINOPartition] = (
            OrderedDict()
        )
        self._lock = new_lock()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Infer with the model of these shapes, compiled if it is not there yet."""
        shapes = tuple(array.shape for array in inputs)
        with self._lock:
            if self._model is None:
                raise RuntimeError("the partition was closed")
            kept = self._kept.get(shapes)
            if kept is None:
                kept = self._kept[shapes] = self._specialise(shapes)
            self._kept.move_to_end(shapes)
            if len(self._kept) > _SHAPES_KEPT:
                # not closed: another run may be in it
                self._kept.popitem(last=False)
        return kept.run(inputs, outputs, context)

    def serialize(self) -> None:
        """There is no one model.

        Raises:
            Declined: always.
        """
        raise ep.Declined(
            ep.Reason(
                ep.RefusalCode.OTHER,
                "with disable_dynamic_shapes it is compiled for shapes that runs bring",
            )
        )

    def _specialise(self, shapes: Sequence[Sequence[int]]) -> OpenVINOPartition:
        model = self._model.clone()
        model.reshape(
            {
                port: openvino.PartialShape(list(shape))
                for port, shape in zip(model.inputs, shapes, strict=True)
            }
        )
        return OpenVINOPartition(self._compiler(model), self._types, self._weights)

    def close(self) -> None:
        """Release the models of every shape."""
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()
            self._model = None
            self._weights = ()
