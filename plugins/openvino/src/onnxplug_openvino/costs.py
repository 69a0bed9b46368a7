"""How long nodes take on a processor, for the host to choose without measuring.

Rates are of one thread of an Intel Xeon with AVX-512 and AMX, fitted to the processor
time of 33 small networks and operators in float32 on OpenVINO 2026.  Of another
processor, times differ; that another EP on it takes more or less depends less on that.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.rates import Rates

_RATES: Final = {
    "conv": 1.6e11,
    "narrow": 7.6e10,
    "grouped": 4.0e10,
    "depthwise": 7.6e10,
    "product": 1.5e11,
    "window": 3.2e10,
    "curve": 2.0e9,
    "indexed": 4.4e8,
    "nbytes": 2.9e10,
    "nodes": 7.5e5,
}

_ENTRY: Final = 540e-6
"""Seconds that a run takes besides."""


def costs(threads: int) -> Rates:
    """The costs of nodes for *threads* threads, 0 for as many as there are cores."""
    return Rates(_RATES, _ENTRY, threads)
