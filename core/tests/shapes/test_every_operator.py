"""Every operator of ONNX has a rule, so that the types of what it makes are known."""

from __future__ import annotations

import onnx.defs

from onnxplug.layout import NHWC_DOMAIN, NHWC_OPERATORS
from onnxplug.shapes.control import RULES as BODY_RULES
from onnxplug.shapes.rules import operators_with_rules

OURS = {
    # experiments of ONNX 1.0 to 1.4, of which models are left
    ("", "ImageScaler"),
    ("", "ParametricSoftplus"),
    ("", "Scale"),
    ("", "ScaledTanh"),
}


def test_every_operator_has_a_rule():
    training = "ai.onnx.preview.training"  # onnxplug-training has the rules of that
    defined = {
        (schema.domain, schema.name)
        for schema in onnx.defs.get_all_schemas_with_history()
        if schema.domain != training
    }
    rules = operators_with_rules()
    known = {*rules, *BODY_RULES}
    assert defined <= known
    assert {key for key in known if key[0] != NHWC_DOMAIN} - defined == OURS
    assert {name for domain, name in known if domain == NHWC_DOMAIN} == NHWC_OPERATORS
    assert not {*rules} & BODY_RULES.keys()
    assert len({*rules}) == len(rules), "an operator has two rules"
