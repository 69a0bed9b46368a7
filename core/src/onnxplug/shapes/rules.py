"""The rule of an operator, and what it says of a node.

A family of rules is imported when an operator is looked up that no family before it
has, so that small models do not pay for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import Final

from onnxplug.authoring.bounds import OutOfBounds
from onnxplug.authoring.nodes import describe
from onnxplug.ep import MapType, OptionalType, SequenceType
from onnxplug.errors import ModelError
from onnxplug.interruption import raise_interruption
from onnxplug.layout import NHWC_DOMAIN
from onnxplug.shapes.elementwise import Rule
from onnxplug.shapes.facts import WRONG, Fact, NodeCall, Value

_TABLES: Final = {
    # in the order in which operators are frequent
    "": (
        "elementwise.RULES",
        "movement.RULES",
        "neural.RULES",
        "windows.RULES",
        "making.RULES",
        "attention.RULES",
        "containers.RULES",
        "image.RULES",
        "signal.RULES",
        "text.RULES",
    ),
    "ai.onnx.ml": ("learned.RULES",),
    NHWC_DOMAIN: ("channels_last.RULES",),
}
"""Where the rules of a domain are; no operator is in two tables."""

_FACTS: Final = (Value, SequenceType, OptionalType, MapType)


@lru_cache(1024)  # a model may name any number of operators
def find_rule(domain: str, op_type: str) -> Rule | None:
    """The host's rule of an operator.

    Those of operators with bodies are in :mod:`~onnxplug.shapes.control`.
    """
    for place in _TABLES.get(domain, ()):
        rule = _table(place).get(op_type)
        if rule is not None:
            return rule
    return None


def operators_with_rules() -> list[tuple[str, str]]:
    """The domain and the name of every operator that has a rule."""
    return [
        (domain, op_type)
        for domain, places in _TABLES.items()
        for place in places
        for op_type in _table(place)
    ]


def _table(place: str) -> Mapping[str, Rule]:
    module, _, name = place.partition(".")
    table: Mapping[str, Rule] = getattr(
        import_module(f"onnxplug.shapes.{module}"), name
    )
    return table


def followed(call: NodeCall, rule: Rule) -> Sequence[Fact]:
    """The types of a node's outputs by its *rule*, as far as they follow.

    Raises:
        OutOfBounds: the node cannot run; the error names it.
    """
    try:
        found = rule(call)
    except ModelError:
        raise
    except OutOfBounds as error:
        raise OutOfBounds(f"{describe(call.node)} cannot run: {error}") from error
    except WRONG as error:
        raise_interruption(error)
        return ()
    if found is None:
        return ()
    return (found,) if isinstance(found, _FACTS) else found
