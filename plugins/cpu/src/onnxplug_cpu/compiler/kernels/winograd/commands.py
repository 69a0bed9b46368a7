"""Convolutions of 3×3 by transforms as commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from onnxplug_compiler.ir.buffers import Address, Constant
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.traced import smaller
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.emit import F32
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.commands.chunks import chunks_for
from onnxplug_cpu.compiler.commands.recording import Recorder, call, worker_memory
from onnxplug_cpu.compiler.commands.words import Code, Word, code_of
from onnxplug_cpu.compiler.kernels.contraction.epilogue import epilogue_call
from onnxplug_cpu.compiler.kernels.contraction.left_factor import rows_hinder
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
    tile_shape,
)
from onnxplug_cpu.compiler.kernels.widening import widened
from onnxplug_cpu.compiler.kernels.winograd.blocks import WinogradBlocks
from onnxplug_cpu.compiler.kernels.winograd.division import (
    GROUP_COLUMNS,
    best_tile,
    divide,
)
from onnxplug_cpu.compiler.kernels.winograd.exact import ExactTile
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TAPS,
    TILINGS,
    InputTransform,
    OutputTransform,
    Tiling,
    TransformWeights,
    padded,
)
from onnxplug_cpu.compiler.machine.isa import LANES, VECTOR_BYTES

MOST_DEPTH: Final = 48
"""The most terms of one chain of sums: transforms magnify the errors of sums, and short
chains, whose results are in the first-level cache, take no longer."""

_TOGETHER: Final = 16
"""Places of a line that the epilogue takes at once."""

_PACKED_BYTES: Final = 1e9  # of one thread, a second: to guess how long it takes


def record_transformed(
    recorder: Recorder,
    x: View,
    weights: View,
    pads: tuple[int, int],
    epilogue: Epilogue,
    *,
    tile: int,
    label: str = "Conv",
) -> None:
    """See ``families.Transforms.record_transformed``: by F(T×T, 3×3), where
    *tile* is T, a size of :data:`~.transforms.TILINGS`.

    Weights are transformed and packed once.  With tiles of 4×4 results differ from
    exact ones two to three times as much as those of sums of products do, with 2×2
    about as much.  Where transforms give what is not finite, results are computed
    without them.

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
    tiling = TILINGS[tile]
    tile_lines, tile_pixels = -(-lines // tile), -(-pixels // tile)
    all_tiles = images * tile_lines * tile_pixels
    division = divide(recorder, tiling, depth, (images, lines, pixels, columns))
    rows, block_tiles, blocks, parts, _ = division
    panel = _panel(recorder)
    flops = 2 * tiling.points * all_tiles * depth * columns
    together = smaller(tile_pixels, max(1, _TOGETHER // tile))
    code, more = epilogue_call(epilogue)
    words: dict[str, Word] = {
        "x": x.address,
        "x_image": x.strides[0] * F32.nbytes,
        "x_line": x.strides[2] * F32.nbytes,
        "x_pixel": x.strides[3] * F32.nbytes,
        "height": height,
        "width": width,
        "top": pads[0],
        "left": pads[1],
        "depth": depth,
        "lines": lines,
        "pixels": pixels,
        "columns": columns,
        "tile_lines": tile_lines,
        "tile_pixels": tile_pixels,
        "all_tiles": all_tiles,
        "block_tiles": block_tiles,
        "rows": rows,
        "weights": _packed(recorder, tiling, weights),
        "panel": panel,
        "group": GROUP_COLUMNS,
        "call_panels": max(1, recorder.target.isa.l1 // 2 // (depth * panel)),
        "parts": parts,
        "together": together,
        **_scratch(recorder, tiling, depth, block_tiles, together),
        "input_transform": Code(Kernel(InputTransform(tile))),
        "output_transform": Code(Kernel(OutputTransform(tile))),
        "exact": Code(Kernel(ExactTile(tile))),
        **_tiles(recorder, rows, depth, columns, alone=block_tiles == rows),
        "prefetch": -(-panel * rows // block_tiles),
        "epilogue": code,
        "epilogue_words": more,
    }
    sizes_ = "×".join(str(n) for n in (*shape[2:], TAPS, TAPS, depth))
    call(
        recorder,
        Kernel(WinogradBlocks(tile)),
        words,
        chunks=blocks * parts,
        label=f"{label} {sizes_}" if images == 1 else f"{label} {images}×{sizes_}",
        flops=flops,
        nbytes=x.nbytes + sum(view.nbytes for view in epilogue.outputs),
        note=f"by transforms of tiles of {tile}×{tile}",
    )


def transform_tile(recorder: Recorder, weights: View, shape: Sequence[int]) -> int:
    """See ``families.Transforms.transform_tile``; it pays where it clearly takes
    less time.  Products of rounded factors are about as fast."""
    if recorder.narrows and (weights.dtype_name, 1) in recorder.target.rounds:
        return 0
    tile = best_tile(recorder, recorder.target.largest_tile, weights.shape[1], shape)
    if not tile:
        return 0
    layout = _layout(recorder, TILINGS[tile], weights)
    return 0 if recorder.is_refused(weights, layout) else tile


def _scratch(
    recorder: Recorder, tiling: Tiling, depth: int, block_tiles: int, together: int
) -> dict[str, Word]:
    """The memory of a worker, and where what is in it."""
    group_bytes = GROUP_COLUMNS * F32.nbytes
    row_bytes = padded(depth) * F32.nbytes
    if rows_hinder(recorder.target.isa, row_bytes):
        row_bytes += VECTOR_BYTES
    # distances of points by which they do not evict each other
    point_bytes = block_tiles * row_bytes + VECTOR_BYTES
    products_point = block_tiles * group_bytes + VECTOR_BYTES
    zeros = tiling.stage_bytes
    finished = zeros + padded(depth) * F32.nbytes
    transformed = finished + tiling.size * tiling.size * together * group_bytes
    products = transformed + tiling.points * point_bytes
    nbytes = products + tiling.points * products_point
    scratch, distance = worker_memory(recorder, nbytes)
    return {
        "scratch": scratch,
        "scratch_distance": distance,
        "zeros": zeros,
        "finished": finished,
        "transformed": transformed,
        "transformed_row": row_bytes,
        "transformed_point": point_bytes,
        "products": products,
        "products_point": products_point,
    }


def _tiles(
    recorder: Recorder, rows: int, depth: int, columns: int, *, alone: bool
) -> dict[str, Word]:
    """The functions that multiply rows with a panel, and with the last one."""
    isa = recorder.target.isa
    vectors = tile_shape(isa).vectors
    panels = -(-columns // (vectors * LANES))
    left = -(-(columns - (panels - 1) * vectors * LANES) // LANES)
    block = -(-depth // -(-depth // MOST_DEPTH))

    def product(wide: int) -> Word:
        def kernel(rows: int) -> Kernel:
            chains = chains_of(isa, rows * vectors)
            return Kernel(TileProduct("f32", rows, wide, chains, alone, depth=block))

        return code_of(kernel, rows)

    # a function that is never called need not be compiled
    return {
        "tile": product(left if panels == 1 else vectors),
        "tile_tail": product(left),
    }


def _packed(recorder: Recorder, tiling: Tiling, weights: View) -> Address:
    """The weights, transformed; before them the verdicts of those who do that."""
    columns, depth = weights.shape[:2]
    panel = _panel(recorder)
    panels = -(-columns * F32.nbytes // panel)
    nbytes = tiling.points * depth * padded(columns) * F32.nbytes
    parts = min(panels, chunks_for(nbytes / _PACKED_BYTES, recorder.target.workers))
    # with room for as many as there may be: threads do not change the layout
    head = -(-8 * panels // VECTOR_BYTES) * VECTOR_BYTES
    names = ("column", "channel", "line", "pixel")

    def record(recorder: Recorder, source: View, target: Address) -> None:
        source = widened(recorder, source)
        distances = [stride * F32.nbytes for stride in source.strides]
        call(
            recorder,
            Kernel(TransformWeights(tiling.size)),
            {
                "source": source.address,
                **dict(zip(names, distances, strict=True)),
                "target": target._replace(offset=target.offset + head),
                "columns": columns,
                "depth": depth,
                "panel": panel,
                "group": GROUP_COLUMNS,
                "parts": parts,
                "verdicts": target,
            },
            chunks=parts,
            label="Conv: transform weights",
            nbytes=weights.nbytes + nbytes,
        )

    def accepts(content: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> bool:
        return not content[: 8 * parts].any()

    layout = _layout(recorder, tiling, weights)
    packed = recorder.packed(weights, layout, head + nbytes, record, accepts)
    return packed._replace(offset=packed.offset + head)


def _panel(recorder: Recorder) -> int:
    """Bytes of a row of a panel."""
    return tile_shape(recorder.target.isa).vectors * VECTOR_BYTES


def _layout(recorder: Recorder, tiling: Tiling, weights: View) -> str:
    of = (
        f"{weights.offset},{weights.shape},{weights.strides},{weights.dtype_name},"
        f"{_panel(recorder)}"
    )
    return f"winograd({tiling.size},{of})"
