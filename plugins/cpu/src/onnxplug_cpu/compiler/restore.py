"""Partitions without their graphs, as earlier processes kept them; see
``ep.Restorable``."""

from __future__ import annotations

import marshal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NoReturn

from onnxplug import ep
from onnxplug.authoring.entries import MARSHAL
from onnxplug.authoring.source_state import state_of
from onnxplug_cpu.compiler.kept_partition import KeptPartition
from onnxplug_cpu.compiler.kept_plans import (
    KeptPlans,
    KeptUnits,
    plans_are_kept,
)
from onnxplug_cpu.compiler.machine.cores import default_workers
from onnxplug_cpu.compiler.runtime.arena import Arenas
from onnxplug_cpu.compiler.runtime.jit import Library, machine_code_unavailable
from onnxplug_cpu.compiler.runtime.kept import KeptConstants, NothingKept

if TYPE_CHECKING:
    from collections.abc import Callable


def restore(
    partition: ep.Partition, content: bytes, weights: ep.WeightStore
) -> KeptPartition:
    """What :func:`restorable` gave *content* for.

    Raises:
        NothingKept: there is none for this source, machine or number of threads.
    """
    kernels, identity, how = marshal.loads(content)
    workers, threads, *_ = how
    if (
        not plans_are_kept()
        or machine_code_unavailable() is not None
        or kernels != source_state_of_kernels()
        or workers != (threads or default_workers())
    ):
        raise NothingKept
    library = Library.host()
    plans = KeptPlans(library, identity, how)
    units = plans.units()
    if units is None:
        raise NothingKept
    return KeptPartition(
        partition,
        units,
        plans,
        KeptConstants(partition, library, workers, Arenas(), weights),
        _find_kernel,
        threads,
        _nothing,
        lambda: None,
    )


def restorable(
    partition: ep.Partition, units: KeptUnits, plans: KeptPlans
) -> ep.Restorable | None:
    """How a partition that is kept as *units* is restored; ``None`` if a node on arrays
    has no kernel of onnxplug's."""
    from onnxplug_kernels import find_kernel  # which restoring a program does without

    places = {node.index: place for place, node in enumerate(partition.nodes)}
    on_arrays = [places[unit.node] for unit in units.units if unit.node is not None]
    for place in on_arrays:
        node = partition.nodes[place]
        version = partition.graph.opset(node.domain)
        kernel = find_kernel(node.domain, node.op_type, version)
        if kernel is None or node.captures:
            return None
    content = source_state_of_kernels(), plans.identity, plans.how
    return ep.Restorable(restore, marshal.dumps(content, MARSHAL), tuple(on_arrays))


def source_state_of_kernels() -> str:
    spec = find_spec("onnxplug_kernels")
    assert spec is not None, "a requirement of this distribution"
    return state_of(*(spec.submodule_search_locations or ()))


def _find_kernel(graph: ep.Graph, node: ep.Node) -> Callable[..., Any] | ep.Reason:
    # most partitions have no node on arrays
    from onnxplug_cpu.capability import find

    found = find(graph, node)
    return found if isinstance(found, ep.Reason) else found.function


def _nothing() -> NoReturn:
    """Nothing plans here: the host reads the model, and has the partition compiled."""
    raise NothingKept
