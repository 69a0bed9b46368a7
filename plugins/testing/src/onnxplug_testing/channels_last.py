"""An EP that wants images with their channels last, and computes them so.

Convolutions and pools are numpy functions over the last axis, with nothing of ONNX's
order in them; a few operators that nobody would write twice are run by
``onnx.reference`` between two transpositions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.authoring.record import Record
from onnxplug_testing.simulated.kernels import find_kernel as find_elementwise
from onnxplug_testing.toy import ToyFactory

Array: TypeAlias = np.ndarray[Any, Any]

DOMAIN: Final = "com.ms.internal.nhwc"


class ChannelsLastExecutionProvider(KernelExecutionProvider):
    """Runs operators of images with channels last, and of elements in any order.

    Operators of images with channels first are claimed, as they are offered again with
    channels last; those that are not are declined.

    Args:
        takes: which of :data:`KERNELS` it runs.
    """

    preferences = ep.Preferences(layout="NHWC")

    def __init__(self, takes: frozenset[str]) -> None:
        self.takes = takes

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        if node.op_type in KERNELS and node.domain in ("", DOMAIN):
            if node.domain and node.op_type not in self.takes:
                return ep.Reason(ep.RefusalCode.OP, f"{node.op_type} of channels last")
            kernel, opset = KERNELS[node.op_type], graph.opset()
            return lambda *arrays: np.asarray(kernel(Call(node, opset), *arrays))
        found = find_elementwise(graph, node)
        if isinstance(found, ep.Reason):
            return found
        return lambda *arrays: _as_arrays(found(*arrays))

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        first = [
            node
            for node in partition.nodes
            if node.op_type in KERNELS and not node.domain
        ]
        if first:
            reason = ep.Reason(ep.RefusalCode.OTHER, "channels come first")
            raise ep.Declined(reason, nodes=first)
        return super().compile(partition)


class ChannelsLastFactory(ToyFactory):
    """Offers the EP on every CPU.

    Attributes:
        takes: which operators of channels last its EPs run.
    """

    name = "ChannelsLastExecutionProvider"

    def __init__(self) -> None:
        self.takes = frozenset(KERNELS)

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return ChannelsLastExecutionProvider(self.takes)


def _as_arrays(results: Any) -> Any:
    if isinstance(results, tuple):
        return tuple(map(np.asarray, results))
    return np.asarray(results)


class Call(Record):
    """A node, and the opset of its graph."""

    node: ep.Node
    opset: int

    def get(self, name: str, default: Any) -> Any:
        """An attribute."""
        return self.node.attributes.get(name, default)


# windows


class _Windows(Record):
    """Where windows lie, by spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]
    places: tuple[int, ...]

    def offsets(self) -> Iterator[tuple[int, ...]]:
        """The positions within a window, in order."""
        return itertools.product(*map(range, self.kernel))

    def seen_from(self, x: Array, offset: Sequence[int]) -> Array:
        """What all windows have at one position, [N, *places, C], of padded data."""
        slices = [
            slice(at * dilation, at * dilation + stride * (count - 1) + 1, stride)
            for at, dilation, stride, count in zip(
                offset, self.dilations, self.strides, self.places, strict=True
            )
        ]
        return x[:, *slices, :]

    def padded(self, x: Array, value: float) -> Array:
        """The data with as much around as windows reach."""
        reach = [
            (count - 1) * stride + (size - 1) * dilation + 1
            for count, stride, size, dilation in zip(
                self.places, self.strides, self.kernel, self.dilations, strict=True
            )
        ]
        widths = [
            (begin, max(end, there - begin - size))
            for begin, end, there, size in zip(
                self.begins, self.ends, reach, x.shape[1:-1], strict=True
            )
        ]
        return np.pad(x, [(0, 0), *widths, (0, 0)], constant_values=value)


def _windows(call: Call, x: Array, kernel: Sequence[int]) -> _Windows:
    rank = len(kernel)
    strides = tuple(call.get("strides", (1,) * rank))
    dilations = tuple(call.get("dilations", (1,) * rank))
    pads = tuple(call.get("pads", (0,) * (2 * rank)))
    how = call.get("auto_pad", "NOTSET")
    begins, ends, places = [], [], []
    for axis, size in enumerate(x.shape[1:-1]):
        stride, span = strides[axis], (kernel[axis] - 1) * dilations[axis] + 1
        begin, end = pads[axis], pads[axis + rank]
        if how.startswith("SAME"):
            count = -(-size // stride)
            total = max(0, (count - 1) * stride + span - size)
            begin = total // 2 if how == "SAME_UPPER" else total - total // 2
            end = total - begin
        elif how == "VALID":
            begin = end = 0
        room = size + begin + end - span
        count = room // stride + 1
        if call.get("ceil_mode", 0):
            count = -(-room // stride) + 1
            if (count - 1) * stride >= size + begin:
                count -= 1
        begins.append(begin)
        ends.append(end)
        places.append(count)
    return _Windows(
        tuple(kernel), strides, dilations, tuple(begins), tuple(ends), tuple(places)
    )


def _at(weights: Array, offset: tuple[int, ...]) -> Any:
    """[O, I] of [O, I, *kernel], at one position of the kernel."""
    place: Any = (slice(None), slice(None), *offset)
    return weights[place]


def _conv(call: Call, x: Array, w: Array, b: Array | None = None) -> Array:
    group, kernel = call.get("group", 1), w.shape[2:]
    windows = _windows(call, x, kernel)
    padded = windows.padded(x, 0)
    y = np.zeros((len(x), *windows.places, len(w)), x.dtype)
    width, made = w.shape[1], len(w) // group
    for offset in windows.offsets():
        seen = windows.seen_from(padded, offset)
        for each in range(group):
            inputs = seen[..., each * width : (each + 1) * width]
            weights = w[each * made : (each + 1) * made]
            weights = _at(weights, offset)
            y[..., each * made : (each + 1) * made] += inputs @ weights.T
    return y if b is None else y + b


def _conv_transpose(call: Call, x: Array, w: Array, b: Array | None = None) -> Any:
    if call.get("auto_pad", "NOTSET") != "NOTSET" or call.get("output_shape", ()):
        return _by_reference(call, x, w, b)
    rank, group = x.ndim - 2, call.get("group", 1)
    strides = call.get("strides", (1,) * rank)
    dilations = call.get("dilations", (1,) * rank)
    pads = call.get("pads", (0,) * (2 * rank))
    extra = call.get("output_padding", (0,) * rank)
    sizes = [
        (size - 1) * stride + (kernel - 1) * dilation + 1 + more
        for size, stride, kernel, dilation, more in zip(
            x.shape[1:-1], strides, w.shape[2:], dilations, extra, strict=True
        )
    ]
    width, made = x.shape[-1] // group, w.shape[1]
    whole = np.zeros((len(x), *sizes, made * group), x.dtype)
    for offset in itertools.product(*map(range, w.shape[2:])):
        places = tuple(
            slice(at * dilation, at * dilation + stride * (size - 1) + 1, stride)
            for at, dilation, stride, size in zip(
                offset, dilations, strides, x.shape[1:-1], strict=True
            )
        )
        for each in range(group):
            inputs = x[..., each * width : (each + 1) * width]
            weights = w[each * width : (each + 1) * width]
            weights = _at(weights, offset)
            channels = slice(each * made, (each + 1) * made)
            whole[(slice(None), *places, channels)] += inputs @ weights
    cut = tuple(
        slice(pads[axis], size - pads[axis + rank]) for axis, size in enumerate(sizes)
    )
    y = whole[(slice(None), *cut)]
    return y if b is None else y + b


def _max_pool(call: Call, x: Array) -> Array:
    windows = _windows(call, x, call.get("kernel_shape", ()))
    padded = windows.padded(x, -np.inf)
    seen = [windows.seen_from(padded, offset) for offset in windows.offsets()]
    return np.asarray(np.max(seen, axis=0))


def _average_pool(call: Call, x: Array) -> Array:
    windows = _windows(call, x, call.get("kernel_shape", ()))
    ones = np.ones((1, *x.shape[1:-1], 1), x.dtype)
    if call.get("count_include_pad", 0):
        widths = [*zip(windows.begins, windows.ends, strict=True)]
        ones = np.pad(ones, [(0, 0), *widths, (0, 0)], constant_values=1)
        counted = windows._replace(
            begins=(0,) * len(widths), ends=(0,) * len(widths)
        ).padded(ones, 0)
    else:
        counted = windows.padded(ones, 0)
    padded = windows.padded(x, 0)
    total = sum(windows.seen_from(padded, offset) for offset in windows.offsets())
    count = sum(windows.seen_from(counted, offset) for offset in windows.offsets())
    return np.asarray(total / count)


def _lp_pool(call: Call, x: Array) -> Array:
    windows, p = _windows(call, x, call.get("kernel_shape", ())), call.get("p", 2)
    padded = np.abs(windows.padded(x, 0)) ** p
    total = sum(windows.seen_from(padded, offset) for offset in windows.offsets())
    return np.asarray(total ** np.asarray(1 / p, x.dtype), x.dtype)


# all of an image


def _spatial(x: Array) -> tuple[int, ...]:
    return tuple(range(1, x.ndim - 1))


def _global_lp_pool(call: Call, x: Array) -> Any:
    p = call.get("p", 2)
    total = (np.abs(x) ** p).sum(axis=_spatial(x), keepdims=True)
    return total ** np.asarray(1 / p, x.dtype)


def _batch_normalization(
    call: Call, x: Array, scale: Array, b: Array, mean: Array, variance: Array
) -> Any:
    epsilon = np.asarray(call.get("epsilon", 1e-5), x.dtype)
    return (x - mean) / np.sqrt(variance + epsilon) * scale + b


def _instance_normalization(call: Call, x: Array, scale: Array, b: Array) -> Any:
    mean = x.mean(axis=_spatial(x), keepdims=True)
    variance = x.var(axis=_spatial(x), keepdims=True)
    return _batch_normalization(call, x, scale, b, mean, variance)


def _lrn(call: Call, x: Array) -> Any:
    size, alpha = call.get("size", 1), call.get("alpha", 1e-4)
    beta, bias = call.get("beta", 0.75), call.get("bias", 1.0)
    before = (size - 1) // 2
    squares = np.pad(x**2, [(0, 0)] * (x.ndim - 1) + [(before, size - 1 - before)])
    total = sum(squares[..., at : at + x.shape[-1]] for at in range(size))
    return x / np.asarray(bias + alpha / size * total, x.dtype) ** np.float32(beta)


def _depth_to_space(call: Call, x: Array) -> Array:
    n, h, w, c = x.shape
    block = call.get("blocksize", 1)
    left = c // block**2
    if call.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, h, w, block, block, left).transpose(0, 1, 3, 2, 4, 5)
    else:
        parts = x.reshape(n, h, w, left, block, block).transpose(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, h * block, w * block, left)


def _space_to_depth(call: Call, x: Array) -> Array:
    n, h, w, c = x.shape
    block = call.get("blocksize", 1)
    parts = x.reshape(n, h // block, block, w // block, block, c)
    order = (0, 1, 3, 2, 4, 5)
    if call.get("mode", "DCR") == "CRD":
        order = (0, 1, 3, 5, 2, 4)
    return parts.transpose(order).reshape(n, h // block, w // block, -1)


def _by_reference(call: Call, x: Array, *others: Array | None) -> Array:
    """What ``onnx.reference`` computes with channels first."""
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    order = [0, x.ndim - 1, *range(1, x.ndim - 1)]
    given = [np.ascontiguousarray(x.transpose(order)), *others]
    if call.node.op_type == "Resize":  # numbers for each axis
        given[2:] = [
            each if each is None or each.size != x.ndim else each[order]
            for each in given[2:]
        ]
    names = ["" if each is None else f"i{at}" for at, each in enumerate(given)]
    node = helper.make_node(call.node.op_type, names, ["y"], **call.node.attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape
            )
            for name, each in zip(names, given, strict=True)
            if each is not None
        ],
        [helper.make_empty_tensor_value_info("y")],
    )
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", call.opset)]
    )
    feed = {
        name: each for name, each in zip(names, given, strict=True) if each is not None
    }
    (y,) = ReferenceEvaluator(model).run(None, feed)
    return np.asarray(y).transpose(0, *range(2, x.ndim), 1)


KERNELS: Final[Mapping[str, Callable[..., Any]]] = {
    "AveragePool": _average_pool,
    "BatchNormalization": _batch_normalization,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "DepthToSpace": _depth_to_space,
    "GlobalAveragePool": lambda _, x: x.mean(axis=_spatial(x), keepdims=True),
    "GlobalLpPool": _global_lp_pool,
    "GlobalMaxPool": lambda _, x: x.max(axis=_spatial(x), keepdims=True),
    "GridSample": _by_reference,
    "InstanceNormalization": _instance_normalization,
    "LRN": _lrn,
    "LpPool": _lp_pool,
    "MaxPool": _max_pool,
    "QLinearConv": _by_reference,
    "Resize": _by_reference,
    "SpaceToDepth": _space_to_depth,
}
"""Functions of a call and arrays, the first of which has channels last."""
