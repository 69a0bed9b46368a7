"""Small models by which the host sees what a device computes right.

``tools/write_probes.py`` writes them.  There are two seconds for all, so what most
models are made of comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug_coreml.lowering import lower  # noqa: F401 - declares the rules
from onnxplug_coreml.lowering.call import RULES

_FOLDER: Final = Path(__file__).with_name("probe_models")

_POOLS: Final = frozenset(
    {"AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"}
)

FAMILIES: Final[Mapping[str, str]] = {
    "product": "linear",
    "convolution": "windows",
    "arithmetic": "arithmetic",
    "movement": "layout",
    "normalization": "normalization",
    "activation": "activation",
    "attention": "attention",
    "pooling": "windows",
    "reduction": "reduction",
    "resize": "resampling",
    "sorting": "reduction",
}
"""By family the module that lowers its operators."""

_ROUNDED: Final = 1e-4
_NARROW: Final = 2e-2
"""Relative errors: of sums of float32, and of float16, in which the Neural Engine
computes."""


def probes(device: ep.EpDevice) -> Iterator[ep.Probe]:
    """One for each family, of float32."""
    tolerance = _NARROW if device.device.type is ep.DeviceType.NPU else _ROUNDED
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for family in FAMILIES:
        yield ep.Probe(
            family=family,
            operators=frozenset(
                ("", name, ep.DataType.FLOAT32) for name in _operators(family)
            ),
            model=(_FOLDER / f"{family}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=(tolerance, tolerance / 10),
        )


def _operators(family: str) -> Collection[str]:
    module = FAMILIES[family]
    found = {
        name for name, rule in RULES.items() if rule.__module__.endswith(f".{module}")
    }
    match family:
        case "convolution":
            return found - _POOLS
        case "pooling":
            return found & _POOLS
        case "sorting":
            return found & {"TopK"}
        case "reduction":
            return found - {"TopK"}
    return found
