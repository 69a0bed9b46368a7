"""Operators that make tensors of few numbers: constants, sequences, random bits."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from . import Desc, operator, scalar
from .agreement import Tensors, same, same_sizes
from .arithmetic import Array, converted
from .constraints import ANY, UP_TO_32, ends, value_type_is


@operator("FILL_VALUE_CONSTANT")
class FillValueConstant:
    support = f"""
        4.1  OutputTensor  output  1-8  {ANY}
        4.0  OutputTensor  output  1-8  {UP_TO_32}
        2.1  OutputTensor  output  4    {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        value_type_is(desc, "ValueDataType", tensors["OutputTensor"])

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        target = desc.OutputTensor
        return [np.full(target.sizes, scalar(desc.Value, target.data_type))]


@operator("FILL_VALUE_SEQUENCE")
class FillValueSequence:
    """Integers wrap around; floats are computed in float64 and rounded once.

    The pseudocode adds up, which for FLOAT16 and FLOAT32 has another rounding; a GPU
    computes each element by itself.
    """

    support = f"""
        5.0  OutputTensor  output  1-8  FLOATS SIGNED UNSIGNED
        4.0  OutputTensor  output  1-8  {UP_TO_32}
        2.1  OutputTensor  output  4    {UP_TO_32}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        value_type_is(desc, "ValueDataType", tensors["OutputTensor"])

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        target = desc.OutputTensor
        data_type = target.data_type
        wide = np.float64 if data_type.kind == "f" else data_type
        steps = np.arange(math.prod(target.sizes), dtype=np.uint64).astype(wide)
        start = np.array(scalar(desc.ValueStart, data_type), wide)
        delta = np.array(scalar(desc.ValueDelta, data_type), wide)
        with np.errstate(over="ignore"):
            sequence = start + delta * steps
        return [sequence.astype(data_type).reshape(target.sizes)]


def offsets(sizes: tuple[int, ...]) -> Array:
    """``x - y`` of each place in the matrices of a tensor, in a single matrix."""
    height, width = sizes[-2:]
    return np.arange(width)[None, :] - np.arange(height)[:, None]


@operator("DIAGONAL_MATRIX")
class DiagonalMatrix:
    support = f"""
        5.1  OutputTensor  output  2-4  {ANY}
        4.0  OutputTensor  output  2-4  {UP_TO_32}
        2.1  OutputTensor  output  4    {UP_TO_32}
        2.0  OutputTensor  output  4    FLOATS
    """

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        target = desc.OutputTensor
        matrix = np.where(offsets(target.sizes) == desc.Offset, desc.Value, 0.0)
        return [np.broadcast_to(converted(matrix, target.data_type), target.sizes)]


@operator("DIAGONAL_MATRIX1")
class DiagonalMatrix1:
    support = f"""
        5.1  InputTensor   input?  2-4  {ANY}
             OutputTensor  output  2-4  {ANY}
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        # the page demands one DimensionCount; of other sizes it could not read
        same(tensors, "InputTensor OutputTensor")
        value_type_is(desc, "ValueDataType", tensors["OutputTensor"])

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        target = desc.OutputTensor
        (values,) = inputs
        if values is None:
            values = np.zeros(target.sizes, target.data_type)
        begin, end = desc.DiagonalFillBegin, desc.DiagonalFillEnd
        top = offsets(target.sizes)
        filled = (end >= begin) ^ (top >= begin) ^ (top < end)
        return [np.where(filled, scalar(desc.Value, target.data_type), values)]


def philox_4x32_10(counters: Array, key: tuple[int, int]) -> Array:
    """The four words of each counter's four, of shape (n, 4) and uint32 as they are.

    Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3"
    (2011).
    """
    low, high = np.uint64(0xFFFFFFFF), np.uint64(32)
    words = [counters[:, at].astype(np.uint64) for at in range(4)]
    first, second = key
    for _ in range(10):
        a, b = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [
            (b >> high) ^ words[1] ^ np.uint64(first),
            b & low,
            (a >> high) ^ words[3] ^ np.uint64(second),
            a & low,
        ]
        first = (first + 0x9E3779B9) & 0xFFFFFFFF
        second = (second + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack(words, axis=1).astype(np.uint32)


def counted(words: list[int], count: int) -> Array:
    """So many counters from one on, by four words each, the lowest first."""
    low, high = (
        np.array([words[at] | words[at + 1] << 32], np.uint64) for at in (0, 2)
    )
    lows = low + np.arange(count, dtype=np.uint64)
    halves = np.stack([lows, high + (lows < low)], axis=1)
    return halves.astype("<u8").view("<u4")


@operator("RANDOM_GENERATOR")
class RandomGenerator:
    """The first word of the state is the least significant of the counter.

    The page does not say so, but the algorithm's authors count thus.  The counter in
    the page's example is lower after than before: its two are exchanged.
    """

    support = """
        4.0  InputStateTensor   input    1-8  UINT32
             OutputTensor       output   1-8  UINT32
             OutputStateTensor  output?  1-8  UINT32
        3.0  InputStateTensor   input    4    UINT32
             OutputTensor       output   4    UINT32
             OutputStateTensor  output?  4    UINT32
    """

    @staticmethod
    def check(desc: Desc, tensors: Tensors) -> None:
        same_sizes(tensors, "InputStateTensor OutputStateTensor")
        ends(tensors, "InputStateTensor", (6,))

    @staticmethod
    def evaluate(desc: Desc, inputs: list[Any]) -> list[Any]:
        *words, first, second = (int(word) for word in inputs[0].reshape(-1))
        sizes = desc.OutputTensor.sizes
        blocks = -(-math.prod(sizes) // 4)
        counters = counted(words, blocks + 1)
        bits = philox_4x32_10(counters[:-1], (first, second)).reshape(-1)
        state = np.array([*counters[-1], first, second], np.uint32)
        return [
            bits[: math.prod(sizes)].reshape(sizes),
            None
            if desc.OutputStateTensor is None
            else state.reshape(desc.OutputStateTensor.sizes),
        ]
