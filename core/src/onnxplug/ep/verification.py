"""What an EP supplies to have its results compared on a device before they are used.

Of use to few EPs, so not imported by :mod:`onnxplug.ep` until it is asked for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from onnxplug.authoring.fact import fact
from onnxplug.ep.devices import EpDevice
from onnxplug.ep.types import DataType


@fact(eq=False)
class Probe:
    """A small model that shows whether a family of operators computes right.

    The host runs it once on a new device, by the EP alone and by the CPU EP.  If the
    results differ, or the EP raises, no node of the family is given to the EP there.

    Attributes:
        family: a word for the operators that share a kernel; no two probes of a device
            have the same.
        operators: domain (empty for ONNX's own), operator and element type of each.
            A node belongs to the family if one of its tensors, input or output, has
            the element type.
        model: a serialized ``ModelProto``, which has no external data.
        inputs: what it is fed, by the names of its inputs: numpy arrays.
        tolerance: how far results may be from the CPU EP's: relative to those, and
            absolute; ``(0, 0)`` for none at all.
    """

    family: str
    operators: frozenset[tuple[str, str, DataType]]
    model: bytes
    inputs: Mapping[str, Any]
    tolerance: tuple[float, float]


class Verification(ABC):
    """Has the host check, on a device and before it is used, what an EP computes."""

    compile_seconds: float = 5.0
    """What compiling the :meth:`probes` of a device may take together, creating EPs for
    them included, before a session goes on without the rest.  Running them has a limit
    of its own."""

    @abstractmethod
    def probes(self, device: EpDevice) -> Iterable[Probe]:
        """What the host checks on *device* before it believes a claim.

        One for each family of operators; none: all that the EP claims is believed.
        Asked once in each process that uses the EP, though results are kept: read
        models from files rather than make them.
        """
