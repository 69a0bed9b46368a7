"""Finds operators that exporters write as several: norms and attention.

A pattern is matched from a node that it cannot be without; every value within it must
be read within it alone.  What is found becomes one call of the operator.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from onnxplug_cpu.compiler.frontend.call import Call
from onnxplug_cpu.compiler.frontend.facts import (
    Facts,
    are_heads,
    dtype_of,
    integers_of,
    is_row,
    number_of,
    rank_of,
)

F32 = np.dtype(np.float32)


def rewrite(
    calls: Sequence[Call],
    facts: Facts,
    wanted: Collection[str],
) -> list[Call]:
    """*calls* with the patterns in them replaced.

    Args:
        calls: in topological order.
        facts: of the calls' values.
        wanted: values that are needed outside.
    """
    return _Rewriter(calls, facts, wanted).rewrite()


class _Rewriter:
    def __init__(
        self,
        calls: Sequence[Call],
        facts: Facts,
        wanted: Collection[str],
    ) -> None:
        self.calls = list(calls)
        self.ask = facts.ask
        self.same_shape = facts.same_shape
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
        value = self.ask(number_of, name)
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
        rank = self.ask(rank_of, x)
        axes: Any = call.attributes.get("axes")
        name = call.input(1)
        if name is not None:
            axes = self.ask(integers_of, name)
        if axes is None:
            return False
        return [int(axis) % rank for axis in axes] == [rank - 1]

    def join(self, members: Sequence[Call], last: Call, joined: Call) -> None:
        """Put *joined* in the place of *last*, and take the members away."""
        nodes = sorted({node for call in members for node in call.nodes})
        joined.nodes = tuple(nodes)
        self.gone.update(members)
        self.made[last] = joined
        for name in joined.outputs:
            if name is not None:
                self.producer[name] = joined

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
        if self.ask(dtype_of, centred) != F32 or not self.ask(rank_of, centred):
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
        inputs: list[str | None] = [x, None]
        for op_type in ("Mul", "Add"):
            follower = self.only_reader(last, op_type)
            if follower is None:
                break
            name = self.other_input(follower, last.outputs[0])
            if name is None or not self._is_row(name, x):
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

    def _is_row(self, name: str, of: str) -> bool:
        """Whether a value is one number for each element of the last axis of *of*."""
        if name in self.producer:
            return False  # it may be computed after the norm's place
        return bool(self.ask(dtype_of, name) == F32 and self.ask(is_row, name, of))

    # attention

    def _attention(self, softmax: Call) -> None:
        """Softmax(Q Kᵀ · scale + mask) V, as exporters write it.

        The scale is applied to the scores, or to Q and K before; the mask is added, or
        chooses between scores and a number; weights that are NaN may become 0.
        """
        scores = softmax.inputs[0]
        if scores is None or self.ask(dtype_of, scores) != F32:
            return
        rank = self.ask(rank_of, scores)
        if rank not in (3, 4) or int(softmax.attributes["axis"]) not in (-1, rank - 1):
            return
        members = [softmax]
        weights, undefined = self._weights(softmax, members)
        last = self.only_reader(weights, "MatMul")
        if last is None or last.inputs[0] != weights.outputs[0]:
            return
        members.append(last)
        scores, mask, hides, fill = self._masked(scores, members)
        scores, factor = self._scaled_value(scores, members)
        product = self.made_by(scores, "MatMul")
        if product is None or not self.is_inner(product):
            return
        members.append(product)
        q, q_factor = self._scaled_value(product.inputs[0], members)
        k, k_factor = self._scaled_value(product.inputs[1], members)
        v = last.inputs[1]
        assert q is not None and k is not None and v is not None
        if not self.ask(are_heads, q, k, v) or self.ask(rank_of, q) != rank:
            return
        self.join(
            members,
            last,
            Call(
                "ScaledDotProduct",
                "",
                last.version,
                (q, k, v, mask),
                last.outputs,
                {
                    "scale": factor * q_factor * k_factor,
                    "undefined": undefined,
                    "hides": hides,
                    "fill": fill,
                },
                (),
                last.dtypes,
            ),
        )

    def _weights(self, softmax: Call, members: list[Call]) -> tuple[Call, str]:
        """What makes the weights, and what they are where Softmax is undefined.

        PyTorch's decomposition has 0 for rows in which all is masked:
        ``Where(IsNaN(weights), 0, weights)``.
        """
        name = softmax.outputs[0]
        readers = self.readers[name or ""]
        if self.is_inner(softmax, 2):
            test = next((call for call in readers if call.op_type == "IsNaN"), None)
            if test is not None:
                choice = self.only_reader(test, "Where")
                if (
                    choice is not None
                    and choice.inputs[0] == test.outputs[0]
                    and choice.inputs[2] == name
                    and self.scalar(choice.inputs[1]) == 0
                ):
                    members += [test, choice]
                    return choice, "zero"
        return softmax, "nan"

    def _masked(
        self, scores: str, members: list[Call]
    ) -> tuple[str, str | None, bool, float]:
        """The scores before a mask, the mask, whether it hides keys, and by what."""
        nothing = scores, None, False, -math.inf
        choice = self.made_by(scores, "Add", "Where")
        if choice is None or not self.is_inner(choice):
            return nothing
        if choice.op_type == "Add":
            for position in (0, 1):
                value, mask = choice.inputs[position], choice.inputs[1 - position]
                if self._are_scores(value, scores) and mask != value:
                    assert value is not None
                    members.append(choice)
                    return value, mask, False, -math.inf
            return nothing
        mask = choice.inputs[0]
        for position in (1, 2):
            value, fill = (
                choice.inputs[position],
                self.scalar(choice.inputs[3 - position]),
            )
            if self._are_scores(value, scores) and fill is not None:
                assert value is not None
                members.append(choice)
                return value, mask, position == 2, fill
        return nothing

    def _are_scores(self, name: str | None, masked: str) -> bool:
        made = self.made_by(name, "MatMul", "Mul", "Div")
        return made is not None and self.same_shape(name or "", masked)

    def _scaled_value(
        self, name: str | None, members: list[Call]
    ) -> tuple[str | None, float]:
        """The value before a number multiplies or divides it, and the number."""
        made = self.made_by(name, "Mul", "Div")
        if made is None or not self.is_inner(made):
            return name, 1.0
        value, by = made.inputs[:2]
        if made.op_type == "Mul" and self.scalar(value) is not None:
            value, by = by, value
        number = self.scalar(by)
        if (
            number is None
            or not math.isfinite(number)
            or number == 0
            or not self.same_shape(value or "", name or "")
        ):
            return name, 1.0
        members.append(made)
        return value, number if made.op_type == "Mul" else 1 / number
