"""The machine code of products of codes, also for processors that this one is not."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from onnxplug_cpu.compiler.codegen.integer_products import (
    multiplies_squares,
    saturates,
)
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.coded.byte_tiles import ByteTiles
from onnxplug_cpu.compiler.kernels.coded.pack_quads import PackQuads
from onnxplug_cpu.compiler.kernels.contraction.square_tile import SquareTile
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    MOVED_QUADS,
    PAIRS,
    QUADS,
    SIGNED_QUADS,
    TileProduct,
    integer_tile_shape,
)
from onnxplug_cpu.compiler.machine.isa import AMX, AVX2, AVX512, NEON, SSE, Isa

from ..integer_isas import AVX_VNNI, DOT, I8MM, VNNI
from ..interpreter import assembly
from .test_contraction_code import loops, vectors_on_stack

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

ADDED = {
    ("avx2", PAIRS): {"vpmaddwd": 1, "vpaddd": 1},
    ("avx2", QUADS): {"vpmaddubsw": 1, "vpmaddwd": 1, "vpaddd": 1},
    ("avx512", PAIRS): {"vpmaddwd": 1, "vpaddd": 1},
    ("avx512", QUADS): {"vpmaddubsw": 1, "vpmaddwd": 1, "vpaddd": 1},
    ("vnni", PAIRS): {"vpdpwssd": 1},
    ("vnni", QUADS): {"vpdpbusd": 1},
    ("vnni", MOVED_QUADS): {"vpdpbusd": 1},
    ("avx-vnni", PAIRS): {"vpdpwssd": 1},
    ("avx-vnni", QUADS): {"vpdpbusd": 1},
    ("avx-vnni", MOVED_QUADS): {"vpdpbusd": 1},
    ("dot", SIGNED_QUADS): {"sdot": 1},
    ("i8mm", QUADS): {"usdot": 1},
    ("i8mm", SIGNED_QUADS): {"sdot": 1},
}
"""Instructions for a register of products."""


NAMES = {
    "avx2": AVX2,
    "avx512": AVX512,
    "vnni": VNNI,
    "avx-vnni": AVX_VNNI,
    "dot": DOT,
    "i8mm": I8MM,
}


@pytest.mark.parametrize(("name", "element"), ADDED)
@pytest.mark.parametrize("taps", [False, True])
def test_a_step_is_loads_and_products(name: str, element: str, taps: bool) -> None:
    isa = NAMES[name]
    shape = integer_tile_shape(isa)
    tile = TileProduct(element, shape.rows, shape.vectors, taps=taps)
    text = assembly(Kernel(tile), isa)
    (first, *_) = ADDED[name, element]
    body = max(loops(text), key=lambda lines: sum(first in line for line in lines))
    registers = shape.rows * shape.vectors * isa.registers_per_vector
    counts = {
        instruction: sum(f"\t{instruction}\t" in f"\t{line}" for line in body)
        for instruction in ADDED[name, element]
    }
    steps, more = divmod(next(iter(counts.values())), registers)
    assert steps >= 1 and not more
    assert counts == {
        instruction: count * steps * registers
        for instruction, count in ADDED[name, element].items()
    }
    loads = steps * (shape.rows + shape.vectors * isa.registers_per_vector)
    if element == MOVED_QUADS:
        moves = [line for line in body if line.startswith(("vpxor", "vxorps"))]
        assert len(moves) == steps * shape.rows
        loads += len(moves)
    others = 24 if isa is AVX2 else 14  # with AVX2 a few sums wait in memory
    assert len(body) <= sum(counts.values()) + loads + others * steps
    if isa is not AVX2:
        assert not vectors_on_stack("\n".join(body))


@pytest.mark.parametrize(
    ("element", "product"), [(QUADS, "tdpbusd"), (SIGNED_QUADS, "tdpbssd")]
)
def test_a_step_of_tiles_is_loads_and_products(element: str, product: str) -> None:
    text = assembly(Kernel(ByteTiles(element)), AMX)
    found = []
    for function in text.split("panel_")[1:]:
        lines = [line.strip() for line in function.splitlines()]
        names = product, "tileload", "tilestored", "tdp"
        found.append(tuple(sum(line.startswith(n) for line in lines) for n in names))
    # of one tile or two, by sixteen columns or 32
    sizes = [(tiles, vectors) for tiles in (1, 2) for vectors in (1, 2)]
    expected = {(t * v, t + v, t * v, t * v) for t, v in sizes}
    assert expected == set(found) - {(0, 0, 0, 0)}
    assert text.count("ldtilecfg") == 1
    assert text.count("tilerelease") == 1


@pytest.mark.parametrize("taps", [False, True])
def test_a_step_of_squares_is_loads_and_products(taps: bool) -> None:
    most = integer_tile_shape(I8MM).rows
    for rows in (1, 2, most - 1, most):
        for element, name in ((QUADS, "usmmla"), (SIGNED_QUADS, "smmla")):
            tile = SquareTile(element, rows, alone=rows < most, taps=taps)
            text = assembly(Kernel(tile), I8MM)
            assert not vectors_on_stack(text)
            bodies = [b for b in loops(text) if any(name in line for line in b)]
            assert bodies
            for body in bodies:
                count = sum(line.startswith(f"{name}\t") for line in body)
                assert count == 8 * -(-rows // 2)
                assert len(body) <= count + 8 + 3 * rows + 16


@pytest.mark.parametrize(
    "isa", [AVX2, AVX512, VNNI, AVX_VNNI, AMX, SSE, NEON, DOT, I8MM]
)
def test_kernels_are_compiled_for_every_processor(isa: Isa) -> None:
    shape = integer_tile_shape(isa)
    for element in (PAIRS, QUADS, SIGNED_QUADS):
        for nbytes in (64, 32):
            tile = TileProduct(element, shape.rows, shape.vectors, nbytes=nbytes)
            assert "call" not in assembly(Kernel(tile), isa)
    assembly(Kernel(PackQuads(saturates(isa), multiplies_squares(isa))), isa)


def test_only_instructions_that_saturate_need_remainders() -> None:
    assert [saturates(isa) for isa in (AVX2, AVX512, SSE)] == [True] * 3
    assert not any(saturates(isa) for isa in (VNNI, AVX_VNNI, AMX, NEON, DOT))
