"""The code of products with weights that are codes, and of caches: spills and calls."""

from __future__ import annotations

import re
from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_compiler.ir.caches import Rotation, Starts
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.codegen.kernel import Kernel
from onnxplug_cpu.compiler.kernels.caches.commands import (
    record_cached_attention,
    record_kept,
    record_placed,
)
from onnxplug_cpu.compiler.kernels.coded.byte_panels import ByteTile
from onnxplug_cpu.compiler.kernels.coded.commands import record_coded
from onnxplug_cpu.compiler.machine.isa import AVX2, AVX512, NEON, SSE

from ..interpreter import Interpreter, assembly, source, target_machine
from .test_weight_products import weights

VNNI = AVX512._replace(features=f"{AVX512.features},+avx512vnni")


def floats(run: Interpreter, *shape: int) -> View:
    return run.input(np.zeros(shape, np.float32))


def product(
    run: Interpreter, rows: int, bits: int, zero: str, *, rounds: bool = False
) -> None:
    w = weights(np.random.default_rng(0), (20, 4, 64), bits, zero)
    x = Factor(Codes(floats(run, 1, 1, rows, 4, 64)), rounds=rounds)
    record_coded(
        run.recorder, x, w.factor(run), run.output(np.float32, (1, 1, rows, 20))
    )


def starts(run: Interpreter) -> Starts:
    return Starts(run.input(np.zeros(1, np.int32)), 0, 1)


def attention(run: Interpreter, queries: int) -> None:
    k, v = (floats(run, 1, 2, 90, 64) for _ in range(2))
    q, out = floats(run, 1, 4, queries, 64), run.output(np.float32, (1, 4, queries, 64))
    sinks = floats(run, 4) if queries == 1 else None
    window = 8 if queries == 1 else None
    record_cached_attention(
        run.recorder, q, k, v, out, starts(run), scale=1.0, causal=True,
        window=window, sinks=sinks,
    )  # fmt: skip


def placed(run: Interpreter, *, interleaved: bool) -> None:
    cos, sin = (floats(run, 50, 32) for _ in range(2))
    rotation = Rotation(cos, sin, None, interleaved)
    out = run.output(np.float32, (1, 2, 40, 64))
    record_placed(
        run.recorder, floats(run, 1, 2, 3, 64), out, starts(run), rotation=rotation
    )
    record_kept(run.recorder, floats(run, 1, 2, 30, 64), out, starts(run))


RECORDED: dict[str, Callable[[Interpreter], None]] = {
    "one row": lambda run: product(run, 1, 4, ""),
    "rows and zero points": lambda run: product(run, 4, 4, "packed"),
    "many rows": lambda run: product(run, 20, 4, "float16"),
    "a row of bytes": lambda run: product(run, 1, 4, "packed", rounds=True),
    "rows of bytes": lambda run: product(run, 9, 4, "", rounds=True),
    "bytes by bytes": lambda run: product(run, 2, 8, "", rounds=True),
    "bytes by two bits": lambda run: product(run, 2, 2, "float32", rounds=True),
    "a token": lambda run: attention(run, 1),
    "a prompt": lambda run: attention(run, 40),
    "halves": lambda run: placed(run, interleaved=False),
    "pairs": lambda run: placed(run, interleaved=True),
}

ATTENTION = "a token", "a prompt"


@pytest.mark.parametrize("name", RECORDED)
def test_no_vector_is_spilled(name: str) -> None:
    for isa in (AVX512, VNNI):
        run = Interpreter(isa)
        RECORDED[name](run)
        for command in run.recorder.commands:
            text = assembly(command.kernel, isa)
            # attention passes arguments on the stack, several at once
            register = "zmm" if name in ATTENTION else "[zy]mm"
            spills = [
                line
                for line in text.splitlines()
                if re.search(register, line) and "rsp)" in line
            ]
            assert spills == [], command.label


@pytest.mark.parametrize("rows", [5, 6])
def test_no_sum_of_a_tile_is_spilled(rows: int) -> None:
    text = assembly(Kernel(ByteTile(rows, 2, True)), VNNI)
    assert not re.findall(r".*zmm.*rsp\)", text)
    assert len(re.findall("vpdpbusd", text)) == 2 * rows


@pytest.mark.parametrize("name", RECORDED)
def test_calls_nothing_elsewhere(name: str) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for isa, called in ((NEON, r"\tbl\t"), (SSE, r"\tcallq\t(?!\*)")):
        run = Interpreter(isa)
        RECORDED[name](run)
        for command in run.recorder.commands:
            module = llvm.parse_assembly(source(command.kernel, isa))
            text = str(target_machine(isa, jit=False).emit_assembly(module))
            own = re.findall(rf"{called}(\S+)", text)
            assert not [each for each in own if each != "copy_tile"], command.label


@pytest.mark.parametrize("block", [2, 4, 6, 24])
def test_blocks_shorter_than_a_register_have_code(block: int) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    for isa in (NEON, SSE, AVX512):
        run = Interpreter(isa)
        w = weights(np.random.default_rng(0), (20, 4, block), 4)
        x = Factor(Codes(floats(run, 1, 1, 2, 4, block)))
        record_coded(
            run.recorder, x, w.factor(run), run.output(np.float32, (1, 1, 2, 20))
        )
        module = llvm.parse_assembly(source(run.recorder.commands[-1].kernel, isa))
        assert target_machine(isa, jit=False).emit_assembly(module)


def test_bytes_are_multiplied_four_at_a_time() -> None:
    """A step of one row has as many products as codes of a byte, for each column."""
    for isa, wanted in ((AVX2, "vpmaddubsw"), (VNNI, "vpdpbusd")):
        run = Interpreter(isa)
        RECORDED["a row of bytes"](run)
        text = assembly(run.recorder.commands[-1].kernel, isa)
        # four columns at once and, for those that are left, one
        assert len(re.findall(wanted, text)) == (4 + 1) * 2
