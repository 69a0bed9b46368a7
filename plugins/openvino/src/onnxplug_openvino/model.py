"""Turns a partition into OpenVINO's model without copying its large weights.

OpenVINO's ONNX frontend copies what a model holds.  So large weights go in as inputs,
and afterwards each such input is replaced by a constant on the weight's own memory,
before anything is compiled.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_openvino.engine import import_openvino

openvino: Final = import_openvino()


class ConversionFailed(RuntimeError):
    """OpenVINO's ONNX frontend refuses a model; the text has its words."""


_SHARED_FROM: Final = 64 * 1024
"""Bytes from which a weight is shared; below, the copy costs less than sharing."""

_TYPES: Final[Mapping[ep.DataType, Any]] = {
    ep.DataType.FLOAT32: openvino.Type.f32,
    ep.DataType.FLOAT16: openvino.Type.f16,
    ep.DataType.BFLOAT16: openvino.Type.bf16,
    ep.DataType.FLOAT64: openvino.Type.f64,
    ep.DataType.BOOL: openvino.Type.boolean,
    ep.DataType.INT8: openvino.Type.i8,
    ep.DataType.UINT8: openvino.Type.u8,
    ep.DataType.INT16: openvino.Type.i16,
    ep.DataType.UINT16: openvino.Type.u16,
    ep.DataType.INT32: openvino.Type.i32,
    ep.DataType.UINT32: openvino.Type.u32,
    ep.DataType.INT64: openvino.Type.i64,
    ep.DataType.UINT64: openvino.Type.u64,
}


def element_type(dtype: ep.DataType) -> Any:
    """OpenVINO's name of *dtype*; ``None`` when it has none, or none that is used."""
    return _TYPES.get(dtype)


def writable(array: Any) -> Any:
    """*array*'s memory as OpenVINO asks for it: it refuses arrays that are read-only.

    OpenVINO does not write to inputs and constants.  The view does not keep the memory
    alive; whoever asks for it holds *array*.
    """
    if array.flags.writeable:
        return array
    raw = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    return np.ndarray(array.shape, array.dtype, raw)


def to_tensor(array: Any, kind: Any) -> Any:
    """OpenVINO's tensor of element type *kind* on the memory of *array*."""
    if kind == openvino.Type.bf16:
        return openvino.Tensor(writable(array.view(np.uint16)), list(array.shape), kind)
    return openvino.Tensor(writable(array), shared_memory=True)


def read_partition(
    core: Any, partition: ep.Partition
) -> tuple[Any, tuple[np.ndarray[Any, Any], ...]]:
    """OpenVINO's model of *partition*, and the arrays whose memory it uses.

    The model's inputs and outputs are the partition's, in order.

    Raises:
        ConversionFailed: OpenVINO cannot convert it.
    """
    exported = partition.to_model(weights="external")
    shared = _lift(exported.model.graph, exported.weights)
    try:
        model = _read(core, exported.model)
    except ConversionFailed:
        if not shared:
            raise
        # some conversions ask for a weight's content: give them all of it
        shared = {}
        model = _read(core, partition.to_model(weights="inline").model)
    for parameter in list(model.get_parameters()):
        names = parameter.output(0).get_names() & shared.keys()
        for name in names:
            kind, array = shared[name]
            constant = openvino.op.Constant(to_tensor(array, kind), shared_memory=True)
            constant.friendly_name = name
            parameter.output(0).replace(constant.output(0))
            model.remove_parameter(parameter)
    if shared:
        model.validate_nodes_and_infer_types()
    return model, tuple(array for _, array in shared.values())


def _lift(graph: Any, weights: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Make inputs of large external weights, and write the others into *graph*."""
    lifted: dict[str, tuple[Any, Any]] = {}
    kept = []
    for tensor in graph.initializer:
        if tensor.data_location != tensor.EXTERNAL:
            kept.append(tensor)
            continue
        location = {entry.key: entry.value for entry in tensor.external_data}[
            "location"
        ]
        raw = weights[location]
        dtype = ep.DataType.from_onnx(tensor.data_type)
        kind = element_type(dtype)
        if kind is None or raw.nbytes < _SHARED_FROM:
            del tensor.external_data[:]
            tensor.data_location = tensor.DEFAULT
            tensor.raw_data = raw.tobytes()
            kept.append(tensor)
            continue
        shape = tuple(tensor.dims)
        lifted[tensor.name] = kind, raw.view(dtype.numpy).reshape(shape)
        value = graph.input.add(name=tensor.name)
        value.type.tensor_type.elem_type = tensor.data_type
        value.type.tensor_type.shape.SetInParent()
        for size in shape:
            value.type.tensor_type.shape.dim.add(dim_value=size)
    if lifted:
        copies = [
            type(tensor).FromString(tensor.SerializeToString()) for tensor in kept
        ]
        del graph.initializer[:]
        graph.initializer.extend(copies)
    return lifted


def _read(core: Any, model: Any) -> Any:
    try:
        return core.read_model(model.SerializeToString())
    except RuntimeError as error:
        text = str(error).strip()
        summary = text.rpartition("Summary:")[2].strip() if "Summary:" in text else text
        raise ConversionFailed(
            f"OpenVINO cannot convert it: {' '.join(summary.split())[:300]}"
        ) from error
