"""What cuDNN computes for the EP: plain data, checked against memory, and as graphs of
its Python frontend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_cuda.options import SEARCH

NBYTES: Final = {"f16": 2, "bf16": 2, "f32": 4}
"""Bytes of the elements that it computes with."""

NAMES: Final = {"f16": "HALF", "bf16": "BFLOAT16", "f32": "FLOAT"}
"""What the frontend calls them."""

CAUSAL: Final = {
    "": {},
    "first": {"use_causal_mask": True},
    "last": {"use_causal_mask_bottom_right": True},
}
"""Arguments for causal attention: of none, one whose first query sees the first key,
and one whose last query sees the last key."""

_MOST: Final = (1 << 31) - 1


class Tensor(Parameters):
    """An array somewhere: sizes, and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def extent(self) -> int:
        """Elements from the first to behind the last one."""
        steps = zip(self.shape, self.strides, strict=True)
        return sum((size - 1) * stride for size, stride in steps) + 1

    def check(self) -> None:
        """Raise ``ValueError`` unless it has elements, none of which is before the
        first."""
        if (
            len(self.shape) != len(self.strides)
            or not all(0 < size <= _MOST for size in self.shape)
            or not all(0 <= stride <= _MOST for stride in self.strides)
        ):
            raise ValueError(f"no array lies as {tuple(self)} says")


class Convolution(Parameters):
    """A convolution, or a transposed one, of two or three spatial axes.

    Attributes:
        element: of all arrays.
        x: [N, C, *spatial].
        w: [M, C / groups, *taps]; transposed, [C, M / groups, *taps].
        y: [N, M, *spatial].
        before, after: zeros around *x*, or around *y* if transposed.
        strides, dilations: of windows.
        transposed: whether windows slide over *y*.
        has_bias: whether there is one number for each channel of *y*.
        relu: whether Relu is applied.
        tf32: whether float32 may be rounded to TF32.
        search: how its plan is found, of ``options.SEARCH``.
        most: bytes of workspace at most; ``None``: as many as a plan wants.
    """

    element: str
    x: Tensor
    w: Tensor
    y: Tensor
    before: tuple[int, ...]
    after: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    transposed: bool = False
    has_bias: bool = False
    relu: bool = False
    tf32: bool = False
    search: str = "EXHAUSTIVE"
    most: int | None = None

    @property
    def flops(self) -> int:
        """Operations."""
        wide = self.x if self.transposed else self.y
        return 2 * math.prod(wide.shape) * math.prod(self.w.shape[1:])

    @property
    def needed(self) -> list[int]:
        """Bytes from the first element to the end of x, w, the bias if there is one,
        and y."""
        size = NBYTES[self.element]
        bias = [self.y.shape[1] * size] if self.has_bias else []
        return [self.x.extent * size, self.w.extent * size, *bias, self.y.extent * size]

    def check(self, nbytes: Sequence[int]) -> None:
        """Check that it fits together and into memory.

        Args:
            nbytes: what is there of each that :attr:`needed` is of.

        Raises:
            ValueError: it does not.
        """
        _check_element(self.element)
        for each in (self.x, self.w, self.y):
            each.check()
        rank = len(self.x.shape) - 2
        numbers = self.before, self.after, self.strides, self.dilations
        if self.search not in SEARCH or (self.most is not None and self.most < 0):
            raise ValueError(f"plans are not found by {self.search!r}, {self.most}")
        ranks = {len(each.shape) - 2 for each in (self.x, self.w, self.y)}
        if (
            rank not in (2, 3)
            or ranks != {rank}
            or {len(each) for each in numbers} != {rank}
            or min(*self.before, *self.after) < 0
            or min(*self.strides, *self.dilations) < 1
        ):
            raise ValueError(f"{tuple(self)} is no convolution")
        wide, narrow = (self.y, self.x) if self.transposed else (self.x, self.y)
        filters, depth, *taps = self.w.shape
        if (
            wide.shape[0] != narrow.shape[0]
            or narrow.shape[1] != filters
            or wide.shape[1] % depth
            or filters % (wide.shape[1] // depth)
            or tuple(self._places(wide.shape[2:], taps)) != narrow.shape[2:]
        ):
            raise ValueError(
                f"windows of {self.w.shape} over {wide.shape} do not give "
                f"{narrow.shape}"
            )
        _check_memory(self.needed, nbytes)

    def _places(self, wide: Sequence[int], taps: Sequence[int]) -> list[int]:
        """How many windows there are along each axis."""
        return [
            (size + before + after - dilation * (count - 1) - 1) // stride + 1
            for size, count, before, after, stride, dilation in zip(
                wide, taps, self.before, self.after, self.strides, self.dilations,
                strict=True,
            )
        ]  # fmt: skip

    def describe(self, cudnn: Any, graph: Any) -> list[Any]:
        """Describe it to *graph*; the tensors in the order of :attr:`needed`."""
        kind = getattr(cudnn.data_type, NAMES[self.element])
        x, w = _tensor(graph, "x", self.x, kind), _tensor(graph, "w", self.w, kind)
        how = {
            "pre_padding": list(self.before),
            "post_padding": list(self.after),
            "stride": list(self.strides),
            "dilation": list(self.dilations),
        }
        if self.transposed:
            y = graph.conv_dgrad(loss=x, filter=w, **how)
            # which more than one size of the result would fit
            y.set_dim(list(self.y.shape))
        else:
            y = graph.conv_fprop(image=x, weight=w, **how)
        bias = []
        if self.has_bias:
            channels, rank = self.y.shape[1], len(self.y.shape)
            shape = Tensor(
                (1, channels, *(1,) * (rank - 2)), (channels, *(1,) * (rank - 1))
            )
            bias.append(_tensor(graph, "bias", shape, kind))
            y = graph.bias(name="biased", input=y, bias=bias[0])
        if self.relu:
            y = graph.relu(name="relu", input=y)
        return [x, w, *bias, _output(y, self.y, kind)]


class Attention(Parameters):
    """Scaled dot-product attention of floats of 16 bits.

    Attributes:
        element: of all arrays.
        q: [B, H, S, D].
        k, v: [B, Hkv, T, D] and [B, Hkv, T, Dv].
        mask: [B or 1, H or 1, S, T], which is added to scores; ``None``: none is.
        o: [B, H, S, Dv].
        scale: of the scores.
        causal: one of :data:`CAUSAL`.
    """

    element: str
    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    o: Tensor
    scale: float
    causal: str = ""

    tf32 = False
    search = "HEURISTIC"
    most: Final[int | None] = None

    @property
    def flops(self) -> int:
        """Operations."""
        batch, heads, queries, depth = self.q.shape
        many = batch * heads * queries * self.k.shape[2]
        return 2 * many * (depth + self.v.shape[3])

    @property
    def needed(self) -> list[int]:
        """Bytes from the first element to the end of q, k, v, the mask if there is one,
        and o."""
        arrays = [self.q, self.k, self.v, *([self.mask] if self.mask else []), self.o]
        return [each.extent * NBYTES[self.element] for each in arrays]

    def check(self, nbytes: Sequence[int]) -> None:
        """Check that it fits together and into memory.

        Args:
            nbytes: what is there of each that :attr:`needed` is of.

        Raises:
            ValueError: it does not.
        """
        _check_element(self.element)
        arrays = [self.q, self.k, self.v, *([self.mask] if self.mask else []), self.o]
        for each in arrays:
            each.check()
        if self.causal not in CAUSAL or {len(each.shape) for each in arrays} != {4}:
            raise ValueError(f"{tuple(self)} is no attention")
        batch, heads, queries, depth = self.q.shape
        _, groups, keys, wide = self.v.shape
        fits = (
            heads % groups == 0
            and self.k.shape == (batch, groups, keys, depth)
            and self.v.shape[0] == batch
            and self.o.shape == (batch, heads, queries, wide)
        )
        if self.mask is not None:
            wanted = batch, heads, queries, keys
            pairs = zip(self.mask.shape, wanted, strict=True)
            fits &= self.mask.shape[2:] == wanted[2:]
            fits &= all(size in (1, most) for size, most in pairs)
        if not fits or not math.isfinite(self.scale):
            raise ValueError(f"{tuple(self)} is no attention")
        _check_memory(self.needed, nbytes)

    def describe(self, cudnn: Any, graph: Any) -> list[Any]:
        """Describe it to *graph*; the tensors in the order of :attr:`needed`."""
        kind = getattr(cudnn.data_type, NAMES[self.element])
        q, k, v = (
            _tensor(graph, name, each, kind)
            for name, each in (("q", self.q), ("k", self.k), ("v", self.v))
        )
        given: dict[str, Any] = dict(CAUSAL[self.causal])
        mask = []
        if self.mask is not None:
            mask.append(_tensor(graph, "mask", self.mask, kind))
            given["bias"] = mask[0]
        o, _ = graph.sdpa(
            name="attention", q=q, k=k, v=v, is_inference=True, attn_scale=self.scale,
            **given,
        )  # fmt: skip
        return [q, k, v, *mask, _output(o, self.o, kind)]


def _tensor(graph: Any, name: str, tensor: Tensor, kind: Any) -> Any:
    return graph.tensor(
        name=name,
        dim=list(tensor.shape),
        stride=list(tensor.strides),
        data_type=kind,
    )


def _output(made: Any, tensor: Tensor, kind: Any) -> Any:
    made.set_output(True).set_data_type(kind)
    made.set_dim(list(tensor.shape)).set_stride(list(tensor.strides))
    return made


def _check_element(element: str) -> None:
    if element not in NBYTES:
        raise ValueError(f"cuDNN is not given elements of {element!r}")


def _check_memory(needed: Sequence[int], nbytes: Sequence[int]) -> None:
    if len(needed) != len(nbytes) or any(
        wanted > there for wanted, there in zip(needed, nbytes, strict=True)
    ):
        raise ValueError(
            f"memory of {list(needed)} bytes is needed; given are {list(nbytes)}"
        )
