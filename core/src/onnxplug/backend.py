"""onnxplug behind ONNX's own interface, ``onnx.backend.base``.

``onnxplug.backend.prepare(model, "CPU").run(inputs)``; the ONNX backend suite runs
through it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from onnxplug.errors import InputError
from onnxplug.plugins import registry
from onnxplug.session.session import InferenceSession

_EPS: Final = {
    DeviceType.CPU: "CPUExecutionProvider",
    DeviceType.CUDA: "CUDAExecutionProvider",
}


class OnnxplugBackendRep(BackendRep):
    """A prepared model.

    Attributes:
        session: what runs it.
    """

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self._inputs = [
            arg.name
            for arg in (*session.get_inputs(), *session.get_overridable_initializers())
        ]
        self._outputs = [arg.name for arg in session.get_outputs()]

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The outputs for *inputs*: a mapping by name, a sequence, or one array."""
        if isinstance(inputs, Mapping):
            feed = dict(inputs)
        else:
            values = [inputs] if isinstance(inputs, np.ndarray) else list(inputs)
            if len(values) > len(self._inputs):
                raise InputError(
                    f"{len(values)} inputs are given; the model has "
                    f"{len(self._inputs)}: {self._inputs}"
                )
            feed = dict(zip(self._inputs, values, strict=False))
        outputs = self.session.run(None, feed, **kwargs)
        named = namedtupledict("Outputs", self._outputs)
        return named(*outputs)


class OnnxplugBackend(Backend):
    """Prepares models on the EP of a device."""

    @classmethod
    def prepare(
        cls, model: Any, device: str = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session for *model*, an ``onnx.ModelProto`` or what a session accepts.

        *kwargs* are those of :class:`onnxplug.InferenceSession`; ``providers``
        defaults to the EP of *device*.
        """
        kwargs.setdefault("providers", [_EPS[Device(device).type]])
        return OnnxplugBackendRep(InferenceSession(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare *model* and run it once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Sequence[Any],
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one ``onnx.NodeProto`` on arrays, in a model made around it."""
        from onnx import helper

        names = [name for name in node.input if name]
        arrays = [np.asarray(value) for value in inputs]
        graph = helper.make_graph(
            [node],
            node.op_type,
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
                )
                for name, array in zip(names, arrays, strict=True)
            ],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        version = kwargs.pop("opset_version", None)
        imports = [helper.make_opsetid(node.domain, version)] if version else None
        model = helper.make_model(graph, opset_imports=imports)
        return cls.run_model(model, arrays, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Whether the EP of *device* is installed."""
        ep = _EPS.get(Device(device).type)
        return ep in [record.name for record in registry.records()]


is_compatible = OnnxplugBackend.is_compatible
prepare = OnnxplugBackend.prepare
run_model = OnnxplugBackend.run_model
run_node = OnnxplugBackend.run_node
supports_device = OnnxplugBackend.supports_device
