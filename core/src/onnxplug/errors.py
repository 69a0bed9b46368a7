"""Every exception that onnxplug raises.

Each inherits the builtin that a caller would expect as well as ours, and its text
says what failed, what was found and expected, and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class OnnxplugError(Exception):
    """Base of all errors of onnxplug."""


# Plugins...


class PluginError(OnnxplugError, RuntimeError):
    """A plugin cannot be used.

    Attributes:
        plugin: the EP name that was asked for.
    """

    def __init__(self, message: str, *, plugin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin


class PluginNotFound(PluginError, LookupError):
    """No installed plugin supplies the EP that was asked for."""


class PluginConflict(PluginError):
    """Two distributions supply the same EP; neither is loaded."""


class PluginIncompatible(PluginError):
    """The plugin was written for another version of the SPI."""


class PluginLoadError(PluginError, ImportError):
    """The plugin raised while it was imported or asked for its factories."""


class OptionError(OnnxplugError, ValueError):
    """An option that does not exist, or a value that it does not accept."""


# Models...


class ModelError(OnnxplugError, ValueError):
    """The model cannot be used."""


class ModelNotFound(ModelError, FileNotFoundError):
    """There is no file at the model's path."""


class InvalidModel(ModelError):
    """The model's bytes or structure are not valid ONNX."""


class UnsupportedModel(ModelError, NotImplementedError):
    """The model is valid, but newer than this onnxplug, or of a kind it cannot run."""


class ExternalDataError(InvalidModel):
    """External data is missing, truncated, or outside the model's folder."""


# Execution providers...


class EpError(OnnxplugError, RuntimeError):
    """An EP failed.

    Attributes:
        ep: the EP's name.
        stage: ``devices``, ``create``, ``get_capability``, ``compile`` or ``run``.
    """

    def __init__(self, message: str, *, ep: str = "", stage: str = "") -> None:
        super().__init__(message)
        self.ep = ep
        self.stage = stage


class EpWarning(UserWarning):
    """An EP that was asked for is not used, or runs nothing; the text says why."""


class UnassignedNode(OnnxplugError, NotImplementedError):
    """No chosen EP runs some node.

    Attributes:
        reasons: for each such node, described in words, what each EP said.
    """

    def __init__(
        self, message: str, *, reasons: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class Declined(OnnxplugError):
    """Raised by an EP's ``compile`` to give a partition back to the host.

    Attributes:
        reason: why; it is kept in the session's report.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))
        self.reason = reason


class SessionRefused(OnnxplugError, RuntimeError):
    """Raised by an EP's ``compile`` when the session must not be created at all."""


# Running...


class RunError(OnnxplugError, RuntimeError):
    """A run failed."""


class NodeError(RunError):
    """A node's computation raised.

    Attributes:
        node: the node's name, or its operator and first output.
    """

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class RunCancelled(RunError):
    """The run was cancelled, or its deadline passed, before it finished."""


class InputError(OnnxplugError, ValueError):
    """What was fed to a session does not fit its inputs.

    Attributes:
        input: the name of the input.
    """

    def __init__(self, message: str, *, input: str = "") -> None:
        super().__init__(message)
        self.input = input


class InputTypeError(InputError, TypeError):
    """A fed value is of the wrong kind or element type."""


class UnknownOutput(OnnxplugError, ValueError):
    """An output was asked for that the model does not have."""


class OutputMismatch(OnnxplugError, ValueError):
    """An array bound to an output has not the shape or element type produced."""
