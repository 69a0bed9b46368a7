"""Finds operators that exporters write as several: norms and attention.

A pattern is matched from a node that it cannot be without; every value within it must
be read within it alone.  What is found becomes one call of the operator.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from onnxplug_cpu.compiler.call import Abstract, Call
from onnxplug_cpu.compiler.operations.elementwise import scalar_of

F32 = np.dtype(np.float32)


def rewrite(
    calls: Sequence[Call],
    known: Callable[[str], Abstract],
    wanted: Collection[str],
) -> list[Call]:
    """*calls* with the patterns in them replaced.

    Args:
        calls: in topological order.
        known: what is known of a value.
        wanted: values that are needed outside.
    """
    return _Rewriter(calls, known, wanted).rewrite()


class _Rewriter:
    def __init__(
        self,
        calls: Sequence[Call],
        known: Callable[[str], Abstract],
        wanted: Collection[str],
    ) -> None:
        self.calls = list(calls)
        self.known = known
        self.wanted = frozenset(wanted)
        self.producer: dict[str, Call] = {}
        self.readers: defaultdict[str, list[Call]] = defaultdict(list)
        for call in calls:
            for name in call.outputs:
                if name is not None:
                    self.producer[name] = call
            for name in call.inputs:
                if name is not None:
                    self.readers[name].append(call)
        self.gone: set[Call] = set()
        self.made: dict[Call, Call] = {}

    def rewrite(self) -> list[Call]:
        """Replace what is found; a joined call stands where its last one stood."""
        for call in self.calls:
            if call in self.gone:
                continue
            if call.op_type == "Sqrt":
                self._norm(call)
            elif call.op_type == "Softmax":
                self._attention(call)
        return [
            self.made.get(call, call)
            for call in self.calls
            if call in self.made or call not in self.gone
        ]

    # looking around

    def made_by(self, name: str | None, *op_types: str) -> Call | None:
        """What computes *name*, if it is one of *op_types*."""
        call = self.producer.get(name or "")
        if call is None or call.op_type not in op_types or call in self.gone:
            return None
        return call

    def only_reader(self, call: Call, *op_types: str) -> Call | None:
        """What alone reads the call's output, if it is one of *op_types*."""
        name = call.outputs[0]
        if name is None or name in self.wanted:
            return None
        readers = self.readers[name]
        if len(readers) != 1 or readers[0].op_type not in op_types:
            return None
        return None if readers[0] in self.gone else readers[0]

    def is_inner(self, call: Call, readers: int = 1) -> bool:
        """Whether the call's output is read so many times, and not wanted outside."""
        name = call.outputs[0]
        return (
            name is not None
            and name not in self.wanted
            and len(self.readers[name]) == readers
        )

    def scalar(self, name: str | None) -> float | None:
        """The number that *name* always is."""
        if name is None or name in self.producer:
            return None
        value = scalar_of(self.known(name))
        return None if value is None else float(value)

    def other_input(self, call: Call, name: str | None) -> str | None:
        """The input of a call of two that is not *name*."""
        first, second = call.inputs[0], call.inputs[1]
        if first == second:
            return None
        return second if first == name else first

    def is_last_axis_mean(self, call: Call) -> bool:
        """Whether a ReduceMean is over the last axis, which it keeps."""
        x = call.inputs[0]
        if x is None or not call.attributes.get("keepdims", 1):
            return False
        rank = len(self.known(x).shape)
        axes: Any = call.attributes.get("axes")
        if call.input(1) is not None:
            content = self.known(call.inputs[1] or "").content
            axes = None if content is None else content.reshape(-1)
        if axes is None:
            return False
        return [int(axis) % rank for axis in axes] == [rank - 1]

    def join(self, members: Sequence[Call], last: Call, joined: Call) -> None:
        """Put *joined* in the place of *last*, and take the members away."""
        nodes = sorted({node for call in members for node in call.nodes})
        made = replace(joined, nodes=tuple(nodes))
        self.gone.update(members)
        self.made[last] = made
        for name in joined.outputs:
            if name is not None:
                self.producer[name] = made

    # norms

    def _norm(self, root: Call) -> None:
        """LayerNormalization and RMSNormalization from the square root on."""
        add = self.made_by(root.inputs[0], "Add")
        if add is None:
            return
        for position in (0, 1):
            epsilon = self.scalar(add.inputs[1 - position])
            mean = self.made_by(add.inputs[position], "ReduceMean")
            if epsilon is None or mean is None or not self.is_last_axis_mean(mean):
                continue
            square = self.made_by(mean.inputs[0], "Pow", "Mul")
            if square is None:
                return
            centred = square.inputs[0]
            if square.op_type == "Pow":
                if self.scalar(square.inputs[1]) != 2:
                    return
            elif centred != square.inputs[1]:
                return
            members = [square, mean, add, root]
            if centred is not None and all(self.is_inner(call) for call in members):
                self._normalised(root, centred, epsilon, members)
            return

    def _normalised(
        self, root: Call, centred: str, epsilon: float, members: list[Call]
    ) -> None:
        """What is done with the root: a division, or a product with the reciprocal."""
        if self.known(centred).dtype != F32 or not self.known(centred).shape:
            return
        last = self.only_reader(root, "Div", "Reciprocal")
        if last is None:
            return
        members = [*members, last]
        if last.op_type == "Reciprocal" or (
            last.inputs[1] == root.outputs[0] and self.scalar(last.inputs[0]) == 1
        ):
            inverse = last
            product = self.only_reader(inverse, "Mul")
            if product is None or (
                self.other_input(product, inverse.outputs[0]) != centred
            ):
                return
            last = product
            members.append(last)
        elif last.inputs != (centred, root.outputs[0]):
            return
        subtract = self.made_by(centred, "Sub")
        x: str | None = centred
        operator = "RMSNormalization"
        # the difference is read by the square, once or twice, and by the last one
        squared_twice = members[0].op_type == "Mul"
        if subtract is not None and self.is_inner(subtract, 3 if squared_twice else 2):
            average = self.made_by(subtract.inputs[1], "ReduceMean")
            if (
                average is not None
                and average.inputs[0] == subtract.inputs[0]
                and self.is_inner(average)
                and self.is_last_axis_mean(average)
            ):
                members += [subtract, average]
                x, operator = subtract.inputs[0], "LayerNormalization"
        assert x is not None
        self._scaled(operator, x, epsilon, last, members)

    def _scaled(
        self, operator: str, x: str, epsilon: float, last: Call, members: list[Call]
    ) -> None:
        """Take in the scale and the bias that follow."""
        width = self.known(x).shape[-1]
        inputs: list[str | None] = [x, None]
        for op_type in ("Mul", "Add"):
            follower = self.only_reader(last, op_type)
            if follower is None:
                break
            name = self.other_input(follower, last.outputs[0])
            if name is None or not self._is_row(name, width):
                break
            if op_type == "Mul":
                inputs[1] = name
            elif operator == "RMSNormalization":
                break
            else:
                inputs.append(name)
            last = follower
            members.append(last)
        self.join(
            members,
            last,
            Call(
                operator,
                "",
                last.version,
                tuple(inputs),
                last.outputs,
                {"axis": -1, "epsilon": epsilon, "stash_type": 1},
                (),
                last.dtypes,
            ),
        )

    def _is_row(self, name: str, width: int) -> bool:
        """Whether a value is one number for each element of the last axis."""
        if name in self.producer:
            return False  # it may be computed after the norm's place
        value = self.known(name)
        return (
            value.dtype == F32
            and value.size == width
            and (value.shape[-1:] == (width,))
        )

    # attention

    def _attention(self, softmax: Call) -> None:
        """Softmax(Q Kᵀ · scale + mask) V."""
        scores = softmax.inputs[0]
        if scores is None or self.known(scores).dtype != F32:
            return
        rank = len(self.known(scores).shape)
        if rank not in (3, 4) or int(softmax.attributes["axis"]) not in (-1, rank - 1):
            return
        last = self.only_reader(softmax, "MatMul")
        if last is None or last.inputs[0] != softmax.outputs[0]:
            return
        members = [softmax, last]
        mask: str | None = None
        factor = 1.0
        producer = self.made_by(scores, "Add")
        if producer is not None and self.is_inner(producer):
            found = self._product_side(producer)
            if found is None:
                return
            scores, mask = found
            members.append(producer)
        producer = self.made_by(scores, "Mul", "Div")
        if producer is not None and self.is_inner(producer):
            scores, by = producer.inputs[:2]
            if producer.op_type == "Mul" and self.scalar(scores) is not None:
                scores, by = by, scores
            number = self.scalar(by)
            if number is None or number == 0:
                return
            factor = number if producer.op_type == "Mul" else 1 / number
            members.append(producer)
        product = self.made_by(scores, "MatMul")
        if product is None or not self.is_inner(product):
            return
        q, k, v = product.inputs[0], product.inputs[1], last.inputs[1]
        shapes = [self.known(name or "").shape for name in (q, k, v)]
        if not _are_heads(*shapes) or len(shapes[0]) != rank:
            return
        self.join(
            [*members, product],
            last,
            Call(
                "ScaledDotProduct",
                "",
                last.version,
                (q, k, v, mask),
                last.outputs,
                {"scale": factor},
                (),
                last.dtypes,
            ),
        )

    def _product_side(self, add: Call) -> tuple[str, str] | None:
        """Which input of the Add is the scores, and which the mask."""
        output = add.outputs[0]
        assert output is not None
        for position in (0, 1):
            scores, mask = add.inputs[position], add.inputs[1 - position]
            if scores is None or mask is None or scores == mask:
                continue
            made = self.made_by(scores, "MatMul", "Mul", "Div")
            if (
                made is not None
                and self.known(scores).shape == self.known(output).shape
            ):
                return scores, mask
        return None


def _are_heads(q: tuple[int, ...], k: tuple[int, ...], v: tuple[int, ...]) -> bool:
    """Whether the products of attention are batch by batch, or of one key head with
    all heads of queries; not broadcast in another way."""
    if not len(q) == len(k) == len(v) or k[:-2] != v[:-2]:
        return False
    return k[:-3] == q[:-3] and k[-3] in (1, q[-3])
