"""The OpenVINO EP in one session: it claims nodes and compiles partitions."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import numpy as np

from onnxplug import ep
from onnxplug_openvino.capability import judge
from onnxplug_openvino.compiled import Compiler, OpenVINOPartition, PortTypes
from onnxplug_openvino.lookups import guard, guarded_nodes
from onnxplug_openvino.model import ConversionFailed, element_type, read_partition
from onnxplug_openvino.options import Settings

_COUNTING: Final = ("Shape", "Size")
"""Operators that read no number of what they are given."""

_MEASURED: Final = ("ACCURACY", "FP32")
"""Precisions that costs are known of."""


class OpenVINOProvider(ep.ExecutionProvider):
    """Takes the nodes that OpenVINO was measured to compute as ONNX defines them."""

    # it finds pairs of quantising and dequantising itself, and runs integers
    preferences = ep.Preferences(keeps_qdq=True)

    def __init__(self, core: Any, settings: Settings, logger: logging.Logger) -> None:
        self._core = core
        self._settings = settings
        self._logger = logger
        self._compiler = Compiler(core, settings)
        self.serialiser = OpenVINOSerialiser(self._compiler, caches=settings.caches)

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Claim what the allow-list holds; see :mod:`onnxplug_openvino.capability`."""
        return judge(graph, trust_int64=self._settings.trust_int64)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The partition as a compiled model.

        Raises:
            Declined: OpenVINO cannot convert or compile it, or would give outputs of
                another type or shape than ONNX's; it names the nodes where it can.
        """
        model, weights, types = self.read(partition)
        try:
            compiled = self._compiler(model)
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            _decline(f"OpenVINO cannot compile it: {reason}")
        self._logger.debug(
            "%d nodes compiled for %s with %d weights shared",
            len(partition.nodes), self._settings.device, len(weights),
        )  # fmt: skip
        again = partial(self._compiler, model)
        return OpenVINOPartition(compiled, types, weights, again)

    @property
    def specialiser(self) -> ep.Specialiser | None:  # type: ignore[override]
        """Compiles by input shapes if an option asks for it."""
        return OpenVINOSpecialiser(self) if self._settings.static else None

    @property
    def cost_model(self) -> ep.CostModel | None:  # type: ignore[override]
        """How long nodes take on a processor, in float32."""
        settings = self._settings
        if settings.device != "CPU" or settings.precision not in _MEASURED:
            return None
        from onnxplug_openvino.costs import costs  # which few sessions ask for

        return costs(int(settings.properties.get("INFERENCE_NUM_THREADS", 0)))

    def read(self, partition: ep.Partition) -> tuple[Any, Sequence[Any], PortTypes]:
        """OpenVINO's model, the weights whose memory it uses, and the ports' types.

        Raises:
            Declined: OpenVINO cannot convert it, or would give outputs of another type
                or shape than ONNX's; it names the nodes where it can.
        """
        try:
            model, weights = read_partition(self._core, partition)
        except ConversionFailed as error:
            _decline(str(error), _named_in(str(error), partition))
        shapes = {
            name: self._settings.shapes[name]
            for name in partition.inputs
            if name in self._settings.shapes and not _is_static(partition.value(name))
        }
        if shapes:
            model.reshape(shapes)
        types = _check_ports(model, partition)
        _check_outputs_are_made(model, partition)
        guard(model, partition)
        return model, weights, types


class OpenVINOSpecialiser(ep.Specialiser):
    """Has a model compiled for each set of input shapes."""

    pads = True

    def __init__(self, provider: OpenVINOProvider) -> None:
        self._provider = provider

    def examine(self, partition: ep.Partition) -> None:
        """Decline what OpenVINO cannot convert, whatever the shapes."""
        self._provider.read(partition)


class OpenVINOSerialiser(ep.Serialiser):
    """Has OpenVINO export and import what it compiled."""

    def __init__(self, compiler: Compiler, *, caches: bool) -> None:
        self.caches = caches
        self._compiler = compiler

    def serialise(self, compiled: ep.CompiledPartition) -> memoryview:
        """The compiled model as OpenVINO exports it.

        Raises:
            Declined: OpenVINO exports none for this device, or would restore another.
        """
        assert isinstance(compiled, OpenVINOPartition)
        return compiled.exported()

    def restore(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """What OpenVINO exported, on the memory of *data*.

        Raises:
            Declined: OpenVINO cannot import it, or it has other inputs or outputs.
        """
        blob = np.frombuffer(data, np.uint8)
        try:
            compiled = self._compiler.restore(blob)
        except RuntimeError as error:
            _decline(f"OpenVINO cannot import it: {_summary(error)}")
        types = _check_ports(compiled, partition)
        again = partial(self._compiler.restore, blob)
        return OpenVINOPartition(compiled, types, [blob], again)


def _is_static(value: ep.ValueInfo) -> bool:
    shape = value.shape
    return shape is not None and all(isinstance(size, int) for size in shape)


def _summary(error: RuntimeError) -> str:
    """What OpenVINO says beside the places in its source."""
    lines = (line.strip() for line in str(error).splitlines())
    said = [line for line in lines if line and not line.startswith("Exception from")]
    return " ".join(said)[:300]


_OPERATOR_IN_TEXT: Final = re.compile(r"\b([A-Z]\w*)-\d+")


def _named_in(text: str, partition: ep.Partition) -> Sequence[ep.Node]:
    """The nodes whose operators OpenVINO's error names, as ``Col2Im-18``."""
    operators = set(_OPERATOR_IN_TEXT.findall(text))
    return [node for node in partition.nodes if node.op_type in operators]


def _check_ports(model: Any, partition: ep.Partition) -> PortTypes:
    """The element types, once OpenVINO's model is seen to have those of ONNX.

    Raises:
        Declined: it has others, or other inputs or outputs.
    """
    ours = len(model.outputs) - bool(guarded_nodes(model.outputs))
    sides: Mapping[str, tuple[Sequence[str], Sequence[Any]]] = {
        "input": (partition.inputs, model.inputs),
        "output": (partition.outputs, model.outputs[:ours]),
    }
    found: list[tuple[ep.DataType, ...]] = []
    for side, (names, ports) in sides.items():
        if len(names) != len(ports):
            _decline(f"OpenVINO's model has {len(ports)} {side}s, not {len(names)}")
        dtypes = []
        for name, port in zip(names, ports, strict=True):
            value = partition.value(name)
            makers = [node for node in partition.nodes if name in node.outputs]
            if value.dtype is None or element_type(value.dtype) is None:
                _decline(f"{side} {name!r} is {value.dtype or 'of unknown type'}")
            if port.get_element_type() != element_type(value.dtype):
                _decline(
                    f"OpenVINO's {side} {name!r} is {port.get_element_type()}, "
                    f"not {value.dtype}",
                    makers,
                )
            partial = port.get_partial_shape()
            if not _fits(partial, value.shape):
                _decline(
                    f"OpenVINO's {side} {name!r} is of shape {partial}, "
                    f"not {list(value.shape or ())}",
                    makers,
                )
            dtypes.append(value.dtype)
        found.append(tuple(dtypes))
    inputs, outputs = found
    return PortTypes(inputs, outputs, _narrowed(partition))


def _narrowed(partition: ep.Partition) -> dict[int, str]:
    """Inputs of int64 whose numbers are read, and not only how many there are."""
    read = {
        name
        for node in partition.nodes
        if node.op_type not in _COUNTING
        for name in node.inputs
    }
    return {
        position: name
        for position, name in enumerate(partition.inputs)
        if name in read and partition.value(name).dtype is ep.DataType.INT64
    }


def _check_outputs_are_made(model: Any, partition: ep.Partition) -> None:
    """Whether OpenVINO writes all outputs of a model that is not compiled yet.

    Raises:
        Declined: an output is an input, whose tensor its CPU plugin does not write.
    """
    for name, port in zip(partition.outputs, model.outputs, strict=True):
        if _is_input(port):
            makers = [node for node in partition.nodes if name in node.outputs]
            _decline(f"OpenVINO hands an input through as {name!r}", makers)


def _is_input(port: Any) -> bool:
    source = port.get_node().input_value(0).get_node()
    return bool(source.get_type_name() == "Parameter")


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


def _decline(detail: str, nodes: Sequence[ep.Node] = ()) -> NoReturn:
    """Give back *nodes*, or the whole partition when none are known."""
    reason = ep.Reason(ep.RefusalCode.OTHER, detail)
    raise ep.Declined(reason, nodes=nodes or None)
