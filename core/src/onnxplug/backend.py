"""onnxplug behind ONNX's own interface, ``onnx.backend.base``.

``onnxplug.backend.prepare(model, "CPU").run(inputs)``; the ONNX backend suite runs
through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from onnxplug.errors import InputError, OptionTypeError
from onnxplug.options import RunOptions, SessionOptions
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
        """The outputs for *inputs*: a mapping by name, a sequence, or one value.

        Args:
            kwargs: ``run_options``, or attributes of :class:`RunOptions`.

        Raises:
            OptionTypeError: an argument is neither.
        """
        kwargs = _in_options(kwargs, "run_options", RunOptions, {"run_options"})
        if isinstance(inputs, Mapping) and not self._is_one_map(inputs):
            feed = dict(inputs)
        elif isinstance(inputs, Mapping):
            feed = {self._inputs[0]: inputs}
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

    def _is_one_map(self, inputs: Mapping[Any, Any]) -> bool:
        """Whether *inputs* is the value of the only input, rather than by name."""
        if len(self._inputs) != 1 or self._inputs[0] in inputs:
            return False
        return all(arg.type.startswith("map(") for arg in self.session.get_inputs())


class OnnxplugBackend(Backend):
    """Prepares models on the EP of a device."""

    @classmethod
    def prepare(
        cls, model: Any, device: str | None = "CPU", **kwargs: Any
    ) -> OnnxplugBackendRep:
        """A session for *model*, an ``onnx.ModelProto`` or what a session accepts.

        A session, and what was prepared before, are taken as they are.

        Args:
            device: ``None`` is the CPU.
            kwargs: arguments of :class:`onnxplug.InferenceSession`, of which
                ``providers`` defaults to the EP of *device*, or attributes of
                :class:`SessionOptions`.

        Raises:
            OptionTypeError: an argument is neither.
        """
        if isinstance(model, OnnxplugBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return OnnxplugBackendRep(model)
        known = set(inspect.signature(InferenceSession).parameters)
        kwargs = _in_options(kwargs, "sess_options", SessionOptions, known)
        kwargs.setdefault("providers", [_EPS[Device(device or "CPU").type]])
        return OnnxplugBackendRep(InferenceSession(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str | None = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare *model* and run it once.

        Attributes of :class:`RunOptions` among *kwargs* are for both where sessions
        have them, too.
        """
        of_run = {name: kwargs[name] for name in kwargs if name in _RUN_OPTIONS}
        of_session = {
            name: kwargs[name]
            for name in kwargs
            if name not in _RUN_OPTIONS or hasattr(SessionOptions(), name)
        }
        return cls.prepare(model, device, **of_session).run(inputs, **of_run)

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


_RUN_OPTIONS: Final = {
    "run_options",
    *(name for name in RunOptions.__slots__ if not name.startswith("_")),
}
"""The arguments of a run."""


def _in_options(
    arguments: Mapping[str, Any],
    name: str,
    kind: Callable[[], Any],
    known: Collection[str],
) -> dict[str, Any]:
    """*arguments*, of which those that are not *known* are put into the one *name*.

    Args:
        kind: makes options that have those as attributes.
    """
    left = {key: value for key, value in arguments.items() if key not in known}
    kept = {key: value for key, value in arguments.items() if key in known}
    if not left:
        return kept
    options = kept.get(name) or kind()
    for key, value in left.items():
        try:
            setattr(options, key, value)
        except AttributeError as error:
            raise OptionTypeError(
                f"there is no argument or option {key!r}: {error}"
            ) from error
    return {**kept, name: options}


is_compatible = OnnxplugBackend.is_compatible
prepare = OnnxplugBackend.prepare
run = OnnxplugBackend.run_model
run_model = OnnxplugBackend.run_model
run_node = OnnxplugBackend.run_node
supports_device = OnnxplugBackend.supports_device
