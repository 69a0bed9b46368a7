"""The operators that the EP runs, by tier, as far as that can be said without a model.

The array tier takes every element type that ONNX allows, but for a few.  Of the
compiled tier its own analysis is asked, version by version and type by type, of a call
with the fewest inputs; shapes and attributes may still keep a node from it.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_cpu.capability import Found, find
from onnxplug_kernels import Kernel, find_kernel

_NOT_ON_ARRAYS: Final = {
    # ONNX's types allow it, but there is no arithmetic of text
    ("", "Col2Im"): frozenset({ep.DataType.STRING}),
    ("", "GridSample"): frozenset({ep.DataType.STRING}),
}

_EXAMPLES: Final = {("BitShift", "direction"): "LEFT"}
"""Attributes that have no default, and not every value of which is right."""

_NEUTRAL: Final = {"INT": 0, "FLOAT": 0.0, "STRING": "", "INTS": (), "FLOATS": ()}
"""Values of other attributes that have no default, by their type."""

Types = Mapping[str, tuple[ep.DataType, ...]]


def operators() -> Iterator[ep.OperatorSupport]:
    """Every version of ONNX's operators, the compiled tier before the others."""
    import onnx.defs

    schemas = onnx.defs.get_all_schemas_with_history()
    for schema in sorted(schemas, key=lambda each: (each.domain, each.name)):
        if not schema.deprecated:
            yield from _support(schema)


def _support(schema: Any) -> Iterator[ep.OperatorSupport]:
    """The tiers that run one version of an operator."""

    def support(tier: str, types: Types) -> ep.OperatorSupport:
        return ep.OperatorSupport(
            op_type=schema.name,
            domain=schema.domain,
            since=schema.since_version,
            until=schema.since_version,
            tier=tier,
            types=types,
        )

    kernel = find_kernel(schema.domain, schema.name, schema.since_version)
    if kernel is not None:
        compiled = _compiled_types(schema, kernel)
        if compiled is not None:
            yield support("compiled", compiled)
        yield support("array", _types_on_arrays(schema))
        return
    found = find(*_smallest_node(schema))
    if isinstance(found, Found):
        yield support(str(found.tier), _types_on_arrays(schema))


def _types_on_arrays(schema: Any) -> Types:
    excluded = _NOT_ON_ARRAYS.get((schema.domain, schema.name), frozenset())
    return {
        variable: kept
        for variable, types in _variables(schema).items()
        if (kept := tuple(each for each in types if each not in excluded))
    }


def _variables(schema: Any) -> dict[str, tuple[ep.DataType, ...]]:
    """The element types that ONNX allows for each type variable, in ONNX's order."""
    return {
        constraint.type_param_str: _element_types(constraint.allowed_type_strs)
        for constraint in schema.type_constraints
    }


def _element_types(written: Sequence[str]) -> tuple[ep.DataType, ...]:
    """Those of tensors, also in sequences and optionals: ``seq(tensor(float))``."""
    from onnx import TensorProto

    found = {
        ep.DataType.from_onnx(TensorProto.DataType.Value(name.upper()))
        for text in written
        for name in re.findall(r"tensor\((\w+)\)", text)
    }
    return tuple(each for each in ep.DataType if each in found)


def _smallest_node(schema: Any) -> tuple[Any, Any]:
    """A graph and a node of it, as far as it matters to what can compute the node."""
    node = SimpleNamespace(
        domain=schema.domain,
        op_type=schema.name,
        name="",
        attributes={},
        subgraphs=(),
        inputs=tuple(f"x{position}" for position, _ in enumerate(_needed(schema))),
        outputs=("y",),
    )
    return SimpleNamespace(opset=lambda domain: schema.since_version), node


def _needed(schema: Any) -> list[str]:
    """The type variables, or types, of the inputs that cannot be left out."""
    return [
        formal.type_str for formal in schema.inputs if formal.option.name != "Optional"
    ]


# the compiled tier


def _compiled_types(schema: Any, kernel: Kernel) -> Types | None:
    """The types in whose combinations a call is compiled; ``None`` if in none."""
    variables = _variables(schema)
    inputs = _needed(schema)
    # of some operators every output may be left out, but none leaves out all
    count = max(1, schema.min_output)
    outputs = [formal.type_str for formal in schema.outputs[:count]]
    used = [name for name in variables if name in {*inputs, *outputs}]
    fixed = {
        text: _element_types([text])
        for text in (*inputs, *outputs)
        if text not in variables
    }
    if not inputs or not all(fixed.values()):
        return None
    attributes = _attributes(schema, kernel)
    found: dict[str, set[ep.DataType]] = {name: set() for name in used}
    is_compiled = False
    for choice in itertools.product(*(variables[name] for name in used)):
        chosen = dict(zip(used, choice, strict=True))
        dtypes = {text: types[0].numpy for text, types in fixed.items()}
        dtypes |= {name: dtype.numpy for name, dtype in chosen.items()}
        if _is_compiled(
            schema,
            attributes,
            [dtypes[text] for text in inputs],
            [dtypes[text] for text in outputs],
        ):
            is_compiled = True
            for name, dtype in chosen.items():
                found[name].add(dtype)
    if not is_compiled:
        return None
    return {
        name: tuple(each for each in variables[name] if each in found[name])
        for name in used
    }


def _is_compiled(
    schema: Any,
    attributes: Mapping[str, Any],
    inputs: Sequence[np.dtype[Any]],
    outputs: Sequence[np.dtype[Any]],
) -> bool:
    """What the compiled tier says of a call with inputs and outputs of these types."""
    from onnxplug_compiler.frontend.call import Call
    from onnxplug_compiler.schedule.operations.registry import find_operation
    from onnxplug_compiler.segmentation import analyse
    from onnxplug_compiler.widening import widened
    from onnxplug_cpu.compiler.cpu_target import CpuTarget
    from onnxplug_cpu.compiler.machine.isa import SSE

    names = tuple(f"x{position}" for position in range(len(inputs)))
    results = tuple(f"y{position}" for position in range(len(outputs)))
    if isinstance(attributes.get("to"), int):  # an element type: the output's
        attributes = {**attributes, "to": ep.DataType.from_numpy(outputs[0]).onnx}
    call = Call(
        schema.name,
        schema.domain,
        schema.since_version,
        names,
        results,
        attributes,
        (0,),
        tuple(outputs),
        find_kernel,  # any function: nothing is computed
    )
    operation = find_operation(call)
    known = frozenset() if operation is None else operation.known
    constants = {name for position, name in enumerate(names) if position in known}
    dtypes = dict(zip((*names, *results), (*inputs, *outputs), strict=True))
    target = CpuTarget(SSE, 1)
    wide = widened([call], dtypes, constants, results, target, {})
    every = {**dtypes, **wide.dtypes}
    return not analyse(wide.calls, every, constants, {}, target).reasons


def _attributes(schema: Any, kernel: Kernel) -> dict[str, Any]:
    """The defaults, and some value for attributes that have none."""
    from onnxplug_compiler.frontend.call import attribute_defaults

    attributes = dict(attribute_defaults(kernel.function))
    for name, attribute in schema.attributes.items():
        if attribute.required and name not in attributes:
            neutral = _NEUTRAL.get(attribute.type.name)
            attributes[name] = _EXAMPLES.get((schema.name, name), neutral)
    return attributes
