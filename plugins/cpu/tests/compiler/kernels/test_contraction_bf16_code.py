"""The machine code for AMX, and for BF16 of aarch64, which processors without them can
compile but not run."""

from __future__ import annotations

import re

import llvmlite.binding as llvm
import pytest

from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.contraction.bf16_block import TermsProduct
from onnxplug_cpu.compiler.kernels.contraction.bf16_narrow import PackNarrow
from onnxplug_cpu.compiler.kernels.contraction.bf16_pairs import PAIRS_LINES
from onnxplug_cpu.compiler.kernels.contraction.bf16_squares import (
    MOST_ROWS,
    BlockOfSquares,
)
from onnxplug_cpu.compiler.kernels.contraction.bf16_terms import PackTerms, SplitTerms
from onnxplug_cpu.compiler.kernels.contraction.bf16_tiles import LINES, BlockOfSums
from onnxplug_cpu.compiler.machine.isa import AMX
from onnxplug_cpu.compiler.runtime.elf import flatten
from onnxplug_cpu.compiler.runtime.jit import compile_object, symbol

from ..interpreter import assembly
from ..rarely import crossed
from ..tiled import BF16
from .test_contraction_code import loops, vectors_on_stack

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()

BLOCKS = [
    Kernel(BlockOfSums(rows, columns, lines))
    for rows in (1, 2)
    for columns in (1, 2)
    for lines in (0, *LINES)
]
KERNELS = [
    *BLOCKS,
    Kernel(SplitTerms()),
    Kernel(PackTerms()),
    Kernel(PackNarrow()),
    Kernel(TermsProduct()),
    Kernel(TermsProduct(2, 2, narrow=True)),
]


def count(text: str, instruction: str) -> int:
    return len(re.findall(rf"^\s+{instruction}\b", text, re.MULTILINE))


@pytest.mark.parametrize("lines", [0, *LINES])
def test_a_step_is_24_products_of_14_loads(lines: int) -> None:
    text = assembly(Kernel(BlockOfSums(2, 2, lines)), AMX)
    (body,) = loops(text)
    step = "\n".join(f"\t{line}" for line in body)
    assert count(step, "tdpbf16ps") == 24
    assert count(step, "tileloadd") == 14
    prefetches = count(step, "prefetcht1") if lines else count(step, "prefetcht0")
    assert prefetches == (lines or 96)
    assert len(body) <= 24 + 14 + prefetches + 24
    assert count(text, "tilestored") == 4


def test_half_a_block_takes_half_the_products() -> None:
    for rows, columns, loads in ((2, 1, 11), (1, 2, 10)):
        (body,) = loops(assembly(Kernel(BlockOfSums(rows, columns, 12)), AMX))
        step = "\n".join(f"\t{line}" for line in body)
        assert count(step, "tdpbf16ps") == 12
        assert count(step, "tileloadd") == loads


def test_the_order_of_the_products() -> None:
    """Which tile each product takes from where, from the addresses of the loads."""
    text = assembly(Kernel(BlockOfSums(2, 2, 24)), AMX)
    (body,) = loops(text)
    loaded: dict[str, int] = {}
    loads = 0
    products: list[tuple[int, int, str]] = []
    for line in body:
        found = re.match(r"tileloadd\t.*%(tmm\d)", line)
        if found:
            loads += 1
            loaded[found.group(1)] = loads
        found = re.match(r"tdpbf16ps\t%(tmm\d), %(tmm\d), %(tmm\d)", line)
        if found:
            b, a, sums = found.groups()
            assert a in ("tmm4", "tmm5")
            assert b in ("tmm6", "tmm7")
            products.append((loaded[a], loaded[b], sums))
    # six times the four blocks of sums, each from its row of A and column of B
    assert [sums for _, _, sums in products] == ["tmm0", "tmm1", "tmm2", "tmm3"] * 6
    # every load is used, and no two products have the same factors
    assert len({(a, b) for a, b, _ in products}) == 24
    assert {n for a, b, _ in products for n in (a, b)} == set(range(1, 15))


def test_nothing_is_spilled() -> None:
    for kernel in BLOCKS:
        assert not vectors_on_stack(assembly(kernel, AMX)), kernel.key
    assert not vectors_on_stack(assembly(Kernel(SplitTerms()), AMX))
    # which calls a function in the middle, but splits without
    (split,) = [
        body for body in loops(assembly(Kernel(PackTerms()), AMX)) if len(body) > 30
    ]
    stores = [line for line in split if re.search(r"%zmm\d+, .*\(%rsp", line)]
    assert not stores


def test_splitting_is_two_loads_three_stores_and_little_between() -> None:
    # the other loop clears pixels that do not split
    _, body = sorted(loops(assembly(Kernel(SplitTerms()), AMX)), key=len)
    end = next(n for n, line in enumerate(body) if line.startswith("j"))
    body = body[:end]
    memory = [line for line in body if "(%r" in line]
    assert sum(line.endswith(")") for line in memory) == 3
    assert sum(not line.endswith(")") for line in memory) == 2
    assert len(body) <= 30


def test_tiles_are_configured_once_and_released_at_the_end() -> None:
    text = assembly(Kernel(TermsProduct()), AMX)
    main = text[text.index("\nkernel:") :]
    assert count(text, "ldtilecfg") == count(main, "ldtilecfg") == 1
    assert count(text, "tilerelease") == count(main, "tilerelease") == 1
    assert count(main, "retq") == 1
    end = main[main.index("tilerelease") :]
    rest = end[len("tilerelease") : end.index("retq")]
    assert not re.search(r"^\s+(call|j|tile)", rest, re.MULTILINE)
    # neither is in a loop
    around = "\n".join(line for body in loops(main) for line in body)
    assert "ldtilecfg" not in around
    assert "tilerelease" not in around


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.key)
def test_the_code_can_be_loaded(kernel: Kernel) -> None:
    """It refers to nothing that the process would have to have."""
    assert flatten(compile_object(kernel, AMX), symbol(kernel))


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.key)
def test_no_symbol_is_needed(kernel: Kernel) -> None:
    called = re.findall(r"^\s+callq?\s+([a-zA-Z_]\w*)", assembly(kernel, AMX), re.M)
    assert set(called) <= {
        "copy_tile",
        "split_pixels",
        "widen_panel",
        "add_sums",
        "flagged_rows",
    }


@pytest.mark.parametrize(
    ("columns", "lines", "rows"),
    crossed([1, 2], [0, *PAIRS_LINES], range(1, MOST_ROWS + 1)),
)
def test_squares(rows: int, lines: int, columns: int) -> None:
    """A turn of eight elements of K: products, loads of B, which are interleaved, and
    the loads of two fours of each row, with where they are."""
    text = assembly(Kernel(BlockOfSquares(2, rows, columns, lines)), BF16)
    assert not vectors_on_stack(text)
    bodies = loops(text)
    assert len(bodies) == 2 * columns
    for body in bodies:
        step = "\n".join(f"\t{line}" for line in body)
        assert count(step, "bfmmla") == 2 * 8 * -(-rows // 2)
        assert count(step, "zip[12]") == 2 * 8
        prefetches = count(step, "prfm")
        assert len(body) <= count(step, "bfmmla") + 2 * 16 + 4 * rows + prefetches + 20
