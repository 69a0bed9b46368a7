"""Nodes on elements, and reductions, at signs, ties and limits that are crossed."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..single_node import SingleNode
from .arrays import X, floats

_SIGNS: Final = np.array([-7, 7, -7, 7], np.int32)
_DIVISORS: Final = np.array([3, -3, -3, 3], np.int32)
_INFINITE: Final = np.array([np.inf, -np.inf, 0, 1], np.float32)
_TIED: Final = np.array([[2, 1, 2], [0, 0, -1]], np.float32)

ARITHMETIC: Final = {
    "Mod": SingleNode("Mod", [_SIGNS, _DIVISORS]),
    "Mod-fmod": SingleNode("Mod", [_SIGNS, _DIVISORS], (), {"fmod": 1}),
    "IsInf-positive": SingleNode("IsInf", [_INFINITE], (), {"detect_negative": 0}),
    "IsInf-negative": SingleNode("IsInf", [_INFINITE], (), {"detect_positive": 0}),
    "Mean": SingleNode("Mean", [X, X + 1, floats(6)]),
    "Clip-crossed": SingleNode("Clip", [X, np.float32(0.5), np.float32(-0.5)], (1, 2)),
    "Selu-1": SingleNode("Selu", [X], opset=5),
    "Shrink": SingleNode("Shrink", [X], (), {"lambd": 0.25, "bias": 0.125}),
    "ArgMax-last": SingleNode(
        "ArgMax", [_TIED], (), {"axis": 1, "select_last_index": 1}
    ),
    "ArgMin-first": SingleNode("ArgMin", [_TIED], (), {"axis": 0, "keepdims": 0}),
    "ReduceLogSumExp": SingleNode("ReduceLogSumExp", [X * 100]),
    "ReduceLogSumExp-infinite": SingleNode("ReduceLogSumExp", [_INFINITE[1:]]),
    "LpPool-odd": SingleNode("LpPool", [X], (), {"kernel_shape": [2, 3], "p": 3}),
    "GlobalLpPool-odd": SingleNode("GlobalLpPool", [X], (), {"p": 3}),
    "Conv-same_lower": SingleNode(
        "Conv", [X, floats(2, 3, 2, 4)], (), {"auto_pad": "SAME_LOWER"}
    ),
    "ConvTranspose-same_lower": SingleNode(
        "ConvTranspose", [X, floats(3, 2, 3, 4)], (),
        {"auto_pad": "SAME_LOWER", "strides": [2, 1]},
    ),
    "ConvTranspose-output_shape": SingleNode(
        "ConvTranspose", [X, floats(3, 2, 3, 4)], (),
        {"output_shape": [8, 14], "strides": [2, 2]},
    ),
}  # fmt: skip
