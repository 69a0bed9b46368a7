"""Sentences of the contract between host and EP, as findings quote them.

The words are those of the documentation, to which a test holds them.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.record import Record

_SITE: Final = "docs/"

_COMPILERS: Final = frozenset(
    {
        "Compatibility",
        "CompatibilityCheck",
        "ExportedModel",
        "Preferences",
        "Prewarmer",
        "Restorable",
        "Serialiser",
        "Specialiser",
        "TensorFacts",
        "ValueLocations",
        "WeightSource",
        "WeightStore",
    }
)
_DEVICES: Final = frozenset(
    {
        "Allocator",
        "CapturePhase",
        "CapturedGraph",
        "CostModel",
        "DataTransfer",
        "DeviceContext",
        "DynamicOptions",
        "Event",
        "GraphCapture",
        "MemoryKind",
        "MemoryLocation",
        "MemorySpaces",
        "Probe",
        "Stream",
        "Verification",
    }
)
"""What pages of their own list, and not that of the interface."""

INTERFACE: Final = "reference/spi.md"
STREAMS: Final = "explanation/memory-and-streams.md"
ROBUSTNESS: Final = "explanation/robustness.md"
DEVICE: Final = "tutorials/write-a-device-ep.md"


class Sentence(Record):
    """A sentence of the contract.

    Attributes:
        of: what it is said of: a class or method of ``onnxplug.ep``, such as
            ``CompiledPartition.run``; or a heading of *page*.
        says: the words, as the docstring or the page has them, line ends aside.
        page: the page that has it, or that lists the class.
    """

    of: str
    says: str
    page: str = INTERFACE

    @property
    def link(self) -> str:
        """The page and the place in it, relative to the repository."""
        heading, page = self.of, self.page
        if page == INTERFACE:
            heading = self.of.partition(".")[0]
            if heading in _COMPILERS:
                page = "reference/spi-compilers.md"
            elif heading in _DEVICES:
                page = "reference/spi-devices.md"
        words = heading.lower().replace(",", "").split()
        return f"{_SITE}{page}#{'-'.join(words)}"

    def __str__(self) -> str:
        return f"{self.of}: {self.says}"
