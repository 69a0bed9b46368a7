"""onnxplug behind ONNX's own interface, ``onnx.backend.base``.

``onnxplug.backend.prepare(model, "CPU").run(inputs)``; the ONNX backend suite runs
through it.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np
from onnx.backend.base import Backend, BackendRep, Device, DeviceType, namedtupledict

from onnxplug.errors import InputError, OptionError, OptionTypeError
from onnxplug.options import RunOptions, SessionOptions
from onnxplug.plugins import registry
from onnxplug.session.session import InferenceSession
from onnxplug.suggest import did_you_mean

_EPS: Final = {
    DeviceType.CPU: "CPUExecutionProvider",
    DeviceType.CUDA: "CUDAExecutionProvider",
}


class OnnxplugBackendRep(BackendRep):
    """A prepared model.

    Attributes:
        session: what runs it.
    """

    options: ClassVar[type[RunOptions]] = RunOptions
    """What keywords of a run are attributes of."""
    ignores_unknown: ClassVar[bool] = False
    """Whether keywords that mean nothing are accepted."""

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
            kwargs: ``run_options``, or attributes of :class:`RunOptions` but
                ``terminate``.

        Raises:
            OptionTypeError: an argument is neither.
            OptionError: it may not be a keyword.
        """
        kwargs = _in_options(
            kwargs,
            "run_options",
            self.options,
            known={"run_options"},
            attributes=_RUN_OPTIONS,
            ignores_unknown=self.ignores_unknown,
        )
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

    prepared: ClassVar[type[OnnxplugBackendRep]] = OnnxplugBackendRep
    """What a model becomes."""
    session: ClassVar[type[InferenceSession]] = InferenceSession
    """What runs it."""
    options: ClassVar[type[SessionOptions]] = SessionOptions
    """What keywords are attributes of."""
    arguments: ClassVar[Collection[str]] = frozenset(
        name
        for name in inspect.signature(InferenceSession).parameters
        if name != "path_or_bytes"
    )
    """Keywords that are arguments of the session."""
    ignores_unknown: ClassVar[bool] = False
    """Whether keywords that mean nothing are accepted."""

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
                :class:`SessionOptions` but those by which files are written.

        Raises:
            OptionTypeError: an argument is neither.
            OptionError: it may not be a keyword.
        """
        if isinstance(model, OnnxplugBackendRep):
            return model
        if isinstance(model, InferenceSession):
            return cls.prepared(model)
        kwargs = _in_options(
            kwargs,
            "sess_options",
            cls.options,
            known=cls.arguments,
            attributes=_SESSION_OPTIONS,
            ignores_unknown=cls.ignores_unknown,
        )
        kwargs.setdefault("providers", [_EPS[Device(device or "CPU").type]])
        return cls.prepared(cls.session(model, **kwargs))

    @classmethod
    def run_model(
        cls, model: Any, inputs: Any, device: str | None = "CPU", **kwargs: Any
    ) -> tuple[Any, ...]:
        """Prepare *model* and run it once.

        Attributes of :class:`RunOptions` among *kwargs* are for both where sessions
        have them, too.
        """
        of_run = {name: kwargs[name] for name in kwargs if name in _OF_RUN}
        of_session = {
            name: kwargs[name]
            for name in kwargs
            if name not in _OF_RUN or name in _SESSION_OPTIONS
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


_REFUSED: Final = frozenset(
    ("optimized_model_filepath", "profile_file_prefix", "enable_profiling", "terminate")
)
"""Options that no keyword sets: who has a model run for others passes their keywords
on, by which they must neither write files nor end runs."""

_SESSION_OPTIONS: Final = (
    frozenset(name for name in vars(SessionOptions()) if name[0] != "_") - _REFUSED
)
_RUN_OPTIONS: Final = (
    frozenset(name for name in RunOptions.__slots__ if name[0] != "_") - _REFUSED
)
_OF_RUN: Final = _RUN_OPTIONS | {"run_options", "terminate"}
"""The keywords that a run reads."""


def _in_options(
    keywords: Mapping[str, Any],
    name: str,
    kind: type[SessionOptions] | type[RunOptions],
    *,
    known: Collection[str],
    attributes: Collection[str],
    ignores_unknown: bool,
) -> dict[str, Any]:
    """*keywords*, of which those that are not *known* are put into the one *name*.

    Args:
        kind: of what they are *attributes*.
    """
    kept = {key: value for key, value in keywords.items() if key in known}
    left = {key: value for key, value in keywords.items() if key not in known}
    for key in left:
        if key in _REFUSED:
            raise OptionError(
                f"the option {key!r} is not permitted as a keyword of a backend; set "
                f"it in the options of an InferenceSession or of its run"
            )
        if key not in attributes and not ignores_unknown:
            raise OptionTypeError(
                f"there is no argument or option {key!r}"
                f"{did_you_mean(key, [*known, *attributes])}"
            )
    given = {key: value for key, value in left.items() if key in attributes}
    if given:
        options = kept[name] = kept.get(name) or kind()
        for key, value in given.items():
            setattr(options, key, value)
    return kept


is_compatible = OnnxplugBackend.is_compatible
prepare = OnnxplugBackend.prepare
run = OnnxplugBackend.run_model
run_model = OnnxplugBackend.run_model
run_node = OnnxplugBackend.run_node
supports_device = OnnxplugBackend.supports_device
