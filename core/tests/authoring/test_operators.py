"""The table of ONNX's operators against the schemas of onnx."""

from __future__ import annotations

import onnx.defs
import pytest

from onnxplug.authoring.operators import (
    attributes_of,
    flags,
    having,
    since_version,
)
from onnxplug.graph import AttributeType
from onnxplug.prepare.attributes import _TYPES

LETTERS = {kind: letter for letter, kind in _TYPES.items() if letter != "b"}

NOT_NEEDED = {
    ("BatchNormalization", "consumed_inputs"),  # has no effect
    ("Pad", "paddings"),  # models of opset 1 have pads, its later name
}


def test_what_is_known_is_what_the_schemas_say():
    """For every version of every operator."""
    for schema in onnx.defs.get_all_schemas_with_history():
        known = attributes_of(schema.domain, schema.name)
        if known is None:
            assert not schema.attributes, schema.name
            continue
        for name, attribute in schema.attributes.items():
            letters = known.types[name].replace("b", "i")
            assert LETTERS[AttributeType(int(attribute.type))] in letters, schema.name
        needed = {
            name
            for name, since, until in known.needed
            if since <= schema.since_version <= until
        }
        assert needed == {
            name
            for name, attribute in schema.attributes.items()
            if attribute.required and (schema.name, name) not in NOT_NEEDED
        }, (schema.name, schema.since_version)


def schemas_of(name: str) -> list[onnx.defs.OpSchema]:
    return [
        schema
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.name == name and not schema.domain
    ]


@pytest.mark.parametrize(
    "trait",
    """unary broadcast comparison reduction softmax reshapes any_number shape_only
    intensive random control_flow dequantize container text""".split(),
)
def test_traits_are_of_operators_of_onnx(trait: str) -> None:
    for name in having(trait):
        assert schemas_of(name), name


def test_traits_that_the_schemas_state_too() -> None:
    schemas = {schema.name: schema for schema in onnx.defs.get_all_schemas()}
    varying = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
    found = {n for n, each in schemas.items() if each.node_determinism is varying}
    # one that varies while it trains, what depends on bodies, and one that does not
    others = {"Dropout", "If", "Loop", "Scan", "SequenceMap", "AffineGrid"}
    assert having("random") == found - others
    variadic = onnx.defs.OpSchema.FormalParameterOption.Variadic
    for name in having("any_number"):
        assert schemas[name].inputs[-1].option == variadic
    assert having("reduction") == {n for n in schemas if n.startswith("Reduce")}
    for name in having("comparison"):
        assert name in having("broadcast")
        (made,) = schemas[name].outputs
        assert made.type_str in ("T1", "tensor(bool)")
    assert {n for n, each in schemas.items() if not each.domain and n != "SequenceMap"
            and any(a.type.name == "GRAPH" for a in each.attributes.values())
            } == having("control_flow")  # fmt: skip


def test_flags_have_the_defaults_0_or_1() -> None:
    for schema in onnx.defs.get_all_schemas_with_history():
        for name, attribute in schema.attributes.items():
            if name in flags() and attribute.default_value.type:
                assert attribute.default_value.i in (0, 1), (schema.name, name)


def test_when_operators_changed_is_what_the_schemas_say() -> None:
    domain = "ai.onnx.ml"
    names = {s.name for s in onnx.defs.get_all_schemas() if s.domain == domain}
    for name in (*names, "Nonsense"):
        for opset in range(1, 6):
            if onnx.defs.has(name, opset, domain):
                wanted = onnx.defs.get_schema(name, opset, domain).since_version
            else:
                wanted = 0
            assert since_version(domain, name, opset) == wanted, (name, opset)
    assert since_version(domain, "Scaler", 6) is None
    assert since_version("", "Add", 14) is None
