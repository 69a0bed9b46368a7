"""For which device a partition is lowered, and what that device has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from onnxplug_directml.abi.directml import DML_FEATURE_LEVEL, DML_TENSOR_DATA_TYPE

LEAST_LEVEL: Final = DML_FEATURE_LEVEL(0x5000)
"""Devices below it are given nothing: the tables of support begin there.

Windows 11 has it since version 22H2, and any Windows 10 since version 1903 with a
``DirectML.dll`` 1.8 or later beside the application.
"""


@dataclass(frozen=True, slots=True)
class Target:
    """A device of DirectML.

    Attributes:
        level: of the features that it has, by ``DML_FEATURE_FEATURE_LEVELS``.
        data_types: those of elements that it has, by
            ``DML_FEATURE_TENSOR_DATA_TYPE_SUPPORT``.
    """

    level: int
    data_types: frozenset[DML_TENSOR_DATA_TYPE] = frozenset(DML_TENSOR_DATA_TYPE)
