"""Nodes that look at elements otherwise, cut them out, or put borders around them."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..single_node import SingleNode
from .arrays import X, floats, ints

VIEWS: Final = {
    "Reshape": SingleNode("Reshape", [X, ints(0, -1, 3)], (1,)),
    "Flatten": SingleNode("Flatten", [X], (), {"axis": -2}),
    "Squeeze": SingleNode("Squeeze", [X[:1], ints(0)], (1,)),
    "Unsqueeze": SingleNode("Unsqueeze", [X, ints(0, -1)], (1,)),
    "Transpose": SingleNode("Transpose", [X], (), {"perm": [3, 1, 0, 2]}),
    "Transpose-bool": SingleNode("Transpose", [X[0, 0] > 0]),
    "Transpose-int64": SingleNode("Transpose", [ints(*range(6)).reshape(2, 3)]),
    "Expand": SingleNode("Expand", [floats(3, 1), ints(2, 1, 5)], (1,)),
    "Expand-scalar": SingleNode("Expand", [np.float32(2.5), ints(2, 3)], (1,)),
}

PIECES: Final = {
    "Slice": SingleNode("Slice", [X, ints(1, -3), ints(9, -1), ints(1, 3)], (1, 2, 3)),
    "Slice-backward": SingleNode(
        "Slice",
        [X, ints(-1, 4), ints(-99, 0), ints(2, 3), ints(-1, -2)],
        (1, 2, 3, 4),
    ),
    "Slice-far": SingleNode(
        "Slice", [X, ints(0), ints(2**62), ints(3), ints(2**40)], (1, 2, 3, 4)
    ),
    "Slice-1": SingleNode(
        "Slice", [X], (), {"starts": [1], "ends": [-1], "axes": [2]}, opset=9
    ),
    "Split": SingleNode("Split", [X, ints(1, 3, 2)], (1,), {"axis": -1}, outputs=3),
    "Split-equal": SingleNode("Split", [X], (), {"axis": 3}, opset=13, outputs=2),
    "Split-num_outputs": SingleNode(
        "Split", [X], (), {"axis": 1, "num_outputs": 2}, outputs=2
    ),
    "Split-2": SingleNode(
        "Split", [X], (), {"axis": 1, "split": [2, 1]}, opset=11, outputs=2
    ),
    "Split-some": SingleNode(
        "Split", [X, ints(1, 3, 2)], (1,), {"axis": -1}, outputs=("", "y1", "")
    ),
    "Split-one": SingleNode("Split", [X], (), {"num_outputs": 1}),
    "Concat": SingleNode(
        "Concat", [X, X[:, :1], floats(2, 2, 4, 6)], (2,), {"axis": 1}
    ),
    "Concat-same": SingleNode("Concat", [X, X], (), {"axis": -1}),
    "Concat-uint8": SingleNode(
        "Concat", [np.uint8([[1]]), np.uint8([[255, 3]])], (), {"axis": 1}
    ),
}

BORDERS: Final = {
    "Pad": SingleNode("Pad", [X, ints(0, 1, 0, 2, 1, 0, 3, 0)], (1,)),
    "Pad-value": SingleNode(
        "Pad", [X, ints(1, 2), np.float32(-7.5), ints(-1)], (1, 2, 3)
    ),
    "Pad-int64": SingleNode("Pad", [ints(1, 2), ints(1, 1), np.int64(2**40)], (1, 2)),
    "Pad-bool": SingleNode("Pad", [X[0, 0, 0] > 0, ints(1, 2)], (1,)),
    "Pad-crop": SingleNode("Pad", [X, ints(0, 0, -1, 1, 0, 0, 0, -2)], (1,)),
    "Pad-edge": SingleNode(
        "Pad", [X, ints(0, 0, 2, 1, 0, 0, 1, 9)], (1,), {"mode": "edge"}
    ),
    "Pad-reflect": SingleNode(
        "Pad", [X, ints(0, 0, 2, 9, 0, 0, 1, 7)], (1,), {"mode": "reflect"}
    ),
    "Pad-reflect-crop": SingleNode(
        "Pad", [X, ints(0, 0, -1, 2, 0, 0, 2, 3)], (1,), {"mode": "reflect"}
    ),
    "Pad-wrap": SingleNode(
        "Pad", [X, ints(0, 1, 0, 7, 0, 5, 0, 1)], (1,), {"mode": "wrap"}
    ),
    "Pad-2": SingleNode(
        "Pad", [X], (), {"pads": [0] * 3 + [1] * 5, "value": 2.0}, opset=9
    ),
    "CenterCropPad": SingleNode("CenterCropPad", [X, ints(3, 1, 7, 3)], (1,)),
    "CenterCropPad-axes": SingleNode(
        "CenterCropPad", [X, ints(7, 2)], (1,), {"axes": [2, -1]}
    ),
    "Tile": SingleNode("Tile", [X, ints(1, 2, 1, 3)], (1,)),
    "DepthToSpace": SingleNode(
        "DepthToSpace", [floats(2, 8, 2, 3)], (), {"blocksize": 2}
    ),
    "DepthToSpace-CRD": SingleNode(
        "DepthToSpace", [floats(2, 8, 2, 3)], (), {"blocksize": 2, "mode": "CRD"}
    ),
    "SpaceToDepth": SingleNode(
        "SpaceToDepth", [floats(2, 3, 4, 6)], (), {"blocksize": 2}
    ),
}
