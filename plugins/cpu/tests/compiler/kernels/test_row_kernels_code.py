"""The code of reductions, softmax, norms and attention: spills and calls."""

from __future__ import annotations

from collections.abc import Callable

import llvmlite.binding as llvm
import numpy as np
import pytest

from onnxplug_compiler.ir.views import View
from onnxplug_cpu.compiler.kernels.attention.commands import record_attention
from onnxplug_cpu.compiler.kernels.normalization.norm import record_norm
from onnxplug_cpu.compiler.kernels.normalization.softmax import record_softmax
from onnxplug_cpu.compiler.kernels.reduction.commands import record_reduce
from onnxplug_cpu.compiler.machine.isa import AVX512, NEON

from ..interpreter import Interpreter, assembly, source, target_machine
from .test_contraction_code import loops, vectors_on_stack


def floats(run: Interpreter, *shape: int) -> View:
    return run.input(np.zeros(shape, np.float32))


def reduce_along(run: Interpreter) -> None:
    out = run.output(np.float32, (99, 1))
    record_reduce(run.recorder, "ReduceMean", floats(run, 99, 768), out, (1,))


def reduce_down(run: Interpreter) -> None:
    out = run.output(np.float32, (1, 768))
    record_reduce(run.recorder, "ReduceMax", floats(run, 99, 768), out, (0,))


def reduce_short(run: Interpreter) -> None:
    out = run.output(np.float32, (99, 1))
    record_reduce(run.recorder, "ReduceSum", floats(run, 99, 49), out, (1,))


def softmax_passes(run: Interpreter) -> None:
    x = floats(run, 9, 512)
    record_softmax(run.recorder, x, run.output(np.float32, (9, 512)))


def softmax_down(run: Interpreter) -> None:
    x = floats(run, 9, 512)
    record_softmax(run.recorder, x, run.output(np.float32, (9, 512)), axis=0)


def layer_norm(run: Interpreter) -> None:
    record_norm(
        run.recorder,
        floats(run, 9, 768),
        run.output(np.float32, (9, 768)),
        epsilon=1e-5,
        scale=floats(run, 768),
        bias=floats(run, 768),
    )


def attention_many(run: Interpreter) -> None:
    q, k, v = (floats(run, 1, 2, 40, 64) for _ in range(3))
    out = run.output(np.float32, (1, 2, 40, 64))
    mask = floats(run, 40, 40)
    record_attention(run.recorder, q, k, v, out, scale=1.0, mask=mask, causal=True)


def attention_few(run: Interpreter) -> None:
    k, v = (floats(run, 1, 2, 40, 64) for _ in range(2))
    out = run.output(np.float32, (1, 2, 1, 64))
    record_attention(run.recorder, floats(run, 1, 2, 1, 64), k, v, out, scale=1.0)


RECORDED = [
    reduce_along,
    reduce_down,
    reduce_short,
    softmax_passes,
    softmax_down,
    layer_norm,
    attention_many,
    attention_few,
]


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record.__name__)
def test_no_vector_is_spilled(record: Callable[[Interpreter], None]) -> None:
    run = Interpreter(AVX512)
    record(run)
    for command in run.recorder.commands:
        text = assembly(command.kernel, AVX512)
        spills = [
            line for line in text.splitlines() if "zmm" in line and "rsp)" in line
        ]
        assert spills == [], command.label


@pytest.mark.parametrize(
    ("record", "most"),
    [(reduce_along, 2), (reduce_short, 15), (softmax_passes, 11), (softmax_down, 0)],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_few_vectors_are_spilled_on_aarch64(
    record: Callable[[Interpreter], None], most: int
) -> None:
    """None in loops over vectors."""
    run = Interpreter(NEON)
    record(run)
    for command in run.recorder.commands:
        text = assembly(command.kernel, NEON)
        assert len(vectors_on_stack(text)) <= most, command.label
        for body in loops(text):
            assert not vectors_on_stack("\n".join(body))


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record.__name__)
def test_compiles_for_aarch64_without_calls(
    record: Callable[[Interpreter], None],
) -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    run = Interpreter(NEON)
    record(run)
    for command in run.recorder.commands:
        module = llvm.parse_assembly(source(command.kernel, NEON))
        text = str(target_machine(NEON, jit=False).emit_assembly(module))
        assert "\tbl\t" not in text, command.label
