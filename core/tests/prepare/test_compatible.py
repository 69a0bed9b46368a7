"""Nodes under another version of their operator set."""

from __future__ import annotations

import pytest

from onnxplug.graph import Attribute, AttributeType, Node
from onnxplug.prepare.compatible import CHANGED_MEANING, means_the_same

AXES = {"axes": Attribute(AttributeType.INTS, (0,))}
AXIS = {"axis": Attribute(AttributeType.INT, 1)}


@pytest.mark.parametrize(
    ("node", "written_for", "run_as", "same"),
    [
        (Node("Add", ("a", "b"), ("y",)), 13, 21, True),
        (Node("Add", ("a", "b"), ("y",)), 21, 13, True),
        (
            Node("Cast", ("a",), ("y",), {"to": Attribute(AttributeType.INT, 1)}),
            9,
            28,
            1,
        ),
        (Node("Softmax", ("a",), ("y",), AXIS), 11, 13, False),
        (Node("Softmax", ("a",), ("y",), AXIS), 13, 28, True),
        (Node("ReduceMean", ("a",), ("y",)), 13, 18, True),
        (Node("ReduceMean", ("a",), ("y",), AXES), 13, 18, False),
        (Node("ReduceMean", ("a", "axes"), ("y",)), 18, 13, False),
        (Node("Unsqueeze", ("a",), ("y",), AXES), 11, 13, False),
        (Node("Slice", ("a", "b", "c"), ("y",)), 10, 13, True),
        (Node("Slice", ("a",), ("y",)), 9, 13, False),
        (Node("Selu", ("a",), ("y",)), 5, 6, False),  # the default of alpha changed
        (Node("Upsample", ("a", "s"), ("y",)), 9, 13, False),  # withdrawn in 10
        (Node("Gelu", ("a",), ("y",)), 20, 19, False),  # did not exist yet
        (Node("Mystery", ("a",), ("y",)), 20, 19, True),
        (Node("Mystery", ("a",), ("y",), domain="local"), 1, 2, True),
        (Node("Gelu", ("a",), ("y",)), 19, 20, False),  # it became an operator
    ],
    ids=str,
)
def test_the_schemas_tell_whether_a_node_means_the_same(
    node, written_for, run_as, same
):
    assert means_the_same(node, written_for, run_as) == same


def test_changed_meanings_are_of_versions_that_exist():
    import onnx.defs

    versions = {
        (schema.name, schema.since_version)
        for schema in onnx.defs.get_all_schemas_with_history()
        if not schema.domain
    }
    for name, changes in CHANGED_MEANING.items():
        assert {(name, version) for version in changes} <= versions
