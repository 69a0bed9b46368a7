"""A target of numpy: what is planned, computed array by array in float64.

It knows nothing of the CPU's, and is what the compiled tier is compared with.  Memory
that nothing has written is NaN, so that a view of what is not there yet shows.  What
its methods are given, :mod:`onnxplug_compiler.ir.families` says.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from onnxplug_compiler.ir.buffers import (
    Address,
    Constant,
    Flag,
)
from onnxplug_compiler.ir.elements import (
    COMPUTED,
    ELEMENTS,
    INTEGERS,
    NARROW_FLOATS,
    SUB_BYTE,
)
from onnxplug_compiler.ir.elementwise import Chain
from onnxplug_compiler.ir.epilogue import Epilogue
from onnxplug_compiler.ir.families import REDUCTIONS
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.target import ChainLimits
from onnxplug_compiler.ir.views import View
from onnxplug_compiler.ir.windows import Slide
from onnxplug_kernels import find_kernel

from .numpy_program import Array, Assembly, Command, Compute
from .numpy_selection import NumpySelection

OPSET = 23
DTYPES = {
    element: np.dtype(getattr(ml_dtypes, name, None) or name)
    for name, element in ELEMENTS.items()
    if element in COMPUTED
}
STEPS = frozenset(
    "Add Sub Mul Div Mod Pow Neg Abs Sign Sqrt Reciprocal Floor Ceil Round Max Min Sum "
    "Mean Clip Greater GreaterOrEqual Less LessOrEqual Equal And Or Xor Not BitwiseAnd "
    "BitwiseOr BitwiseXor BitwiseNot BitShift IsNaN IsInf Where Identity Cast Relu "
    "PRelu LeakyRelu ThresholdedRelu Shrink HardSigmoid HardSwish Softsign Elu Selu "
    "Celu Mish Softplus Gelu Exp Log Erf Tanh Sigmoid Sinh Cosh Asinh Acosh Atanh Sin "
    "Cos Tan Asin Acos Atan".split()
)
OTHERS = frozenset(
    "Col2Im Compress CumProd DeformConv GRU If LSTM LinearAttention Loop MaxPlaces "
    "MaxUnpool NonMaxSuppression NonZero RNN Scan TensorScatter TreeEnsemble "
    "TreeEnsembleClassifier TreeEnsembleRegressor Unique".split()
)
"""What it does not compute: their tests have definitions of their own."""

MOVES = frozenset(
    "Reshape Flatten Squeeze Unsqueeze Transpose Expand Slice Split Identity Concat "
    "Tile Pad Trilu DepthToSpace SpaceToDepth Gather GatherElements GatherND "
    "ScatterElements ScatterND BitCast".split()
)


def wide(array: Array) -> Array:
    """In float64 if it is of floats."""
    return array.astype(np.float64) if is_float(array.dtype) else array


def is_float(dtype: np.dtype[Any]) -> bool:
    return dtype.kind == "f" or dtype.name == "bfloat16"


def rounded(array: Any, element: str) -> Array:
    dtype = DTYPES[element]
    array = np.asarray(array)
    if element in INTEGERS and is_float(array.dtype):
        array = np.trunc(array)
    return array.astype(dtype)


@functools.cache
def kernel(
    operator: str, attributes: tuple[tuple[str, Any], ...], count: int
) -> Callable[..., Any]:
    """The array tier's function of an operator."""
    found = find_kernel("", operator, OPSET)
    assert found is not None, operator
    names = [f"x{n}" for n in range(count)]
    return found.bind(np, dict(attributes), output_count=1, inputs=names)


def apply(chain: Chain, inputs: Sequence[Array]) -> list[Array]:
    """The outputs of a chain, each step rounded to its element."""
    values: list[Any] = list(inputs)
    values += [np.array(c.value).astype(DTYPES[c.element]) for c in chain.constants]
    for operator, operands, element, attributes in chain.steps:
        given = [None if o < 0 else values[o] for o in operands]
        if operator == "Cast":
            result: Any = given[0]
        elif operator == "Where":
            result = np.where(*given)
        elif operator == "SwiGLU":
            gate = wide(given[0])
            result = gate / (1 + np.exp(-gate)) * wide(given[1])
        else:
            if element in NARROW_FLOATS or element == "f64":
                given = [None if g is None else wide(g) for g in given]
            result = kernel(operator, attributes, len(given))(*given)
        values.append(rounded(result, element))
    return [values[output] for output in chain.outputs]


class NumpyTarget:
    """A :class:`~onnxplug_compiler.ir.target.Target`; all families in one."""

    chain_limits = ChainLimits(steps=64, operands=16, inputs=64)
    prefers_channels_last = True
    has_narrow_factors = True
    bits_of_caches = ()
    workers = 1
    convolutions = None
    transforms = None
    window_places = None
    experts = None
    coded_rows = None
    coded_products = None

    def __init__(self) -> None:
        self.elementwise = self.contractions = self.windows = self.pools = self
        self.movement = self.indexing = self.reductions = self.rows = self
        self.attention = self.resampling = self.grid_sampling = self
        self.region_pools = self
        self.selection = NumpySelection(self.add)

    def supports_step(
        self,
        operator: str,
        operands: Sequence[str],
        result: str,
        attributes: Mapping[str, Any],
    ) -> bool:
        return operator in STEPS and {*operands, result} <= COMPUTED | {""}

    def elements(self, operator: str) -> frozenset[str]:
        if operator in MOVES:
            return frozenset(ELEMENTS.values()) - SUB_BYTE
        if operator in ("ArgMax", "ArgMin", "TopK"):
            return COMPUTED
        if operator in REDUCTIONS or operator == "CumSum":
            return frozenset({"f16", "f32", "f64", "i32", "i64", "u32", "u64"})
        if operator in OTHERS:
            return frozenset()
        return frozenset({"f16", "f32", "f64"})

    def takes_forest(self, forest: object) -> bool:
        return False

    def row_padding(self, nbytes: int) -> int:
        return 0 if nbytes % 32 else 24

    def assemble(self, commands: Sequence[Any]) -> Assembly:
        named = itertools.chain.from_iterable(each.buffers for each in commands)
        return Assembly(list(dict.fromkeys(named)))

    def add(
        self,
        recorder: Recorder[Any],
        compute: Compute,
        reads: Sequence[View],
        writes: Sequence[View],
        label: str,
        flag: Address | None = None,
    ) -> None:
        found = None if flag is None else flag.buffer
        assert found is None or isinstance(found, Flag)
        command = Command(compute, tuple(reads), tuple(writes), label, found)
        recorder.commands.append(command._replace(nodes=recorder.nodes))

    # chains, products and convolutions

    def record_chain(self, recorder, chain, inputs, outputs, *, label=""):
        shape = outputs[0].shape
        views = [view.broadcast_to(shape) for view in inputs]

        def compute(*arrays: Array) -> list[Array]:
            # outputs may be inputs, and results may be views of these
            return [np.array(found) for found in apply(chain, arrays)]

        self.add(recorder, compute, views, outputs, label)

    def finish(
        self,
        recorder: Recorder[Any],
        sums: Compute,
        reads: Sequence[View],
        out: View,
        epilogue: Epilogue | None,
        label: str,
    ) -> None:
        """Record what gives sums of the shape of *out*, and what becomes of them."""
        if epilogue is None:
            self.add(recorder, sums, reads, [out], label)
            return
        chain, operands, outputs = epilogue
        count = len(reads)

        def compute(*arrays: Array) -> list[Array]:
            (total,) = sums(*arrays[:count])
            tile = rounded(total, chain.inputs[0]).reshape(out.shape)
            return apply(chain, [tile, *arrays[count:]])

        self.add(recorder, compute, [*reads, *operands], outputs, label)

    def record_matmul(self, recorder, a, b, out, *, epilogue=None, label="MatMul"):
        if isinstance(b.buffer, Constant):
            b = self.packed(recorder, b)
        self.finish(
            recorder,
            lambda a, b: [wide(a) @ wide(b)],
            [a, b],
            out,
            epilogue,
            label,
        )

    def packed(self, recorder: Recorder[Any], view: View) -> View:
        """A constant with its rows as columns."""
        order = (*range(len(view.shape) - 2), len(view.shape) - 1, len(view.shape) - 2)
        turned = view.transpose(order)

        def record(filling: Recorder[Any], source: View, target: Address) -> None:
            place = View.contiguous(
                target.buffer, view.dtype, turned.shape, target.offset
            )
            source = source.transpose(order)
            self.add(filling, lambda array: [array], [source], [place], "pack")

        layout = f"turned {view.offset} {view.shape} {view.strides}"
        found = recorder.packed(view, layout, view.nbytes, record)
        place = View.contiguous(found.buffer, view.dtype, turned.shape, found.offset)
        return place.transpose(order)

    def record_contraction(self, recorder, a, b, out, *, epilogue=None, label="Conv"):
        depth = math.prod(a.shape[4:])

        def sums(a: Array, b: Array) -> list[Array]:
            left = wide(a).reshape((*a.shape[:2], a.shape[2] * a.shape[3], depth))
            return [left @ wide(b).reshape((*b.shape[:2], depth, b.shape[-1]))]

        self.finish(recorder, sums, [a, b], out, epilogue, label)

    def takes_codes(self) -> bool:
        return True

    def takes_groups(self, *given: Any) -> bool:
        return True

    def record_depthwise(
        self,
        recorder,
        a,
        weights,
        out,
        *,
        strides,
        dilations,
        pads,
        zero=None,
        codes=None,
        epilogue=None,
        label="Conv",
    ):
        depth, rank = weights.shape[1], len(a.shape) - 2
        taps = zip(
            weights.shape[2:], strides, dilations, pads[:rank], pads[rank:], strict=True
        )
        slides = [Slide(*each) for each in taps]

        def sums(x: Array, w: Array, *zeros: Array) -> list[Array]:
            total = np.zeros(out.shape)
            x = wide(x) - sum(map(wide, zeros))
            for place, values, counts in windows(x, slides, out.shape[2:]):
                by = wide(w)[(slice(None), slice(None), *place)]
                values = np.where(counts, values, 0)
                grouped = values.reshape((x.shape[0], -1, depth, *out.shape[2:]))
                by = by.reshape((-1, depth, depth))
                found = np.einsum("ngd...,gmd->ngm...", grouped, by)
                total += found.reshape(out.shape)
            return [total]

        given = [a, weights] if zero is None else [a, weights, zero]
        self.finish(recorder, sums, given, out, epilogue, label)

    def record_pool(
        self, recorder, combining, x, out, slides, *, counts_padding=False, label="Pool"
    ):
        def compute(x: Array) -> list[Array]:
            largest = combining.fold == "max"
            total = np.full(out.shape, -math.inf if largest else 0.0)
            divisor = np.zeros(out.shape[2:])
            for _, values, counts in windows(wide(x), slides, out.shape[2:]):
                if combining.change:
                    values = np.abs(values)
                power = {"square": 2.0, "power": combining.p}.get(combining.change, 1.0)
                values = values**power
                if largest:
                    total = np.maximum(total, np.where(counts, values, -math.inf))
                else:
                    total += np.where(counts, values, 0)
                divisor += counts
            if counts_padding:
                ends = [
                    [
                        sum(
                            0 <= o * s.stride + t * s.dilation < s.before + n + s.after
                            for t in range(s.taps)
                        )
                        for o in range(count)
                    ]
                    for s, n, count in zip(
                        slides, x.shape[2:], out.shape[2:], strict=True
                    )
                ]
                divisor = functools.reduce(np.multiply.outer, map(np.array, ends))
            if combining.finish == "mean":
                return [total / divisor]
            root = {"square_root": 2.0, "root": combining.p}.get(combining.finish, 1.0)
            return [total ** (1 / root)]

        self.add(recorder, compute, [x], [out], label)

    # what moves

    def record_copy(self, recorder, source, target, *, label=""):
        self.add(recorder, lambda array: [array], [source], [target], label)

    def record_copies(self, recorder, pairs, *, label=""):
        kept = [pair for pair in pairs if pair[1].size]
        if kept:
            sources, targets = zip(*kept, strict=True)
            self.add(recorder, lambda *arrays: arrays, sources, targets, label)

    def record_trilu(self, recorder, source, target, diagonal, *, upper, label="Trilu"):
        rows, columns = source.shape[-2:]
        place = np.arange(columns) - np.arange(rows)[:, None]
        kept = place >= diagonal if upper else place <= diagonal

        def compute(x: Array) -> list[Array]:
            return [np.where(kept, x, np.zeros((), x.dtype))]

        self.add(recorder, compute, [source], [target], label)

    def find(self, recorder, operator, views, target, **attributes):
        """Gather or scatter, which may find an index out of range."""
        flag = recorder.check(lambda _: IndexError("index out of range"))
        function = kernel(operator, tuple(attributes.items()), len(views))
        self.add(recorder, lambda *a: [function(*a)], views, [target], operator, flag)

    def record_gather(self, recorder, data, indices, target, axis, *, label=""):
        self.find(recorder, "Gather", [data, indices], target, axis=axis)

    def record_gather_elements(self, recorder, data, indices, target, axis):
        self.find(recorder, "GatherElements", [data, indices], target, axis=axis)

    def record_gather_nd(self, recorder, data, indices, target, batch=0):
        self.find(recorder, "GatherND", [data, indices], target, batch_dims=batch)

    def record_scatter_elements(
        self, recorder, data, indices, updates, target, axis, *, reduction="none"
    ):
        views, given = [data, indices, updates], {"axis": axis, "reduction": reduction}
        self.find(recorder, "ScatterElements", views, target, **given)

    def record_scatter_nd(
        self, recorder, data, indices, updates, target, *, reduction="none"
    ):
        views = [data, indices, updates]
        self.find(recorder, "ScatterND", views, target, reduction=reduction)

    # what becomes less

    def record_reduce(self, recorder, kind, x, out, axes):
        function = kernel(kind, (("keepdims", 1),), 2)

        def compute(x: Array) -> list[Array]:
            # squares that are no numbers of the type are 0
            found = x if kind in ("ReduceL2", "ReduceSumSquare") else wide(x)
            found = found[..., None]  # so that there always is an axis
            return [function(found, np.array([*axes, found.ndim - 1]))]

        self.add(recorder, compute, [x], [out], kind)

    def record_moments(self, recorder, x, axes, *, label=""):
        shape = [1 if axis in axes else size for axis, size in enumerate(x.shape)]
        mean, variance = (recorder.temporary(x.dtype, shape) for _ in range(2))

        def compute(x: Array) -> list[Array]:
            return [each(wide(x), axes, keepdims=True) for each in (np.mean, np.var)]

        self.add(recorder, compute, [x], [mean, variance], label)
        return mean, variance

    def record_cumulative(
        self,
        recorder,
        source,
        target,
        axis,
        *,
        product=False,
        exclusive=False,
        reverse=False,
        label="",
    ):
        attributes = (("exclusive", int(exclusive)), ("reverse", int(reverse)))
        function = kernel("CumSum", attributes, 2)

        def compute(x: Array) -> list[Array]:
            return [function(wide(x), np.array(axis))]

        self.add(recorder, compute, [source], [target], label)

    def record_softmax(self, recorder, x, out, *, axis=-1, log=False, label=""):
        def compute(x: Array) -> list[Array]:
            found = wide(x) - wide(x).max(axis, keepdims=True, initial=-math.inf)
            total = np.exp(found).sum(axis, keepdims=True)
            return [found - np.log(total) if log else np.exp(found) / total]

        self.add(recorder, compute, [x], [out], label)

    def record_norm(
        self,
        recorder,
        x,
        out,
        *,
        epsilon,
        centered=True,
        scale=None,
        bias=None,
        mean=None,
        inverse=None,
        label="",
    ):
        def compute(x: Array, *parameters: Array) -> list[Array]:
            middle = wide(x).mean(-1, keepdims=True) if centered else 0.0
            apart = wide(x) - middle
            factor = 1 / np.sqrt((apart**2).mean(-1, keepdims=True) + epsilon)
            found, left = apart * factor, list(map(wide, parameters))
            if scale is not None:
                found = found * left.pop(0)
            if bias is not None:
                found = found + left.pop(0)
            statistics = [
                *([middle] if mean is not None else []),
                *([factor] if inverse is not None else []),
            ]
            return [found, *statistics]

        reads = [x, *[view for view in (scale, bias) if view is not None]]
        writes = [out, *[view for view in (mean, inverse) if view is not None]]
        self.add(recorder, compute, reads, writes, label)

    def record_attention(
        self,
        recorder,
        q,
        k,
        v,
        out,
        *,
        scale,
        mask=None,
        causal=False,
        past_length=0,
        softcap=0.0,
        undefined="masked_zero",
        hides=False,
        fill=-math.inf,
        label="Attention",
    ):
        def compute(q: Array, k: Array, v: Array, *masks: Array) -> list[Array]:
            group = q.shape[1] // max(k.shape[1], 1)
            k, v = (np.repeat(wide(each), group, 1) for each in (k, v))
            scores = wide(q) @ np.swapaxes(k, 2, 3) * scale
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            for given in masks:
                if given.dtype == np.bool_:
                    scores = np.where(given != hides, scores, fill)
                else:
                    scores = scores + wide(given)
            if causal:
                keys = np.arange(k.shape[2])
                seen = keys <= np.arange(q.shape[2])[:, None] + past_length
                scores = np.where(seen, scores, -math.inf)
            largest = scores.max(-1, keepdims=True, initial=-math.inf)
            weights = np.exp(scores - largest)
            weights /= weights.sum(-1, keepdims=True)
            if undefined == "zero":
                weights[np.isnan(weights)] = 0
            elif undefined == "masked_zero":
                weights = np.where(largest == -math.inf, 0, weights)
            return [weights @ v]

        masks = [] if mask is None else [mask.broadcast_to((*q.shape[:3], k.shape[2]))]
        self.add(recorder, compute, [q, k, v, *masks], [out], label)

    # images

    def record_resample(self, recorder, x, out, axes, *, label="Resample"):
        def compute(x: Array) -> list[Array]:
            found = wide(x)
            for axis, places, weights in axes:
                taps = [np.take(found, place, axis) for place in places]
                if weights is None:
                    (found,) = taps
                    continue
                shape = [1] * found.ndim
                shape[axis] = -1
                by = [weight.reshape(shape) for weight in weights.astype(np.float64)]
                found = sum(t * w for t, w in zip(taps, by, strict=True))
            return [found]

        self.add(recorder, compute, [x], [out], label)

    def record_grid_sample(
        self, recorder, x, grid, out, *, mode, padding, align_corners
    ):
        given = {"mode": mode, "padding_mode": padding}
        attributes = (*given.items(), ("align_corners", int(align_corners)))
        function = kernel("GridSample", attributes, 2)
        ones = (1,) * (len(x.shape) - 3)

        def compute(x: Array, grid: Array) -> list[Array]:
            # float64 would round to other neighbours
            shape = (*grid.shape[:2], *ones, grid.shape[2])
            return [function(x, grid.reshape(shape))]

        self.add(recorder, compute, [x, grid], [out], "GridSample")

    def record_roi_align(
        self, recorder, x, regions, images, out, *, mode, samples, scale, half_pixel
    ):
        how = "half_pixel" if half_pixel else "output_half_pixel"
        attributes = (
            ("mode", mode),
            ("coordinate_transformation_mode", how),
            ("output_height", out.shape[2]),
            ("output_width", out.shape[3]),
            ("sampling_ratio", samples),
            ("spatial_scale", scale),
        )
        flag = recorder.check(lambda _: IndexError("index out of range"))
        function = kernel("RoiAlign", attributes, 3)
        views = [x, regions, images]
        self.add(recorder, lambda *a: [function(*a)], views, [out], "RoiAlign", flag)


def windows(
    x: Array, slides: Sequence[Slide], counts: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Array, Array]]:
    """For each tap of a window its place, the elements that windows have there, and
    whether these are within *x*."""
    for place in itertools.product(*(range(slide.taps) for slide in slides)):
        found, within = x, np.ones((), bool)
        for axis, (slide, tap, count) in enumerate(
            zip(slides, place, counts, strict=True)
        ):
            at = np.arange(count) * slide.stride + tap * slide.dilation - slide.before
            size = x.shape[axis + 2]
            found = np.take(found, np.clip(at, 0, size - 1), axis + 2)
            within = np.logical_and.outer(within, (at >= 0) & (at < size))
        yield place, found, within
