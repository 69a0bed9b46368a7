"""Small models by which the host sees what an adapter computes right.

``tools/write_probes.py`` writes them.  What most models are made of comes first.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug.ep import DataType
from onnxplug_directml.lowering import operators  # noqa: F401 - declares the rules
from onnxplug_directml.lowering.call import RULES

_FOLDER: Final = Path(__file__).with_name("probe_models")

_ROUNDED: Final = (1e-4, 1e-5)
_SUMMED: Final = (1e-3, 1e-4)
"""Of sums whose order, and of functions whose steps, drivers choose."""
_MOVED: Final = (0.0, 0.0)
_HALVES: Final = (4e-3, 4e-3)


class Family(Record):
    """Operators that one model stands for.

    Attributes:
        modules: those of ``lowering.operators`` with their rules, with spaces between;
            ``*`` is all.
        tolerance: how far results may be off, relative and absolute.
        elements: which ones of the operators.
        only: operators that are meant of those modules; empty is all.
        without: operators that are not.
    """

    modules: str
    tolerance: tuple[float, float] = _SUMMED
    elements: tuple[DataType, ...] = (DataType.FLOAT32,)
    only: str = ""
    without: str = ""


_CODES: Final = (DataType.UINT8, DataType.INT8)
_PRODUCTS_OF_CODES: Final = (
    "QLinearMatMul MatMulInteger QLinearConv ConvInteger MatMulIntegerToFloat "
    "DynamicQuantizeMatMul QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu "
    "QLinearGlobalAveragePool"
)

FAMILIES: Final[dict[str, Family]] = {
    "product": Family("product block_quantised"),
    "convolution": Family("convolution"),
    "arithmetic": Family("arithmetic", without="Cast CastLike"),
    "movement": Family("views pieces borders blocks filling matrices", _MOVED),
    "normalization": Family("normalization"),
    "activation": Family("activation"),
    "attention": Family("attention fused_attention grouped_attention rotary"),
    "pooling": Family("pooling", _ROUNDED),
    "reduction": Family("reduction", _ROUNDED, without="ArgMax ArgMin"),
    "extremes": Family("reduction", _MOVED, only="ArgMax ArgMin"),
    "places": Family("gathering", _MOVED),
    "placing": Family("scattering", _MOVED),
    "resize": Family("resampling", _ROUNDED),
    "spatial": Family("grids regions", _ROUNDED),
    "recurrent": Family("recurrent"),
    "sorting": Family("selection", _MOVED),
    "cast": Family("arithmetic", _HALVES, only="Cast CastLike"),
    "half": Family("*", _HALVES, (DataType.FLOAT16,)),
    "int64": Family("*", _MOVED, (DataType.INT64,)),
    "bytes": Family("*", _MOVED, (DataType.BOOL,)),
    "quantization": Family("*", _ROUNDED, _CODES, without=_PRODUCTS_OF_CODES),
    "quantized_product": Family("*", _ROUNDED, _CODES, only=_PRODUCTS_OF_CODES),
}


def probes(device: ep.EpDevice) -> Iterator[ep.Probe]:
    """One for each family, whatever the device."""
    x = np.sin(np.arange(2 * 6 * 9 * 7, dtype=np.float32) * 1.7).reshape(2, 6, 9, 7)
    for name, family in FAMILIES.items():
        yield ep.Probe(
            family=name,
            operators=frozenset(
                (domain, operator, element)
                for domain, operator in _operators(family)
                for element in family.elements
            ),
            model=(_FOLDER / f"{name}.onnx").read_bytes(),
            inputs={"x": x},
            tolerance=family.tolerance,
        )


def _operators(family: Family) -> Iterator[tuple[str, str]]:
    modules, only = family.modules.split(), family.only.split()
    without = family.without.split()
    for (domain, operator), rule in RULES.items():
        is_there = modules == ["*"] or rule.__module__.rpartition(".")[2] in modules
        if is_there and (operator in only or not only) and operator not in without:
            yield domain, operator
