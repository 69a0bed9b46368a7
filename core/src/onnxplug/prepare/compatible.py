"""Whether a node means the same under another version of its operator set.

A function states the versions that it was written for; the graph that it is inlined
into has one version per domain.  Most new versions of an operator only add element
types or optional parts, so the schemas are compared for what the node uses, and the
few changes that a schema does not show are in a table.
"""

from __future__ import annotations

from typing import Any, Final

from onnxplug.graph import Node

CHANGED_MEANING: Final[dict[str, tuple[int, ...]]] = {
    # source: Changelog.md of ONNX; versions that changed results, not only signatures
    "Attention": (24, 25),
    "BatchNormalization": (7, 14),
    "DFT": (20,),
    "Dropout": (7, 10),
    "GridSample": (20,),
    "GroupNormalization": (21,),
    "Hardmax": (13,),
    "LogSoftmax": (13,),
    "PRelu": (7,),
    "Resize": (11,),
    "RoiAlign": (16,),
    "Scan": (9,),
    "Softmax": (13,),
    "Split": (18,),
    "Upsample": (9,),
}


def means_the_same(node: Node, written_for: int, run_as: int) -> bool:
    """Whether *node*, written for one opset version, can run as of another.

    Operators that ONNX does not define are taken to be the same.
    """
    if written_for == run_as:
        return True
    import onnx.defs

    try:
        written = onnx.defs.get_schema(node.op_type, written_for, node.domain)
    except onnx.defs.SchemaError:
        # not an operator then: foreign, if it is none now either
        return not onnx.defs.has(node.op_type, run_as, node.domain)
    try:
        run = onnx.defs.get_schema(node.op_type, run_as, node.domain)
    except onnx.defs.SchemaError:
        return False
    if written.since_version == run.since_version:
        return True
    low, high = sorted((written.since_version, run.since_version))
    if not node.domain and any(
        low < version <= high for version in CHANGED_MEANING.get(node.op_type, ())
    ):
        return False
    return not run.deprecated and _reads_the_same(node, written, run)


def _reads_the_same(node: Node, written: Any, run: Any) -> bool:
    """Whether the inputs, outputs and attributes of *node* are the same in both."""
    given, wanted = len(node.inputs), len(node.outputs)
    if not run.min_input <= given <= run.max_input:
        return False
    if not run.min_output <= wanted <= run.max_output:
        return False
    if _names(written.inputs, given) != _names(run.inputs, given):
        return False
    for name in {*written.attributes, *run.attributes}:
        before, after = written.attributes.get(name), run.attributes.get(name)
        if not _attribute_reads_the_same(name in node.typed_attributes, before, after):
            return False
    return True


def _attribute_reads_the_same(given: bool, before: Any, after: Any) -> bool:
    """Whether an attribute's old and new definition agree; None for no definition."""
    if given:
        return None not in (before, after) and bool(before.type == after.type)
    if before is None or after is None:  # a new one's default does as was done before
        return after is None or not after.required
    return not after.required and bool(before.default_value == after.default_value)


def _names(formal: Any, count: int) -> list[str]:
    """What the first *count* inputs are for, spelled alike in all versions."""
    return [parameter.name.lower() for parameter in formal[:count]]
