"""Random graphs, and how far two right computations of them may differ.

Every value carries a bound of its magnitude and of how far results may lie apart;
operators that jump take only values that are the same in both.  What nodes there are
is in :mod:`.random_nodes`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import onnx
from onnx import helper, numpy_helper

Array = np.ndarray[Any, Any]

OPSETS = (20, 23)
"""The later one has Attention and RMSNormalization."""

MAX_MAGNITUDE = 1e3

_EPS = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float64": 2.0**-52}


class Value(NamedTuple):
    """A value of a graph while it is made.

    Attributes:
        magnitude: no element is larger, roughly.
        error: how far results may differ; 0 if they must be equal.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    magnitude: float = 2.0
    error: float = 0.0

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_float(self) -> bool:
        return self.dtype.kind == "f" or self.dtype.name == "bfloat16"

    @property
    def eps(self) -> float:
        return _EPS.get(self.dtype.name, 2.0**-23)


class Case(NamedTuple):
    """A model with inputs, and for each output how far results may differ.

    Attributes:
        hides: it has attention with keys that are not looked at, where the array tier
            multiplies their values by 0.
    """

    model: onnx.ModelProto
    feeds: dict[str, Array]
    errors: dict[str, float]
    hides: bool = False


F32, F64, F16 = (np.dtype(name) for name in ("float32", "float64", "float16"))
BF16 = helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)
I64, I32, U8, I8, BOOL = (
    np.dtype(name) for name in ("int64", "int32", "uint8", "int8", "bool")
)


class RandomGraph:
    """Makes one graph; the same seed makes the same."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        self.numbers = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.feeds: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        self.values: list[Value] = []
        self.hides = False
        self.sizes = [1, *self.choose.sample([2, 3, 4, 5, 7, 8, 16, 17, 33, 64], 3)]
        if self.choose.random() < 0.08:
            self.sizes.append(0)
        self.max_size = 6000
        if self.choose.random() < 0.1:
            self.max_size = 100_000
            self.sizes.append(self.choose.choice([128, 200, 384]))
        self.opset = self.choose.choice(OPSETS)
        self.other = self.choose.choice([F64, F16, BF16, I64, I32, U8, I8, BOOL, F32])

    def make(self, count: int, makers: Sequence[Maker]) -> Case:
        """A case of about *count* nodes, some by each of *makers*."""
        for _ in range(self.choose.randint(1, 3)):
            self.input(self.shape(), F32)
        if self.other != F32:
            self.input(self.shape(), self.other)
        while len(self.nodes) < count:
            self.choose.choice(makers)(self)
        return self.case()

    def case(self) -> Case:
        read = {name for node in self.nodes for name in node.input}
        made = {name for node in self.nodes for name in node.output}
        often = self.choose.choice([0.02, 0.1, 0.5])
        wanted = [
            value
            for value in self.values
            if value.name in made
            and (value.name not in read or self.choose.random() < often)
        ]
        if self.choose.random() < 0.03:
            wanted.append(self.values[0])  # an input
        graph = helper.make_graph(
            self.nodes,
            "random",
            [_info(name, array) for name, array in self.feeds.items()],
            [
                helper.make_tensor_value_info(
                    value.name, helper.np_dtype_to_tensor_dtype(value.dtype), None
                )
                for value in wanted
            ],
            [numpy_helper.from_array(a, name) for name, a in self.constants.items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10
        )
        errors = {value.name: value.error for value in wanted}
        return Case(model, self.feeds, errors, self.hides)

    # values

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        if rank is None:
            rank = self.choose.choice([0, 1, 2, 2, 3, 3, 3, 4, 4, 5])
        while True:
            shape = tuple(self.choose.choice(self.sizes) for _ in range(rank))
            if math.prod(shape) <= self.max_size:
                return shape

    def input(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Value:
        return self._keep(self.given(self.array(shape, dtype)))

    def given(self, array: Array) -> Value:
        """An input that is *array*."""
        name = f"in{len(self.feeds)}"
        self.feeds[name] = array
        return Value(name, array.dtype, array.shape)

    def constant(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Value:
        return self.literal(self.array(shape, dtype))

    def literal(self, array: Any) -> Value:
        array = np.asarray(array)
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return Value(name, array.dtype, array.shape)

    def integers(self, numbers: Sequence[int]) -> str:
        return self.literal(np.array(numbers, np.int64)).name

    def array(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """Halves from -2 to 2, whose sums and products are exact for a while."""
        if dtype == BOOL:
            return self.numbers.integers(0, 2, tuple(shape)).astype(bool)
        low = 0 if dtype.kind == "u" else -4
        halves = np.asarray(self.numbers.integers(low, 5, tuple(shape)) / 2)
        return halves.astype(dtype)

    def _keep(self, value: Value) -> Value:
        self.values.append(value)
        return value

    def pick(
        self, wanted: Callable[[Value], bool] = lambda value: True
    ) -> Value | None:
        """Some value, rather a recent one."""
        found = [value for value in self.values if wanted(value)]
        if not found:
            return None
        if self.choose.random() < 0.6:
            found = found[-5:]
        return self.choose.choice(found)

    def partner(self, value: Value, *, can_grow: bool = False) -> Value:
        """A value that broadcasts to the shape of *value*."""
        same = self.pick(
            lambda v: v.dtype == value.dtype and broadcasts(v.shape, value.shape)
        )
        if same is not None and self.choose.random() < 0.6:
            return same
        shape = [n if self.choose.random() < 0.6 else 1 for n in value.shape]
        shape = shape[self.choose.choice([0, 0, 0, len(shape) // 2, len(shape)]) :]
        if can_grow and self.choose.random() < 0.2 and len(value.shape) < 5:
            shape = [self.choose.choice(self.sizes), *([1] * len(value.shape))]
            if math.prod(shape) * value.size > self.max_size:
                shape = []
        if self.choose.random() < 0.5:
            return self.constant(shape, value.dtype)
        return self.input(shape, value.dtype)

    # nodes

    def add(
        self,
        op_type: str,
        inputs: Sequence[Value | str | None],
        shape: Sequence[int],
        dtype: np.dtype[Any] = F32,
        magnitude: float = 2.0,
        error: float = 0.0,
        **attributes: Any,
    ) -> Value:
        """A node of one output."""
        (name,) = self.node(op_type, inputs, 1, **attributes)
        value = Value(name, dtype, tuple(shape), magnitude, error)
        return self._keep(value)

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value | str | None],
        outputs: int,
        **attributes: Any,
    ) -> list[str]:
        names = [f"v{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(
            helper.make_node(
                op_type,
                [v.name if isinstance(v, Value) else v or "" for v in inputs],
                names,
                **attributes,
            )
        )
        return names

    def moved(
        self,
        op_type: str,
        value: Value,
        shape: Sequence[int],
        more: Sequence[Value | str | None] = (),
        **attributes: Any,
    ) -> Value:
        """A node that gives elements of *value*."""
        return self.add(
            op_type,
            [value, *more],
            shape,
            value.dtype,
            value.magnitude,
            value.error,
            **attributes,
        )


def _info(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
    )


def broadcasts(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    if len(small) > len(large):
        return False
    return all(
        a in (1, b) for a, b in zip(reversed(small), reversed(large), strict=False)
    )


def inexact(error: float, value: Value, magnitude: float, units: float = 4) -> float:
    """An error after a function that is not exact."""
    return error + units * value.eps * max(magnitude, 1e-3)


Maker: TypeAlias = Callable[[RandomGraph], None]
