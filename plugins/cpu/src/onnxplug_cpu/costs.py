"""How long nodes take, for the host to choose between EPs without measuring.

Rates are of one thread of an Intel Xeon with AVX-512 and AMX, fitted to the processor
time of 40 small networks and operators in float32.  Of another processor, times differ;
that another EP on it takes more or less depends less on that.
"""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.rates import Rates

_RATES: Final = {
    "conv": 3.2e11,
    "narrow": 8.2e10,
    "grouped": 2.0e10,
    "depthwise": 1.0e11,
    "product": 2.3e11,
    "recurrent": 1.0e11,
    "window": 7.8e10,
    "curve": 1.4e10,
    "indexed": 1.2e9,
    "nbytes": 3.1e10,
    "nodes": 1.9e6,
}

_ENTRY: Final = 125e-6
"""Seconds that a run takes besides."""


def costs(threads: int) -> Rates:
    """The costs of nodes for *threads* threads, 0 for as many as there are cores."""
    return Rates(_RATES, _ENTRY, threads)
