"""The OpenVINO EP in one session: it claims nodes and compiles partitions."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

from onnxplug import ep
from onnxplug_openvino.capability import judge
from onnxplug_openvino.engine import import_openvino
from onnxplug_openvino.model import element_type, read_partition
from onnxplug_openvino.options import Settings
from onnxplug_openvino.request import RequestPool, make_port

openvino: Final = import_openvino()
_SHAPES_KEPT: Final = 8


class OpenVINOProvider(ep.ExecutionProvider):
    """Takes the nodes that OpenVINO was measured to compute as ONNX defines them."""

    def __init__(self, core: Any, settings: Settings, logger: logging.Logger) -> None:
        self._core = core
        self._settings = settings
        self._logger = logger

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Claim what the allow-list holds; see :mod:`onnxplug_openvino.capability`."""
        return judge(graph, trust_int64=self._settings.trust_int64)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The partition as a compiled model.

        Raises:
            Declined: OpenVINO cannot convert or compile it, or would give outputs of
                another type or shape than ONNX's.
        """
        model, weights = read_partition(self._core, partition)
        shapes = {
            name: self._settings.shapes[name]
            for name in partition.inputs
            if name in self._settings.shapes
        }
        if shapes:
            model.reshape(shapes)
        types = _check_outputs(model, partition)
        for result in model.get_results():
            if result.input_value(0).get_node().get_type_name() == "Parameter":
                # its CPU plugin does not write such an output's tensor
                _decline("OpenVINO makes an output of it that is an input")
        compile_model = _Compile(self._core, self._settings)
        if self._settings.static and model.is_dynamic():
            return ShapedPartition(compile_model, model, types, weights)
        try:
            compiled = compile_model(model)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ep.Declined(
                ep.Reason(ep.RefusalCode.OTHER, f"OpenVINO cannot compile it: {reason}")
            ) from error
        self._logger.debug(
            "%d nodes compiled for %s with %d weights shared",
            len(partition.nodes), self._settings.device, len(weights),
        )  # fmt: skip
        return OpenVINOPartition(_make_pool(compiled, types), weights)


class _Types:
    """The element types of a partition's inputs and outputs, in order."""

    def __init__(self, inputs: Sequence[ep.DataType], outputs: Sequence[ep.DataType]):
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)


class _Compile:
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
        return self._core.compile_model(model, self._device, self._properties)


class OpenVINOPartition(ep.CompiledPartition):
    """A compiled model with its infer requests.  Runs may overlap."""

    def __init__(self, pool: RequestPool, weights: Sequence[Any]) -> None:
        self._pool: RequestPool | None = pool
        self._weights = weights  # OpenVINO uses their memory

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Infer; GIL released."""
        if self._pool is None:
            raise RuntimeError("the partition was closed")
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before OpenVINO began")
        return self._pool.run(inputs, outputs)

    def close(self) -> None:
        """Release the compiled model, then the weights' memory."""
        if self._pool is not None:
            self._pool.close()
        self._pool = None
        self._weights = ()


class ShapedPartition(ep.CompiledPartition):
    """A model compiled anew for each set of input shapes, the last few kept."""

    def __init__(
        self, compile_model: _Compile, model: Any, types: _Types, weights: Sequence[Any]
    ) -> None:
        self._compile = compile_model
        self._model = model
        self._types = types
        self._weights = weights
        self._pools: OrderedDict[tuple[tuple[int, ...], ...], RequestPool] = (
            OrderedDict()
        )
        self._lock = threading.Lock()

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Infer with the model of these shapes."""
        shapes = tuple(array.shape for array in inputs)
        with self._lock:
            if self._model is None:
                raise RuntimeError("the partition was closed")
            pool = self._pools.get(shapes)
            if pool is None:
                pool = self._pools[shapes] = self._specialise(shapes)
            self._pools.move_to_end(shapes)
            if len(self._pools) > _SHAPES_KEPT:
                self._pools.popitem(last=False)
        return pool.run(inputs, outputs)

    def _specialise(self, shapes: Sequence[Sequence[int]]) -> RequestPool:
        model = self._model.clone()
        model.reshape(
            {
                port: openvino.PartialShape(list(shape))
                for port, shape in zip(model.inputs, shapes, strict=True)
            }
        )
        return _make_pool(self._compile(model), self._types)

    def close(self) -> None:
        """Release the models of every shape."""
        with self._lock:
            for pool in self._pools.values():
                pool.close()
            self._pools.clear()
            self._model = None
            self._weights = ()


def _make_pool(compiled: Any, types: _Types) -> RequestPool:
    return RequestPool(
        compiled,
        [make_port(*pair) for pair in zip(compiled.inputs, types.inputs, strict=True)],
        [
            make_port(*pair)
            for pair in zip(compiled.outputs, types.outputs, strict=True)
        ],
    )


def _check_outputs(model: Any, partition: ep.Partition) -> _Types:
    """The element types, once OpenVINO's model is seen to have those of ONNX.

    Raises:
        Declined: it has others, or other inputs or outputs.
    """
    types: Mapping[str, tuple[Sequence[str], Sequence[Any]]] = {
        "input": (partition.inputs, model.inputs),
        "output": (partition.outputs, model.outputs),
    }
    found: list[list[ep.DataType]] = []
    for what, (names, ports) in types.items():
        if len(names) != len(ports):
            _decline(f"OpenVINO's model has {len(ports)} {what}s, not {len(names)}")
        dtypes = []
        for name, port in zip(names, ports, strict=True):
            value = partition.value(name)
            if value.dtype is None or element_type(value.dtype) is None:
                _decline(f"{what} {name!r} is {value.dtype or 'of unknown type'}")
            if port.get_element_type() != element_type(value.dtype):
                _decline(
                    f"OpenVINO's {what} {name!r} is {port.get_element_type()}, "
                    f"not {value.dtype}"
                )
            partial = port.get_partial_shape()
            if not _fits(partial, value.shape):
                _decline(
                    f"OpenVINO's {what} {name!r} is of shape {partial}, "
                    f"not {list(value.shape or ())}"
                )
            dtypes.append(value.dtype)
        found.append(dtypes)
    return _Types(*found)


def _fits(partial: Any, shape: Sequence[ep.Dimension] | None) -> bool:
    """Whether OpenVINO's shape can be ONNX's."""
    if partial.rank.is_dynamic:
        return False  # its CPU plugin compiles no tensors of unknown rank
    if shape is None:
        return True
    return partial.rank.get_length() == len(shape) and all(
        not isinstance(size, int) or ours.is_dynamic or ours.get_length() == size
        for ours, size in zip(partial, shape, strict=True)
    )


def _decline(detail: str) -> NoReturn:
    raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))
