"""Attention, rotary embedding, and products with quantised weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..single_node import Array, SingleNode
from .arrays import RANDOM, floats, halves, indices


def _heads(*shape: int) -> Array:
    return floats(*shape) / 2


ATTENTION: Final = {
    "Attention": SingleNode(
        "Attention",
        [_heads(2, 3, 8), _heads(2, 5, 8), _heads(2, 5, 12)],
        (),
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "Attention-causal": SingleNode(
        "Attention",
        [_heads(2, 4, 8), _heads(2, 4, 8), _heads(2, 4, 8)],
        (),
        {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1, "scale": 0.3},
    ),
    "Attention-past": SingleNode(
        "Attention",
        [
            _heads(2, 2, 8),
            _heads(2, 2, 8),
            _heads(2, 2, 8),
            None,
            _heads(2, 2, 3, 4),
            _heads(2, 2, 3, 4),
        ],
        (),
        {"q_num_heads": 2, "kv_num_heads": 2, "is_causal": 1},
        outputs=3,
    ),
    "Attention-half": SingleNode(
        "Attention",
        [halves(1, 3, 8), halves(1, 5, 8), halves(1, 5, 8)],
        (),
        {"q_num_heads": 2, "kv_num_heads": 2},
    ),
    "Attention-4d": SingleNode(
        "Attention",
        [_heads(2, 2, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 6)],
    ),
    "Attention-groups": SingleNode(
        "Attention",
        [_heads(2, 6, 3, 4), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4)],
        outputs=3,
    ),
    "Attention-mask": SingleNode(
        "Attention",
        [
            _heads(1, 2, 3, 4),
            _heads(1, 2, 3, 4),
            _heads(1, 2, 3, 4),
            np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]], np.bool_),
        ],
    ),
    "Attention-addend": SingleNode(
        "Attention",
        [
            _heads(1, 2, 3, 4),
            _heads(1, 2, 3, 4),
            _heads(1, 2, 3, 4),
            np.float32([[0, -np.inf, 1], [-np.inf] * 3, [0.5, 0, -2]]),
        ],
        (),
        {"softcap": 1.5, "is_causal": 1},
    ),
    "Attention-lengths": SingleNode(
        "Attention",
        [
            _heads(2, 2, 2, 4),
            _heads(2, 2, 5, 4),
            _heads(2, 2, 5, 4),
            None,
            None,
            None,
            np.array([3, 5], np.int64),
        ],
        (),
        {"is_causal": 1},
        opset=24,
    ),
    "Attention-scores": SingleNode(
        "Attention",
        [_heads(1, 2, 3, 4), _heads(1, 2, 3, 4), _heads(1, 2, 3, 4)],
        (),
        {"qk_matmul_output_mode": 3},
        outputs=("y0", "", "", "y3"),
    ),
    **{
        f"RotaryEmbedding-{name}": SingleNode(
            "RotaryEmbedding", [x, *caches], (), attributes
        )
        for name, x, caches, attributes in (
            (
                "4d",
                floats(2, 3, 4, 8),
                [floats(9, 4), floats(9, 4), indices(9, 2, 4)],
                {},
            ),
            (
                "3d",
                floats(2, 4, 24),
                [floats(9, 4), floats(9, 4), indices(9, 2, 4)],
                {"num_heads": 3},
            ),
            (
                "interleaved",
                floats(2, 3, 4, 8),
                [floats(2, 4, 4), floats(2, 4, 4)],
                {"interleaved": 1},
            ),
            (
                "part",
                floats(2, 3, 4, 8),
                [floats(2, 4, 2), floats(2, 4, 2)],
                {"rotary_embedding_dim": 4},
            ),
        )
    },
}

MICROSOFT: Final = "com.microsoft"


def _multi_head(*inputs: Array | None, **attributes: Any) -> SingleNode:
    shapes = attributes.pop("shapes")
    return SingleNode(
        "MultiHeadAttention",
        inputs,
        (),
        {"num_heads": 2, **attributes},
        outputs=len(shapes),
        domain=MICROSOFT,
        shapes=shapes,
    )


def _projected(
    *inputs: Array | None, shapes: Sequence[Sequence[int]], **attributes: Any
) -> SingleNode:
    return SingleNode(
        "Attention",
        inputs,
        (1, 2),
        {"num_heads": 2, **attributes},
        outputs=len(shapes),
        domain=MICROSOFT,
        shapes=shapes,
    )


def _grouped(
    *,
    new: int,
    room: int,
    places: int,
    lengths: Array,
    packed: bool = False,
    rotary: bool = False,
    more: Sequence[Array | None] = (),
    **attributes: Any,
) -> SingleNode:
    heads, groups, size, batch = 4, 2, 8, len(lengths)
    width = (heads + 2 * groups if packed else heads) * size
    angles = [floats(16, size // 2) if rotary else None for _ in range(2)]
    keys = [None if packed else _heads(batch, new, groups * size) for _ in range(2)]
    return SingleNode(
        "GroupQueryAttention",
        [
            _heads(batch, new, width), *keys,
            *(_heads(batch, groups, places, size) for _ in range(2)),
            lengths - np.int32(1), np.int32(lengths.max()), *angles, *more,
        ],
        (),
        {
            "num_heads": heads, "kv_num_heads": groups, "do_rotary": int(rotary),
            **attributes,
        },
        outputs=3, domain=MICROSOFT,
        shapes=[(batch, new, heads * size), *[(batch, groups, room, size)] * 2],
    )  # fmt: skip


def _quantised(
    bits: int, *, zeros: bool, bias: bool = False, dtype: Any = np.float32
) -> SingleNode:
    rows, inner, block = 3, 32, 16
    per = 8 // bits
    return SingleNode(
        "MatMulNBits",
        [
            floats(2, 4, inner).astype(dtype),
            RANDOM.integers(0, 256, (rows, inner // block, block // per)).astype(
                np.uint8
            ),
            floats(rows * inner // block).astype(dtype),
            RANDOM.integers(0, 256, rows * -(-inner // block // per)).astype(np.uint8)
            if zeros
            else None,
            None,
            floats(rows).astype(dtype) if bias else None,
        ],
        (1, 2, 3, 5),
        {"K": inner, "N": rows, "bits": bits, "block_size": block},
        domain=MICROSOFT,
    )


CONTRIBUTED: Final = {
    "MultiHeadAttention": _multi_head(
        _heads(2, 3, 8),
        _heads(2, 5, 8),
        _heads(2, 5, 12),
        floats(28),
        shapes=[(2, 3, 12)],
    ),
    "MultiHeadAttention-padding": _multi_head(
        _heads(2, 3, 8),
        _heads(2, 5, 8),
        _heads(2, 5, 8),
        None,
        np.int32([2, 5]),
        mask_filter_value=-1e4,
        scale=0.4,
        shapes=[(2, 3, 8)],
    ),
    "MultiHeadAttention-mask": _multi_head(
        _heads(2, 3, 8),
        _heads(2, 5, 8),
        _heads(2, 5, 8),
        None,
        np.int32([[1, 0, 1, 1, 0], [1, 1, 1, 0, 0]]),
        floats(1, 2, 3, 5),
        shapes=[(2, 3, 8)],
    ),
    "MultiHeadAttention-packed": _multi_head(
        _heads(2, 3, 2, 3, 4), unidirectional=1, shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-packed-keys": _multi_head(
        _heads(2, 3, 8), _heads(2, 5, 2, 2, 4), shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-encoder": _multi_head(
        _heads(2, 3, 8), _heads(2, 2, 5, 4), _heads(2, 2, 5, 4), shapes=[(2, 3, 8)]
    ),
    "MultiHeadAttention-past": _multi_head(
        _heads(2, 2, 8),
        _heads(2, 2, 8),
        _heads(2, 2, 8),
        None,
        None,
        None,
        _heads(2, 2, 3, 4),
        _heads(2, 2, 3, 4),
        unidirectional=1,
        shapes=[(2, 2, 8), (2, 2, 5, 4), (2, 2, 5, 4)],
    ),
    "Attention": _projected(
        _heads(2, 3, 6),
        floats(6, 24),
        floats(24),
        np.int32([3, 2]),
        shapes=[(2, 3, 8)],
    ),
    "Attention-ends-and-starts": _projected(
        _heads(2, 3, 6),
        floats(6, 24),
        floats(24),
        np.int32([3, 2, 1, 0]),
        shapes=[(2, 3, 8)],
    ),
    "Attention-sizes": _projected(
        _heads(2, 3, 6),
        floats(6, 20),
        floats(20),
        np.int32([[1, 1, 0], [0, 1, 1]]),
        qkv_hidden_sizes=[8, 8, 4],
        shapes=[(2, 3, 4)],
    ),
    "Attention-present": _projected(
        _heads(2, 3, 6),
        floats(6, 24),
        floats(24),
        None,
        _heads(2, 2, 2, 2, 4),
        unidirectional=1,
        shapes=[(2, 3, 8), (2, 2, 2, 5, 4)],
    ),
    "GroupQueryAttention": _grouped(new=2, room=5, places=3, lengths=np.int32([5, 4])),
    "GroupQueryAttention-buffer": _grouped(
        new=1, room=8, places=8, lengths=np.int32([3, 8, 1]), rotary=True
    ),
    "GroupQueryAttention-prompt": _grouped(
        new=4,
        room=8,
        places=8,
        lengths=np.int32([4, 4]),
        packed=True,
        rotary=True,
        rotary_interleaved=1,
        softcap=2.0,
    ),
    "GroupQueryAttention-window": _grouped(
        new=3,
        room=9,
        places=6,
        lengths=np.int32([9]),
        local_window_size=3,
        scale=0.5,
    ),
    "GroupQueryAttention-sink": _grouped(
        new=2,
        room=6,
        places=6,
        lengths=np.int32([5]),
        more=(None, floats(1, 4, 2, 5), floats(4)),
    ),
    "MatMulNBits": _quantised(4, zeros=True),
    "MatMulNBits-without-zeros": _quantised(4, zeros=False, bias=True),
    "MatMulNBits-8": _quantised(8, zeros=True, dtype=np.float16),
    "MatMulNBits-2": _quantised(2, zeros=False),
}
