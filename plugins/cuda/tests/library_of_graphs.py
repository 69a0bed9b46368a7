"""A stand-in for cuDNN's Python frontend that computes what graphs mean, in float64.

Its functions have the names and arguments of the frontend's; a test holds them against
it.  Addresses are of arrays in host memory.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from .library_of_products import tf32

Array = np.ndarray[Any, Any]

data_type = enum.Enum("data_type", "FLOAT HALF BFLOAT16")
heur_mode = enum.Enum("heur_mode", "A B FALLBACK")
numerical_note = enum.Enum("numerical_note", "TENSOR_CORE DOWN_CONVERT_INPUTS")

DTYPES = {
    data_type.FLOAT: np.dtype(np.float32),
    data_type.HALF: np.dtype(np.float16),
    data_type.BFLOAT16: np.dtype(ml_dtypes.bfloat16),
}


class cudnnGraphNotSupportedError(Exception):  # the frontend's name
    """No plan does a graph."""


class Tensor:
    """A tensor of a graph: given, or made by *compute* from others."""

    def __init__(
        self,
        dim: Sequence[int] = (),
        stride: Sequence[int] = (),
        kind: Any = None,
        compute: Callable[[], Array] | None = None,
    ) -> None:
        self.dim, self.stride, self.kind = list(dim), list(stride), kind
        self.compute = compute
        self.is_output = False
        self.content: Array | None = None

    def set_output(self, value: bool) -> Tensor:
        self.is_output = value
        return self

    def set_data_type(self, dtype: Any) -> Tensor:
        self.kind = dtype
        return self

    def set_dim(self, dim: list[int]) -> Tensor:
        self.dim = dim
        return self

    def set_stride(self, stride: list[int]) -> Tensor:
        self.stride = stride
        return self

    @property
    def nbytes(self) -> int:
        """From the first element to the end."""
        steps = zip(self.dim, self.stride, strict=True)
        return (sum((n - 1) * s for n, s in steps) + 1) * DTYPES[self.kind].itemsize

    def value(self) -> Array:
        """What it is, in float64."""
        if self.compute is not None:
            return self.compute()
        assert self.content is not None
        return self.content.astype(np.float64)


class Frontend:
    """The module, with what tests plant and look at.

    Attributes:
        memory: arrays that exist.
        plans: what there is for each graph: names, and bytes of workspace.
        broken: names of plans that are not built; ``failing`` those that do not run.
        declines: why no graph is supported; empty: all are.
        ran: names of plans that were executed, with their streams.
        built: names of plans that were built.
        graphs: those that were made.
    """

    data_type, heur_mode, numerical_note = data_type, heur_mode, numerical_note
    cudnnGraphNotSupportedError = cudnnGraphNotSupportedError

    def __init__(self) -> None:
        self.memory: list[Array] = []
        self.plans = {"eng1": 0, "eng2": 4096, "eng3": 64 << 20}
        self.broken: set[str] = set()
        self.failing: set[str] = set()
        self.declines = ""
        self.without = ""
        self.ran: list[tuple[str, int]] = []
        self.built: list[str] = []
        self.graphs: list[Graph] = []
        self.handles: set[Any] = set()

    def create_handle(self) -> Any:
        if self.without:
            raise RuntimeError(self.without)
        handle = SimpleNamespace(stream=0)
        self.handles.add(id(handle))
        return handle

    def destroy_handle(self, handle: Any) -> None:
        self.handles.remove(id(handle))

    def set_stream(self, handle: Any, stream: int) -> None:
        assert id(handle) in self.handles
        handle.stream = stream

    def pygraph(self, **given: Any) -> Graph:
        graph = Graph(self, **given)
        self.graphs.append(graph)
        return graph

    def array(self, address: int, tensor: Tensor) -> Array:
        dtype = DTYPES[tensor.kind]
        strides = [step * dtype.itemsize for step in tensor.stride]
        last = sum((n - 1) * s for n, s in zip(tensor.dim, strides, strict=True))
        found = self.bytes(address, last + dtype.itemsize)
        return np.ndarray(tensor.dim, dtype, found.data, 0, strides)

    def bytes(self, address: int, nbytes: int) -> Array:
        """What is at an address."""
        for array in self.memory:
            begin = array.ctypes.data
            end = address + nbytes
            if begin <= address and end <= begin + array.nbytes:
                return array.reshape(-1).view(np.uint8)[address - begin : end - begin]
        raise AssertionError(f"{address:#x} is in no memory, or too near its end")

    def submit(
        self,
        stream: int,
        do: Callable[[], None],
        ranges: Sequence[tuple[int, int, bool]],
    ) -> None:
        """Have *do* done, which touches these addresses: at once."""
        do()


class Graph:
    """``cudnn.pygraph``."""

    def __init__(
        self,
        frontend: Frontend,
        *,
        io_data_type: Any,
        intermediate_data_type: Any,
        compute_data_type: Any,
        handle: Any,
    ) -> None:
        assert intermediate_data_type is compute_data_type is data_type.FLOAT
        self.frontend = frontend
        self.outputs: list[Tensor] = []
        self.modes: list[Any] = []
        self.notes: list[Any] = []
        self.most: int | None = None
        self.ready: set[int] = set()
        self.steps: list[str] = []

    # what is described

    def tensor(
        self, dim: list[int], stride: list[int], data_type: Any, name: str
    ) -> Tensor:
        assert len(dim) == len(stride) and all(type(each) is int for each in dim)
        return Tensor(dim, stride, data_type)

    def _made(self, compute: Callable[[], Array]) -> Tensor:
        made = Tensor(compute=compute)
        self.outputs.append(made)
        return made

    def _factors(self, *tensors: Tensor) -> list[Array]:
        """Rounded as tensor cores do, if plans with these may be taken."""
        values = [tensor.value() for tensor in tensors]
        if numerical_note.TENSOR_CORE in self.notes:
            return values
        is_float = tensors[0].kind is data_type.FLOAT
        return [tf32(value) for value in values] if is_float else values

    def conv_fprop(
        self, image: Tensor, weight: Tensor, pre_padding: list[int],
        post_padding: list[int], stride: list[int], dilation: list[int],
    ) -> Tensor:  # fmt: skip
        def compute() -> Array:
            x, w = self._factors(image, weight)
            pads = [(0, 0), (0, 0), *zip(pre_padding, post_padding, strict=True)]
            x = np.pad(x, pads)
            shape = _places(x.shape[2:], w.shape[2:], stride, dilation)
            groups = x.shape[1] // w.shape[1]
            total = np.zeros((x.shape[0], groups, w.shape[0] // groups, *shape))
            grouped = x.reshape((x.shape[0], groups, w.shape[1], *x.shape[2:]))
            for tap in np.ndindex(*w.shape[2:]):
                at = _slices(tap, shape, stride, dilation)
                by = w[(..., *tap)].reshape((groups, -1, w.shape[1]))
                total += np.einsum("ngd...,gmd->ngm...", grouped[(..., *at)], by)
            return total.reshape((x.shape[0], w.shape[0], *shape))

        return self._made(compute)

    def conv_dgrad(
        self, loss: Tensor, filter: Tensor, pre_padding: list[int],
        post_padding: list[int], stride: list[int], dilation: list[int],
    ) -> Tensor:  # fmt: skip
        def compute() -> Array:
            x, w = self._factors(loss, filter)
            shape = made.dim
            sides = zip(shape[2:], pre_padding, post_padding, strict=True)
            padded = [a + b + c for a, b, c in sides]
            assert _places(padded, w.shape[2:], stride, dilation) == x.shape[2:]
            groups = shape[1] // w.shape[1]
            total = np.zeros((x.shape[0], groups, w.shape[1], *padded))
            grouped = x.reshape((x.shape[0], groups, -1, *x.shape[2:]))
            for tap in np.ndindex(*w.shape[2:]):
                at = _slices(tap, x.shape[2:], stride, dilation)
                by = w[(..., *tap)].reshape((groups, -1, w.shape[1]))
                total[(..., *at)] += np.einsum("ngd...,gdm->ngm...", grouped, by)
            inner = (
                slice(a, a + n) for a, n in zip(pre_padding, shape[2:], strict=True)
            )
            return total.reshape((*shape[:2], *padded))[(..., *inner)]

        made = self._made(compute)
        return made

    def bias(self, input: Tensor, bias: Tensor, name: str) -> Tensor:
        return self._made(lambda: input.value() + bias.value())

    def relu(self, input: Tensor, name: str) -> Tensor:
        return self._made(lambda: np.maximum(input.value(), 0))

    def sdpa(
        self, q: Tensor, k: Tensor, v: Tensor, *, name: str, is_inference: bool,
        attn_scale: float, bias: Tensor | None = None, use_causal_mask: bool = False,
        use_causal_mask_bottom_right: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        assert is_inference

        def compute() -> Array:
            many = q.dim[1] // k.dim[1]
            keys, values = (each.value().repeat(many, 1) for each in (k, v))
            scores = q.value() @ keys.swapaxes(-1, -2) * attn_scale
            if bias is not None:
                scores = scores + bias.value()
            rows, columns = scores.shape[-2:]
            if use_causal_mask or use_causal_mask_bottom_right:
                past = columns - rows if use_causal_mask_bottom_right else 0
                seen = np.arange(columns) <= np.arange(rows)[:, None] + past
                scores = np.where(seen, scores, -np.inf)
            raised = np.exp(scores - scores.max(-1, keepdims=True))
            found: Array = raised / raised.sum(-1, keepdims=True) @ values
            return found

        return self._made(compute), None

    # plans

    def _step(self, name: str, *, after: str) -> None:
        assert after in ("", *self.steps), f"{name} comes before {after}"
        self.steps.append(name)

    def validate(self) -> None:
        self._step("validate", after="")
        if self.frontend.declines:
            raise cudnnGraphNotSupportedError(self.frontend.declines)

    def build_operation_graph(self) -> None:
        self._step("build", after="validate")

    def create_execution_plans(self, heuristics: list[Any]) -> None:
        self._step("plans", after="build")
        self.modes = heuristics

    def deselect_numeric_notes(self, notes: list[Any]) -> Graph:
        self._step("notes", after="plans")
        self.notes = notes
        return self

    def deselect_workspace_greater_than(self, workspace_limit: int) -> Graph:
        self._step("limit", after="plans")
        self.most = workspace_limit
        return self

    def check_support(self) -> None:
        self._step("support", after="plans")

    @property
    def _names(self) -> list[str]:
        return list(self.frontend.plans)

    def get_execution_plan_count(self) -> int:
        return len(self.frontend.plans)

    def get_plan_name_at_index(self, index: int) -> str:
        return self._names[index]

    def build_plan_at_index(self, index: int) -> None:
        assert "support" in self.steps
        name = self._names[index]
        if name in self.frontend.broken:
            raise cudnnGraphNotSupportedError(f"{name} is not built")
        if self.most is not None and self.frontend.plans[name] > self.most:
            raise RuntimeError(f"{name} is deselected")
        self.frontend.built.append(name)
        self.ready.add(index)

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        assert index in self.ready
        return self.frontend.plans[self._names[index]]

    def execute_plan_at_index(
        self, tensor_dict: Mapping[Tensor, int], workspace: int, index: int, handle: Any
    ) -> None:
        assert index in self.ready and id(handle) in self.frontend.handles
        name = self._names[index]
        if name in self.frontend.failing:
            raise RuntimeError("CUDNN_STATUS_EXECUTION_FAILED")
        pack = dict(tensor_dict)
        results = [tensor for tensor in pack if tensor.is_output]
        assert len(results) == 1

        def compute() -> None:
            arrays = {t: self.frontend.array(at, t) for t, at in pack.items()}
            for tensor, array in arrays.items():
                tensor.content = array
            out = arrays[results[0]]
            out[...] = results[0].value().astype(out.dtype)
            nbytes = self.frontend.plans[name]
            if nbytes:
                whole = Tensor([nbytes // 4], [1], data_type.FLOAT)
                self.frontend.array(workspace, whole)[:] = np.nan

        ranges = [(at, at + t.nbytes, t.is_output) for t, at in pack.items()]
        self.frontend.submit(handle.stream, compute, ranges)
        self.frontend.ran.append((name, handle.stream))


def _places(
    sizes: Sequence[int],
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> tuple[int, ...]:
    numbers = zip(sizes, taps, strides, dilations, strict=True)
    return tuple((size - (n - 1) * by - 1) // step + 1 for size, n, step, by in numbers)


def _slices(
    tap: Sequence[int],
    sizes: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
) -> list[slice]:
    return [
        slice(number * by, number * by + (size - 1) * step + 1, step)
        for number, size, step, by in zip(tap, sizes, strides, dilations, strict=True)
    ]


def contiguous(*shape: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """A shape, with its strides."""
    steps = itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1)
    return shape, tuple(reversed(list(steps)))
