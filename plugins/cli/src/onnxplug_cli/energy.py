"""What the processor's packages spend, by the counters that Linux shows of them.

They count the whole package: what other programs spend meanwhile is in it.
Source: https://docs.kernel.org/power/powercap/powercap.html
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from onnxplug.authoring.record import Record

ZONES: Final = Path("/sys/class/powercap")


class Zone(Record):
    """A counter of one package.

    Attributes:
        counter: the file of the microjoules since some time.
        range: microjoules at which it begins anew.
    """

    counter: Path
    range: int

    def read(self) -> int:
        """Microjoules.

        Raises:
            OSError, ValueError: it cannot be read (any more).
        """
        return int(self.counter.read_text("ascii"))


class Meter:
    """Measures the energy between two readings.

    Args:
        zones: of all packages; none if there is nothing to read.
        missing: why there is nothing; empty if there is.
    """

    def __init__(self, zones: Sequence[Zone] = (), missing: str = "") -> None:
        self._zones = list(zones)
        self.missing = missing

    @classmethod
    def of_machine(cls, folder: Path = ZONES) -> Meter:
        """The meter of this machine, whose zones are in *folder*."""
        if not sys.platform.startswith("linux"):
            return cls(missing="only Linux tells it (RAPL)")
        # those with one number are packages, whose parts have two
        found = [
            each for each in sorted(folder.glob("*-rapl:*")) if _is_package(each.name)
        ]
        if not found:
            return cls(missing=f"there are no counters (RAPL) in {folder}")
        zones = []
        try:
            for each in found:
                whole = int((each / "max_energy_range_uj").read_text("ascii"))
                zones.append(Zone(each / "energy_uj", whole))
                zones[-1].read()
        except PermissionError as error:
            return cls(
                missing=f"{error.filename} may not be read; as root: chmod a+r "
                f"{folder}/*-rapl:*/energy_uj"
            )
        except (OSError, ValueError) as error:
            return cls(missing=f"the counters (RAPL) cannot be read: {error}")
        return cls(zones)

    def read(self) -> list[int]:
        """The counters now, for :meth:`joules`; none after one has failed."""
        try:
            return [zone.read() for zone in self._zones]
        except (OSError, ValueError) as error:
            self._zones = []
            self.missing = f"the counters (RAPL) cannot be read any more: {error}"
            return []

    def joules(self, before: Sequence[int], after: Sequence[int]) -> float | None:
        """What was spent between two readings; ``None`` where that is not known."""
        if not self._zones or len(before) != len(after):
            return None
        micro = 0
        for zone, one, other in zip(self._zones, before, after, strict=True):
            micro += other - one if other >= one else other - one + zone.range
        return micro * 1e-6


def _is_package(name: str) -> bool:
    return name.partition(":")[2].isdecimal()
