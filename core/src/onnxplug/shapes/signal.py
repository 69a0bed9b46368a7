"""Types of what the operators for signals compute."""

from __future__ import annotations

from typing import Final

from onnxplug.authoring.bounds import OutOfBounds, normal_axis
from onnxplug.authoring.sizes import Extent, is_natural, maximum, quotient
from onnxplug.ep import DataType
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import NodeCall, Value, check_known

_FLOAT = DataType.FLOAT32.onnx


def scalar(call: NodeCall, position: int, minimum: int, what: str) -> Extent | None:
    """The number that an input holds; None if it is not known.

    Raises:
        OutOfBounds: it is less than *minimum*, or beyond int64.
    """
    content = call.content(position)
    if content is None or len(content.elements) != 1:
        return None
    check_known(minimum, content.elements, what)
    (number,) = content.elements
    return number if number is not None and is_natural(number) else None


def _known(call: NodeCall, size: Extent | None) -> Extent:
    return call.fresh() if size is None or not is_natural(size) else size


def _half(size: Extent) -> Extent:
    """The frequencies of a real signal of *size*."""
    half = quotient(size, 2)
    assert half is not None
    return half + 1


def _dft(call: NodeCall) -> Value:
    dtype, shape = call.value()
    if shape is None:
        return Value(dtype)
    rank = len(shape)
    inverse = bool(call.attribute("inverse", 0))
    real = inverse and bool(call.attribute("onesided", 0))
    sizes: list[Extent] = [*shape[:-1], 1 if real else 2]
    if not call.has(1) and not call.attribute("onesided", 0):
        return Value(dtype, tuple(sizes))  # whichever the axis is
    if call.opset < 20:
        axis = call.axis(rank, 1)
    elif not call.has(2):
        axis = normal_axis(-2, rank)
    else:
        content = call.content(2)
        if content is None or not isinstance(content.elements[0], int):
            return Value(dtype, (*(call.fresh() for _ in sizes[:-1]), sizes[-1]))
        axis = normal_axis(content.elements[0], rank)
    if axis == rank - 1:
        raise OutOfBounds(
            f"axis is {axis}, which of an input of rank {rank} holds real and "
            "imaginary parts"
        )
    length: Extent | None = sizes[axis]
    if call.has(1):
        length = scalar(call, 1, 1, "dft_length")
    elif real:
        length = None if length is None else 2 * (length - 1)
    if length is not None and call.attribute("onesided", 0) and not inverse:
        length = _half(length)
    sizes[axis] = _known(call, length)
    return Value(dtype, tuple(sizes))


def _stft(call: NodeCall) -> Value:
    """[batch, frames, frequencies, 2]"""
    dtype, shape = call.value()
    step = scalar(call, 1, 1, "frame_step")
    window = call.value(2).shape if call.has(2) else None
    length: Extent | None = None
    if call.has(3):
        length = scalar(call, 3, 1, "frame_length")
    elif call.has(2):
        length = window[0] if window else None
    elif shape is not None:
        length = shape[1]
    frames = bins = None
    if length is not None:
        bins = _half(length) if call.attribute("onesided", 1) else length
        if shape is not None and isinstance(step, int):
            room = maximum(
                shape[1] - length, 0
            )  # a frame that does not fit is an error
            frames = None if room is None else quotient(room + step, step)
    batch = call.fresh() if shape is None else shape[0]
    return Value(dtype, (batch, _known(call, frames), _known(call, bins), 2))


def _window(call: NodeCall) -> Value:
    size = scalar(call, 0, 0, "size")
    return Value(call.dtype("output_datatype", _FLOAT), (_known(call, size),))


def _mel_weight_matrix(call: NodeCall) -> Value:
    bins = scalar(call, 0, 0, "num_mel_bins")
    length = scalar(call, 1, 0, "dft_length")
    half = None if length is None else _half(length)
    dtype = call.dtype("output_datatype", _FLOAT)
    return Value(dtype, (_known(call, half), _known(call, bins)))


RULES: Final[dict[str, Rule]] = {
    **dict.fromkeys(["BlackmanWindow", "HammingWindow", "HannWindow"], _window),
    "DFT": _dft,
    "MelWeightMatrix": _mel_weight_matrix,
    "STFT": _stft,
}
