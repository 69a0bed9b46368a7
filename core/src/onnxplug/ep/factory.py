"""What a plugin supplies per EP: its devices, its options, and how to make it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from onnxplug.ep.capability import Reason
from onnxplug.ep.devices import DeviceType, EpDevice, HardwareDevice
from onnxplug.ep.graph import Graph, Node
from onnxplug.ep.memory import MemoryLocation
from onnxplug.ep.option import Option, OptionValue
from onnxplug.ep.provider import ExecutionProvider

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from onnxplug.ep.compatibility import Compatibility
    from onnxplug.ep.device_context import DeviceContext
    from onnxplug.ep.operators import OperatorSupport
    from onnxplug.ep.policy import ModelInfo
    from onnxplug.ep.probe import Probe
    from onnxplug.ep.refused import RefusedDevice
    from onnxplug.ep.weights import WeightStore


class Level(StrEnum):
    """How a finding is to be read."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
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

    Every method may be called from any thread.
    """

    spi_version: ClassVar[tuple[int, int]]
    """The SPI the plugin was written for: a literal such as ``(0, 1)``, never
    ``SPI_VERSION``, which would always agree with the host."""

    name: ClassVar[str]
    """The EP's name, ``CUDAExecutionProvider``; that of its entry point."""

    vendor: ClassVar[str] = ""
    """The EP's maker."""

    vendor_id: ClassVar[int] = 0
    """The maker's PCI vendor id; 0 for none."""

    version: ClassVar[str] = "0"
    """The EP's own version."""

    options: ClassVar[Mapping[str, Option]] = {}
    """The options users may set, by name."""

    memory_spaces: ClassVar[frozenset[str]] = frozenset()
    """The memory spaces, such as ``cuda``, whose contexts this factory makes.  No two
    factories own one; an EP in a space of another's gets the context from the host."""

    spare_memory_spaces: ClassVar[frozenset[str]] = frozenset()
    """Those whose contexts this factory makes where no EP that can be loaded has them
    among its :attr:`memory_spaces`; of several such factories the first by name does.
    Its EP has to work in a context of another's as well."""

    keeps_contexts: ClassVar[bool] = False
    """Its contexts stay open when nothing uses them any more, until the EP is
    unregistered or the process ends: where making one takes long, or what the factory
    holds refers to them."""

    tried_on: ClassVar[Mapping[DeviceType, str] | None] = None
    """The hardware on which its makers ran the EP, in words, by kind of device.  On
    what is not in it they never did, which users are told; ``None``: not said."""

    probe_compile_seconds: ClassVar[float] = 5.0
    """What compiling the :meth:`probes` of a device may take together, creating EPs for
    them included, before a session goes on without the rest.  Running them has a limit
    of its own."""

    config_entries: ClassVar[Mapping[str, Option]] = {}
    """What users may set besides for a session, by name, as the session config entry
    ``ep.<ep>.<name>``; see ``SessionContext.entries``.  Options can be set so, too, and
    are not declared here again."""

    run_options: ClassVar[Mapping[str, Option]] = {}
    """What users may set for a run, by name, which is that of a run config entry; see
    ``RunContext.options``.  Every EP of a session that declares a name gets its value:
    a name begins with the EP's own, ``acme.priority``, unless EPs share a meaning."""

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

    def create_context(self, location: MemoryLocation) -> DeviceContext:
        """(optional) The context of *location*, in one of :attr:`memory_spaces`,
        or of :attr:`spare_memory_spaces`.

        Called when the location is first used, and again when it is after the context
        was closed; never while there is one.

        Raises:
            LookupError: there is no such device.
        """
        raise LookupError(f"{self.name} makes no context of {location}")

    def diagnose(self) -> Iterable[Finding]:
        """(optional) What ``onnxplug doctor`` should report.  Defaults to nothing.

        Its errors are also reported, first and with their remedies, where the EP has no
        device or could not be created.  So an EP whose engine is missing yields a
        finding such as ``torch is not installed``, remedy ``pip install torch``.
        """
        return ()

    def probes(self, device: EpDevice) -> Iterable[Probe]:
        """(optional) What the host checks on *device* before it believes a claim.

        One for each family of operators.  Asked once in each process that uses the EP,
        though results are kept: read models from files rather than make them.
        Defaults to nothing: all that the EP claims is believed.
        """
        return ()

    def engine_versions(self, device: EpDevice) -> Mapping[str, str]:
        """(optional) Versions of what computes on *device*, such as engine and driver.

        If one changes, probes are run again.  Looks, as :meth:`supported_devices`
        does: no driver is loaded.  Defaults to nothing: results depend on the versions
        of the EP and the system only.
        """
        return {}

    def compatibility_info(self, device: EpDevice) -> str:
        """(optional) What partitions compiled for *device* depend on.

        Printable text for :meth:`check`; options are not in it, as the host compares
        these itself.  Looks, as :meth:`supported_devices` does: no driver is loaded.
        Defaults to the EP's name and version, :meth:`engine_versions`, the system and
        the model of the device.
        """
        from onnxplug.authoring.compilers import describe_compiler

        return describe_compiler(
            self.name, self.version, self.engine_versions(device), device
        )

    def check(self, device: EpDevice, info: str) -> tuple[Compatibility, str]:
        """(optional) Whether what was compiled elsewhere can be restored on *device*.

        Looks, as :meth:`compatibility_info` does, which made *info*, perhaps in another
        version; it may also be damaged, or ONNX Runtime's.  Whatever differs makes it
        unsupported by default.

        Returns:
            The answer and the reason, which is empty if it is ``OPTIMAL``.
        """
        from onnxplug.authoring.compilers import compare_compilers

        return compare_compilers(self.compatibility_info(device), info)

    def operators(self) -> Iterable[OperatorSupport] | None:
        """(optional) The operators that the EP runs, for ``onnxplug ops``.

        Told without a device.  Of an operator that several tiers run, the one that is
        preferred comes first.  Defaults to ``None``: the EP does not say.
        """
        return None

    def close(self) -> None:
        """(optional) Release what sessions shared.  Idempotent; after all EPs."""
        return None
