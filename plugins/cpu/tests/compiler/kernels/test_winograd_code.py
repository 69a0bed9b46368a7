"""The machine code of transforms of tiles: no spills, no calls of the process."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from onnxplug_cpu.compiler.codegen.kernel import Generator, Kernel
from onnxplug_cpu.compiler.kernels.winograd.blocks import WinogradBlocks
from onnxplug_cpu.compiler.kernels.winograd.exact import ExactTile
from onnxplug_cpu.compiler.kernels.winograd.transforms import (
    TILINGS,
    InputTransform,
    OutputTransform,
    TransformWeights,
)
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE, Isa

from ..interpreter import assembly
from .test_contraction_code import loops, vectors_on_stack

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TARGETS = [AVX512, AVX2, NEON, SSE]
each_tile = pytest.mark.parametrize("tile", list(TILINGS))
_NAMES = {isa: isa.name for isa in TARGETS}


@each_tile
@pytest.mark.parametrize("isa", [AVX512, AVX2, SSE], ids=_NAMES.get)
def test_the_transform_of_the_input_stays_in_registers(isa: Isa, tile: int) -> None:
    whole = [
        "\n".join(body)
        for body in loops(assembly(Kernel(InputTransform(tile)), isa))
        # where there are no masks, a part of a vector goes through the stack
        if len(body) > TILINGS[tile].points
        and not any("movss" in line for line in body)
    ]
    assert len(whole) == 1
    assert not vectors_on_stack(whole[0])


@each_tile
@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_the_transform_of_products_stays_in_registers(isa: Isa, tile: int) -> None:
    assert not vectors_on_stack(assembly(Kernel(OutputTransform(tile)), isa))


@each_tile
@pytest.mark.parametrize("transform", [InputTransform, OutputTransform])
def test_elements_are_written_once(transform: type[Generator], tile: int) -> None:
    """To memory between the two axes, and to the target."""
    tiling = TILINGS[tile]
    outer = tiling.reach if transform is InputTransform else tile
    text = assembly(Kernel(transform(tile)), AVX512)
    (body,) = (body for body in loops(text) if len(body) > tiling.points)
    stores = [line for line in body if re.search(r"vmovup[sd]\t%zmm\d+, ", line)]
    assert len(stores) == outer * tiling.reach + outer * outer


@each_tile
@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_no_symbol_is_needed(isa: Isa, tile: int) -> None:
    for generator in (
        InputTransform(tile),
        OutputTransform(tile),
        TransformWeights(tile),
        ExactTile(tile),
        WinogradBlocks(tile),
    ):
        called = re.findall(
            r"^\s+(?:callq?|bl)\s+([a-zA-Z_]\w*)",
            assembly(Kernel(generator), isa),
            re.M,
        )
        assert not called, (generator, called)
