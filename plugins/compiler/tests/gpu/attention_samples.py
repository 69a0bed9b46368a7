"""Attention, to caches too, as samples of kernels in CUDA C++."""

from __future__ import annotations

from typing import Any

import numpy as np

from onnxplug_compiler.gpu.families import attention, caches
from onnxplug_compiler.ir.caches import Rotation, Starts
from onnxplug_compiler.ir.recorder import Recorder

from .cuda_on_cpu import Processor
from .tensor_samples import normal


def attended(recorder: Recorder[Any], processor: Processor) -> Any:
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 9, 8), normal(2, 2, 9, 6)
    out = recorder.temporary(q.dtype, (2, 4, 5, 6))
    attention.record_attention(
        recorder,
        processor.array(q),
        processor.array(k),
        processor.array(v),
        out,
        scale=0.3,
        causal=True,
        past_length=4,
    )
    wide = [np.repeat(each.astype(np.float64), 2, axis=1) for each in (k, v)]
    scores = 0.3 * q.astype(np.float64) @ wide[0].swapaxes(-1, -2)
    seen = np.arange(9) <= np.arange(5)[:, None] + 4
    powers = np.exp(np.where(seen, scores, -np.inf))
    return [out], [powers / powers.sum(-1, keepdims=True) @ wide[1]]


def cached(recorder: Recorder[Any], processor: Processor) -> Any:
    """New rows in a cache, rotated, and attended to with a window and sinks."""
    rows, first, size = 2, np.array([5, 2]), 8
    q, k = normal(2, 4, rows, size), normal(2, 2, rows, size)
    past, v = normal(2, 2, 9, size), normal(2, 2, 9, size)
    angles, sinks = normal(9, size // 2), normal(4)
    tables = (processor.array(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
    rotation = Rotation(*tables, None, interleaved=False)
    starts = Starts(processor.array(first + rows), -rows, 0)
    present = recorder.temporary(past.dtype, past.shape)
    out = recorder.temporary(q.dtype, q.shape)
    caches.record_kept(recorder, processor.array(past), present, starts)
    caches.record_placed(
        recorder, processor.array(k), present, starts, rotation=rotation
    )
    caches.record_cached_attention(
        recorder, processor.array(q), present, processor.array(v), out, starts,
        scale=0.3, causal=True, window=3, sinks=processor.array(sinks),
    )  # fmt: skip
    kept, found = np.zeros(past.shape), np.zeros(q.shape)
    for image, start in enumerate(first):
        turns = angles[start : start + rows].astype(np.float64)
        one, other = np.split(k[image].astype(np.float64), 2, -1)
        turned = [
            one * np.cos(turns) - other * np.sin(turns),
            other * np.cos(turns) + one * np.sin(turns),
        ]
        kept[image, :, :start] = past[image, :, :start]
        kept[image, :, start : start + rows] = np.concatenate(turned, -1)
        for head, row in np.ndindex(4, rows):
            seen = slice(max(0, start + row - 3), start + row + 1)
            near = kept[image, head // 2, seen]
            powers = np.exp(0.3 * near @ q[image, head, row].astype(np.float64))
            total = powers.sum() + np.exp(np.float64(sinks[head]))
            found[image, head, row] = powers @ v[image, head // 2, seen] / total
    return [present, out], [kept, found]
