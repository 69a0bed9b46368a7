"""Random nodes of ONNX's operators, most of them wrong in some way.

As a script: creates sessions for the seeds from the first argument to the second, and
prints what is raised that is no error of ours.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import onnx.defs
from onnx import AttributeProto, TensorProto, helper, numpy_helper

import onnxplug

_ODD: Final = (-(2**63), -(2**31), -7, -2, 5, 7, 64, 2**31, 2**62, 2**63 - 1)
_TYPES: Final = (
    *[TensorProto.FLOAT] * 8,
    *[TensorProto.INT64] * 3,
    TensorProto.BOOL,
    TensorProto.STRING,
    TensorProto.DOUBLE,
    TensorProto.UINT8,
)
_SIZES: Final = (
    *[1, 2, 2, 3, 4, 8, "N", "N", "M", "2*N", None],
    *[0, 2**31, 2**62, -1, "?", "unk__3", "unk__" + "9" * 5000],
    *["(" * 200 + "N" + ")" * 200, "*".join(f"(a{i} + b{i})" for i in range(20))],
)
_TEXTS: Final = ("", "NOTSET", "SAME_UPPER", "VALID", "none", "bidirectional", b"\xff")
_TEXTS_OF_EINSUM: Final = ("ij,jk->ik", "i...->...", "...", "->", "ii")
_KINDS: Final = [int(kind) for kind in range(1, 9)]
_SCHEMAS: Final = onnx.defs.get_all_schemas_with_history()


class Author:
    """Writes a model of its seed."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)
        # half of the models are wrong in few places, so that one is not like another
        self.odd, self.mistyped = self.choose.choice([(0.02, 0.0), (0.2, 0.05)])
        self.made = 0

    def model(self) -> bytes:
        choose = self.choose
        inputs = [self.value(f"x{index}") for index in range(4)]
        constants = [self.constant(f"c{index}") for index in range(3)]
        names = [each.name for each in (*inputs, *constants)]
        nodes = [self.node(names, 0) for _ in range(choose.randrange(1, 5))]
        stated = [self.value(name) for name in names[7:] if choose.random() < 0.1]
        outputs = [onnx.ValueInfoProto(name=names[-1])]
        graph = helper.make_graph(
            nodes, "g", inputs, outputs, constants, value_info=stated
        )
        versions = {
            "": choose.choice([28, 21, 18, 13, 9, 7, 1]),
            "ai.onnx.ml": choose.choice([5, 3, 1]),
            "ai.onnx.preview": 1,
            "ai.onnx.preview.training": 1,
            "my": 1,
        }
        imports = [helper.make_opsetid(*each) for each in versions.items()]
        made = helper.make_model(graph, opset_imports=imports, ir_version=10)
        data: bytes = made.SerializeToString()
        return data

    def value(self, name: str) -> onnx.ValueInfoProto:
        shape = [self.choose.choice(_SIZES[:11]) for _ in range(self.rank())]
        if self.choose.random() < self.odd and shape:
            shape[-1] = self.choose.choice(_SIZES)
        return helper.make_tensor_value_info(name, self.choose.choice(_TYPES), shape)

    def rank(self) -> int:
        return self.choose.choice([0, 1, 2, 2, 3, 3, 4, 4])

    def constant(self, name: str) -> TensorProto:
        count = self.choose.randrange(5)
        array: Any = [self.number() for _ in range(count)]
        if self.choose.random() < 0.2:
            array = self.number()
        dtype = self.choose.choice([np.int64, np.int64, np.float32])
        return numpy_helper.from_array(np.array(array, dtype), name)

    def number(self) -> int:
        if self.choose.random() < self.odd:
            return self.choose.choice(_ODD)
        return self.choose.randrange(-1, 4)

    def node(self, names: list[str], depth: int) -> onnx.NodeProto:
        """A node on some of *names*, to which those that it makes are added."""
        choose = self.choose
        label = f"n{self.made}"
        self.made += 1
        if choose.random() < 0.1:
            node = helper.make_node("Mystery", [choose.choice(names)], [label])
            node.domain = "my"
            names.append(label)
            return node
        schema = choose.choice(_SCHEMAS)
        most = max(schema.min_input, min(schema.max_input, schema.min_input + 3))
        count = choose.randrange(schema.min_input, most + 1)
        inputs = [choose.choice([*names, *names, ""]) for _ in range(count)]
        least = max(1, schema.min_output)
        made = [f"{label}_{at}" for at in range(min(schema.max_output, least + 1))]
        node = helper.make_node(schema.name, inputs, made, domain=schema.domain)
        for name, attribute in schema.attributes.items():
            kind = int(attribute.type)
            if choose.random() < self.mistyped:
                kind = choose.choice(_KINDS)
            if choose.random() < (0.97 if attribute.required else 0.5):
                self.attribute(node, name, kind, names, depth)
        names += made
        return node

    def attribute(
        self,
        node: onnx.NodeProto,
        name: str,
        kind: int,
        names: Sequence[str],
        depth: int,
    ) -> None:
        value = self.attribute_value(kind, name, names, depth)
        if value is not None:
            node.attribute.append(helper.make_attribute(name, value, attr_type=kind))

    def attribute_value(
        self, kind: int, name: str, names: Sequence[str], depth: int
    ) -> Any:
        choose = self.choose
        several = range(choose.choice([0, 1, 2, 2, 3, 4, 4]))
        match kind:
            case AttributeProto.INT:
                return self.number()
            case AttributeProto.FLOAT:
                return choose.choice([0.0, 1.0, -1.0, 0.5, float("nan"), float("inf")])
            case AttributeProto.STRING:
                return choose.choice(_TEXTS_OF_EINSUM if name == "equation" else _TEXTS)
            case AttributeProto.INTS:
                return [self.number() for _ in several]
            case AttributeProto.FLOATS:
                return [choose.random() for _ in several]
            case AttributeProto.STRINGS:
                return [choose.choice(_TEXTS) for _ in several]
            case AttributeProto.TENSOR:
                return self.constant("")
            case AttributeProto.GRAPH if depth < 2:
                return self.body(names, depth + 1)
        return None

    def body(self, around: Sequence[str], depth: int) -> onnx.GraphProto:
        inputs = [self.value(f"b{self.made}_{at}") for at in range(self.rank())]
        names = [*around, *(each.name for each in inputs)]
        nodes = [self.node(names, depth) for _ in range(self.choose.randrange(1, 3))]
        outputs = [
            onnx.ValueInfoProto(name=name) for name in self.choose.sample(names, 2)
        ]
        return helper.make_graph(nodes, "b", inputs, outputs)


def main(first: int, end: int) -> None:
    """Create a session for each seed."""
    logging.disable(logging.CRITICAL)
    created = 0
    for seed in range(first, end):
        data = Author(seed).model()
        try:
            onnxplug.InferenceSession(data)
            created += 1
        except onnxplug.errors.OnnxplugError:
            pass
        except Exception as error:  # noqa: BLE001  whatever it is, it is reported
            print(f"seed {seed}: {error!r}")
    print(f"created {created}", file=sys.stderr)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
