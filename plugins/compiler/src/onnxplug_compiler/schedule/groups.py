"""Records groups of calls: chains alone, and products and convolutions with what
follows them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_compiler.frontend.fusion import Group
from onnxplug_compiler.schedule.elementwise import record_calls
from onnxplug_compiler.schedule.operations.registry import Plan


def record_group(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    """Record the commands of *group*, which write *outputs*."""
    if group.anchor is None and group.forms:
        record_calls(plan, group, outputs)
        return
    anchor = group.calls[0] if group.anchor is None else group.anchor
    behind = Group([]) if group.anchor is None else group
    # many models have none of one kind, and their modules take long to import
    if anchor.traits.multiplies:
        from onnxplug_compiler.schedule.products import record_product

        record_product(plan, anchor, behind, outputs)
    elif anchor.traits.coded and anchor.traits.channels_last:
        from onnxplug_compiler.schedule.coded_convolutions import (
            record_coded_convolution,
        )

        record_coded_convolution(plan, anchor, behind, outputs)
    elif anchor.traits.coded:
        from onnxplug_compiler.schedule.coded import record_coded

        record_coded(plan, anchor, behind, outputs)
    else:
        from onnxplug_compiler.schedule.convolutions import record_convolution

        record_convolution(plan, anchor, behind, outputs)
