"""What DirectML can do on a device."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence

from onnxplug_directml.abi.directml import (
    DML_FEATURE,
    DML_FEATURE_DATA_FEATURE_LEVELS,
    DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT,
    DML_FEATURE_LEVEL,
    DML_FEATURE_QUERY_FEATURE_LEVELS,
    DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT,
    DML_TENSOR_DATA_TYPE,
)
from onnxplug_directml.abi.types import ENUM
from onnxplug_directml.com.directml import IDMLDevice1
from onnxplug_directml.com.errors import InvalidCall, Unsupported
from onnxplug_directml.lowering.target import Target


def target_of(device: IDMLDevice1) -> Target:
    """The feature level of a device, and the data types that it has.

    Raises:
        ComError: it does not say.
    """
    kinds = [each for each in DML_TENSOR_DATA_TYPE if each and _has(device, each)]
    return Target(level_of(device), frozenset(kinds))


def level_of(device: IDMLDevice1) -> int:
    """The highest feature level that both sides know.

    Raises:
        ComError: the device does not say.
    """
    known = sorted(DML_FEATURE_LEVEL)
    for count in range(len(known), 1, -1):
        # a library may not take levels that came later than it
        with contextlib.suppress(InvalidCall, Unsupported):
            return _highest(device, known[:count])
    return _highest(device, known[:1])


def _highest(device: IDMLDevice1, asked: Sequence[DML_FEATURE_LEVEL]) -> int:
    levels = (ENUM * len(asked))(*asked)
    found = DML_FEATURE_DATA_FEATURE_LEVELS()
    device.CheckFeatureSupport(
        DML_FEATURE.FEATURE_LEVELS,
        DML_FEATURE_QUERY_FEATURE_LEVELS(
            len(asked), ctypes.cast(levels, ctypes.POINTER(ENUM))
        ),
        found,
    )
    return int(found.MaxSupportedFeatureLevel)


def level_name(level: int) -> str:
    """A feature level as people write it: 6.4."""
    return f"{level >> 12}.{level >> 8 & 0xF}"


def _has(device: IDMLDevice1, data_type: DML_TENSOR_DATA_TYPE) -> bool:
    found = DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT()
    try:
        device.CheckFeatureSupport(
            DML_FEATURE.TENSOR_DATA_TYPE_SUPPORT,
            DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT(data_type),
            found,
        )
    except InvalidCall:  # of a type that came later than the device's library
        return False
    return bool(found.IsSupported)
