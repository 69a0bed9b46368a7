"""Nodes that read and write elements at indices, or choose them."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..single_node import SingleNode
from .arrays import X, floats, halves, indices, ints

INDICES: Final = {
    "Gather": SingleNode("Gather", [X, indices(4, 2, 3)], (), {"axis": 2}),
    "Gather-constant": SingleNode("Gather", [X, indices(3, 5)], (1,), {"axis": -3}),
    "Gather-scalar": SingleNode("Gather", [X, np.int32(-2)], (), {"axis": 3}),
    "Gather-nine": SingleNode("Gather", [floats(3, 2), indices(3, 1, 1, 2, 1, 1, 2)]),
    "Gather-embedding": SingleNode("Gather", [halves(9, 4), indices(9, 2, 5)], (0,)),
    "GatherElements": SingleNode(
        "GatherElements", [X, indices(4, 2, 3, 9, 6)], (), {"axis": 2}
    ),
    "GatherElements-part": SingleNode(
        "GatherElements", [X, indices(6, 1, 2, 3, 2)], (), {"axis": -1}
    ),
    "GatherND": SingleNode("GatherND", [X, indices(2, 5, 2)]),
    "GatherND-all": SingleNode("GatherND", [X, indices(2, 3, 1, 4)]),
    "GatherND-batch": SingleNode(
        "GatherND", [X, indices(3, 2, 3, 2, 1)], (), {"batch_dims": 2}
    ),
    "GatherND-constant": SingleNode("GatherND", [X, indices(2, 4, 3)], (1,)),
    "ScatterElements": SingleNode(
        "ScatterElements",
        [X, np.tile(ints(3, -2).reshape(1, 1, 2, 1), (2, 3, 1, 6)), floats(2, 3, 2, 6)],
        (),
        {"axis": 2},
    ),
    "ScatterElements-part": SingleNode(
        "ScatterElements",
        [X, np.tile(ints(5, 0).reshape(1, 1, 1, 2), (1, 2, 3, 1)), floats(1, 2, 3, 2)],
        (),
        {"axis": 3},
    ),
    **{
        f"ScatterElements-{reduction}": SingleNode(
            "ScatterElements",
            [floats(4, 5), ints(2, -1, 0).reshape(1, 3), floats(1, 3)],
            (1,),
            {"axis": 1, "reduction": reduction},
        )
        for reduction in ("add", "mul", "max", "min")
    },
    "ScatterND": SingleNode(
        "ScatterND", [X, ints(0, 1, -1, 2).reshape(2, 2), floats(2, 4, 6)]
    ),
    "ScatterND-all": SingleNode(
        "ScatterND", [floats(3, 4), ints(0, 1, -1, 2).reshape(2, 1, 2), floats(2, 1)]
    ),
    "ScatterND-add": SingleNode(
        "ScatterND",
        [floats(4, 5), ints(-2, 0).reshape(2, 1), floats(2, 5)],
        (1,),
        {"reduction": "add"},
    ),
    "OneHot": SingleNode(
        "OneHot", [indices(4, 2, 3), np.int64(4), floats(2)], (1,), {"axis": 1}
    ),
    "OneHot-float": SingleNode(
        "OneHot", [np.float32([[0, 2], [9, 1]]), ints(3), ints(5, 7)], (1, 2)
    ),
    "TopK": SingleNode("TopK", [X, ints(2)], (1,), {"axis": 2}, outputs=2),
    "TopK-all": SingleNode("TopK", [X, ints(6)], (1,), outputs=2),
    "TopK-smallest": SingleNode(
        "TopK", [np.float32([3, 1, 2, 1, 5]), ints(3)], (1,), {"largest": 0}, outputs=2
    ),
    "TopK-int64-all": SingleNode(
        "TopK", [ints(3, -(2**63), 2), ints(3)], (1,), outputs=2
    ),
    "TopK-values": SingleNode("TopK", [X, ints(2)], (1,), outputs=("y0", "")),
    "TopK-indices": SingleNode("TopK", [X, ints(2)], (1,), outputs=("", "y1")),
    "ReverseSequence": SingleNode(
        "ReverseSequence",
        [floats(4, 3, 2), ints(1, 4, 3)],
        (),
    ),
    "ReverseSequence-batch-first": SingleNode(
        "ReverseSequence",
        [floats(3, 4), ints(1, 4, 3)],
        (1,),
        {"batch_axis": 0, "time_axis": 1},
    ),
    "Trilu": SingleNode("Trilu", [X]),
    "Trilu-lower": SingleNode("Trilu", [X, np.int64(-1)], (1,), {"upper": 0}),
    "Trilu-far": SingleNode("Trilu", [X, np.int64(2**62)], (1,)),
    "EyeLike": SingleNode("EyeLike", [floats(4, 6)], (), {"k": -2, "dtype": 6}),
    **{
        f"TensorScatter-{mode}": SingleNode(
            "TensorScatter",
            [floats(2, 3, 5, 4), floats(2, 3, 2, 4), ints(*starts)],
            (),
            {"mode": mode},
            opset=24,
        )
        for mode, starts in (("linear", (3, 0)), ("circular", (4, 2)))
    },
    "BitCast": SingleNode("BitCast", [floats(2, 3)], (), {"to": 6}, opset=26),
    "MaxUnpool": SingleNode(
        "MaxUnpool",
        [floats(1, 2, 2, 2), ints(0, 3, 10, 13, 16, 21, 27, 31).reshape(1, 2, 2, 2)],
        (),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
}
