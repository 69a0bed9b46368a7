"""Every exception that onnxplug raises.

Each inherits the builtin that a caller would expect as well as ours, and its text
says what failed, what was found and expected, and the remedy.  Names in it may be of
anybody's choosing, so ``str()`` shows control characters escaped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from onnxplug.escape import escape_lines

if TYPE_CHECKING:
    from onnxplug.ep.graph import Node


class OnnxplugError(RuntimeError):
    """Base of all errors of onnxplug.

    It is a ``RuntimeError`` since programs catch that: ONNX Runtime raises it for most
    that goes wrong outside a run.

    Attributes:
        remedy: what to do about it, where an EP knows that; the text says it, too.
    """

    remedy: str = ""

    def __str__(self) -> str:
        return escape_lines(super().__str__())


class OnnxplugWarning(UserWarning):
    """Base of all warnings of onnxplug."""

    def __str__(self) -> str:
        return escape_lines(super().__str__())


# The statuses of ONNX Runtime, by its names, for code that catches them...


class Fail(OnnxplugError):
    """ONNX Runtime's status 1: something did not work."""

    code: ClassVar[int] = 1


class InvalidArgument(OnnxplugError, ValueError):
    """ONNX Runtime's status 2: an argument does not fit."""

    code: ClassVar[int] = 2


class NoSuchFile(OnnxplugError, FileNotFoundError):
    """ONNX Runtime's status 3: there is no such file."""

    code: ClassVar[int] = 3


class NoModel(OnnxplugError):
    """ONNX Runtime's status 4: there is no model."""

    code: ClassVar[int] = 4


class EngineError(OnnxplugError):
    """ONNX Runtime's status 5: the runtime failed."""

    code: ClassVar[int] = 5


class RuntimeException(OnnxplugError):
    """ONNX Runtime's status 6: an exception in the runtime."""

    code: ClassVar[int] = 6


class InvalidProtobuf(OnnxplugError, ValueError):
    """ONNX Runtime's status 7: the bytes are no ONNX model."""

    code: ClassVar[int] = 7


class ModelLoaded(OnnxplugError):
    """ONNX Runtime's status 8: a model is loaded already."""

    code: ClassVar[int] = 8


class NotImplemented(OnnxplugError, NotImplementedError):
    """ONNX Runtime's status 9: nothing computes what the model asks for."""

    code: ClassVar[int] = 9


class InvalidGraph(OnnxplugError, ValueError):
    """ONNX Runtime's status 10: the model contradicts itself."""

    code: ClassVar[int] = 10


class EPFail(OnnxplugError):
    """ONNX Runtime's status 11: an EP failed."""

    code: ClassVar[int] = 11


class ModelLoadCanceled(OnnxplugError):
    """ONNX Runtime's status 12: a model was not loaded to the end."""

    code: ClassVar[int] = 12


class ModelRequiresCompilation(OnnxplugError):
    """ONNX Runtime's status 13: EPs have to compile what must not be compiled now."""

    code: ClassVar[int] = 13


class NotFound(OnnxplugError, LookupError):
    """ONNX Runtime's status 14: what was asked for is not there."""

    code: ClassVar[int] = 14


class DeviceReset(OnnxplugError):
    """ONNX Runtime's status 15: a device was reset."""

    code: ClassVar[int] = 15


def status_class(code: int) -> type[OnnxplugError]:
    """The class of errors of ONNX Runtime's status *code*, :class:`EPFail` if there is
    no such status; for EPs whose engines speak in these."""
    return _STATUSES.get(code, EPFail)


_STATUSES: Final[Mapping[int, type[OnnxplugError]]] = {
    kind.code: kind
    for kind in (
        Fail,
        InvalidArgument,
        NoSuchFile,
        NoModel,
        EngineError,
        RuntimeException,
        InvalidProtobuf,
        ModelLoaded,
        NotImplemented,
        InvalidGraph,
        EPFail,
        ModelLoadCanceled,
        ModelRequiresCompilation,
        NotFound,
        DeviceReset,
    )
}


# Plugins...


class PluginError(Fail):
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


class PluginBlocked(PluginError):
    """A setting, ``ONNXPLUG_BLOCK`` or ``ONNXPLUG_PLUGINS``, keeps the plugin out."""


class LibraryInUse(PluginError):
    """A library cannot be unregistered while sessions use its EPs."""


class ImportedBefore(Fail, ImportError):
    """onnxplug cannot stand for a package that the process has imported already."""


class RequirementMissing(Fail, ImportError):
    """What was asked for needs a distribution that is not installed."""


class OptionError(InvalidArgument):
    """An option that does not exist, or a value that it does not accept."""


class OptionTypeError(OptionError, TypeError):
    """What is given as an option, or as options, is of the wrong type."""


class OptionWarning(OnnxplugWarning):
    """An option was set that has no effect here."""


# Models...


class ModelError(OnnxplugError, ValueError):
    """The model cannot be used."""


class ModelWarning(OnnxplugWarning):
    """What a model states of itself is not so."""


class ModelNotFound(ModelError, NoSuchFile):
    """There is no file at the model's path."""


class InvalidModel(ModelError, InvalidGraph):
    """The model's bytes or structure are not valid ONNX."""


class ModelUnreadable(InvalidModel, OSError):
    """What is at the model's path cannot be read, or is no regular file."""


class ModelIsFolder(ModelUnreadable, IsADirectoryError):
    """There is a folder at the model's path."""


class ModelForbidden(ModelUnreadable, PermissionError):
    """The process may not read the file at the model's path."""


class ModelTypeError(InvalidModel, TypeError):
    """What is given as a model is none: no path, no bytes, no ``ModelProto``."""


class MalformedModel(InvalidModel, InvalidProtobuf):
    """The model's bytes are not a protobuf message as ONNX defines it."""


class EmptyModel(MalformedModel, InvalidArgument):
    """The model's bytes have no graph."""

    code: ClassVar[int] = InvalidArgument.code


class UnsupportedModel(ModelError, Fail, NotImplementedError):
    """The model is valid, but newer than this onnxplug, or of a kind it cannot run."""


class ExternalDataError(InvalidModel, Fail):
    """External data is missing, truncated, or outside the model's folder."""


class ContextError(InvalidModel, Fail):
    """What an EPContext node holds is missing or damaged, or outside the model's
    folder."""


class ContextMismatch(ModelError, ModelRequiresCompilation):
    """A compiled model is of another EP or engine, for another device, or with other
    options."""


# Execution providers...


class EpError(EPFail):
    """An EP failed.

    Attributes:
        ep: the EP's name.
        stage: ``devices``, ``select``, ``create``, ``probes``, ``engine_versions``,
            ``get_capability``, ``examine``, ``compile``, ``serialize``,
            ``compatibility_info``, ``check``, ``restore``, ``prepare``, ``run``,
            ``explain``, ``close`` or ``operators``.
    """

    def __init__(self, message: str, *, ep: str = "", stage: str = "") -> None:
        super().__init__(message)
        self.ep = ep
        self.stage = stage


class SelectionError(EpError, Fail):
    """A policy, or a delegate, failed, or chose what cannot be used."""

    code: ClassVar[int] = Fail.code


class EpWarning(OnnxplugWarning):
    """An EP that was asked for is not used, or runs nothing; the text says why."""


class UnassignedNode(NotImplemented):
    """No chosen EP runs some node, or not the one that has to.

    Attributes:
        reasons: for each such node, described in words, what each EP said.
    """

    def __init__(
        self, message: str, *, reasons: Mapping[str, Sequence[str]] | None = None
    ) -> None:
        super().__init__(message)
        self.reasons = dict(reasons or {})


class UnknownOperator(UnassignedNode, Fail, InvalidGraph):
    """A node calls an operator that nobody has: neither ONNX in the version that the
    model imports, nor the model's functions, nor what is installed."""

    code: ClassVar[int] = InvalidGraph.code


class Declined(OnnxplugError):
    """Raised by an EP's ``compile`` to give a partition back to the host.

    Attributes:
        reason: why; it is kept in the session's report.
        nodes: those of the partition's nodes that are given back; ``None``: all.
    """

    def __init__(self, reason: object, *, nodes: Sequence[Node] | None = None) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.nodes = None if nodes is None else tuple(nodes)


class SessionRefused(EPFail):
    """Raised by an EP's ``compile`` when the session must not be created at all."""


class LoadCancelled(ModelLoadCanceled):
    """A session was cancelled while it was made; see ``SessionOptions``."""


# Running...


class RunError(Fail):
    """A run failed."""


class OutOfMemory(RunError, MemoryError):
    """Memory that a run, or making a session, needs is not to be had.

    Attributes:
        node: the node that needs it, in words; empty where it is of no single one.
        ep: the EP that asked for it; empty for onnxplug itself.
        nbytes: how many bytes were asked for at once; ``None`` when nobody said.
    """

    def __init__(
        self,
        message: str,
        *,
        node: str = "",
        ep: str = "",
        nbytes: int | None = None,
    ) -> None:
        super().__init__(message)
        self.node = node
        self.ep = ep
        self.nbytes = nbytes

    @classmethod
    def of(
        cls,
        error: Exception,
        what: str,
        *,
        node: str = "",
        ep: str = "",
        nbytes: int | None = None,
    ) -> OutOfMemory:
        """One that says that *what* needs more memory than there is, as *error* does;
        what *error* says of that already, it says again."""
        if isinstance(error, OutOfMemory):
            asked = error.nbytes
            return cls(str(error), node=error.node, ep=error.ep or ep, nbytes=asked)
        said = error if str(error) else "nobody says how much"
        message = f"{what} needs more memory than there is: {said}"
        return cls(message, node=node, ep=ep, nbytes=nbytes)


class NodeError(RunError):
    """A node's computation raised.

    Attributes:
        node: the node's name, or its operator and first output.
        ep: the EP that ran it; empty until the host knows.
    """

    def __init__(self, message: str, *, node: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.ep = ""

    def locate(self, ep: str, place: object) -> None:
        """Add who ran the node, in which *place*, unless that is known."""
        if not self.ep:
            self.ep = ep
            where, said = str(place), str(self.args[0])
            # a partition of one node is told by that, and need not be
            short, _, node = where.partition(" (node ")
            if node and said.startswith(node.removesuffix(")")):
                where = short
            self.args = (f"{ep}, {where}: {said}",)


class RunCancelled(RunError):
    """The run was cancelled, or its deadline passed, before it finished."""


class InputError(InvalidArgument):
    """What was fed to a session does not fit its inputs.

    Attributes:
        input: the name of the input.
    """

    def __init__(self, message: str, *, input: str = "") -> None:
        super().__init__(message)
        self.input = input


class InputTypeError(InputError, TypeError):
    """A fed value is of the wrong kind or element type."""


class UnknownOutput(InvalidArgument):
    """An output was asked for that the model does not have."""


class ArgumentTypeError(InvalidArgument, TypeError):
    """An argument of a call is of the wrong type."""


class ValueTypeError(ArgumentTypeError):
    """An ``OrtValue`` is to be made from what is no array, or filled with it."""


class OutputMismatch(InvalidArgument):
    """An array bound to an output has not the shape or element type produced."""
