"""How convolutions by transforms are divided into chunks, and when they pay.

Times are told in multiplications that take as long.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from onnxplug_compiler.ir.traced import larger, smaller
from onnxplug_cpu.compiler.codegen.emit import F32
from onnxplug_cpu.compiler.kernels.contraction.tile import tile_shape
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TAPS,
    TILINGS,
    Tiling,
    padded,
)

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.commands.recording import Recorder

LEAST_CHANNELS: Final = 16
"""Below these, transforms cost more than products save."""

MOST_CHANNELS: Final = 4096
"""Of the input: each thread has memory for all points of a block of tiles."""

WORTHWHILE: Final = 0.9
"""The most of what a contraction would take, as far as that can be told."""

GROUP_COLUMNS: Final = 64
"""Columns of products that wait for their transform; whole panels on each processor."""

_WEIGHT_PRODUCTS: Final = 0.4
"""Multiplications that take as long as reading a transformed weight, which goes on
beside them, for each byte of a register."""

_TRANSFORM_PRODUCTS: Final = 3
"""Multiplications that take as long as the transforms of a channel to a point of a
tile, for each point of an axis."""

_FEW_TILES: Final = 32
"""A block of so few may be larger than the second-level cache: reading it for each
group of columns takes half as long as reading all weights once more."""

_LATE: Final = 0.2
"""The part of a chunk that is waited for where threads do not end together."""

_MORE_BLOCKS = range(3)  # multiples of the threads beyond the fewest, that are tried
_PARTS = (1, 2, 4)  # of the columns


class Division(NamedTuple):
    """How the tiles of a convolution are divided.

    Attributes:
        rows: tiles that are multiplied at a time.
        block_tiles: of a block.
        blocks: of all tiles.
        parts: of the columns; a chunk is a part for a block.
        products: how long one of the threads takes.
    """

    rows: int
    block_tiles: int
    blocks: int
    parts: int
    products: float


def best_tile(
    recorder: Recorder, largest: int, depth: int, shape: Sequence[int]
) -> int:
    """Of which tiles a convolution clearly takes the least time; 0 if it takes less, or
    hardly more, without transforms.

    Products by tiles of bfloat16, where there are any, are about as fast.

    Args:
        largest: the largest tile that is allowed; 0 for none.
        depth: channels of the input.
        shape: of the result, [images, lines, pixels, columns].
    """
    images, lines, pixels, columns = shape
    if min(depth, columns) < LEAST_CHANNELS or depth > MOST_CHANNELS or 0 in shape:
        return 0
    target = recorder.target
    if target.isa.tiles and target.allow_bf16x3():
        return 0
    products = TAPS * TAPS * images * lines * pixels * depth * columns
    ways = [
        (divide(recorder, tiling, depth, shape).products, tiling.size)
        for tiling in TILINGS.values()
        if tiling.size <= largest
    ]
    least, size = min(ways, default=(math.inf, 0))
    return size if least * recorder.target.workers <= WORTHWHILE * products else 0


def divide(
    recorder: Recorder, tiling: Tiling, depth: int, shape: Sequence[int]
) -> Division:
    """The division by which threads are done first, as far as can be told.

    Args:
        recorder: has the processor, and how many threads there are.
        tiling: the tiles.
        depth, shape: as :func:`best_tile` takes them.
    """
    images, lines, pixels, columns = shape
    tiles = images * -(-lines // tiling.size) * -(-pixels // tiling.size)
    l2 = recorder.target.isa.l2
    each = tiling.points * F32.nbytes * (padded(depth) + GROUP_COLUMNS)
    if tiling.points * depth * columns * F32.nbytes <= l2 // 2:
        most = max(2 * tile_shape(recorder.target.isa).rows, l2 // 2 // each)
    else:  # weights are read for each block
        most = max(_FEW_TILES, l2 // each)
    fewest = -(-tiles // most)
    workers = recorder.target.workers
    if workers == 1:
        return _divided(recorder, tiling, depth, columns, tiles, fewest, 1)
    even = -(-fewest // workers) * workers
    # each once: the first of equal ones is taken
    numbers = [fewest, *(smaller(even + n * workers, tiles) for n in _MORE_BLOCKS)]
    groups = -(-columns // GROUP_COLUMNS)
    return min(
        (
            _divided(recorder, tiling, depth, columns, tiles, blocks, parts)
            for blocks, parts in itertools.product(numbers, _PARTS)
            if parts <= groups
        ),
        key=lambda division: division.products,
    )


def _divided(
    recorder: Recorder,
    tiling: Tiling,
    depth: int,
    columns: int,
    tiles: int,
    blocks: int,
    parts: int,
) -> Division:
    """At most so many *blocks*, all but the last one of as many tiles."""
    most_rows = tile_shape(recorder.target.isa).rows
    some = -(-tiles // blocks)
    times = -(-some // most_rows)
    rows = -(-some // times)
    block_tiles = rows * times
    blocks = -(-tiles // block_tiles)
    groups = -(-columns // GROUP_COLUMNS)
    width = min(columns, -(-groups // parts) * GROUP_COLUMNS)
    read = _WEIGHT_PRODUCTS * recorder.target.isa.vector_bytes
    # each row of the weights is loaded into registers for so many rows of tiles
    loads = (1 + 1 / rows) / (1 + 1 / most_rows)
    transforms = _TRANSFORM_PRODUCTS * tiling.reach * (depth + width)
    weights = larger(block_tiles * loads, float(read))
    chunk = weights * depth * width + block_tiles * transforms
    chunks, workers = blocks * parts, recorder.target.workers
    if workers > 1:
        turns = larger(-(-chunks // workers), chunks / workers + _LATE)
    else:
        turns = tiles / block_tiles
    return Division(rows, block_tiles, blocks, parts, tiling.points * turns * chunk)
