"""Channels as blocks of a picture, and back."""

from __future__ import annotations

import math
from typing import Final

from onnxplug import ep
from onnxplug_directml.abi.directml import DML_DEPTH_SPACE_ORDER
from onnxplug_directml.lowering.builder import Refused, Value
from onnxplug_directml.lowering.call import Call, lowers

_ORDERS: Final = {
    "DCR": DML_DEPTH_SPACE_ORDER.DEPTH_COLUMN_ROW,
    "CRD": DML_DEPTH_SPACE_ORDER.COLUMN_ROW_DEPTH,
}


@lowers("DepthToSpace", "SpaceToDepth")
def _rearranged(call: Call) -> Value:
    operator = {"DepthToSpace": "DEPTH_TO_SPACE1", "SpaceToDepth": "SPACE_TO_DEPTH1"}
    order = _ORDERS.get(call.attribute("mode", "DCR"))
    if order is None:
        raise call.refuse_attribute("mode", ", ".join(_ORDERS))
    given, made = call.operand(0).shape, call.output_shape()
    if math.prod(given) != math.prod(made):
        raise Refused(
            ep.RefusalCode.OTHER,
            f"{list(given)} does not go into blocks as {list(made)}",
        )
    return call.build(
        operator[call.op_type], InputTensor=call.operand(0), OutputTensor=call.result(),
        BlockSize=call.count("blocksize"), Order=order,
    )  # fmt: skip
