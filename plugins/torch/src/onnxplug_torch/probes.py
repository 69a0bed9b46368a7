"""Small models by which the host sees what a device computes right.

``tools/write_probes.py`` writes them.  There are two seconds for all, so what most
models are made of comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug_torch.operators import BY_KERNELS, all_operators

_FOLDER: Final = Path(__file__).with_name("probe_models")

_ROUNDED: Final = (1e-4, 1e-5)
_MOVED: Final = (0.0, 0.0)

FAMILIES: Final = {
    "product": _ROUNDED,
    "convolution": _ROUNDED,
    "arithmetic": _ROUNDED,
    "movement": _MOVED,
    "normalization": _ROUNDED,
    "activation": _ROUNDED,
    "attention": _ROUNDED,
    "pooling": _ROUNDED,
    "reduction": _ROUNDED,
    "indexing": _ROUNDED,
    "cast": _MOVED,
    "quantization": _MOVED,
    "quantized_product": _MOVED,
    "resize": _ROUNDED,
    "recurrent": _ROUNDED,
    "sorting": _MOVED,
    "kernels": _ROUNDED,
}
"""By family, which is a module of operators, how far its results may be off."""


def probes() -> Iterator[ep.Probe]:
    """One for each family, of float32."""
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for family, tolerance in FAMILIES.items():
        yield ep.Probe(
            family=family,
            operators=frozenset(
                (*identity, DataType.FLOAT32) for identity in _operators(family)
            ),
            model=(_FOLDER / f"{family}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=tolerance,
        )


def _operators(family: str) -> Iterator[tuple[str, str]]:
    """The domain and type of each operator of *family*."""
    if family == "kernels":
        yield from (("", op_type) for op_type in BY_KERNELS)
    for each in all_operators():
        if each.kernel.function.__module__.endswith(f".{family}"):
            yield each.kernel.domain, each.kernel.op_type
