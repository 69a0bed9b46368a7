"""What a plugin supplies per EP: its devices, its options, and how to make it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from onnxplug.authoring.fact import fact
from onnxplug.ep.capability import Reason
from onnxplug.ep.devices import DeviceType, EpDevice, HardwareDevice
from onnxplug.ep.graph import Graph, Node
from onnxplug.ep.memory import MemoryLocation
from onnxplug.ep.option import Option, OptionValue
from onnxplug.ep.provider import ExecutionProvider

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from onnxplug.ep.compatibility import CompatibilityCheck
    from onnxplug.ep.device_context import DeviceContext, MemorySpaces
    from onnxplug.ep.operators import OperatorSupport
    from onnxplug.ep.policy import ModelInfo
    from onnxplug.ep.refused import RefusedDevice
    from onnxplug.ep.verification import Verification
    from onnxplug.ep.weights import WeightStore


class Level(StrEnum):
    """How a finding is to be read."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@fact()
class Finding:
    """Something that ``onnxplug doctor`` reports about an EP on this machine.

    Attributes:
        level: ``error`` when the EP cannot work as things are, such as without its
            engine.
        message: what was found.
        remedy: what to do about it; empty when nothing needs doing.
    """

    level: Level
    message: str
    remedy: str = ""


class Host(Protocol):
    """The runtime, as it describes itself to a plugin.  May gain attributes."""

    @property
    def version(self) -> str:
        """The version of the distribution ``onnxplug``."""

    @property
    def spi_version(self) -> tuple[int, int]:
        """The SPI that the host speaks."""

    @property
    def logger(self) -> logging.Logger:
        """The plugin's own logger, ``onnxplug.plugin.<module>``."""


class SessionContext(Protocol):
    """A session, as it describes itself to an EP's factory.  May gain attributes."""

    @property
    def model_path(self) -> Path | None:
        """Where the model was loaded from; ``None`` when from memory."""

    @property
    def model_info(self) -> ModelInfo:
        """What the model says of itself."""

    @property
    def intra_op_num_threads(self) -> int:
        """How many threads a node may use; 0 leaves it to the EP."""

    def context(self, location: MemoryLocation) -> DeviceContext:
        """The context of *location*, made by the EP that owns its space.

        That EP is loaded if need be.

        Raises:
            EpError: no installed EP owns the space, two do, or there is no such device.
        """

    def find_kernel(
        self, graph: Graph, node: Node, xp: Any
    ) -> Callable[..., Any] | Reason | None:
        """The function that whoever supplies a node's operator has for it.

        For EPs that compute on arrays, of nodes that they have no function for.

        Args:
            xp: the namespace of the arrays, such as ``numpy``.

        Returns:
            as ``KernelExecutionProvider.find_kernel``; ``None`` if nobody supplies the
            operator with a kernel.
        """

    def weights(self, location: MemoryLocation) -> WeightStore:
        """The store of what EPs make of weights at *location*, for all sessions."""

    @property
    def config(self) -> Mapping[str, str]:
        """The session's config entries, as written."""

    @property
    def entries(self) -> Mapping[str, OptionValue]:
        """Every one of the EP's ``config_entries``, typed and validated."""

    @property
    def logger(self) -> logging.Logger:
        """The session's logger."""


class EpFactory(ABC):
    """Creates an EP.  One instance per EP name and process; it holds no device.

    An author writes what is here without a value, and the two methods that are
    abstract.  The rest may be left as it is: an ability that the EP has not is
    ``None``, and one that it has is an object, of a class of its own.

    Every method may be called from any thread.
    """

    spi_version: ClassVar[tuple[int, int]]
    """The SPI the plugin was written for: a literal such as ``(0, 1)``, never
    ``SPI_VERSION``, which would always agree with the host."""

    name: ClassVar[str]
    """The EP's name, ``CUDAExecutionProvider``; that of its entry point."""

    @abstractmethod
    def supported_devices(
        self, devices: Sequence[HardwareDevice]
    ) -> Iterable[EpDevice | RefusedDevice]:
        """The pairs of this EP and those of *devices* it can drive.

        Looks, does not initialise: no driver is loaded, no context made.  A device that
        it cannot drive as things are, such as without its engine, it may refuse, with
        the reason and a remedy, which users see who ask for the EP or the device.
        """

    @abstractmethod
    def create(
        self,
        devices: Sequence[EpDevice],
        options: Mapping[str, OptionValue],
        session: SessionContext,
    ) -> ExecutionProvider:
        """An EP for one session on *devices* (at least one, all of this factory).

        *options* has every option of :attr:`options`, typed and validated.  Raising
        anything but ``OptionError`` is a failure of the EP, which the host reports
        with the exception, and after which it tries the next EP.

        Raises:
            OptionError: the options contradict each other, or do not fit the devices.
                It reaches the user as it is.
        """

    # what users are told

    vendor: ClassVar[str] = ""
    """The EP's maker."""

    vendor_id: ClassVar[int] = 0
    """The maker's PCI vendor id; 0 for none."""

    version: ClassVar[str] = "0"
    """The EP's own version."""

    tried_on: ClassVar[Mapping[DeviceType, str] | None] = None
    """The hardware on which its makers ran the EP, in words, by kind of device.  On
    what is not in it they never did, which users are told; ``None``: not said."""

    # what users may set

    options: ClassVar[Mapping[str, Option]] = {}
    """The options users may set, by name."""

    config_entries: ClassVar[Mapping[str, Option]] = {}
    """What users may set besides for a session, by name, as the session config entry
    ``ep.<ep>.<name>``; see ``SessionContext.entries``.  Options can be set so, too, and
    are not declared here again."""

    run_options: ClassVar[Mapping[str, Option]] = {}
    """What users may set for a run, by name, which is that of a run config entry; see
    ``RunContext.options``.  Every EP of a session that declares a name gets its value:
    a name begins with the EP's own, ``acme.priority``, unless EPs share a meaning."""

    # abilities

    memory_spaces: MemorySpaces | None = None
    """The memories that the EP owns; ``None``: it works in the host's, or in another
    EP's, whose context it gets from the host."""

    verification: Verification | None = None
    """Has what the EP computes compared on a device; ``None``: all that it claims is
    believed."""

    compatibility: CompatibilityCheck | None = None
    """Judges what was compiled elsewhere; ``None``: as
    :class:`onnxplug.authoring.compilers.SameCompiler` does."""

    def engine_versions(self, device: EpDevice) -> Mapping[str, str]:
        """(optional) Versions of what computes on *device*, such as engine and driver.

        If one changes, probes are run again, and what was compiled is not restored.
        Looks, as :meth:`supported_devices` does: no driver is loaded.  Defaults to
        nothing: results depend on the versions of the EP and the system only.
        """
        return {}

    def diagnose(self) -> Iterable[Finding]:
        """(optional) What ``onnxplug doctor`` should report.  Defaults to nothing.

        Its errors are also reported, first and with their remedies, where the EP has no
        device or could not be created.  So an EP whose engine is missing yields a
        finding such as ``torch is not installed``, remedy ``pip install torch``.
        """
        return ()

    def preload(
        self, libraries: Collection[str], directory: Path | None
    ) -> Iterable[Finding]:
        """(optional) Load native libraries that the EP computes with, for whatever asks
        for them later in the process to find these.  Defaults to nothing.

        Args:
            libraries: which, by words of ONNX Runtime's ``preload_dlls``: ``cuda``,
                ``cudnn``, ``msvc``; others than the EP has are nothing to it.
            directory: where to look first; ``None``: where the EP looks anyway.

        Returns:
            what was loaded, and, as warnings, what was not.
        """
        return ()

    def operators(self) -> Iterable[OperatorSupport] | None:
        """(optional) The operators that the EP runs, for ``onnxplug ops``.

        Told without a device.  Of an operator that several tiers run, the one that is
        preferred comes first.  Defaults to ``None``: the EP does not say.
        """
        return None

    def close(self) -> None:
        """(optional) Release what sessions shared.  Idempotent; after all EPs."""
        return None
