"""Bodies that do not fit their nodes."""

from __future__ import annotations

import pytest

from onnxplug.errors import InvalidModel
from onnxplug.prepare import prepare

INPUTS = "g (float[2,3] x, int64 n, bool c) => (y)"
NEGATED = "b (p) => (q) { q = Neg (p) }"


@pytest.mark.parametrize(
    ("node", "found"),
    [
        (
            "y = If (c) <then_branch = t (w) => (p) { p = Neg (w) }, "
            "else_branch = e () => (q) { q = Neg (x) }>",
            "its then_branch has 1 inputs; expected 0",
        ),
        (
            "y, z = If (c) <then_branch = t () => (p) { p = Neg (x) }, "
            "else_branch = e () => (q) { q = Neg (x) }>",
            "its then_branch has 1 outputs; expected 2",
        ),
        (
            "y = Loop (n, c, x) <body = b (i) => (g2) { g2 = Identity (c) }>",
            "its body has 1 inputs; expected 3",
        ),
        (
            "y = Loop (n, c, x) <body = b (i, g, s) => (g2) { g2 = Identity (g) }>",
            "its body has 1 outputs; expected 2",
        ),
        (
            f"y = Scan <num_scan_inputs = 2, body = {NEGATED}> (x)",
            "has num_scan_inputs 2, and 1 inputs",
        ),
        (
            f"y = Scan <num_scan_inputs = -1, body = {NEGATED}> (x)",
            "has num_scan_inputs -1, and 1 inputs",
        ),
        (
            f"y = Scan <num_scan_inputs = 1, scan_output_axes = [0, 0], "
            f"body = {NEGATED}> (x)",
            "has 2 values in scan_output_axes; expected 1",
        ),
        (
            f"y = Scan <num_scan_inputs = 1, body = {NEGATED}> (x, x)",
            "its body has 1 inputs; expected 2",
        ),
    ],
)
def test_a_body_that_does_not_fit_is_refused(parse, node, found):
    model = parse(f"{INPUTS} {{ {node} }}")
    operator = node.partition(" = ")[2].split()[0]
    with pytest.raises(InvalidModel, match=f"{operator} giving 'y'.* {found}"):
        prepare(model, evaluate=None)


def test_outputs_that_nobody_wants_may_be_made(parse):
    model = parse(
        f"""{INPUTS} {{
            y = If (c) <
                then_branch = t () => (p, r) {{ p = Neg (x) r = Abs (x) }},
                else_branch = e () => (q, s) {{ q = Neg (x) s = Abs (x) }}>
        }}"""
    )
    prepare(model, evaluate=None)
    assert model.graph.types["y"].shape == (2, 3)
