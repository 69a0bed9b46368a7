"""Vectors of memory, and products and attention by tensor cores, as samples of kernels
in CUDA C++."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

from onnxplug_compiler.gpu.families import (
    attention,
    caches,
    contractions,
    reductions,
    rows,
    tensor_products,
)
from onnxplug_compiler.gpu.families.tensor_flash import TensorFlashKernel
from onnxplug_compiler.gpu.families.vectors import VectorChainKernel
from onnxplug_compiler.gpu.shapes import DEFAULT
from onnxplug_compiler.ir.buffers import Buffer
from onnxplug_compiler.ir.caches import Starts
from onnxplug_compiler.ir.coded import Codes, Factor
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.elementwise import ChainBuilder
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View

from .cuda_on_cpu import Processor

RNG = np.random.default_rng(1)
Making = Callable[[Recorder[Any], Processor], tuple[Sequence[View], Sequence[Any]]]


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32}


def rounded_to_tf32(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Finite numbers of 11 bits, ties away from zero."""
    fraction, exponent = np.frexp(x.astype(np.float64))
    whole = np.copysign(np.floor(np.abs(fraction) * 2048 + 0.5), fraction)
    return np.ldexp(whole, exponent - 11).astype(np.float32)


class _Elsewhere:
    """A processor whose arrays begin behind an element, as is known later."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.begins: dict[Buffer, int] = {}

    def array(self, content: np.ndarray[Any, Any]) -> View:
        flat = content.reshape(-1)
        whole = self._processor.array(np.concatenate([flat[:1], flat]))
        self.begins[whole.buffer] = content.dtype.itemsize
        return View.contiguous(whole.buffer, content.dtype, content.shape)


def elsewhere(make: Making) -> Making:
    """What was recorded for arrays that are aligned, with others that are not."""

    def make_elsewhere(recorder: Recorder[Any], processor: Processor) -> Any:
        places = _Elsewhere(processor)
        made = make(recorder, cast(Processor, places))
        for number, command in enumerate(recorder.commands):
            views = []
            for view in command.views:
                offset = view.offset + places.begins.get(view.buffer, 0)
                views.append(
                    View(view.buffer, offset, view.dtype, view.shape, view.strides)
                )
            recorder.commands[number] = command._replace(views=tuple(views))
        return made

    return make_elsewhere


def neighbours(kind: str, dtype: Any) -> Making:
    """Rows whose lanes have neighbouring elements."""

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        x = (normal(3, 2, 512) * 3).astype(dtype)
        recorder.target.shapes = DEFAULT._replace(vector=16)
        read, wide = processor.array(x), x.astype(np.float64)
        if kind == "moments":
            found = reductions.record_moments(recorder, read, (1, 2))
            axes = {"axis": (1, 2), "keepdims": True}
            expected = [wide.mean(**axes), wide.var(**axes)]
        elif kind == "sums":
            found = (recorder.temporary(x.dtype, (3, 2, 1)),)
            reductions.record_reduce(recorder, "ReduceSum", read, found[0], (2,))
            expected = [wide.sum(-1, keepdims=True)]
        elif kind == "softmax":
            found = (recorder.temporary(x.dtype, x.shape),)
            rows.record_softmax(recorder, read, found[0])
            powers = np.exp(wide - wide.max(-1, keepdims=True))
            expected = [powers / powers.sum(-1, keepdims=True)]
        else:
            found = (recorder.temporary(x.dtype, x.shape),)
            scale, bias = normal(512), normal(512)
            views = [processor.array(each) for each in (scale, bias)]
            rows.record_norm(
                recorder, read, found[0], epsilon=1e-5, scale=views[0], bias=views[1]
            )
            apart = wide - wide.mean(-1, keepdims=True)
            deviation = np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-5)
            expected = [apart / deviation * scale + bias]
        kernel = recorder.commands[-1].kernel
        least = {"softmax": 0, "norm": 4}.get(kind, x.dtype.itemsize)
        assert kernel.width == 16 // max(x.dtype.itemsize, least)
        outputs = [np.dtype(view.dtype) for view in found]
        return list(found), [
            each.astype(to) for each, to in zip(expected, outputs, strict=True)
        ]

    return make


def vectored(make: Making) -> Making:
    """The same by vectors, of which there are some."""

    def make_vectored(recorder: Recorder[Any], processor: Processor) -> Any:
        recorder.target.shapes = DEFAULT._replace(vector=16)
        made = make(recorder, processor)
        kernels = [command.kernel for command in recorder.commands]
        assert any(isinstance(kernel, VectorChainKernel) for kernel in kernels)
        return made

    return make_vectored


def tensor_product(
    element: str,
    m: int,
    k: int,
    n: int,
    *,
    turned: tuple[bool, bool] = (False, False),
    large: bool = False,
) -> Making:
    """A product by tensor cores.

    Args:
        turned: which factors lie in memory by columns.
        large: in the largest tiles.
    """

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        dtype = np.dtype(DTYPES[element])
        shapes = (2, m, k), (1, k, n), (n,)
        a, b, c = (normal(*shape).astype(dtype) for shape in shapes)
        views = []
        for array, is_turned in zip((a, b), turned, strict=True):
            if is_turned:
                there = processor.array(np.ascontiguousarray(array.swapaxes(1, 2)))
                views.append(there.transpose((0, 2, 1)))
            else:
                views.append(processor.array(array))
        out = recorder.temporary(dtype, (2, m, n))
        builder, name = ChainBuilder(), element_of(dtype)
        assert name is not None
        both = [builder.input(name), builder.input(name)]
        chain = builder.build([builder.step("Add", both, name)])
        bias = processor.array(c).broadcast_to(out.shape)
        recorder.target.shapes = DEFAULT._replace(tensor_cores="f16 bf16 tf32")
        with pytest.MonkeyPatch.context() as patch:
            if large:
                patch.setattr(tensor_products, "_ENOUGH_GROUPS", 1)
            contractions.record_matmul(
                recorder, *views, out, epilogue=Epilogue(chain, (bias,), (out,))
            )
        kernel = recorder.commands[-1].kernel
        assert kernel.element == element
        assert kernel.lanes == (256 if large else 64 if m <= 32 else 128)
        if element == "tf32":
            a, b = (rounded_to_tf32(each) for each in (a, b))
        wide = [each.astype(np.float64) for each in (a, b)]
        total = (wide[0] @ wide[1]).astype(dtype)
        return [out], [(total + c).astype(dtype)]

    return make


def product_of_codes(
    left: str,
    right: str,
    m: int,
    k: int,
    n: int,
    *,
    zeros: tuple[str, str] = ("", ""),
    turned: tuple[bool, bool] = (False, False),
    large: bool = False,
) -> Making:
    """A product of bytes by tensor cores, exact to the bit.

    Args:
        zeros: zero points of the factors: ``one`` for all, ``each`` row or column its
            own, ``known`` when the kernel is written, or none.
        turned: which factors lie in memory by columns.
        large: in the largest tiles.
    """

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        factors, wide = [], []
        for which, (name, shape) in enumerate(
            zip((left, right), ((2, m, k), (2, k, n)), strict=True)
        ):
            dtype = np.dtype({"i8": np.int8, "u8": np.uint8}[name])
            least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
            array = RNG.integers(least, most, shape, dtype, endpoint=True)
            there = array.swapaxes(1, 2) if turned[which] else array
            view = processor.array(np.ascontiguousarray(there))
            if turned[which]:
                view = view.transpose((0, 2, 1))
            folded = view.reshape((1, *shape))
            assert folded is not None
            sizes = {"each": (1, m, 1) if which == 0 else (1, 1, n), "one": (1, 1, 1)}
            zero, code, offset = np.zeros((1, 1, 1), np.int64), None, 0
            if zeros[which] == "known":
                offset = least + 5
                zero += offset
            elif zeros[which]:
                ends = np.array([least, most], dtype)
                zero = np.resize(ends, sizes[zeros[which]])
                code = Codes(processor.array(zero[None]).broadcast_to((1, *shape)))
            factors.append(Factor(Codes(folded), code, offset))
            wide.append(array.astype(np.int64) - zero.astype(np.int64))
        out = recorder.temporary(np.dtype(np.int32), (1, 2, m, n))
        bias = RNG.integers(-(2**31), 2**31, n).astype(np.int32)
        builder = ChainBuilder()
        both = [builder.input("i32"), builder.input("i32")]
        chain = builder.build([builder.step("Add", both, "i32")])
        added = processor.array(bias).broadcast_to(out.shape)
        recorder.target.shapes = DEFAULT._replace(tensor_cores="i8")
        with pytest.MonkeyPatch.context() as patch:
            if large:
                patch.setattr(tensor_products, "_ENOUGH_GROUPS", 1)
            contractions.record_coded(
                recorder, *factors, out, epilogue=Epilogue(chain, (added,), (out,))
            )
        kernel = recorder.commands[-1].kernel
        assert kernel.element == f"{left}_{right}"
        assert kernel.lanes == (256 if large else 64 if m <= 32 else 128)
        total = wide[0] @ wide[1] + bias
        return [out], [total.astype(np.int32)[None]]  # which wraps

    return make


def split_product(element: str, *, batches: int = 1, axes: int = 1) -> Making:
    """A product whose sums are split into four parts.

    Args:
        batches: of the left factor, for all of which the right one is the same.
        axes: of sums, of which the last one is split.
    """

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        m, n, sums = 20, 24, (2048,) if axes == 1 else (2, 1024)
        codes, zero = element == "u8", 131
        dtype = np.dtype(
            {"f16": np.float16, "f32": np.float32, "u8": np.uint8}[element]
        )
        shapes = (batches, 1, m, *sums), (1, 1, *sums, n)
        a, b = (
            RNG.integers(0, 256, shape).astype(dtype) if codes
            else normal(*shape).astype(dtype)
            for shape in shapes
        )  # fmt: skip
        whole = np.dtype(np.int32) if codes else dtype
        bias = RNG.integers(-9, 9, n).astype(whole)
        out = recorder.temporary(whole, (batches, 1, m, n))
        name, builder = element_of(whole), ChainBuilder()
        assert name is not None
        both = [builder.input(name), builder.input(name)]
        chain = builder.build([builder.step("Add", both, name)])
        operands = (processor.array(bias).broadcast_to(out.shape),)
        busy = 4 * batches
        recorder.target.shapes = DEFAULT._replace(tensor_cores="f16 i8", busy=busy)
        right = processor.array(b).broadcast_to((batches, 1, *sums, n))
        contractions.record_coded(
            recorder,
            Factor(Codes(processor.array(a)), offset=zero * codes),
            Factor(Codes(right)),
            out,
            epilogue=Epilogue(chain, operands, (out,)),
        )
        parts, last = recorder.commands
        assert parts.sizes[0] == busy and len(last.kernel.chain.inputs) == 5
        wide = np.int64 if codes else np.float64
        left = a.reshape(batches, m, -1).astype(wide) - zero * codes
        total = left @ b.reshape(1, -1, n).astype(wide)
        if not codes:
            total = total.astype(dtype)
        return [out], [(total + bias).astype(whole)[:, None]]

    return make


def tensor_window(recorder: Recorder[Any], processor: Processor) -> Any:
    """A convolution of images whose channels lie last."""
    x, w = normal(2, 6, 7, 8).astype(np.float16), normal(3, 2, 8, 5).astype(np.float16)
    out = recorder.temporary(x.dtype, (2, 1, 4, 6, 5))
    view = processor.array(x)
    n, h, v, c = view.strides
    windows = View(
        view.buffer, 0, x.dtype, (2, 1, 4, 6, 3, 2, 8), (n, 0, h, v, h, v, c)
    )
    weights = processor.array(w.reshape(1, 1, 3, 2, 8, 5))
    recorder.target.shapes = DEFAULT._replace(tensor_cores="f16")
    contractions.record_contraction(recorder, windows, weights, out)
    assert recorder.commands[-1].kernel.left.chunks
    patches = np.lib.stride_tricks.sliding_window_view(
        x.astype(np.float64), (3, 2), (1, 2)
    )
    wide = np.einsum("nhwcij,ijco->nhwo", patches, w.astype(np.float64))
    return [out], [wide[:, None].astype(np.float16)]


def tensor_attention(
    element: str,
    queries: int,
    keys: int,
    depth: int,
    columns: int,
    *,
    causal: bool = False,
    masked: bool = False,
    softcap: float = 0.0,
) -> Making:
    """Attention of four heads that share keys by two."""

    def make(recorder: Recorder[Any], processor: Processor) -> Any:
        dtype = np.float16 if element == "f16" else ml_dtypes.bfloat16
        shapes = (2, 4, queries, depth), (2, 2, keys, depth), (2, 2, keys, columns)
        q, k, v = (normal(*shape).astype(dtype) for shape in shapes)
        mask = RNG.random((2, 1, queries, keys)) < 0.7
        mask[0, 0, 1] = False  # of one query no key is seen
        out = recorder.temporary(np.dtype(dtype), (2, 4, queries, columns))
        recorder.target.shapes = DEFAULT._replace(tensor_cores="f16 bf16")
        past = max(0, keys - queries)
        attention.record_attention(
            recorder,
            *(processor.array(each) for each in (q, k, v)),
            out,
            scale=0.3,
            mask=processor.array(mask) if masked else None,
            causal=causal,
            past_length=past,
            softcap=softcap,
        )
        assert isinstance(recorder.commands[-1].kernel, TensorFlashKernel)
        wide = [each.astype(np.float64) for each in (q, k, v)]
        wide[1:] = [np.repeat(each, 2, axis=1) for each in wide[1:]]
        scores = 0.3 * wide[0] @ wide[1].swapaxes(-1, -2)
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        seen = np.ones((2, 1, queries, keys), bool)
        if masked:
            seen &= mask
        if causal:
            seen &= np.arange(keys) <= np.arange(queries)[:, None] + past
        powers = np.where(seen, np.exp(scores), 0.0)
        totals = powers.sum(-1, keepdims=True)
        found = powers @ wide[2] / np.where(totals == 0, 1.0, totals)
        return [out], [found.astype(dtype)]

    return make


def tensor_cache(recorder: Recorder[Any], processor: Processor) -> Any:
    """Attention to caches that are filled as far as the device knows, to some keys
    before a query's own, and to sinks."""
    shapes = (2, 4, 10, 32), (2, 2, 48, 32), (2, 2, 48, 32)
    q, k, v = (normal(*shape).astype(np.float16) for shape in shapes)
    sinks, starts, window = normal(4).astype(np.float16), np.array([21, 5], np.int32), 6
    out = recorder.temporary(q.dtype, q.shape)
    recorder.target.shapes = DEFAULT._replace(tensor_cores="f16")
    caches.record_cached_attention(
        recorder,
        *(processor.array(each) for each in (q, k, v)),
        out,
        Starts(processor.array(starts), 0, 10),
        scale=0.3,
        causal=True,
        window=window,
        sinks=processor.array(sinks),
    )
    assert isinstance(recorder.commands[-1].kernel, TensorFlashKernel)
    wide = [each.astype(np.float64) for each in (q, k, v)]
    wide[1:] = [np.repeat(each, 2, axis=1) for each in wide[1:]]
    own = (np.arange(10) + starts[:, None])[:, None, :, None]
    seen = (np.arange(48) <= own) & (np.arange(48) >= own - window)
    powers = np.where(seen, np.exp(0.3 * wide[0] @ wide[1].swapaxes(-1, -2)), 0.0)
    none = np.exp(sinks.astype(np.float64))[:, None, None]
    totals = powers.sum(-1, keepdims=True) + none
    return [out], [(powers @ wide[2] / totals).astype(np.float16)]


TENSOR_SAMPLES: dict[str, Making] = {
    "tensor cache": tensor_cache,
    "tensor attention elsewhere": elsewhere(tensor_attention("f16", 24, 72, 64, 64)),
    "tensor product elsewhere": elsewhere(tensor_product("f16", 40, 72, 48)),
    "tensor attention": tensor_attention("f16", 24, 72, 64, 64),
    "tensor attention, causal": tensor_attention("f16", 40, 70, 32, 48, causal=True),
    "tensor attention, masked": tensor_attention("bf16", 17, 35, 20, 12, masked=True),
    "tensor attention, deep": tensor_attention(
        "f16", 9, 40, 128, 128, causal=True, softcap=2.0
    ),
    "tensor product": tensor_product("f16", 40, 72, 48),
    "tensor product of bf16": tensor_product("bf16", 20, 40, 24),
    "tensor product of columns": tensor_product("f16", 40, 72, 48, turned=(True, True)),
    "tensor product apart": tensor_product("f16", 37, 19, 41),
    "tensor product apart, of columns": tensor_product(
        "bf16", 33, 67, 65, turned=(True, False)
    ),
    "tensor product of tf32": tensor_product("tf32", 40, 72, 48),
    "tensor product of tf32, of columns": tensor_product(
        "tf32", 40, 44, 48, turned=(True, True)
    ),
    "tensor product of tf32, apart": tensor_product(
        "tf32", 37, 19, 41, turned=(False, True)
    ),
    "tensor product of tf32, elsewhere": elsewhere(tensor_product("tf32", 20, 40, 24)),
    "large tensor product of tf32": tensor_product("tf32", 136, 40, 136, large=True),
    "large tensor product": tensor_product("f16", 136, 96, 136, large=True),
    "tensor window": tensor_window,
    "split product": split_product("f32"),
    "neighbours, softmax": neighbours("softmax", np.float16),
    "neighbours, norm": neighbours("norm", np.float16),
    "neighbours, sums": neighbours("sums", np.float32),
    "neighbours, moments": neighbours("moments", np.float32),
    "neighbours elsewhere, softmax": elsewhere(neighbours("softmax", np.float32)),
    "neighbours elsewhere, norm": elsewhere(neighbours("norm", np.float32)),
    "split tensor product": split_product("f16", axes=2),
    "split product of codes": split_product("u8", batches=2),
    "product of codes, zero points": product_of_codes(
        "u8", "i8", 36, 80, 44, zeros=("one", "each")
    ),
    "product of codes, apart": product_of_codes(
        "i8", "u8", 37, 19, 41, zeros=("each", "known")
    ),
    "product of codes, of columns": product_of_codes(
        "u8", "u8", 20, 72, 24, zeros=("known", "each"), turned=(True, True)
    ),
    "product of codes, apart, of columns": product_of_codes(
        "u8", "i8", 17, 67, 33, zeros=("each", ""), turned=(True, True)
    ),
    "product of codes, elsewhere": elsewhere(product_of_codes("i8", "i8", 24, 64, 36)),
    "large product of codes": product_of_codes(
        "u8", "i8", 136, 96, 136, zeros=("each", "each"), large=True
    ),
}
