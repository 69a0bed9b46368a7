"""The operators that the EP takes, as the allow-list has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onnxplug import ep
from onnxplug.authoring.operators import having
from onnxplug_openvino.capability import load_list


def operators() -> Iterator[ep.OperatorSupport]:
    """The versions that were measured; types are stated of inputs only."""
    import onnx.defs

    for op_type, entry in load_list().operators.items():
        if op_type in having("control_flow"):
            continue  # measured, but never taken
        for since in sorted(map(int, entry["since"])):
            schema = onnx.defs.get_schema(op_type, since)
            yield ep.OperatorSupport(
                op_type=op_type,
                since=since,
                until=since,
                types=_types(schema, entry["types"]),
            )


def _types(
    schema: Any, signatures: Sequence[str]
) -> dict[str, tuple[ep.DataType, ...]]:
    """The element types of each type variable.

    Args:
        signatures: the types of inputs, as ``onnxplug.authoring.features`` writes them.
    """
    formal = [each.type_str for each in schema.inputs]
    found: dict[str, set[str]] = {}
    for signature in signatures:
        for position, dtype in enumerate(signature.split(",")):
            # what repeats is written once, and the last input may stand for many
            if dtype and dtype != "-":
                variable = formal[min(position, len(formal) - 1)]
                found.setdefault(variable, set()).add(dtype)
    variables = [constraint.type_param_str for constraint in schema.type_constraints]
    return {
        name: tuple(each for each in ep.DataType if each in found[name])
        for name in variables
        if name in found
    }
