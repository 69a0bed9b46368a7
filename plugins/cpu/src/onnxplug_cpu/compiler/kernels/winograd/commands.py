"""Convolutions of 3×3 by transforms as commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from onnxplug_cpu.compiler.codegen.emit import F32
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.ir.commands import (
    Address,
    Code,
    Constant,
    Word,
    chunks_for,
)
from onnxplug_cpu.compiler.ir.recorder import Recorder
from onnxplug_cpu.compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.contraction.epilogue import Epilogue
from onnxplug_cpu.compiler.kernels.contraction.left_factor import rows_hinder
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
    tile_shape,
)
from onnxplug_cpu.compiler.kernels.winograd.blocks import WinogradBlocks
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    POINTS,
    STAGE_BYTES,
    TAPS,
    TILE,
    InputTransform,
    OutputTransform,
    TransformWeights,
)
from onnxplug_cpu.compiler.target.isa import LANES, VECTOR_BYTES

MOST_DEPTH: Final = 64
"""The most terms of one chain of sums: transforms magnify the errors of sums, and short
chains, whose results are in the first-level cache, take no longer."""

LEAST_CHANNELS: Final = 32
"""Below these, transforms cost more than products save."""

MOST_CHANNELS: Final = 4096
"""Of the input: each thread has memory for all points of a block of tiles."""

_WEIGHT_PRODUCTS: Final = 13
"""Multiplications that take as long as reading a transformed weight."""

_TRANSFORM_PRODUCTS: Final = 420
"""The same of the transforms of a channel of a tile."""

_WORTHWHILE: Final = 0.8
"""The most of what a contraction would take, as far as that can be told."""

_GROUP_COLUMNS: Final = 64
"""Columns of products that wait for their transform."""

_FLOPS: Final = 60e9  # of one thread, a second: to guess how long work takes
_PACKED_BYTES: Final = 1e9  # likewise, of transformed weights


def pays(recorder: Recorder, depth: int, shape: Sequence[int]) -> bool:
    """Whether a convolution clearly takes less time by transforms than without.

    Tiles of bfloat16, where there are any, are about as fast and more exact.

    Args:
        depth: channels of the input.
        shape: of the result, [images, lines, pixels, columns].
    """
    images, lines, pixels, columns = shape
    if min(depth, columns) < LEAST_CHANNELS or depth > MOST_CHANNELS or 0 in shape:
        return False
    if recorder.isa.tiles and recorder.may_split():
        return False
    tiles = images * -(-lines // TILE) * -(-pixels // TILE)
    _, block_tiles = _blocks(recorder, tiles, depth)
    blocks = -(-tiles // block_tiles)
    products = POINTS * (tiles + _WEIGHT_PRODUCTS * blocks) * depth * columns
    transforms = _TRANSFORM_PRODUCTS * tiles * (depth + columns)
    contraction = TAPS * TAPS * images * lines * pixels * depth * columns
    return products + transforms <= _WORTHWHILE * contraction


def record_winograd(
    recorder: Recorder,
    x: View,
    weights: View,
    pads: tuple[int, int],
    epilogue: Epilogue,
    *,
    label: str = "Conv",
) -> None:
    """Convolve with kernels of 3×3 places, stride and dilation 1, by F(4×4, 3×3).

    Args:
        x: f32 [N, C, H, W] with consecutive channels; any other strides.
        weights: f32 [M, C, 3, 3] of a constant, transformed and packed once.
        pads: zeros before the first line and pixel; after the last ones there are as
            many as the result's size asks for.
        epilogue: takes the result; its views are [N, 1, lines, pixels, M].
        label: for profiles, the sizes not included.

    Results differ from exact ones two to three times as much as those of sums of
    products do.  Infinities, and sums within a factor of some thousands of the largest
    float, make NaN of what is in a tile with them.

    Raises:
        ValueError: shapes do not fit, or channels are apart.
    """
    images, depth, height, width = x.shape
    shape = epilogue.outputs[0].shape
    lines, pixels, columns = shape[2:]
    if (
        weights.shape != (columns, depth, TAPS, TAPS)
        or shape[:2] != (images, 1)
        or not isinstance(weights.buffer, Constant)
    ):
        raise ValueError(f"{x.shape} by weights {weights.shape} does not give {shape}")
    if x.strides[1] != 1 and depth > 1:
        raise ValueError(f"channels are apart: {x.strides}")
    if 0 in shape:
        return
    tile_lines, tile_pixels = -(-lines // TILE), -(-pixels // TILE)
    all_tiles = images * tile_lines * tile_pixels
    rows, block_tiles = _blocks(recorder, all_tiles, depth)
    blocks = -(-all_tiles // block_tiles)
    vectors = tile_shape(recorder.isa).vectors
    panel = vectors * VECTOR_BYTES
    panels = -(-columns * F32.nbytes // panel)
    group = max(1, _GROUP_COLUMNS // (vectors * LANES))
    flops = 2 * POINTS * all_tiles * depth * columns
    wanted = chunks_for(flops / _FLOPS, recorder.workers)
    parts = min(-(-panels // group), -(-wanted // blocks))
    row_bytes = _rounded(depth) * F32.nbytes
    if rows_hinder(recorder.isa, row_bytes):
        row_bytes += VECTOR_BYTES
    # distances of points by which they do not evict each other
    point_bytes = block_tiles * row_bytes + VECTOR_BYTES
    products_point = block_tiles * group * panel + VECTOR_BYTES
    zeros = STAGE_BYTES
    finished = zeros + _rounded(depth) * F32.nbytes
    transformed = finished + TILE * TILE * group * panel
    products = transformed + POINTS * point_bytes
    scratch, distance = recorder.scratch(products + POINTS * products_point)
    left = columns - (panels - 1) * vectors * LANES
    alone, chains = block_tiles == rows, chains_of(recorder.isa, rows * vectors)

    def tile(of_last: bool) -> Code:
        wide = -(-left // LANES) if of_last else vectors
        return Code(Kernel(TileProduct("f32", rows, wide, chains, alone)))

    code, more = epilogue.call()
    sizes = x.dtype.itemsize
    words: dict[str, Word] = {
        "x": x.address,
        "x_image": x.strides[0] * sizes,
        "x_line": x.strides[2] * sizes,
        "x_pixel": x.strides[3] * sizes,
        "height": height,
        "width": width,
        "top": pads[0],
        "left": pads[1],
        "depth": depth,
        "block_depth": -(-depth // -(-depth // MOST_DEPTH)),
        "lines": lines,
        "pixels": pixels,
        "columns": columns,
        "tile_lines": tile_lines,
        "tile_pixels": tile_pixels,
        "all_tiles": all_tiles,
        "block_tiles": block_tiles,
        "rows": rows,
        "weights": _packed(recorder, weights, panel),
        "panel": panel,
        "group_panels": group,
        "parts": parts,
        "scratch": scratch,
        "scratch_distance": distance,
        "zeros": zeros,
        "finished": finished,
        "transformed": transformed,
        "transformed_row": row_bytes,
        "transformed_point": point_bytes,
        "products": products,
        "products_point": products_point,
        "input_transform": Code(Kernel(InputTransform())),
        "output_transform": Code(Kernel(OutputTransform())),
        "tile": tile(panels == 1),
        "tile_tail": tile(True),
        "prefetch": -(-panel * rows // block_tiles),
        "epilogue": code,
        "epilogue_words": more,
    }
    sizes_ = "×".join(str(n) for n in (*shape[2:], TAPS, TAPS, depth))
    recorder.call(
        Kernel(WinogradBlocks()),
        words,
        chunks=blocks * parts,
        label=f"{label} {sizes_}" if images == 1 else f"{label} {images}×{sizes_}",
        flops=flops,
        nbytes=x.nbytes + sum(view.nbytes for view in epilogue.outputs),
    )


def _blocks(recorder: Recorder, tiles: int, depth: int) -> tuple[int, int]:
    """How many tiles are multiplied at a time, and how many a block has."""
    most_rows = tile_shape(recorder.isa).rows
    each = POINTS * F32.nbytes * (_rounded(depth) + _GROUP_COLUMNS)
    most = max(2 * most_rows, recorder.isa.l2 // 4 // each)
    blocks = -(-tiles // most)
    some = -(-tiles // blocks)
    times = -(-some // most_rows)
    rows = -(-some // times)
    return rows, rows * times


def _rounded(elements: int) -> int:
    return -(-elements // LANES) * LANES


def _packed(recorder: Recorder, weights: View, panel: int) -> Address:
    """The weights, transformed."""
    columns, depth = weights.shape[:2]
    names = ("column", "channel", "line", "pixel")
    distances = {
        name: stride * F32.nbytes
        for name, stride in zip(names, weights.strides, strict=True)
    }
    nbytes = POINTS * depth * _rounded(columns) * F32.nbytes

    def record(recorder: Recorder, source: View, target: Address) -> None:
        wanted = chunks_for(nbytes / _PACKED_BYTES, recorder.workers)
        parts = min(-(-columns * F32.nbytes // panel), wanted)
        recorder.call(
            Kernel(TransformWeights()),
            {
                "source": source.address,
                **distances,
                "target": target,
                "columns": columns,
                "depth": depth,
                "panel": panel,
                "parts": parts,
            },
            chunks=parts,
            label="Conv: transform weights",
            nbytes=weights.nbytes + nbytes,
        )

    layout = f"winograd({weights.offset},{weights.shape},{weights.strides},{panel})"
    return recorder.packed(weights, layout, nbytes, record)
