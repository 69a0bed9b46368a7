"""Sequences of nodes that torch computes by one function.

Exporters write attention, and a product with a bias, as several nodes.  Where nothing
else reads what is between, they are one step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_torch.dtypes import FLOATS


class Fusion(Record):
    """What takes the place of several nodes, of which the last gives the result.

    Attributes:
        inputs: the names of what *function* takes, all tensors.
        replaced: the indices of the others.
    """

    function: Callable[..., Any]
    inputs: tuple[str, ...]
    replaced: frozenset[int]


def find_fusions(torch: Any, partition: ep.Partition) -> Mapping[int, Fusion]:
    """What to fuse, by the index of the last node of each."""
    finder = _Finder(torch, partition)
    found: dict[int, Fusion] = {}
    for node in partition.nodes:
        fusion = finder.attention(node) or finder.linear(node)
        if fusion is not None:
            found[node.index] = fusion
    # what is replaced is a part of nothing else
    taken: set[int] = set()
    for index, fusion in list(found.items()):
        if index in taken or fusion.replaced & (taken | found.keys()):
            del found[index]
        else:
            taken |= fusion.replaced
    return found


class _Finder:
    def __init__(self, torch: Any, partition: ep.Partition) -> None:
        self._torch = torch
        self._partition = partition
        self._makers = {
            name: node for node in partition.nodes for name in node.outputs if name
        }
        self._uses = Counter(partition.outputs)
        for node in partition.nodes:
            self._uses.update(filter(None, node.inputs))

    def attention(self, last: ep.Node) -> Fusion | None:
        """``softmax(q · k * scale + mask) · v`` of images [batch, heads, …, …]."""
        softmax = self._made_by("Softmax", last, 0, "MatMul")
        if softmax is None or not self._has_rank(softmax.outputs[0], 4):
            return None
        if softmax.since_version < 13 or softmax.attributes.get("axis", -1) not in (
            -1,
            3,
        ):
            return None
        scores, replaced = softmax.inputs[0], {softmax.index}
        mask: str | None = None
        scale = 1.0
        adding = self._single(scores, "Add")
        if adding is not None:
            for position in (0, 1):
                if self._is_scores(adding.inputs[position]):
                    mask, scores = adding.inputs[1 - position], adding.inputs[position]
                    replaced.add(adding.index)
                    break
            else:
                return None
        scaling = self._single(scores, "Mul") or self._single(scores, "Div")
        if scaling is not None:
            factor = self._scalar(scaling.inputs[1])
            if factor is None or factor == 0:
                return None
            scale = factor if scaling.op_type == "Mul" else 1 / factor
            scores = scaling.inputs[0]
            replaced.add(scaling.index)
        product = self._single(scores, "MatMul")
        if product is None:
            return None
        replaced.add(product.index)
        q, k, v = product.inputs[0], product.inputs[1], last.inputs[1]
        names = [name for name in (q, k, v, mask) if name]
        if not all(self._has_rank(name, 4) for name in (q, k, v)):
            return None
        if mask is not None and (self._rank(mask) or 9) > 4:
            return None
        if len({self._partition.value(name).dtype for name in names}) > 1:
            return None
        if self._partition.value(q or "").dtype not in FLOATS:
            return None
        torch = self._torch
        attend = torch.nn.functional.scaled_dot_product_attention

        def function(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
            if _is_fused(q.shape, k.shape, v.shape, mask):
                return attend(q, k.transpose(-1, -2), v, mask, scale=scale)
            scores = torch.matmul(q, k) * scale
            scores = scores if mask is None else scores + mask
            return torch.matmul(torch.softmax(scores, -1), v)

        return Fusion(function, tuple(names), frozenset(replaced))

    def linear(self, last: ep.Node) -> Fusion | None:
        """A product with a constant matrix, and a constant bias."""
        if not _is(last, "Add") or last.since_version < 7:
            return None
        for position in (0, 1):
            product = self._single(last.inputs[position], "MatMul")
            bias = last.inputs[1 - position]
            if product is None or bias is None:
                continue
            x, weight = product.inputs
            if not (
                self._is_constant(weight, 2)
                and self._is_constant(bias, 1)
                and (self._rank(x) or 0) >= 2
                and self._size(bias) == self._size(weight)
                and self._partition.value(bias).dtype in FLOATS
            ):
                continue
            compute = self._torch.nn.functional.linear

            def function(x: Any, weight: Any, bias: Any, compute: Any = compute) -> Any:
                return compute(x, weight.t(), bias)

            assert x is not None and weight is not None  # as both have ranks
            return Fusion(function, (x, weight, bias), frozenset({product.index}))
        return None

    def _single(self, name: str | None, op_type: str) -> ep.Node | None:
        """The node of the partition that makes *name*, which is read once."""
        node = self._makers.get(name or "")
        if node is None or not _is(node, op_type) or self._uses[name or ""] != 1:
            return None
        return node

    def _made_by(
        self, op_type: str, node: ep.Node, position: int, own: str
    ) -> ep.Node | None:
        return self._single(node.inputs[position], op_type) if _is(node, own) else None

    def _is_scores(self, name: str | None) -> bool:
        found = (
            self._single(name, "MatMul")
            or self._single(name, "Mul")
            or self._single(name, "Div")
        )
        return found is not None and self._has_rank(name, 4)

    def _rank(self, name: str | None) -> int | None:
        shape = self._partition.value(name or "").shape
        return None if shape is None else len(shape)

    def _has_rank(self, name: str | None, rank: int) -> bool:
        return self._rank(name) == rank

    def _is_constant(self, name: str | None, rank: int) -> bool:
        value = self._partition.value(name or "")
        return value.is_constant and self._has_rank(name, rank)

    def _size(self, name: str | None) -> ep.Dimension:
        shape = self._partition.value(name or "").shape
        return shape[-1] if shape else None

    def _scalar(self, name: str | None) -> float | None:
        content = self._partition.constant(name or "")
        if content is None or content.size != 1 or content.ndim > 4:
            return None
        return float(np.asarray(content, np.float64).reshape(()))


def _is_fused(q: Sequence[int], k: Sequence[int], v: Sequence[int], mask: Any) -> bool:
    """Whether torch's fused attention takes these sizes as the nodes do."""
    if k[3] != v[2]:
        return False
    if mask is None:
        return True
    images = (k[n] if q[n] == 1 else q[n] for n in (0, 1))
    scores = (*images, q[2], k[3])[4 - mask.ndim :]
    return all(have in (1, want) for have, want in zip(mask.shape, scores, strict=True))


def _is(node: ep.Node, op_type: str) -> bool:
    return not node.domain and node.op_type == op_type
