"""Records groups of calls: chains alone, and products with what follows them."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug_cpu.compiler.frontend.fusion import Group
from onnxplug_cpu.compiler.schedule.elementwise import record_calls
from onnxplug_cpu.compiler.schedule.operations.registry import Plan


def record_group(plan: Plan, group: Group, outputs: Sequence[str]) -> None:
    """Record the commands of *group*, which write *outputs*."""
    if group.anchor is None and group.forms:
        record_calls(plan, group, outputs)
        return
    # many models have no products, and their modules take long to import
    from onnxplug_cpu.compiler.schedule.products import record_product

    if group.anchor is not None:
        record_product(plan, group.anchor, group, outputs)
    else:
        record_product(plan, group.calls[0], Group([]), outputs)
