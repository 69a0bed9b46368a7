"""Other looks at the same elements: no node is made until one needs them packed."""

from __future__ import annotations

from onnxplug_directml.lowering.builder import Value
from onnxplug_directml.lowering.call import Call, lowers


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze")
def _reshaped(call: Call) -> Value:
    """The shape is the model's: sizes are numbers where graphs are made."""
    call.ignore("allowzero", "axes", "axis", "shape")
    return call.build.reshape(call.operand(0), call.output_shape())


@lowers("BitCast")
def _bit_cast(call: Call) -> Value:
    call.ignore("to")
    x, dtype = call.operand(0), call.output_dtype()
    if x.dtype.numpy.itemsize != dtype.numpy.itemsize:
        raise call.refuse_attribute("to", f"a type of the size of {x.dtype}")
    return call.build.reinterpret(x, dtype)


@lowers("Transpose")
def _transpose(call: Call) -> Value:
    x = call.operand(0)
    order = call.attribute("perm", tuple(reversed(range(x.rank))))
    return call.build.transpose(x, order)


@lowers("Expand")
def _expand(call: Call) -> Value:
    return call.build.broadcast_to(call.operand(0), call.output_shape())
