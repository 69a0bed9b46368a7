"""What a plugin supplies per EP: its devices, its options, and how to make it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from onnxplug.ep.capability import Reason
from onnxplug.ep.devices import EpDevice, HardwareDevice
from onnxplug.ep.graph import Graph, Node
from onnxplug.ep.memory import Allocator, DataTransfer, MemoryLocation, Stream
from onnxplug.ep.provider import ExecutionProvider

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from onnxplug.ep.operators import OperatorSupport
    from onnxplug.ep.weights import WeightStore

OptionValue: TypeAlias = bool | int | float | str


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """An option of an EP.  The host parses and validates what users write.

    Whole numbers from -2⁶³ to 2⁶⁴ - 1 are accepted, and NaN is not; infinity is where
    no bound speaks against it.

    Attributes:
        default: the value when the user says nothing; its type is the option's type.
        doc: one sentence: what it does, in which unit.
        choices: the only values accepted; empty for no limit.
        minimum, maximum: inclusive bounds of a number; ``None`` for none.
        aliases: other names by which users may know it.
        refused: why this EP cannot do what the option asks for; setting it is an
            error with this text.  For options that users know from elsewhere.
    """

    default: OptionValue
    doc: str = ""
    choices: tuple[OptionValue, ...] = ()
    minimum: float | None = None
    maximum: float | None = None
    aliases: tuple[str, ...] = ()
    refused: str = ""


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
    def intra_op_num_threads(self) -> int:
        """How many threads a node may use; 0 leaves it to the EP."""

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
        """The session's config entries."""

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

    @abstractmethod
    def supported_devices(
        self, devices: Sequence[HardwareDevice]
    ) -> Iterable[EpDevice]:
        """The pairs of this EP and those of *devices* it can drive.

        Looks, does not initialise: no driver is loaded, no context made.  None, if
        what the EP computes with is not installed, which :meth:`diagnose` then reports.
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

    def create_allocator(self, location: MemoryLocation) -> Allocator | None:
        """(optional) The allocator of *location*, shared by all sessions.

        Defaults to ``None``: host memory.
        """
        return None

    def create_data_transfer(self) -> DataTransfer | None:
        """(optional) What copies to and from the EP's memory, shared by all sessions.

        Defaults to ``None``: the EP works in host memory.
        """
        return None

    def create_stream(self, location: MemoryLocation) -> Stream | None:
        """(optional) A stream for one run on *location*.

        Defaults to ``None``: ``run`` and copies are done when they return.
        """
        return None

    def diagnose(self) -> Iterable[Finding]:
        """(optional) What ``onnxplug doctor`` should report.  Defaults to nothing.

        Its errors are also reported, first and with their remedies, where the EP has no
        device or could not be created.  So an EP whose engine is missing yields a
        finding such as ``torch is not installed``, remedy ``pip install torch``.
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
