"""Which calls that quantise and dequantise are compiled.

Those with one scale for all, or for each place of an axis, are steps of chains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np

from onnxplug.authoring.bounds import normal_axis
from onnxplug_compiler.frontend.call import Call
from onnxplug_compiler.ir.elements import NARROW_FLOATS, element_of
from onnxplug_compiler.ir.quantization import CODE_LIMITS, FLOAT_CODES
from onnxplug_compiler.ir.target import Support

SCALED: Final = frozenset({"QuantizeLinear", "DequantizeLinear"})

_DOMAINS: Final = ("", "com.microsoft")


def accepts_codes(
    call: Call,
    dtypes: Sequence[np.dtype[Any] | None],
    target: Support,
    more: Collection[str] = (),
) -> str | None:
    """Accepts codes that the target takes as elements of the operator, and floats.

    Args:
        more: elements that are taken as well.
    """
    codes = target.elements(call.op_type)
    if not codes:
        return f"{call.op_type} is not compiled"
    taken = NARROW_FLOATS.union(codes, more)
    for dtype in (*dtypes, *call.dtypes):
        if dtype is not None and element_of(dtype) not in taken:
            return f"{call.op_type} is not compiled for {dtype}"
    return None


def accepts_scaled(
    call: Call, dtypes: Sequence[np.dtype[Any] | None], target: Support
) -> str | None:
    """Why a call of one of :data:`SCALED` is not compiled; ``None`` if it is."""
    if call.op_type == "QuantizeLinear":
        result = call.dtypes[0]
        if result is not None and element_of(result) not in (
            CODE_LIMITS.keys() | FLOAT_CODES
        ):
            return f"QuantizeLinear is not compiled to {result}"
        if call.attributes.get("precision") not in (None, 0, 1):
            return "QuantizeLinear is compiled to divide in the scale's type or float32"
        scale = dtypes[1]
        if scale is not None and element_of(scale) not in NARROW_FLOATS:
            return f"QuantizeLinear is not compiled for a scale of {scale}"
    elif reason := mixed_types(call, dtypes, [(0, 2)]):
        return reason
    return accepts_codes(call, dtypes, target)


def mixed_types(
    call: Call,
    dtypes: Sequence[np.dtype[Any] | None],
    pairs: Sequence[tuple[int, int]],
) -> str | None:
    """Why a call with a zero point of another type than its codes is not compiled;
    ``None`` if there is none.

    Args:
        pairs: positions of codes, and of their zero point.
    """
    for codes, zero in pairs:
        if zero >= len(dtypes) or dtypes[zero] is None:
            continue
        if dtypes[zero] != dtypes[codes]:
            return (
                f"{call.op_type} has a zero point of {dtypes[zero]} for codes of "
                f"{dtypes[codes]}"
            )
    return None


def axis_of_scales(attributes: Mapping[str, Any], shape: Sequence[int]) -> int:
    """The axis of scales; of a vector the one there is."""
    rank = len(shape)
    if rank < 2:
        return 0
    return normal_axis(int(attributes.get("axis", 1)), rank)


def is_scaled_step(
    call: Call, dtypes: Sequence[np.dtype[Any] | None], target: Support
) -> bool:
    """Whether a call quantises or dequantises, one by one, elements that the target
    takes."""
    return (
        call.op_type in SCALED
        and call.domain in _DOMAINS
        and not call.attributes.get("block_size")
        and len(call.outputs) == 1
        and None not in call.inputs[:2]
        and None not in (dtypes[0], dtypes[1], call.dtypes[0])
        and accepts_scaled(call, dtypes, target) is None
    )
