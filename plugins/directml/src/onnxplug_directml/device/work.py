"""What a device's queue is given."""

from __future__ import annotations

from typing import Any, TypeAlias

from onnxplug.authoring.record import Record
from onnxplug_directml.device.pool import Memory
from onnxplug_directml.device.staging import Room


class Execution(Record):
    """A closed command list, which may be executed any number of times.

    Attributes:
        commands: Direct3D's list.
        of: what has to stay as it is meanwhile: what the list was recorded with.
    """

    commands: Any
    of: object


class Region(Record):
    """Bytes that are copied on the device.

    Attributes:
        source, target: from which memory to which; another one, or ranges apart.
        source_begin, target_begin: where, in bytes.
        nbytes: how many.
    """

    source: Memory | Room
    target: Memory | Room
    nbytes: int
    source_begin: int = 0
    target_begin: int = 0


class Copies(Record):
    """Copies on the device, in order."""

    regions: tuple[Region, ...]


Work: TypeAlias = Execution | Copies
