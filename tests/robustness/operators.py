"""Small graphs around one operator of which attributes, indices or shapes are wrong.

The operators are those that the CPU EP compiles.  Before and behind them are products,
norms and element-wise functions, which read and write their views.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .seeds import Seed

BAD: Final = (
    *(-1, -2, -3, -4, -5, -9, 0, 1, 2, 3, 4, 5, 6, 7, 9, 16, 17, 64, 100, 4096),
    *(2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**62, 2**63 - 1, -(2**63)),
)
SIZES: Final = (0, 1, 1, 2, 3, 4, 5, 8, 16, 17)


class Graph:
    """Collects nodes and values, some of them wrong.

    Attributes:
        choose: draws what is wrong and how.
    """

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self._numbers = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._feeds: dict[str, Any] = {}
        self._constants: dict[str, Any] = {}
        self._opset = self.choose.choice((13, 17, 18, 21, 23))
        self._wrong = self.choose.choice((0.1, 0.3, 0.6))

    # numbers

    def odd(self, number: int) -> int:
        """The number, or a wrong one."""
        return self.choose.choice(BAD) if self.errs() else number

    def odds(self, numbers: Sequence[int]) -> list[int]:
        """The numbers, some wrong, or more or fewer of them, or one twice."""
        result = [self.odd(number) for number in numbers]
        if self.errs() and self.choose.random() < 0.4:
            how = self.choose.randrange(4)
            if how == 0:
                result.append(self.choose.choice(BAD))
            elif how == 1:
                result = result[:-1]
            elif result and how == 2:
                result[-1] = result[0]
            elif result:
                result *= 2
        return result

    def errs(self) -> bool:
        """Whether something is to be wrong here."""
        return self.choose.random() < self._wrong / 3

    def shape(self, rank: int | None = None) -> list[int]:
        """Sizes, small ones."""
        if rank is None:
            rank = self.choose.choice((0, 1, 2, 2, 3, 3, 4, 5))
        return [
            self.choose.choice(SIZES[1:] if rank > 2 else SIZES) for _ in range(rank)
        ]

    def like(self, shape: Sequence[int]) -> list[int]:
        """Sizes that broadcast to *shape*, or do not."""
        other = [n if self.choose.random() < 0.7 else 1 for n in shape]
        other = other[self.choose.choice((0, 0, 0, len(other) // 2)) :]
        if self.errs():
            other.insert(0, self.choose.choice((1, 2, 3)))
        if other and self.errs():
            other[self.choose.randrange(len(other))] = self.choose.choice(SIZES)
        return other

    # values

    def floats(self, shape: Sequence[int]) -> str:
        """Random numbers, computed by a node before, fed, or constant."""
        array = self._numbers.uniform(-1, 1, tuple(shape)).astype(np.float32)
        name = self.value(array, self.choose.random() < 0.25)
        return self.before(name, shape) if self.choose.random() < 0.5 else name

    def integers(self, numbers: Sequence[int], dtype: str = "int64") -> str:
        """Integers, mostly constant, of one axis mostly."""
        clipped = [max(-(2**63), min(2**63 - 1, n)) for n in numbers]
        array = np.array(clipped, np.int64).astype(dtype)
        if self.errs():
            array = array.reshape(self.choose.choice(((-1, 1), (1, -1))))
        return self.value(array, self.choose.random() < 0.6)

    def value(self, array: Any, is_constant: bool) -> str:
        """An array as an input or an initializer."""
        array = np.asarray(array)
        if is_constant:
            name = f"c{len(self._constants)}"
            self._constants[name] = array
        else:
            name = f"x{len(self._feeds)}"
            self._feeds[name] = array
        return name

    def add(
        self, op_type: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any
    ) -> list[str]:
        """A node; the names of its outputs."""
        names = [f"v{len(self._nodes)}_{n}" for n in range(outputs)]
        node = helper.make_node(op_type, inputs, names)
        for key, value in attributes.items():
            # of an empty list the type cannot be told
            kind = onnx.AttributeProto.INTS if value == [] else None
            node.attribute.append(helper.make_attribute(key, value, attr_type=kind))
        self._nodes.append(node)
        return names

    def before(self, name: str, shape: Sequence[int]) -> str:
        """The value after a node that keeps its shape."""
        kind = self.choose.choice(
            (
                "Relu",
                "Softmax",
                "MatMul",
                "Add",
                "LayerNormalization",
                "Transpose",
                "Neg",
            )
        )
        last = shape[-1] if shape else 1
        if kind in ("Relu", "Neg"):
            return self.add(kind, [name])[0]
        if kind == "Softmax" and shape:
            return self.add(kind, [name], axis=-1)[0]
        if kind == "MatMul" and len(shape) > 1:
            return self.add(kind, [name, self._weights([last, last])])[0]
        if kind == "LayerNormalization" and shape and self._opset >= 17:
            return self.add(kind, [name, self._weights([last])], axis=-1)[0]
        if kind == "Transpose" and shape:
            order = list(range(len(shape)))
            self.choose.shuffle(order)
            back = [order.index(axis) for axis in range(len(order))]
            turned = self.add("Transpose", [name], perm=order)[0]
            return self.add("Transpose", [turned], perm=back)[0]
        return self.add("Add", [name, self._weights([1])])[0]

    def behind(self, name: str) -> str:
        """The value after a node that may not fit."""
        kind = self.choose.choice(
            "Relu Softmax MatMul MatMul Add Gelu LayerNormalization Transpose Sum "
            "ReduceSum Reshape Concat Mul Sigmoid".split()
        )
        size = self.choose.choice(SIZES)
        if kind == "Softmax":
            return self.add(kind, [name], axis=self.odd(-1))[0]
        if kind == "MatMul":
            other = self._weights([size, self.choose.choice(SIZES)])
            inputs = [name, other] if self.choose.random() < 0.5 else [other, name]
            return self.add(kind, inputs)[0]
        if kind in ("Add", "Mul"):
            other = self._weights(self.shape(self.choose.choice((0, 1, 2))))
            return self.add(kind, [name, other])[0]
        if kind == "LayerNormalization" and self._opset >= 17:
            return self.add(kind, [name, self._weights([size])], axis=self.odd(-1))[0]
        if kind == "Transpose":
            order = list(range(self.choose.randrange(5)))
            self.choose.shuffle(order)
            given = {"perm": self.odds(order)} if self.choose.random() < 0.7 else {}
            return self.add(kind, [name], **given)[0]
        if kind == "ReduceSum":
            axes = self.integers(self.odds([-1]))
            return self.add(kind, [name, axes], keepdims=self.choose.randrange(2))[0]
        if kind == "Reshape":
            shape = self.odds(self.choose.choice(([-1], [0, -1], [1, -1, 1], [2, -1])))
            return self.add(kind, [name, self.integers(shape)])[0]
        if kind == "Concat":
            return self.add(kind, [name, name], axis=self.odd(0))[0]
        if kind == "Gelu" and self._opset < 20:
            kind = "Tanh"
        inputs = [name, name] if kind == "Sum" else [name]
        return self.add(kind, inputs)[0]

    def _weights(self, shape: Sequence[int]) -> str:
        array = self._numbers.uniform(-1, 1, tuple(shape)).astype(np.float32)
        return self.value(array, self.choose.random() < 0.6)

    def seed(self, name: str, outputs: Sequence[str]) -> Seed:
        """The model, the types of its inputs declared in one way or another."""
        how = self.choose.choice(("sizes", "names", "names", "none", "other"))
        inputs = []
        for value, array in self._feeds.items():
            shape: list[Any] | None = list(array.shape)
            if how == "names" or (how == "other" and array.dtype != np.float32):
                shape = [f"{value}_{axis}" for axis in range(array.ndim)]
            elif how == "none":
                shape = None
            elif how == "other" and self.choose.random() < 0.5:
                shape = [None] * (array.ndim + self.choose.choice((-1, 0, 1)))
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(value, kind, shape))
        graph = helper.make_graph(
            self._nodes,
            name,
            inputs,
            [onnx.ValueInfoProto(name=value) for value in outputs],
            [numpy_helper.from_array(a, n) for n, a in self._constants.items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self._opset)], ir_version=10
        )
        return Seed(name, model, self._feeds)

    @property
    def opset(self) -> int:
        """The version of ONNX's domain."""
        return self._opset


Maker = Callable[[Graph], list[str]]


def _axes(g: Graph, rank: int) -> list[int]:
    axes = [axis for axis in range(rank) if g.choose.random() < 0.5]
    return g.odds([axis - rank if g.choose.random() < 0.3 else axis for axis in axes])


def _axis(g: Graph, rank: int) -> int:
    return g.odd(g.choose.randrange(-rank, rank) if rank else 0)


def transpose(g: Graph) -> list[str]:
    shape = g.shape()
    order = list(range(len(shape)))
    g.choose.shuffle(order)
    given = {"perm": g.odds(order)} if g.choose.random() < 0.9 else {}
    return g.add("Transpose", [g.floats(shape)], **given)


def expand(g: Graph) -> list[str]:
    shape = g.shape()
    wide = [n if n != 1 else g.choose.choice((1, 2, 3)) for n in shape]
    if g.choose.random() < 0.3:
        wide.insert(0, 2)
    return g.add("Expand", [g.floats(shape), g.integers(g.odds(wide))])


def reshape(g: Graph) -> list[str]:
    shape = g.shape()
    wanted = g.choose.choice((shape[::-1], [-1], [0, -1], [-1, 1], [*shape, 1], [0, 0]))
    given = {"allowzero": g.choose.randrange(2)} if g.opset >= 14 else {}
    return g.add("Reshape", [g.floats(shape), g.integers(g.odds(wanted))], **given)


def slice_(g: Graph) -> list[str]:
    shape = g.shape()
    axes = [axis for axis in range(len(shape)) if g.choose.random() < 0.6]
    starts = [g.choose.choice((0, 1, -1, -2)) for _ in axes]
    ends = [g.choose.choice((2**63 - 1, -1, 2, 5, -(2**63))) for _ in axes]
    steps = [g.choose.choice((1, 1, 2, -1, -2)) for _ in axes]
    kind = g.choose.choice(("int64", "int64", "int32"))
    inputs = [g.integers(g.odds(each), kind) for each in (starts, ends, axes, steps)]
    return g.add("Slice", [g.floats(shape), *inputs[: g.choose.choice((4, 4, 3, 2))]])


def split(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    axis = g.choose.randrange(len(shape))
    count = g.choose.choice((1, 2, 3))
    x = g.floats(shape)
    if g.choose.random() < 0.5:
        first = shape[axis] // 2
        sizes = g.integers(g.odds([first, shape[axis] - first]))
        return g.add("Split", [x, sizes], g.odd(2) % 6, axis=g.odd(axis))
    given = {"num_outputs": g.odd(count)} if g.opset >= 18 else {}
    return g.add("Split", [x], count, axis=g.odd(axis), **given)


def squeeze(g: Graph) -> list[str]:
    shape = [g.choose.choice((1, 1, 2, 3)) for _ in range(g.choose.randrange(5))]
    ones = [axis for axis, n in enumerate(shape) if n == 1]
    x = g.floats(shape)
    if g.choose.random() < 0.2:
        return g.add("Squeeze", [x])
    return g.add("Squeeze", [x, g.integers(g.odds(ones))])


def unsqueeze(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((0, 1, 2, 3)))
    axes = g.choose.choice(([0], [-1], [0, 2], [1, -1], [0, 1]))
    return g.add("Unsqueeze", [g.floats(shape), g.integers(g.odds(axes))])


def flatten(g: Graph) -> list[str]:
    shape = g.shape()
    return g.add("Flatten", [g.floats(shape)], axis=_axis(g, len(shape) + 1))


def concat(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    axis = g.choose.randrange(len(shape))
    inputs = []
    for _ in range(g.choose.choice((1, 2, 3))):
        other = list(shape)
        other[axis] = g.choose.choice(SIZES)
        if g.errs():
            other[g.choose.randrange(len(other))] = g.choose.choice(SIZES)
        if g.errs():
            other.append(2)
        inputs.append(g.floats(other))
    return g.add("Concat", inputs, axis=g.odd(axis))


def pad(g: Graph) -> list[str]:
    shape = g.shape()
    axes = list(range(len(shape)))
    pads = [g.choose.choice((0, 1, 2, -1, 3)) for _ in range(2 * len(axes))]
    inputs = [g.floats(shape), g.integers(g.odds(pads))]
    mode = g.choose.choice(("constant", "reflect", "edge", "wrap"))
    if g.choose.random() < 0.5:
        inputs.append(g.value(np.float32(0.5), True))
        if g.opset >= 18 and g.choose.random() < 0.6:
            inputs.append(g.integers(g.odds(axes)))
    return g.add("Pad", inputs, mode=mode if g.opset >= 19 else "constant")


def tile(g: Graph) -> list[str]:
    shape = g.shape()
    times = [g.choose.choice((1, 2, 3, 0)) for _ in shape]
    return g.add("Tile", [g.floats(shape), g.integers(g.odds(times))])


def _indices(g: Graph, size: int, shape: Sequence[int]) -> str:
    """Indices below *size*, of which a few are not."""
    numbers = [
        g.odd(g.choose.randrange(-size, size) if size else 0)
        for _ in range(int(np.prod(shape)))
    ]
    kind = g.choose.choice(("int64", "int32"))
    array = np.array(numbers, np.int64).reshape(tuple(shape)).astype(kind)
    return g.value(array, g.choose.random() < 0.4)


def gather(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    axis = g.choose.randrange(len(shape))
    indices = _indices(g, shape[axis], g.shape(g.choose.choice((0, 1, 2)))[:2])
    return g.add("Gather", [g.floats(shape), indices], axis=g.odd(axis))


def gather_elements(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    axis = g.choose.randrange(len(shape))
    other = [g.odd(g.choose.randint(0, n)) % 40 for n in shape]
    indices = _indices(g, shape[axis], other[: g.choose.choice((3, 3, 3, 1))])
    return g.add("GatherElements", [g.floats(shape), indices], axis=g.odd(axis))


def gather_nd(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    last = g.odd(g.choose.randint(1, len(shape))) % 6
    indices = _indices(g, min(shape), [g.choose.choice((1, 2, 3)), last])
    return g.add("GatherND", [g.floats(shape), indices], batch_dims=g.odd(0))


def scatter_elements(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    axis = g.choose.randrange(len(shape))
    other = [g.odd(g.choose.randint(0, n)) % 40 for n in shape]
    updates = other if not g.errs() else [2] * len(other)
    indices = _indices(g, shape[axis], other)
    given = {"reduction": g.choose.choice(("none", "add"))} if g.opset >= 16 else {}
    inputs = [g.floats(shape), indices, g.floats(updates)]
    return g.add("ScatterElements", inputs, axis=g.odd(axis), **given)


def scatter_nd(g: Graph) -> list[str]:
    shape = g.shape(g.choose.choice((1, 2, 3)))
    last = g.odd(g.choose.randint(1, len(shape))) % 6
    count = g.choose.choice((1, 2, 3))
    indices = _indices(g, min(shape), [count, last])
    updates = [count, *shape[last:]] if not g.errs() else g.shape()
    return g.add("ScatterND", [g.floats(shape), indices, g.floats(updates)])


def reduce(g: Graph) -> list[str]:
    shape = g.shape()
    names = "Sum Mean Max Min Prod L1 L2 LogSum LogSumExp SumSquare"
    operator = "Reduce" + g.choose.choice(names.split())
    axes = _axes(g, len(shape))
    given: dict[str, Any] = {"keepdims": g.odd(g.choose.randrange(2))}
    inputs = [g.floats(shape)]
    if g.opset >= 18 or operator == "ReduceSum":
        if g.choose.random() < 0.8:
            inputs.append(g.integers(axes))
        given["noop_with_empty_axes"] = g.choose.randrange(2)
    else:
        given["axes"] = axes
    return g.add(operator, inputs, **given)


def arg_extreme(g: Graph) -> list[str]:
    shape = g.shape()
    operator = g.choose.choice(("ArgMax", "ArgMin"))
    axis, keeps = _axis(g, len(shape)), g.choose.randrange(2)
    return g.add(operator, [g.floats(shape)], axis=axis, keepdims=keeps)


def softmax(g: Graph) -> list[str]:
    shape = g.shape()
    operator = g.choose.choice(("Softmax", "LogSoftmax", "Hardmax"))
    return g.add(operator, [g.floats(shape)], axis=_axis(g, len(shape)))


def norm(g: Graph) -> list[str]:
    shape = g.shape()
    if g.opset < 17:
        return softmax(g)
    axis = _axis(g, len(shape))
    rest = shape[axis:] if -len(shape) <= axis < len(shape) else shape
    inputs = [g.floats(shape), g.floats(g.like(rest)), g.floats(g.like(rest))]
    operator = "LayerNormalization"
    if g.opset >= 23 and g.choose.random() < 0.4:
        return g.add("RMSNormalization", inputs[:2], axis=axis, epsilon=1e-5)
    count = g.choose.choice((1, 1, 3))
    return g.add(operator, inputs[: g.choose.choice((2, 3))], count, axis=axis)


def matmul(g: Graph) -> list[str]:
    inner = g.choose.choice(SIZES)
    lead = g.shape(g.choose.choice((0, 0, 1, 2)))
    a = [*lead, g.choose.choice(SIZES), inner]
    b = [*g.like(lead), g.odd(inner) % 70, g.choose.choice(SIZES)]
    if g.choose.random() < 0.1:
        a = a[-1:]
    if g.choose.random() < 0.1:
        b = b[-1:]
    return g.add("MatMul", [g.floats(a), g.floats(b)])


def gemm(g: Graph) -> list[str]:
    rows, inner, columns = (g.choose.choice(SIZES) for _ in range(3))
    a, b = [rows, inner], [g.odd(inner) % 70, columns]
    flags = {"transA": g.choose.choice((0, 1)), "transB": g.choose.choice((0, 1, 7))}
    if flags["transA"]:
        a.reverse()
    if flags["transB"]:
        b.reverse()
    if g.errs():
        b.insert(0, 2)
    inputs = [g.floats(a), g.floats(b)]
    if g.choose.random() < 0.7:
        inputs.append(g.floats(g.like([rows, columns])))
    return g.add("Gemm", inputs, alpha=0.5, beta=2.0, **flags)


def trilu(g: Graph) -> list[str]:
    inputs = [g.floats(g.shape())]
    if g.opset < 14:
        return transpose(g)
    if g.choose.random() < 0.8:
        inputs.append(g.value(np.array(g.odd(0)), g.choose.random() < 0.5))
    return g.add("Trilu", inputs, upper=g.odd(1))


def cumsum(g: Graph) -> list[str]:
    shape = g.shape()
    axis = np.array(_axis(g, len(shape)))
    inputs = [g.floats(shape), g.value(axis, g.choose.random() < 0.6)]
    return g.add("CumSum", inputs, exclusive=g.odd(0), reverse=g.odd(0))


def where(g: Graph) -> list[str]:
    shape = g.shape()
    bits = np.arange(int(np.prod(shape))).reshape(tuple(shape)) % 3 == 0
    condition = g.value(bits, False)
    return g.add("Where", [condition, g.floats(g.like(shape)), g.floats(g.like(shape))])


def elementwise(g: Graph) -> list[str]:
    shape = g.shape()
    operator = g.choose.choice(
        ("Add", "Mul", "Sub", "Div", "Pow", "Max", "Mean", "Clip")
    )
    inputs = [g.floats(shape), g.floats(g.like(shape))]
    if operator in ("Max", "Mean", "Clip"):
        inputs.append(g.floats(g.like(shape)))
    return g.add(operator, inputs)


def attention(g: Graph) -> list[str]:
    if g.opset < 23:
        return matmul(g)
    batch, heads, queries, keys, size = 2, 2, 3, g.choose.choice((3, 4, 5)), 4
    shared = g.choose.choice((1, 2))
    q = [batch, heads, queries, size]
    k = [batch, shared, keys, size]
    given: dict[str, Any] = {}
    if g.choose.random() < 0.4:
        q, k = [batch, queries, heads * size], [batch, keys, shared * size]
        given = {"q_num_heads": g.odd(heads), "kv_num_heads": g.odd(shared)}
    q, k, v = g.odds(q), g.odds(k), g.odds(k)
    q, k, v = ([n % 40 for n in each] for each in (q, k, v))
    inputs = [g.floats(q), g.floats(k), g.floats(v)]
    if g.choose.random() < 0.6:
        inputs.append(g.floats(g.like([batch, heads, queries, keys])))
    if g.choose.random() < 0.3:
        past = [n % 40 for n in g.odds([batch, shared, 2, size])]
        inputs += [""] * (4 - len(inputs)) + [g.floats(past), g.floats(past)]
    count = 3 if len(inputs) > 4 else g.choose.choice((1, 1, 4))
    flag = g.odd(g.choose.randrange(2))
    return g.add("Attention", inputs, count, is_causal=flag, **given)


def one_hot(g: Graph) -> list[str]:
    indices = _indices(g, 4, g.shape(g.choose.choice((0, 1, 2))))
    depth = g.value(np.array(g.odd(4) % (2**31)), g.choose.random() < 0.5)
    values = g.value(np.array([0, 1], np.float32), True)
    return g.add("OneHot", [indices, depth, values], axis=g.odd(-1))


def rotary(g: Graph) -> list[str]:
    if g.opset < 23:
        return matmul(g)
    shape = g.odds([2, 2, 3, 4])
    shape = [n % 40 for n in shape]
    cache = [n % 40 for n in g.odds([2, 3, 2])]
    inputs = [g.floats(shape), g.floats(cache), g.floats(cache)]
    if g.choose.random() < 0.5:
        inputs[1:] = [g.floats(cache[1:]), g.floats(cache[1:])]
        inputs.append(_indices(g, 3, [2, 3]))
    given = {"rotary_embedding_dim": g.odd(0)} if g.choose.random() < 0.4 else {}
    return g.add("RotaryEmbedding", inputs, **given)


MAKERS: Final[dict[str, Maker]] = {
    "Transpose": transpose,
    "Expand": expand,
    "Reshape": reshape,
    "Slice": slice_,
    "Split": split,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Flatten": flatten,
    "Concat": concat,
    "Pad": pad,
    "Tile": tile,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Reduce": reduce,
    "ArgMax": arg_extreme,
    "Softmax": softmax,
    "LayerNormalization": norm,
    "MatMul": matmul,
    "Gemm": gemm,
    "Trilu": trilu,
    "CumSum": cumsum,
    "Where": where,
    "Elementwise": elementwise,
    "Attention": attention,
    "OneHot": one_hot,
    "RotaryEmbedding": rotary,
}


def random_operator(seed: int) -> Seed:
    """A model of one of the operators; the same for the same number."""
    g = Graph(seed)
    operator = g.choose.choice(list(MAKERS))
    outputs = MAKERS[operator](g)
    for _ in range(g.choose.choice((0, 0, 1, 1, 2))):
        if outputs:
            outputs.append(g.behind(g.choose.choice(outputs)))
    kept = [name for name in outputs if g.choose.random() < 0.6] or outputs[-1:]
    return g.seed(f"{operator} {seed}", kept)
