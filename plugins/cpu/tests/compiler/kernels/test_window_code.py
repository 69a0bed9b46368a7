"""The machine code of windows: no spills, no calls of the process."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from onnxplug_compiler.ir.windows import LARGEST, MEAN, SUM, WEIGHED, Combining, norm
from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.kernels.window.channel_tile import ChannelTile
from onnxplug_cpu.compiler.kernels.window.lines import WindowLines
from onnxplug_cpu.compiler.kernels.window.quads_tile import QuadsTile
from onnxplug_cpu.compiler.kernels.window.tile import (
    ChannelTaps,
    PixelTile,
    group_pixels,
    tile_shape,
)
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE, Isa

from ..integer_isas import VNNI
from ..interpreter import assembly
from ..rarely import first
from .test_contraction_code import loops, vectors_on_stack

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TARGETS = [AVX512, AVX2, NEON, SSE]
_NAMES = {isa: isa.name for isa in TARGETS}


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
@pytest.mark.parametrize("combining", first(2, [WEIGHED, norm(2), LARGEST, SUM]))
def test_tiles_stay_in_registers(isa: Isa, combining: Combining) -> None:
    shape = tile_shape(isa)
    for taps in {1, 3, shape.taps}:
        for stride in (1, 2):
            most = shape.pixels // (1 if stride == 1 else 2)
            for pixels in {1, most}:
                tile = ChannelTile(combining, pixels, taps, stride, True)
                text = assembly(Kernel(tile), isa)
                assert not vectors_on_stack(text), tile


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_tiles_of_codes_stay_in_registers(isa: Isa) -> None:
    shape = tile_shape(isa)
    for taps, stride in ((3, 1), (3, 2), (5, 1)):
        tile = ChannelTile(
            WEIGHED, shape.pixels // stride, taps, stride, True, element="u8"
        )
        text = assembly(Kernel(tile), isa)
        assert not any(vectors_on_stack("\n".join(body)) for body in loops(text)), tile


@pytest.mark.parametrize("element", ["u8", "i8"])
@pytest.mark.parametrize(("lines", "taps"), [(1, 3), (3, 3), (8, 2)])
def test_tiles_of_quads_stay_in_registers(element: str, lines: int, taps: int) -> None:
    for stride in (1, 2):
        pixels = tile_shape(VNNI).pixels // stride
        tile = QuadsTile(pixels, lines, taps, stride, element, True)
        text = assembly(Kernel(tile), VNNI)
        assert not vectors_on_stack(text), tile
        # of 64 channels, and of the last 32
        assert text.count("vpdpbusd") == 2 * 4 * -(-lines // 4) * taps * pixels


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_tiles_of_groups_stay_in_registers(isa: Isa) -> None:
    shape = tile_shape(isa)
    for depth in (2, 4, 8):
        if isa.vector_bytes % (4 * depth):
            continue
        for taps, stride in ((3, 1), (3, 2), (shape.taps, 1)):
            pixels = -(-group_pixels(isa, depth) // stride)
            tile = ChannelTile(WEIGHED, pixels, taps, stride, True, depth)
            assert not vectors_on_stack(assembly(Kernel(tile), isa)), tile


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=_NAMES.get)
@pytest.mark.parametrize("taps", [3, 5, 7])
def test_a_line_is_loads_and_multiplications(isa: Isa, taps: int) -> None:
    """Each element is loaded once for all windows that it lies in."""
    pixels = tile_shape(isa).pixels
    tile = ChannelTile(WEIGHED, pixels, taps, 1, True)
    text = assembly(Kernel(tile), isa)
    multiplications = text.count("vfmadd")
    copies = 1 if isa is AVX512 else 2  # whole vectors, and a part of one
    assert multiplications == copies * pixels * taps
    loads = len(re.findall(r"vmovups\t[^%]*\(.*, %[xyz]mm", text))
    loads += len(re.findall(r"vmaskmovps\t[^%]*\(.*, %[xyz]mm", text))
    folded = len(re.findall(r"vfmadd\w+\t[^%]*\(", text))
    assert loads + folded <= copies * (pixels + 2 * taps - 1)


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=_NAMES.get)
def test_any_windows_stay_in_registers(isa: Isa) -> None:
    for combining in (WEIGHED, LARGEST, SUM):
        for tile in (
            ChannelTaps(combining, False, True),
            PixelTile(combining, False, True, True),
        ):
            for body in loops(assembly(Kernel(tile), isa)):
                assert not vectors_on_stack("\n".join(body)), tile


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
@pytest.mark.parametrize(
    "combining", first(3, [WEIGHED, LARGEST, norm(3), MEAN, norm(1), norm(2)])
)
def test_no_symbol_is_needed(isa: Isa, combining: Combining) -> None:
    generators: list[Generator] = [WindowLines()]
    generators.append(ChannelTile(combining, 3, 3, 2, False))
    for long in {False, combining.fold == "add"}:
        generators.append(ChannelTaps(combining, long, True))
        generators.append(PixelTile(combining, long, True, True))
        generators.append(PixelTile(combining, long, False, False))
    for generator in generators:
        called = re.findall(
            r"^\s+(?:callq?|bl)\s+([a-zA-Z_]\w*)",
            assembly(Kernel(generator), isa),
            re.M,
        )
        assert not called, (generator, called)
