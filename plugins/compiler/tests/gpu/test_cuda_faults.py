"""Faults that are put into kernels in CUDA C++ are found when they run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.gpu.families import attention, contractions, reductions, rows
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_testing.cuda_on_cpu import KernelFault

from .cuda_on_cpu import Processor, Rendered

RNG = np.random.default_rng(0)
BARRIER = re.compile(r"__syncthreads\(\);")
INDEX = re.compile(r"\bb\d+\[")


def normal(processor: Processor, *shape: int) -> View:
    return processor.array(RNG.standard_normal(shape).astype(np.float32))


def product(recorder: Recorder[Any], processor: Processor, out: View) -> None:
    a, b = normal(processor, 9, 40), normal(processor, 40, 7)
    contractions.record_matmul(recorder, a, b, out)


def softmax(recorder: Recorder[Any], processor: Processor, out: View) -> None:
    rows.record_softmax(recorder, normal(processor, *out.shape), out)


def norm(recorder: Recorder[Any], processor: Processor, out: View) -> None:
    rows.record_norm(recorder, normal(processor, *out.shape), out, epsilon=1e-5)


def sums(recorder: Recorder[Any], processor: Processor, out: View) -> None:
    x = normal(processor, 4, 90, 3)
    reductions.record_reduce(recorder, "ReduceSum", x, out, (1,))


def attended(recorder: Recorder[Any], processor: Processor, out: View) -> None:
    q, k, v = (normal(processor, 1, 2, rows, 8) for rows in (9, 40, 40))
    attention.record_attention(recorder, q, k, v, out, scale=0.3)


RECORDED: dict[str, tuple[Callable[..., None], tuple[int, ...]]] = {
    "product": (product, (9, 7)),
    "softmax": (softmax, (5, 70)),
    "norm": (norm, (5, 70)),
    "sums": (sums, (4, 1, 3)),
    "attended": (attended, (1, 2, 9, 8)),
}


class Subject(NamedTuple):
    """A launch, and what it has to give."""

    launch: Rendered
    out: View
    expected: np.ndarray[Any, Any]


def subject(name: str, processor: Processor) -> Subject:
    record, shape = RECORDED[name]
    recorder: Recorder[Any] = Recorder(GpuTarget())
    out = processor.array(np.full(shape, np.nan, np.float32))
    record(recorder, processor, out)
    (launch,) = recorder.commands
    processor.run([launch])
    expected = processor.read(out)
    assert not np.isnan(expected).any()
    return Subject(Rendered(launch), out, expected)


def changed(text: str, pattern: re.Pattern[str], put: str) -> Iterator[str]:
    """The texts in which one place of *pattern* has *put* behind it, or is gone."""
    for match in pattern.finditer(text):
        end = match.end() if put else match.start()
        yield text[:end] + put + text[match.end() :]


def test_a_barrier_less_and_an_index_too_many_are_found(processor: Processor) -> None:
    softmax = subject("softmax", processor)
    text = softmax.launch.text
    first = next(changed(text, BARRIER, ""))
    last = [*changed(text, INDEX, "1u + ")][-1]
    processor.compile([first, last])
    with pytest.raises(KernelFault, match=r"a race|nobody wrote to"):
        processor.run_text(softmax.launch, first)
    with pytest.raises(KernelFault, match=r"views? is|beyond the end"):
        processor.run_text(softmax.launch, last)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECORDED)
def test_each_barrier_is_missed(name: str, processor: Processor) -> None:
    """All without which results could differ: of the others there are few, such as the
    last one of a loop that is gone through once."""
    found = subject(name, processor)
    texts = [*changed(found.launch.text, BARRIER, "")]
    processor.compile(texts)
    silent = 0
    for text in texts:
        for seed in range(4):
            processor.write(found.out, np.full(found.out.shape, np.nan, np.float32))
            try:
                processor.run_text(found.launch, text, seed)
            except KernelFault:
                break
            np.testing.assert_array_equal(processor.read(found.out), found.expected)
        else:
            silent += 1
    assert len(texts) >= 2
    assert silent <= 2


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", RECORDED)
def test_each_index_that_is_off_shows(name: str, processor: Processor) -> None:
    """As a fault, or in what is computed."""
    found = subject(name, processor)
    texts = [*changed(found.launch.text, INDEX, "1u + ")]
    processor.compile(texts)
    told = 0
    for text in texts:
        processor.write(found.out, np.full(found.out.shape, np.nan, np.float32))
        try:
            processor.run_text(found.launch, text)
        except KernelFault:
            told += 1
        else:
            different = processor.read(found.out) != found.expected
            assert different.any(), text
    assert told >= 1
