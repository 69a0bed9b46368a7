"""Nodes with one number or one shape that is wrong, out of the ONNX backend suite's.

``mutants`` takes a node of the suite and gives nodes that differ from it in one thing:
an attribute, an element of an integer input, an element of a floating input that is
not finite or huge, or the shape of an input.
"""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from unittest import mock

import numpy as np
import onnx
from onnx import helper, numpy_helper

HUGE: Final = (2**31, -(2**31) - 1, 2**62, 2**63 - 1, -(2**63), -(2**63) + 1)
_SMALL: Final = (-100, -99, -20, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 15, 100)
_FLOATS: Final = (
    float("nan"),
    float("inf"),
    float("-inf"),
    1e30,
    -1e30,
    1e18,
    0.0,
    -1.0,
    1e-30,
)
_FEW: Final = 16
"""Inputs of more integers are indices or data rather than axes or sizes."""


@dataclass(frozen=True)
class Case:
    """A node and its inputs.

    Attributes:
        change: what is different from the node of the suite; empty for itself.
        kind: what sort of change that is.
        outputs: the element type of each output, 0 where it is no tensor.
    """

    name: str
    domain: str
    op_type: str
    version: int
    attributes: dict[str, Any]
    inputs: tuple[Any, ...]
    outputs: tuple[int, ...]
    change: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.change}"


@functools.cache
def suite() -> list[Case]:
    """The suite's models of one node whose inputs are tensors.

    Their expected outputs are of no use after this, in this process: what takes most of
    the time to make them is left out.
    """
    from onnx.backend.test.case import base
    from onnx.backend.test.loader import load_model_tests
    from onnx.reference.ops import op_pool_common

    with (
        warnings.catch_warnings(),
        mock.patch.object(op_pool_common, "pool", lambda *args, **kwargs: np.zeros(1)),
        mock.patch.object(base, "process_snippet", lambda op, name, export: (name, "")),
    ):
        warnings.simplefilter("ignore")  # the suite's own generators overflow
        tests = load_model_tests(kind="node")
    found = []
    for test in tests:
        model = test.model
        if model is None or len(model.graph.node) != 1 or not test.data_sets:
            continue
        (node,) = model.graph.node
        if any(a.HasField("g") or a.graphs for a in node.attribute):
            continue
        if any(a.type == onnx.AttributeProto.SPARSE_TENSOR for a in node.attribute):
            continue
        values = test.data_sets[0][0]
        if not all(isinstance(v, np.ndarray | np.generic) for v in values):
            continue
        fed = dict(
            zip((i.name for i in model.graph.input), map(_array, values), strict=False)
        )
        imports = {entry.domain: entry.version for entry in model.opset_import}
        types = {o.name: o.type.tensor_type.elem_type for o in model.graph.output}
        found.append(
            Case(
                test.name,
                node.domain,
                node.op_type,
                imports[node.domain],
                {a.name: _value(a) for a in node.attribute},
                tuple(fed.get(name) for name in node.input),
                tuple(types.get(name, 0) for name in node.output),
            )
        )
    return found


def _array(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(object) if array.dtype.kind in "UST" else array


def _value(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Sequence):
        return tuple(v.decode() if isinstance(v, bytes) else v for v in value)
    return value


def mutants(case: Case, rng: random.Random) -> Iterator[Case]:
    """Nodes that differ from *case* in one thing."""
    known = {**_defaults(case), **case.attributes}
    for name, value in known.items():
        for changed in _changed(value, rng):
            yield replace(
                case,
                attributes={**case.attributes, name: changed},
                change=f"{name}={_short(changed)}",
                kind=f"attribute {name}",
            )
    for position, x in enumerate(case.inputs):
        if x is None:
            continue
        for text, changed in _inputs(x, rng):
            inputs = list(case.inputs)
            inputs[position] = changed
            yield replace(
                case,
                inputs=tuple(inputs),
                change=f"input {position} {text}",
                kind=f"input {position} {text.split()[0]}",
            )


def _short(value: Any) -> str:
    return repr(value)[:60]


def _defaults(case: Case) -> dict[str, Any]:
    """A value of the right type for each attribute that is a number or list of them."""
    if not onnx.defs.has(case.op_type, case.domain):
        return {}
    schema = onnx.defs.get_schema(case.op_type, case.version, case.domain)
    kinds = onnx.defs.OpSchema.AttrType
    found: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        default = attribute.default_value
        if attribute.type == kinds.INT:
            found[name] = default.i if default.name else 1
        elif attribute.type == kinds.INTS:
            found[name] = (1, 1)
        elif attribute.type == kinds.FLOAT:
            found[name] = default.f if default.name else 1.0
    return found


def _changed(value: Any, rng: random.Random) -> Iterator[Any]:
    if isinstance(value, bool | int):
        yield from (n for n in (*_SMALL, *HUGE) if n != value)
    elif isinstance(value, float):
        yield from _FLOATS
    elif isinstance(value, str):
        yield from ("", "nonsense", "\u00e9")
    elif isinstance(value, tuple) and all(isinstance(n, int) for n in value):
        yield from _lists(value, rng)
    elif isinstance(value, tuple) and all(isinstance(n, float) for n in value):
        for number in _FLOATS:
            if value:
                place = rng.randrange(len(value))
                yield (*value[:place], number, *value[place + 1 :])
        yield ()
        yield (*value, 1.0)
        yield value[:-1]
    elif isinstance(value, tuple) and all(isinstance(n, str) for n in value):
        yield ()
        yield (*value, "nonsense")
        yield value[:-1]
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield from (changed for _, changed in _inputs(value, rng))


def _lists(value: tuple[int, ...], rng: random.Random) -> Iterator[tuple[int, ...]]:
    yield ()
    yield (*value, 1)
    yield value[:-1]
    yield (*value, *value)
    if not value:
        return
    yield (value[0],) * len(value)
    for number in (*_SMALL, *HUGE):
        place = rng.randrange(len(value))
        yield (*value[:place], number, *value[place + 1 :])
    for number in (-2, -1, 0, 100, 2**31, 2**62, 2**63 - 1):
        yield (number,) * len(value)
    if len(value) > 1:
        yield (rng.choice(_SMALL), rng.choice(_SMALL), *value[2:])


def _inputs(x: Any, rng: random.Random) -> Iterator[tuple[str, Any]]:
    """A description, and *x* with one element or its shape changed."""
    integer = x.dtype.kind in "iu"
    if x.size and integer:
        limits = np.iinfo(x.dtype)
        small = x.size <= _FEW
        numbers = (*_SMALL, *HUGE) if small else (-1, -100, 100, *HUGE)
        for number in numbers:
            if limits.min <= number <= limits.max:
                yield f"element {number}", _with(x, number, rng)
        for number in (-1, 0, -2, 100, 2**31, 2**62):
            if small and x.size > 1 and limits.min <= number <= limits.max:
                yield f"all {number}", np.full_like(x, number)
        if small and x.ndim == 1 and x.size > 1:
            yield "repeated", np.full_like(x, x[0])
            changed = x.copy()
            changed[:2] = [min(max(n, 0), 100) for n in (100, -99 % 100)]
            if limits.min < 0:
                changed[:2] = 100, -99
            yield "100,-99", changed
    elif x.size and x.dtype.kind == "f":
        for number in (*_FLOATS,):
            with np.errstate(all="ignore"):
                yield f"element {number}", _with(x, number, rng)
    for axis in range(x.ndim):
        size = x.shape[axis]
        before = (slice(None),) * axis
        yield f"shape: axis {axis} empty", x[(*before, slice(0))]
        if size > 1:
            yield f"shape: axis {axis} of 1", x[(*before, slice(1))]
            yield f"shape: axis {axis} shorter", x[(*before, slice(size - 1))]
        if size:
            yield (
                f"shape: axis {axis} longer",
                np.concatenate([x, x[(*before, slice(1))]], axis=axis),
            )
    yield "shape: more axes", x[None]
    yield "shape: more axes behind", x[..., None]
    if x.ndim and x.size:
        yield "shape: fewer axes", np.asarray(x[0], dtype=x.dtype)
        yield (
            "shape: a scalar",
            x.reshape(-1)[0].reshape(())
            if x.dtype != object
            else (np.array(x.reshape(-1)[0], dtype=object)),
        )
        yield "shape: flat", x.reshape(-1)


def _with(x: Any, number: float, rng: random.Random) -> Any:
    changed = x.copy()
    changed.reshape(-1)[rng.randrange(x.size)] = number
    return changed


def as_model(case: Case) -> onnx.ModelProto:
    """*case* as a model whose inputs have no shapes."""
    names = ["" if x is None else f"input_{i}" for i, x in enumerate(case.inputs)]
    results = [f"output_{i}" for i in range(len(case.outputs))]
    node = helper.make_node(case.op_type, names, results, domain=case.domain)
    for name, value in case.attributes.items():
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        kind = _attribute_type(case, name)
        node.attribute.append(helper.make_attribute(name, value, attr_type=kind))
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, _element_type(x), None)
            for name, x in zip(names, case.inputs, strict=True)
            if x is not None
        ],
        [
            helper.make_tensor_value_info(name, kind or 1, None)
            for name, kind in zip(results, case.outputs, strict=True)
        ],
    )
    versions = {"": 20, case.domain: case.version}
    imports = [helper.make_opsetid(*entry) for entry in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def _attribute_type(case: Case, name: str) -> Any:
    if not onnx.defs.has(case.op_type, case.domain):
        return None
    schema = onnx.defs.get_schema(case.op_type, case.version, case.domain)
    return int(schema.attributes[name].type.value)


def _element_type(x: Any) -> int:
    if x.dtype == object:
        return onnx.TensorProto.STRING
    return int(helper.np_dtype_to_tensor_dtype(x.dtype))
