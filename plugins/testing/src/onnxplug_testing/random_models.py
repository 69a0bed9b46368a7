"""Random models with control flow and sequences, whose values are small matrices.

Every model is right for any way of dividing it among EPs, so that what a run returns
depends on nothing but the model and what is fed.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MATRIX: Final = (4, 4)
_UNARY: Final = ("Abs", "Neg", "Relu", "Sigmoid", "Sin", "Tanh")
_BINARY: Final = ("Add", "Max", "Min", "Sub")


@dataclass(frozen=True)
class RandomModel:
    """A model and what to feed it.

    Attributes:
        feeds: more than the model's inputs, which are those that it uses of them.
    """

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray[Any, Any]]


def draw_model(seed: int, *, control_flow: bool = True) -> RandomModel:
    """The model of this *seed*.

    It has element-wise operators and products of float32; all outputs are matrices of
    the shape ``MATRIX``, or stacks of them.

    Args:
        control_flow: it has sequences, too, and ``If``, ``Loop`` and ``Scan``, also
            within each other, that capture values around them.
    """
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    feeds = {
        f"in{index}": numbers.uniform(-1, 1, MATRIX).astype(np.float32)
        for index in range(draw.randint(1, 3))
    }
    rounds = np.array(draw.randint(0, 3))
    graph = _Drawn(draw, [*feeds, "weight"], deepest=2 if control_flow else 0)
    for _ in range(draw.randint(3, 9)):
        graph.draw_node(depth=0)
    outputs = [name for name in graph.matrices if name not in (*feeds, "weight")]
    ends = outputs[-1:] + [name for name in outputs[:-1] if draw.random() < 0.3]
    extra = [name for name in graph.stacks if draw.random() < 0.8]
    proto = helper.make_graph(
        graph.nodes,
        f"random{seed}",
        [
            *(_matrix(name) for name in feeds),
            *(_OTHER_INPUTS if control_flow else ()),
        ],
        [
            *(_matrix(name) for name in ends),
            *(
                helper.make_tensor_value_info(name, TensorProto.FLOAT, (None, *MATRIX))
                for name in extra
            ),
        ],
        [
            numpy_helper.from_array(
                numbers.uniform(-0.5, 0.5, MATRIX).astype(np.float32), "weight"
            ),
            numpy_helper.from_array(np.array(True), "go"),
            numpy_helper.from_array(np.array(50, np.float32), "limit"),
            numpy_helper.from_array(np.array(0), "first"),
        ],
    )
    model = helper.make_model(proto, opset_imports=[helper.make_opsetid("", 21)])
    model.ir_version = 10
    fed = {
        **feeds,
        "rounds": rounds,
        "flag": np.array(draw.random() < 0.5),
        "rows": numbers.uniform(-1, 1, (3, *MATRIX)).astype(np.float32),
    }
    return RandomModel(model, fed)


_OTHER_INPUTS: Final = (
    helper.make_tensor_value_info("rounds", TensorProto.INT64, ()),
    helper.make_tensor_value_info("flag", TensorProto.BOOL, ()),
    helper.make_tensor_value_info("rows", TensorProto.FLOAT, (3, *MATRIX)),
)


def _matrix(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, MATRIX)


class _Drawn:
    """The nodes of a graph as it is drawn, and the matrices that they may read."""

    def __init__(
        self,
        draw: random.Random,
        matrices: list[str],
        prefix: str = "",
        deepest: int = 2,
    ) -> None:
        self.draw = draw
        self.matrices = matrices
        self.prefix = prefix
        self.deepest = deepest
        self.nodes: list[onnx.NodeProto] = []
        self.stacks: list[str] = []

    def draw_node(self, depth: int) -> None:
        weights = {"unary": 3.0, "binary": 4.0, "matmul": 2.0}
        if depth < self.deepest:
            weights |= {"loop": 1.0, "if": 1.0, "scan": 1.0, "sequence": 0.5}
        kind = self.draw.choices(list(weights), list(weights.values()))[0]
        getattr(self, f"_draw_{kind}")(depth)

    def _any(self) -> str:
        return self.draw.choice(self.matrices)

    def _new(self) -> str:
        return f"{self.prefix}v{len(self.nodes)}"

    def _add(self, op: str, inputs: list[str], outputs: list[str], **more: Any) -> None:
        name = f"{self.prefix}{op}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, outputs, name, **more))

    def _draw_unary(self, depth: int) -> None:
        out = self._new()
        self._add(self.draw.choice(_UNARY), [self._any()], [out])
        self.matrices.append(out)

    def _draw_binary(self, depth: int) -> None:
        out = self._new()
        self._add(self.draw.choice(_BINARY), [self._any(), self._any()], [out])
        self.matrices.append(out)

    def _draw_matmul(self, depth: int) -> None:
        out = self._new()
        self._add("MatMul", [self._any(), "weight"], [out])
        self.matrices.append(out)

    def _draw_sequence(self, depth: int) -> None:
        out = self._new()
        self._add("SequenceConstruct", [self._any(), self._any()], [f"{out}s"])
        self._add("SequenceAt", [f"{out}s", "first"], [out])
        self.matrices.append(out)

    def _body(self, formal: list[str], depth: int) -> _Drawn:
        prefix = f"{self.prefix}b{len(self.nodes)}_{self.draw.randint(0, 999)}_"
        names = [f"{prefix}{name}" for name in formal]
        # what is around it may be captured
        body = _Drawn(self.draw, [*self.matrices, *names], prefix, self.deepest)
        for _ in range(self.draw.randint(1, 4)):
            body.draw_node(depth + 1)
        return body

    def _results(self, body: _Drawn, count: int) -> list[str]:
        """Names of outputs of *body*, each by a node of its own."""
        made = []
        for number in range(count):
            source = body.matrices[-1] if number == 0 else body._any()
            out = f"{body.prefix}r{number}"
            body._add(self.draw.choice(("Tanh", "Sin")), [source], [out])
            made.append(out)
        return made

    def _draw_loop(self, depth: int) -> None:
        out, count = self._new(), self.draw.randint(1, 2)
        body = self._body([f"state{n}" for n in range(count)], depth)
        states = [f"{body.prefix}state{n}" for n in range(count)]
        results = self._results(body, count + 1)
        after = f"{body.prefix}after"
        total = f"{body.prefix}total"
        body._add("ReduceSum", [results[0]], [total], keepdims=0)
        body._add("Less", [total, "limit"], [after])
        graph = helper.make_graph(
            body.nodes,
            "body",
            [
                helper.make_tensor_value_info(f"{body.prefix}i", TensorProto.INT64, ()),
                helper.make_tensor_value_info(
                    f"{body.prefix}before", TensorProto.BOOL, ()
                ),
                *map(_matrix, states),
            ],
            [
                helper.make_tensor_value_info(after, TensorProto.BOOL, ()),
                *map(_matrix, results),
            ],
        )
        outs = [f"{out}_{n}" for n in range(count)]
        starts = [self._any() for _ in range(count)]
        self._add("Loop", ["rounds", "go", *starts], [*outs, f"{out}_all"], body=graph)
        self.matrices += outs
        if depth == 0:
            self.stacks.append(f"{out}_all")

    def _draw_if(self, depth: int) -> None:
        out, branches = self._new(), {}
        for branch in ("then_branch", "else_branch"):
            body = self._body([], depth)
            results = self._results(body, 1)
            branches[branch] = helper.make_graph(
                body.nodes, branch, [], list(map(_matrix, results))
            )
        self._add("If", ["flag"], [out], **branches)
        self.matrices.append(out)

    def _draw_scan(self, depth: int) -> None:
        out = self._new()
        body = self._body(["state", "row"], depth)
        results = self._results(body, 2)
        graph = helper.make_graph(
            body.nodes,
            "body",
            [_matrix(f"{body.prefix}{name}") for name in ("state", "row")],
            list(map(_matrix, results)),
        )
        backwards = [self.draw.randint(0, 1)]
        self._add(
            "Scan",
            [self._any(), "rows"],
            [out, f"{out}_all"],
            body=graph,
            num_scan_inputs=1,
            scan_input_directions=backwards,
            scan_output_directions=[self.draw.randint(0, 1)],
        )
        self.matrices.append(out)
        if depth == 0:
            self.stacks.append(f"{out}_all")
