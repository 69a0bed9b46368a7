"""The machine code of matrix products: no spills, no calls of the process."""

from __future__ import annotations

import re
from typing import Any

import llvmlite.binding as llvm
import pytest

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.codegen.math.narrow import has_f16
from onnxplug_cpu.compiler.kernels.contraction.block import BlockProduct
from onnxplug_cpu.compiler.kernels.contraction.dot import DotProducts
from onnxplug_cpu.compiler.kernels.contraction.pack import (
    CopyMatrices,
    PackMatrices,
    PackPanel,
)
from onnxplug_cpu.compiler.kernels.contraction.tile import (
    TileProduct,
    chains_of,
    masked_rows,
    narrow_tile,
    tile_shape,
    wide_vectors,
)
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE, Isa

from ..interpreter import assembly

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

TARGETS = [AVX512, AVX2, SSE, NEON]
_NAMES = {isa: isa.name for isa in TARGETS}


def _tile(
    isa: Isa, rows: int, vectors: int, element: str = "f32", **fields: bool | str
) -> TileProduct:
    chains = chains_of(isa, rows * vectors)
    return TileProduct(element, rows, vectors, chains, **fields)


def tiles(isa: Isa) -> list[Kernel]:
    shape = tile_shape(isa)
    rows = sorted({1, 2, 3, 4, shape.rows // 2, shape.rows - 1, shape.rows})
    products = [
        _tile(isa, r, shape.vectors, element, alone=r < 4, taps=taps)
        for element in ("f32", "f64")
        for taps in (False, True)
        for r in rows
        if 0 < r <= shape.rows
    ]
    products += [_tile(isa, r, wide_vectors(isa, r), alone=True) for r in (1, 2)]
    products += [
        _tile(isa, r, shape.vectors)._replace(depth=48) for r in rows if r <= shape.rows
    ]
    for factor in ("f16", "bf16") if has_f16(isa) else ("bf16",):
        narrow_factor = [
            _tile(isa, r, shape.vectors, alone=r < 4, taps=taps, factor=factor)
            for taps in (False, True)
            for r in rows
            if 0 < r <= shape.rows
        ]
        products += narrow_factor
        products += [t._replace(keeps=True) for t in narrow_factor if not t.alone]
    if isa.registers_per_vector > 1:
        whole = _tile(isa, shape.rows, 1)
        products += [whole._replace(nbytes=32), whole._replace(nbytes=32, taps=True)]
    if narrow := narrow_tile(isa, 96):
        three = _tile(isa, narrow.rows, 3)._replace(nbytes=32)
        products += [three, three._replace(taps=True)]
    if most := masked_rows(isa):
        products += [
            _tile(isa, 1, wide_vectors(isa, 1), alone=True, masked=True),
            _tile(isa, most, shape.vectors, alone=True, masked=True),
        ]
    return [Kernel(product) for product in products]


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_tiles_stay_in_registers(isa: Isa) -> None:
    for kernel in tiles(isa):
        text = assembly(kernel, isa)
        assert not vectors_on_stack(text), kernel.key


@pytest.mark.parametrize("isa", [AVX512, AVX2, NEON], ids=_NAMES.get)
@pytest.mark.parametrize("form", [{}, {"taps": True}, {"depth": 48}], ids=str)
def test_a_step_is_loads_and_multiplications(isa: Isa, form: dict[str, Any]) -> None:
    """The innermost loop has one multiplication a register and few other things, for
    one step or some."""
    shape = tile_shape(isa)
    tile = TileProduct("f32", shape.rows, shape.vectors, **form)
    text = assembly(Kernel(tile), isa)
    name = "fmla" if isa is NEON else "vfmadd"
    body = max(loops(text), key=lambda lines: sum(name in x for x in lines))
    multiplications = sum(name in line for line in body)
    per_vector = isa.registers_per_vector
    steps, more = divmod(multiplications, shape.rows * shape.vectors * per_vector)
    assert steps == (4 if isa is AVX2 else 1)
    assert not more
    loads = steps * (shape.rows + shape.vectors * per_vector)
    assert len(body) <= multiplications + loads + 14 * steps


@pytest.mark.parametrize("isa", [AVX512, AVX2], ids=_NAMES.get)
def test_dot_products_stay_in_registers(isa: Isa) -> None:
    for rows in (1, 4):
        text = assembly(Kernel(DotProducts(rows)), isa)
        for body in loops(text):
            assert not vectors_on_stack("\n".join(body))


@pytest.mark.parametrize("isa", TARGETS, ids=_NAMES.get)
def test_no_symbol_is_needed(isa: Isa) -> None:
    kernels = [
        Kernel(TileProduct("f32", 2, 1)),
        Kernel(TileProduct("f64", 2, 1, masked=True)),
        Kernel(TileProduct("f32", 2, 1, taps=True)),
        Kernel(DotProducts(1)),
        Kernel(DotProducts(3)),
        Kernel(BlockProduct()),
        Kernel(PackMatrices()),
        Kernel(PackMatrices(32)),
        Kernel(CopyMatrices()),
        Kernel(TileProduct("f32", 2, 1, factor="f16")),
        Kernel(TileProduct("f32", 2, 1, factor="bf16", keeps=True)),
        *(Kernel(PackPanel("f16", way)) for way in ("rows", "any")),
        *(Kernel(PackPanel("f32", way)) for way in ("rows", "columns", "any")),
        *(Kernel(PackPanel("f32", way, "bf16")) for way in ("rows", "columns")),
        *(Kernel(PackPanel("f64", way)) for way in ("rows", "any")),
    ]
    for kernel in kernels:
        called = re.findall(
            r"^\s+(?:callq?|bl)\s+([a-zA-Z_]\w*)", assembly(kernel, isa), re.M
        )
        assert set(called) <= {"copy_tile"}, (kernel.key, called)


def vectors_on_stack(text: str) -> list[str]:
    """Lines that move a vector register from or to the stack."""
    return [
        line
        for line in text.splitlines()
        if (re.search(r"\(%rsp", line) and re.search(r"%[xyz]mm", line))
        or re.search(r"\b(str|ldr|stp|ldp|ld1|st1)\b.*\b[qv]\d+.*\[sp", line)
    ]


def loops(text: str) -> list[list[str]]:
    """The instructions from each label up to a jump back to it, innermost ones."""
    found: list[list[str]] = []
    label, body = "", []
    for line in text.splitlines():
        start = re.match(r"(\.LBB\w+):", line)
        if start:
            label, body = start.group(1), []
        elif re.match(r"\s+[a-z{]", line):
            body.append(line.strip())
            jump = rf"\s+(j|b|cb|tb)\S*\s+(.*,\s*)?{re.escape(label)}\b"
            if label and re.match(jump, line):
                found.append(body)
    return found
