"""Pitfalls of what gives elements another shape, or others of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import TensorProto, helper

from onnxplug_testing.conformance.pitfalls.row import Row, ints, real, row, whole


def rows() -> Iterator[Row]:
    """All of them."""
    yield from _reshaped()
    yield from _squeezed()
    yield from _turned()
    yield from _joined()
    yield from _repeated()
    yield from _padded()
    yield from _blocks()
    yield from _counted()


def _reshaped() -> Iterator[Row]:
    data = real(2, 3, 4)
    for shape in (
        (6, 4), (-1,), (4, -1), (0, -1), (0, 0, -1), (-1, 0), (2, 0, 2, 2), (0, 12),
        (1, 24, 1), (0, 3, 4), (24, -1), (2, 1, 3, 1, 4, 1), (0, 0, 2, 2),
    ):  # fmt: skip
        yield row("Reshape", data, ints(*shape))
        yield row("Reshape", whole(2, 3, 4), ints(*shape), opset=13)
    empty = np.zeros((0, 3, 4), np.float32)
    yield row("Reshape", empty, ints(0, 12))
    yield row("Reshape", empty, ints(3, 0), allowzero=1)
    yield row("Reshape", empty, ints(0, 3, 4), allowzero=1)
    yield row("Reshape", empty, ints(4, 0, 7), allowzero=1)
    yield row("Reshape", empty, ints(3, -1))
    yield row("Reshape", np.float32(3), ints(1, 1))
    yield row("Reshape", real(1, 1), ints())
    yield row("Reshape", real(1), ints())
    yield row("Reshape", data, ints(4, 6), allowzero=1)
    for axis in (0, 1, 2, 3, -1, -2, -3):
        yield row("Flatten", data, axis=axis)
    yield row("Flatten", data)
    yield row("Flatten", real(5))
    yield row("Flatten", real(5), axis=0)
    yield row("Flatten", np.zeros((0, 3, 4), np.float32), axis=2)


def _squeezed() -> Iterator[Row]:
    data = real(1, 3, 1, 2, 1)
    for axes in ((0,), (2,), (-1,), (0, 2), (4, 0), (-1, -3), (-5, 2, 4), (2, 0, -1)):
        yield row("Squeeze", data, ints(*axes))
        yield row("Squeeze", data, axes=axes, opset=11)
    yield row("Squeeze", data)
    yield row("Squeeze", data, opset=11)
    yield row("Squeeze", real(1, 1))
    yield row("Squeeze", real(1), ints(0))
    table = real(3, 2)
    for axes in (
        (0,), (1,), (2,), (-1,), (-2,), (0, 3), (3, 0), (1, 2), (-1, 0), (-1, -2),
        (4, 0, 1), (-3, 1), (2, 0),
    ):  # fmt: skip
        yield row("Unsqueeze", table, ints(*axes))
        yield row("Unsqueeze", table, axes=axes, opset=11)
    yield row("Unsqueeze", np.float32(2), ints(0))
    yield row("Unsqueeze", np.float32(2), ints(0, 1))
    yield row("Unsqueeze", whole(3), ints(-1))


def _turned() -> Iterator[Row]:
    data = real(2, 3, 4)
    for perm in ((1, 2, 0), (2, 0, 1), (0, 2, 1), (2, 1, 0), (1, 0, 2), (0, 1, 2)):
        yield row("Transpose", data, perm=perm)
        yield row("Transpose", whole(2, 3, 4), perm=perm)
    yield row("Transpose", data)
    yield row("Transpose", real(2, 3, 4, 5), perm=[0, 2, 3, 1])
    yield row("Transpose", real(2, 3, 4, 5), perm=[0, 3, 1, 2])
    yield row("Transpose", real(2, 3, 4, 5), perm=[3, 0, 2, 1])
    yield row("Transpose", real(2, 3, 1, 2, 2, 3), perm=[5, 2, 0, 4, 1, 3])
    yield row("Transpose", real(4, 5))
    yield row("Transpose", real(5))
    yield row("Transpose", real())
    yield row("Transpose", np.zeros((0, 3), np.float32))
    yield row("Transpose", real(2, 3) > 0)


def _joined() -> Iterator[Row]:
    for axis in (0, 1, 2, -1, -2, -3):
        wide = [1 + (place == axis % 3) for place in range(3)]
        sizes = [int(n) for n in np.array([2, 3, 4]) * wide]
        yield row("Concat", real(2, 3, 4), real(*sizes), axis=axis)
        yield row("Concat", real(*sizes), real(2, 3, 4), real(*sizes), axis=axis)
        empty = [0 if place == axis % 3 else n for place, n in enumerate((2, 3, 4))]
        yield row("Concat", real(2, 3, 4), np.zeros(empty, np.float32), axis=axis)
        yield row("Concat", np.zeros(empty, np.float32), real(2, 3, 4), axis=axis)
    yield row("Concat", real(2, 3), axis=1)
    yield row("Concat", real(3), real(1), real(2), axis=0)
    yield row("Concat", ints(1), ints(-1, 4), axis=0)
    yield row("Concat", real(2, 2) > 0, real(2, 1) > 0, axis=-1)
    data = real(2, 7, 4)
    yield row("Split", data, ints(1, 2, 4), outputs=3, axis=1)
    yield row("Split", data, ints(3, 0, 4), outputs=3, axis=1)
    yield row("Split", data, ints(4, 3), outputs=2, axis=-2)
    yield row("Split", data, outputs=3, axis=1, num_outputs=3)
    yield row("Split", data, outputs=4, axis=1, num_outputs=4)
    yield row("Split", data, outputs=2, num_outputs=2)
    yield row("Split", data, outputs=2, axis=-1, num_outputs=2)
    yield row("Split", data, outputs=1, axis=1, num_outputs=1)
    yield row("Split", data, outputs=4, axis=2, opset=13)
    yield row("Split", data, outputs=2, opset=13)
    yield row("Split", data, ints(2, 5), outputs=2, axis=1, opset=13)
    yield row("Split", data, outputs=2, axis=1, split=[5, 2], opset=11)
    yield row("Split", data, outputs=2, axis=-1, split=[1, 3], opset=11)
    yield row("Split", data, outputs=2, axis=2, opset=11)
    yield row("Split", data, ints(1, 6), outputs=(True, False), axis=1)
    yield row("Split", whole(6), ints(2, 4), outputs=2)


def _repeated() -> Iterator[Row]:
    table = real(3, 1)
    for shape in (
        (3, 4),
        (2, 3, 4),
        (1,),
        (1, 1),
        (4,),
        (2, 1, 1),
        (3, 1),
        (1, 5),
        (0,),
    ):
        yield row("Expand", table, ints(*shape))
    yield row("Expand", np.float32(2), ints(2, 3))
    yield row("Expand", np.float32(2), ints())
    yield row("Expand", real(2, 3, 4), ints(4))
    yield row("Expand", real(2, 1, 4), ints(3, 1))
    yield row("Expand", whole(1, 3), ints(2, 1))
    yield row("Expand", real(1, 3) > 0, ints(2, 3))
    data = real(2, 3)
    for repeats in ((2, 1), (1, 3), (2, 2), (0, 2), (1, 1)):
        yield row("Tile", data, ints(*repeats))
    yield row("Tile", real(2, 1, 3), ints(1, 4, 2))
    yield row("Tile", whole(3), ints(2))
    filled = helper.make_tensor("value", TensorProto.INT64, [1], [7])
    yield row("ConstantOfShape", ints(2, 3))
    yield row("ConstantOfShape", ints(2, 3), value=filled)
    yield row("ConstantOfShape", ints(), value=filled)
    yield row("ConstantOfShape", ints(0, 3), value=filled)
    yield row(
        "ConstantOfShape",
        ints(2),
        value=helper.make_tensor("value", TensorProto.BOOL, [1], [True]),
    )


def _padded() -> Iterator[Row]:
    data = real(3, 4)
    pads = (
        (1, 0, 0, 2), (0, 1, 2, 0), (2, 2, 1, 1), (0, 3, 0, 0), (0, 0, 0, 0),
    )  # fmt: skip
    for mode in ("constant", "edge", "reflect", "wrap"):
        for each in pads:
            yield row("Pad", data, ints(*each), mode=mode)
        yield row("Pad", real(2, 3, 4), ints(0, 1, 0, 0, 2, 3), mode=mode)
        yield row("Pad", data, ints(1, 2), None, ints(1), mode=mode)
        yield row("Pad", data, ints(1, 2), None, ints(-1), mode=mode)
        yield row("Pad", data, ints(1, 2, 0, 1), None, ints(1, 0), mode=mode)
        yield row("Pad", real(2, 3, 4), ints(1, 2, 0, 1), None, ints(-1, 0), mode=mode)
    yield row("Pad", data, ints(1, 0, 0, 2), np.float32(-7.5))
    yield row("Pad", data, ints(1, 0, 0, 2), np.float32(-np.inf))
    yield row("Pad", data, ints(-1, 0, 0, 2), np.float32(3))
    yield row("Pad", data, ints(-1, -1, -1, -2))
    yield row("Pad", data, ints(-1, 1, 2, -1), mode="edge")
    yield row("Pad", whole(2, 3), ints(0, 1, 1, 0), np.int64(2**53 + 1))
    yield row("Pad", real(2, 3) > 0, ints(0, 1, 1, 0), np.bool_(True))
    yield row("Pad", np.zeros((0, 3), np.float32), ints(1, 0, 1, 0), np.float32(2))
    yield row("Pad", real(5), ints(4, 4), mode="reflect")
    yield row("Pad", data, opset=10, pads=[1, 0, 0, 2], value=2.5)
    yield row("Pad", data, opset=10, pads=[0, 1, 2, 0], mode="reflect")
    yield row("Pad", data, opset=10, pads=[0, 1, 2, 0], mode="edge")
    yield row("CenterCropPad", real(5, 4), ints(2, 7))
    yield row("CenterCropPad", real(5, 4), ints(8), axes=[-1])
    yield row("CenterCropPad", real(5, 4, 3), ints(2, 6), axes=[2, 0])


def _blocks() -> Iterator[Row]:
    data = real(2, 8, 2, 3)
    for mode in ("DCR", "CRD"):
        yield row("DepthToSpace", data, blocksize=2, mode=mode)
        yield row("DepthToSpace", real(1, 18, 1, 2), blocksize=3, mode=mode)
    yield row("DepthToSpace", data, blocksize=2)
    yield row("SpaceToDepth", real(2, 3, 4, 6), blocksize=2)
    yield row("SpaceToDepth", real(1, 2, 3, 6), blocksize=3)


def _counted() -> Iterator[Row]:
    data = real(2, 3, 4)
    for start, end in ((0, 2), (1, 3), (-1, 3), (-2, -1), (2, 1), (-9, 9), (3, 3)):
        yield row("Shape", data, start=start, end=end)
    yield row("Shape", data, start=1)
    yield row("Shape", data, start=-1)
    yield row("Shape", data, end=-1)
    yield row("Shape", np.float32(1))
    yield row("Shape", np.zeros((0, 3), np.float32))
    yield row("Size", data)
    yield row("Size", np.float32(1))
    yield row("Size", np.zeros((0, 3), np.float32))
    yield row("Identity", np.zeros((0, 3), np.float32))
    yield row("Identity", np.float32(1))
    yield row("Identity", np.array(["a", ""], object))
