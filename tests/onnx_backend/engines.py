"""The engines that the ONNX backend suite is run on, each as one function.

A function takes a model and gives another, of the inputs in order to the outputs in
order.  Each engine is given its own way of taking and giving element types that numpy
lacks, so that no case fails for the way it is called.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.metadata
import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, NamedTuple

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from suite import without_reference

Run = Callable[[Sequence[Any]], Sequence[Any]]


class Engine(NamedTuple):
    """An engine.

    Attributes:
        title: what it is called in the table of totals.
        distribution: what must be installed, and whose version is told.
        prepare: makes a model ready to run.
        context: entered in the process that runs it, before it is imported.
        refusals: parts of the messages by which the engine refuses a model for being
            newer, in its opset or its form, than what it claims to know.
    """

    title: str
    distribution: str
    prepare: Callable[[Any], Run]
    context: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext
    refusals: tuple[str, ...] = ()

    @property
    def version(self) -> str:
        """The version of what is installed; empty if nothing is."""
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return ""


def _onnxplug(model: Any) -> Run:
    from onnxplug.backend import OnnxplugBackend

    run: Run = OnnxplugBackend.prepare(model).run
    return run


def _onnx_reference(model: Any) -> Run:
    from onnx.reference import ReferenceEvaluator

    evaluator = ReferenceEvaluator(model)
    held = {each.name for each in model.graph.initializer}
    # inputs that have a default are fed after the others, if at all
    names = sorted(evaluator.input_names, key=lambda name: name in held)

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        feed = dict(zip(names, inputs, strict=False))
        return list(evaluator.run(None, feed))

    return run


# ONNX Runtime

_AS_BYTES: Final = re.compile(r"tensor\((bfloat16|float[468].+|u?int[24])\)")
"""The types of values that ONNX Runtime takes and gives by their address only."""


def _onnxruntime(model: Any) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [each.name for each in session.get_inputs()]
    types = [each.type for each in (*session.get_inputs(), *session.get_outputs())]

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        arrays = [_as_array(value) for value in inputs]
        if any(map(_AS_BYTES.fullmatch, types)):
            values = dict(zip(names, map(_ort_value, arrays), strict=False))
            results = session.run_with_ort_values(None, values)
            return [_ort_array(result) for result in results]
        return list(session.run(None, dict(zip(names, arrays, strict=False))))

    return run


def _ort_value(array: Any) -> Any:
    from onnxruntime import OrtValue

    if _is_plain(array):
        return OrtValue.ortvalue_from_numpy(array)
    # an array of the shape that is to be, of which packed elements fill the beginning
    held = np.zeros(array.shape, f"u{array.dtype.itemsize}")
    packed = np.frombuffer(_bytes_of(array), np.uint8)
    held.reshape(-1).view(np.uint8)[: packed.size] = packed
    return OrtValue.ortvalue_from_numpy_with_onnx_type(held, _number_of(array))


def _ort_array(value: Any) -> Any:
    if not _AS_BYTES.fullmatch(value.data_type()):
        return value.numpy()
    count = value.tensor_size_in_bytes()
    data = ctypes.string_at(value.data_ptr(), count) if count else b""
    return _array_of(data, value.shape(), value.element_type())


# OpenVINO


@functools.cache
def _openvino_core() -> Any:
    """One for the process: releasing several spoils the stack of signals."""
    import openvino

    return openvino.Core()


def _openvino(model: Any) -> Run:
    core = _openvino_core()
    compiled = core.compile_model(
        core.read_model(model.SerializeToString()),
        "CPU",
        {"INFERENCE_PRECISION_HINT": "f32", "EXECUTION_MODE_HINT": "ACCURACY"},
    )
    request = compiled.create_infer_request()
    kinds = [port.get_element_type() for port in compiled.inputs]

    def run(inputs: Sequence[Any]) -> Sequence[Any]:
        for position, (value, kind) in enumerate(zip(inputs, kinds, strict=False)):
            request.set_input_tensor(position, _ov_tensor(_as_array(value), kind))
        request.infer()
        return [
            _ov_array(request.get_output_tensor(position), info)
            for position, info in enumerate(model.graph.output)
        ]

    return run


def _ov_tensor(array: Any, kind: Any) -> Any:
    import openvino

    if array.dtype.kind in "OUT":
        return openvino.Tensor(array.astype(str))
    if _is_plain(array):
        return openvino.Tensor(np.ascontiguousarray(array).reshape(array.shape))
    packed = np.frombuffer(_bytes_of(array), np.uint8)
    tensor = openvino.Tensor(kind, openvino.Shape(list(array.shape)))
    ctypes.memmove(_address(tensor), packed.ctypes.data, packed.nbytes)
    return tensor


def _ov_array(tensor: Any, info: Any) -> Any:
    if tensor.element_type.get_type_name() == "string":
        return tensor.str_data.astype(object)
    number = info.type.tensor_type.elem_type
    wanted = helper.tensor_dtype_to_np_dtype(number)
    if wanted.isbuiltin == 1:
        return tensor.data.copy()
    data = ctypes.string_at(_address(tensor), tensor.byte_size)
    return _array_of(data, list(tensor.shape), number)


def _address(tensor: Any) -> int:
    address: int = tensor.data.ctypes.data
    return address


# arrays of types that numpy lacks, in the form of ONNX files


def _as_array(value: Any) -> Any:
    """*value*, of which a number of numpy's becomes an array, also in a list."""
    if isinstance(value, list):
        return [_as_array(each) for each in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def _is_plain(array: Any) -> bool:
    return array.dtype.isbuiltin == 1 or array.dtype.kind in "OUT"


def _number_of(array: Any) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _bytes_of(array: Any) -> bytes:
    return bytes(numpy_helper.from_array(array).raw_data)


def _array_of(data: bytes, shape: Sequence[int], number: int) -> Any:
    return numpy_helper.to_array(
        TensorProto(data_type=number, dims=shape, raw_data=data)
    )


ENGINES: Final[dict[str, Engine]] = {
    "onnxplug": Engine("onnxplug", "onnxplug", _onnxplug),
    "onnxplug-alone": Engine(
        "onnxplug, onnx.reference made to raise",
        "onnxplug",
        _onnxplug,
        context=without_reference,
    ),
    "onnxruntime": Engine(
        "ONNX Runtime",
        "onnxruntime",
        _onnxruntime,
        refusals=("ONNX Runtime only *guarantees* support", "max supported IR version"),
    ),
    "openvino": Engine("OpenVINO", "openvino", _openvino),
    "reference": Engine("onnx.reference", "onnx", _onnx_reference),
}
"""By the name that the command takes."""
