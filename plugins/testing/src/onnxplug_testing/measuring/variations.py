"""Variations of the ONNX backend suite's node cases, each a model of one node.

Owns: what is tried beside the case itself: older versions of the operator, other
element types, dynamic dimensions, constant inputs, other values, NaN and infinity, and
other shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import ml_dtypes
import numpy as np
import onnx
from onnx import defs, helper
from onnx.backend.test.case.node import collect_testcases

from onnxplug_testing.measuring.extra_cases import extra_cases
from onnxplug_testing.measuring.special_values import special_values

DTYPES: Final = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float64": np.dtype(np.float64),
    "bool": np.dtype(np.bool_),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "int16": np.dtype(np.int16),
    "uint16": np.dtype(np.uint16),
    "int32": np.dtype(np.int32),
    "uint32": np.dtype(np.uint32),
    "int64": np.dtype(np.int64),
    "uint64": np.dtype(np.uint64),
}
"""Element types tried, as onnxplug names them."""

_IN_ATTRIBUTE: Final[dict[str, tuple[int, dict[int, tuple[str, str]]]]] = {
    "Squeeze": (13, {1: ("axes", "ints")}),
    "Unsqueeze": (13, {1: ("axes", "ints")}),
    "ReduceSum": (13, {1: ("axes", "ints")}),
    **{
        f"Reduce{name}": (18, {1: ("axes", "ints")})
        for name in (
            "L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod",
            "SumSquare",
        )
    },
    "Slice": (10, {1: ("starts", "ints"), 2: ("ends", "ints"), 3: ("axes", "ints")}),
    "Pad": (11, {1: ("pads", "ints"), 2: ("value", "float")}),
    "Clip": (11, {1: ("min", "float"), 2: ("max", "float")}),
    "Split": (13, {1: ("split", "ints")}),
    "TopK": (10, {1: ("k", "int")}),
    "Dropout": (12, {1: ("ratio", "float")}),
}  # fmt: skip
"""Operator → version from which these inputs, attributes before, are inputs."""


@dataclass(frozen=True, kw_only=True)
class Variation:
    """A model of one node with what to feed it.

    Attributes:
        case: the suite's case it was made from.
        kind: what was varied: ``suite``, ``version``, ``dtype``, ``dynamic``,
            ``constant``, ``values``, ``shape``, ``special``, or as
            :mod:`.whole_numbers` says.
        since: the version of the operator.
        inputs: arrays by position of the node's input; ``None`` where left out.
        expected: the outputs, where the suite tells them.
        constants: positions given as initializers.
        dynamic: whether all dimensions are declared symbolic.
        sized: the length of lists of int64, such as shapes, is declared all the same.
    """

    case: str
    kind: str
    node: Any
    since: int
    opset: int
    inputs: tuple[Any, ...]
    expected: tuple[Any, ...] | None = None
    constants: frozenset[int] = frozenset()
    dynamic: bool = False
    sized: bool = False
    output_types: tuple[int, ...] = ()
    tolerance: tuple[float, float] = (1e-3, 1e-5)

    def model(self) -> Any:
        """The ``onnx.ModelProto``, with the types that ONNX infers."""
        return onnx.shape_inference.infer_shapes(self.plain_model())

    def plain_model(self) -> Any:
        """The same without what ONNX infers, which some models end the process in."""
        values, initializers = [], []
        for position, name in enumerate(self.node.input):
            array = self.inputs[position] if name else None
            if array is None:
                continue
            if position in self.constants:
                initializers.append(_tensor(array, name))
                continue
            symbolic = self.dynamic and not (self.sized and self._is_list(position))
            shape = [
                f"d{position}_{axis}" if symbolic else size
                for axis, size in enumerate(array.shape)
            ]
            kind = helper.np_dtype_to_tensor_dtype(array.dtype)
            values.append(helper.make_tensor_value_info(name, kind, shape))
        outputs = [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(self.node.output, self.output_types, strict=False)
            if name
        ]
        graph = helper.make_graph([self.node], "one", values, outputs, initializers)
        imports = [helper.make_opsetid(self.node.domain, self.opset)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)

    def _is_list(self, position: int) -> bool:
        array = self.inputs[position]
        return position > 0 and array.ndim == 1 and array.dtype == np.int64

    def lists(self) -> frozenset[int]:
        """The inputs that are lists of int64, such as shapes and axes."""
        return frozenset(
            position
            for position, array in enumerate(self.inputs)
            if array is not None and self._is_list(position)
        )

    def with_attributes(self, **attributes: Any) -> Variation:
        """Itself with these attributes of its node, and the others as they are; what it
        gives is not known.

        Args:
            attributes: what ``onnx.helper.make_attribute`` takes, or an
                ``onnx.AttributeProto``, by name; one that is ``None`` is left out.
        """
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        kept = [each for each in node.attribute if each.name not in attributes]
        del node.attribute[:]
        node.attribute.extend(kept)
        for name, value in attributes.items():
            if isinstance(value, onnx.AttributeProto):
                node.attribute.append(value)
            elif value is not None:
                node.attribute.append(helper.make_attribute(name, value))
        return replace(self, node=node, expected=None)

    def feeds(self) -> dict[str, Any]:
        """The inputs that are not constant, by name."""
        return {
            name: self.inputs[position]
            for position, name in enumerate(self.node.input)
            if name
            and position not in self.constants
            and self.inputs[position] is not None
        }


def suite_cases() -> dict[str, list[Variation]]:
    """The suite's cases of one node on dense tensors, by operator."""
    found: dict[str, list[Variation]] = {}
    for case in collect_testcases(None):
        model = case.model
        if model is None or len(model.graph.node) != 1 or model.functions:
            continue
        node = model.graph.node[0]
        if node.domain not in ("", "ai.onnx"):
            continue
        opset = max(
            entry.version
            for entry in model.opset_import
            if entry.domain in ("", "ai.onnx")
        )
        for given, wanted in case.data_sets or ():
            inputs, outputs = _arrays(given), _arrays(wanted)
            if inputs is None or outputs is None:
                continue
            feeds = iter(inputs)
            positions = tuple(
                np.asarray(next(feeds)) if name else None for name in node.input
            )
            types = iter(
                output.type.tensor_type.elem_type for output in model.graph.output
            )
            found.setdefault(node.op_type, []).append(
                Variation(
                    case=case.name,
                    kind="suite",
                    node=node,
                    since=defs.get_schema(node.op_type, opset, "").since_version,
                    opset=opset,
                    inputs=positions,
                    expected=tuple(np.asarray(array) for array in outputs),
                    output_types=tuple(
                        next(types) if name else 0 for name in node.output
                    ),
                    tolerance=(max(case.rtol, 1e-3), max(case.atol, 1e-5)),
                )
            )
    for number, (node, opset, arrays) in enumerate(extra_cases()):
        before = found.setdefault(node.op_type, [])
        schema = defs.get_schema(node.op_type, opset, "")
        # the first cases are tried in more ways, and these are what models have
        before.insert(
            number % 2,
            Variation(
                case=f"extra_{number}",
                kind="suite",
                node=node,
                since=schema.since_version,
                opset=opset,
                inputs=arrays,
                output_types=tuple(output_types(node, opset, arrays)),
            ),
        )
    return dict(sorted(found.items()))


def output_types(node: Any, opset: int, inputs: Sequence[Any]) -> Iterator[int]:
    """The element types of *node*'s outputs, as ONNX infers them; 0 of one that is left
    out."""
    values = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in zip(node.input, inputs, strict=True)
        if array is not None
    ]
    outputs = [helper.make_empty_tensor_value_info(n) for n in node.output if n]
    graph = helper.make_graph([node], "one", values, outputs)
    imports = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model).graph
    types = {v.name: v.type.tensor_type.elem_type for v in inferred.output}
    for name in node.output:
        yield types.get(name, 1) if name else 0


def _arrays(values: Sequence[Any]) -> list[Any] | None:
    """*values* as arrays; ``None`` when some are sequences or the like."""
    found = []
    for value in values:
        if isinstance(value, onnx.TensorProto):
            found.append(onnx.numpy_helper.to_array(value))
        elif isinstance(value, np.ndarray | np.generic):
            found.append(np.asarray(value))
        else:
            return None
    return found


def variations(case: Variation, position: int) -> Iterator[Variation]:
    """*case*, the one at *position* of its operator, and what is tried beside it.

    The first cases of an operator are tried in every way, the others in fewer: the
    whole takes some twenty minutes.
    """
    yield case
    if position >= 40:
        return
    generator = np.random.default_rng(position)
    yield from _modes(case)
    for older in _older_versions(case):
        yield older
        if position < 2:
            yield from _modes(older)
    if position < 2:
        yield from element_types(case)
    yield from _other_values(case, generator)
    if position < 4:
        yield from _other_shapes(case, generator)
    yield from special_values(case, position)
    if position < 4:
        for older in _older_versions(case):
            yield from special_values(older, 3)  # in float32 only


def _modes(case: Variation) -> Iterator[Variation]:
    """Dynamic dimensions; every input but the first, or only it, as a constant."""
    fed = [p for p, array in enumerate(case.inputs) if array is not None]
    yield replace(case, kind="dynamic", dynamic=True)
    if case.lists():
        yield replace(case, kind="dynamic", dynamic=True, sized=True)
    if len(fed) > 1:
        rest = frozenset(fed[1:])
        yield replace(case, kind="constant", constants=rest)
        yield replace(case, kind="constant", constants=rest, dynamic=True)
        if fed[0] == 0:
            yield replace(case, kind="constant", constants=frozenset({0}))


def _older_versions(case: Variation) -> Iterator[Variation]:
    newer = case.since
    for schema in _versions().get(case.node.op_type, ()):
        if schema.since_version >= case.since:
            continue
        since = schema.since_version
        node, inputs = _for_version(case, since)
        known = set(schema.attributes)
        if {attribute.name for attribute in node.attribute} <= known and (
            schema.min_input <= len(node.input) <= schema.max_input
        ):
            yield replace(
                case, kind="version", node=node, inputs=inputs, since=since,
                opset=newer - 1, expected=None,
            )  # fmt: skip
        newer = since


@functools.cache
def _versions() -> dict[str, list[defs.OpSchema]]:
    """All versions of ONNX's operators but those that it takes back, newest first."""
    found: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain and not schema.deprecated:
            found.setdefault(schema.name, []).append(schema)
    for versions in found.values():
        versions.sort(key=lambda schema: schema.since_version, reverse=True)
    return found


def _for_version(case: Variation, since: int) -> tuple[Any, tuple[Any, ...]]:
    """The node with inputs turned to attributes where *since* wants them so."""
    from_version, moves = _IN_ATTRIBUTE.get(case.node.op_type, (0, {}))
    if since >= from_version:
        return case.node, case.inputs
    node = onnx.NodeProto()
    node.CopyFrom(case.node)
    inputs = list(case.inputs)
    for position in sorted(moves, reverse=True):
        name, kind = moves[position]
        if position >= len(inputs):
            continue
        array = inputs.pop(position)
        del node.input[position]
        if array is None:
            continue
        values = array.reshape(-1).tolist()
        value = values if kind == "ints" else values[0] if values else 0
        value = float(value) if kind == "float" else value
        written = {"ints": "INTS", "int": "INT", "float": "FLOAT"}[kind]
        node.attribute.append(
            helper.make_attribute(
                name, value, attr_type=onnx.AttributeProto.AttributeType.Value(written)
            )
        )
    return node, tuple(inputs)


def element_types(case: Variation) -> Iterator[Variation]:
    """Every element type the schema allows, one type variable at a time."""
    schema = defs.get_schema(case.node.op_type, case.opset, "")
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }
    names = []
    for position in range(len(case.inputs)):
        formal = schema.inputs[min(position, len(schema.inputs) - 1)]
        names.append(formal.type_str)
    outputs = [
        schema.outputs[min(position, len(schema.outputs) - 1)].type_str
        for position in range(len(case.node.output))
    ]
    for variable in dict.fromkeys(names):
        positions = [
            p
            for p, name in enumerate(names)
            if name == variable and case.inputs[p] is not None
        ]
        if not positions or variable not in allowed:
            continue
        now = case.inputs[positions[0]].dtype
        if now.kind in "OUS":
            continue  # no numbers come of texts
        for name, dtype in DTYPES.items():
            written = {"float32": "float", "float64": "double"}.get(name, name)
            if dtype == now or f"tensor({written})" not in allowed[variable]:
                continue
            inputs = list(case.inputs)
            for position in positions:
                inputs[position] = _cast(inputs[position], dtype)
            number = helper.np_dtype_to_tensor_dtype(dtype)
            types = tuple(
                number if outputs[p] == variable else kind
                for p, kind in enumerate(case.output_types)
            )
            yield replace(
                case,
                kind="dtype",
                inputs=tuple(inputs),
                expected=None,
                output_types=types,
                constants=case.lists(),
            )


_NOT_NARROW: Final = 1 + 0.9 * 2.0**-25
"""A factor that makes of a float32 a float64 that is rounded to it again, as far from
it as can be, so that a result of float32 is seen to be one."""


def _cast(array: Any, dtype: Any) -> Any:
    if dtype.kind in "iu" and array.dtype.kind == "f":
        info = np.iinfo(dtype)
        scaled = np.nan_to_num(np.round(array.astype(np.float64) * 7))
        return np.clip(scaled, max(info.min, -100), min(info.max, 100)).astype(dtype)
    if dtype.kind == "u" and array.dtype.kind == "i":
        return np.abs(array).astype(dtype)
    if dtype == np.float64 and array.dtype.kind == "f":
        return array.astype(dtype) * _NOT_NARROW
    return array.astype(dtype)


_WHOLE: Final = {"int8", "uint8", "int16", "uint16", "int32", "uint32"}


_OF_SIZES: Final = {"MelWeightMatrix", "Range"}


def _other_values(case: Variation, generator: Any) -> Iterator[Variation]:
    """Random values where the first input is float; extremes where it is whole."""
    for name, array in zip(case.node.input, case.inputs, strict=True):
        if name and array is not None and array.size:
            break
    else:
        return
    if case.inputs[0] is None or case.inputs[0].dtype.name not in (*_WHOLE, "float32"):
        return
    if case.node.op_type.endswith("Window") or case.node.op_type in _OF_SIZES:
        return  # the first input is a size, and a random one takes all memory
    for variant in range(2):
        inputs = list(case.inputs)
        for position, array in enumerate(inputs):
            if array is None:
                continue
            if array.dtype == np.float32 and position == 0:
                scale = (1.0, 30.0)[variant]
                values = generator.standard_normal(array.shape) * scale
                if array.size and array.min() >= 0 and array.max() <= 1:
                    values = generator.random(array.shape)
                inputs[position] = _castable(case, np.asarray(values, np.float32))
            elif array.dtype.name in _WHOLE and position == 0:
                info = np.iinfo(array.dtype)
                inputs[position] = generator.integers(
                    info.min, info.max, array.shape, array.dtype, endpoint=True
                )
        yield replace(case, kind="values", inputs=tuple(inputs), expected=None)


def _castable(case: Variation, values: Any) -> Any:
    """*values* that are within the type to which *case* casts them, if it does: ONNX
    does not say what whole number others become."""
    if case.node.op_type not in ("Cast", "CastLike"):
        return values
    target = helper.tensor_dtype_to_np_dtype(case.output_types[0])
    if target.kind not in "iu" and "int" not in target.name:
        return values
    make_info: Any = ml_dtypes.iinfo  # which has no types
    info = make_info(target)
    return np.clip(np.abs(values) if info.min == 0 else values, info.min, info.max)


_SHAPES: Final = (
    (), (7,), (3, 5), (2, 3, 17), (0, 3), (1, 4, 3, 2), (2, 1, 3, 1, 5),
)  # fmt: skip


def _other_shapes(case: Variation, generator: Any) -> Iterator[Variation]:
    """Other ranks and sizes, zero among them, where all data inputs have one shape."""
    shapes = {array.shape for array in case.inputs if array is not None}
    if len(shapes) != 1 or case.inputs[0] is None:
        return
    attributes = {attribute.name for attribute in case.node.attribute}
    if attributes & {
        "axis", "axes", "kernel_shape", "perm", "shape", "blocksize", "num_outputs",
    }:  # fmt: skip
        return
    for number, shape in enumerate(_SHAPES):
        inputs = tuple(
            None if array is None else _resized(array, shape, generator)
            for array in case.inputs
        )
        yield replace(
            case, kind="shape", inputs=inputs, expected=None, dynamic=number % 2 == 0
        )


def _resized(array: Any, shape: Sequence[int], generator: Any) -> Any:
    """Values drawn from *array* in another *shape*."""
    if not array.size:
        return np.zeros(shape, array.dtype)
    return np.asarray(generator.choice(array.reshape(-1), tuple(shape)), array.dtype)


def _tensor(array: Any, name: str) -> Any:
    from onnx import numpy_helper

    return numpy_helper.from_array(array, name)
