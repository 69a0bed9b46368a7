"""Products with weights that are integers of few bits, scaled in blocks."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_OPERATOR_TYPE, DML_QUANTIZATION_TYPE
from onnxplug_directml.lowering.builder import Refused, Result, Value
from onnxplug_directml.lowering.call import FLOATS, MICROSOFT, Call, lowers
from onnxplug_directml.lowering.operators.product import matmul
from onnxplug_directml.lowering.support import SUPPORT

_BITS: Final = (2, 4, 8)


@lowers("MatMulNBits", domain=MICROSOFT)
def _matmul_n_bits(call: Call) -> Value:
    """Weights dequantised where they are, and a product.

    Where the device cannot, the function body of the node is taken, whose weights are
    floats.
    """
    call.require_type(0, *FLOATS)
    call.ignore("accuracy_level")
    _refuse_other(call)
    build, bits = call.build, call.attribute("bits", 4)
    rows, inner = call.count("N"), call.count("K")
    blocks = inner // call.count("block_size")
    codes = _unpacked(call.content(1).reshape(rows, -1), bits)
    if call.has(3):
        zeros = _unpacked(call.content(3).reshape(rows, -1), bits)[:, :blocks]
        middle = build.constant(np.ascontiguousarray(zeros))
    else:
        middle = build.scalar(1 << (bits - 1), ep.DataType.UINT8)
        middle = build.broadcast_to(middle, (rows, blocks))
    scales = build.reshape(call.operand(2), (rows, blocks))
    weights = build(
        "DEQUANTIZE", InputTensor=build.constant(codes),
        QuantizationType=DML_QUANTIZATION_TYPE.SCALE_ZERO_POINT,
        QuantizationTensors=(scales, middle),
        OutputTensor=Result(scales.dtype, (rows, inner)),
    )  # fmt: skip
    found = matmul(build, call.operand(0), build.transpose(weights, (1, 0)))
    if not call.has(5):
        return found
    return build.binary("ELEMENT_WISE_ADD", found, call.operand(5))


def _refuse_other(call: Call) -> None:
    if call.build.target.level < SUPPORT[DML_OPERATOR_TYPE.DEQUANTIZE][0].level:
        raise Refused(
            ep.RefusalCode.OP, "the device has no DEQUANTIZE, of feature level 6.3"
        )
    if call.attribute("bits", 4) not in _BITS:
        raise call.refuse_attribute("bits", ", ".join(map(str, _BITS)))
    if call.attribute("weight_prepacked", 0):
        raise call.refuse_attribute("weight_prepacked", "0")
    if call.count("K") % call.count("block_size"):
        raise call.refuse_attribute("K", "a multiple of block_size")
    if call.has(4):
        raise Refused(ep.RefusalCode.OTHER, "an order of the inputs, g_idx")
    if call.has(3):
        call.require_type(3, ep.DataType.UINT8)


def _unpacked(packed: Any, bits: int) -> Any:
    """Rows of bytes as rows of integers, uint8, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    found = (packed[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return np.ascontiguousarray(found.reshape(packed.shape[0], -1))
