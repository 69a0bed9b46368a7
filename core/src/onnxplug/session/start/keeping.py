"""Makes plain values of a session that was opened."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from onnxplug.authoring.files import Identity, lasting_state
from onnxplug.authoring.source_state import state_of
from onnxplug.ep import HOST
from onnxplug.plugins.record import PluginState
from onnxplug.run.plan import only_partition
from onnxplug.session.model_info import node_arg
from onnxplug.session.start.entry import KeptSession
from onnxplug.session.start.partition import plain_partition
from onnxplug.session.start.plain import plain_type
from onnxplug.session.start.runner import Results
from onnxplug.session.start.weights import Unkept, plain_weights
from onnxplug.shapes.stated import merged

if TYPE_CHECKING:
    from onnxplug.plugins import PluginRegistry
    from onnxplug.session.opening import OpenedModel
    from onnxplug.session.request import SessionRequest


def kept_session(request: SessionRequest, opened: OpenedModel) -> KeptSession | None:
    """What was *opened* for *request*; ``None`` if it is more than one partition on
    the host, or its EP does not restore it.

    Raises:
        TypeError, Unkept: no plain values stand for a node or a constant, a file was
            written to, or who supplies an operator is no package.
    """
    built, graph = opened.built, opened.built.graph
    step = only_partition(built.plan, HOST)
    if step is None or len(built.chosen) != 1 or graph.defaults or built.captures:
        return None
    (unit,) = built.compiled.units
    restorable = None if unit.compiled is None else unit.compiled.restorable
    partition = unit.partition
    types = [partition.value(name).type for name in partition.outputs]
    if restorable is None or not Results.can_tell(types):
        return None
    plain, constants = plain_partition(partition, tuple(restorable.nodes))
    files = [_state(path, identity) for path, identity in opened.files.items()]
    weights = plain_weights(constants, list(opened.files))
    restore = restorable.restore
    inputs = graph.input_types()
    seen = {
        name: merged(opened.declared.get(name), graph.value(name).type)
        for name in (*inputs, *graph.outputs)
    }
    return KeptSession(
        built.chosen[0].name,
        (restore.__module__, restore.__name__),
        restorable.content,
        plain,
        weights,
        request.options.config["session.use_memory_mapped_model"] == "1",
        files,
        _sources(opened.registry),
        [(name, plain_type(type)) for name, type in inputs.items()],
        [
            (name, plain_type(opened.declared.get(name) or graph.value(name).type))
            for name in graph.outputs
        ],
        [tuple(node_arg(name, type)) for name, type in seen.items()],
        [plain_type(type) for type in types],
        [slot - 1 for slot in step.inputs],
        [step.outputs.index(slot) for slot in built.plan.outputs],
    )


def _sources(registry: PluginRegistry) -> list[tuple[list[str], str]]:
    """The source of what was asked for operators, which is edited where distributions
    are installed in place: its folders and their states."""
    found: dict[str, tuple[list[str], str]] = {}
    for supplier in registry.domains.all_suppliers():
        name = supplier.module.partition(".")[0]
        package = sys.modules.get(name)
        if supplier.state is PluginState.FOUND or package is None:
            continue
        folders = list(getattr(package, "__path__", ()))
        if not folders:
            raise Unkept(f"{supplier} is a module that stands alone")
        found[name] = folders, state_of(*folders)
    return list(found.values())


def _state(path: str, before: Identity) -> tuple[str, tuple[int, ...]]:
    """A file of the model, and its state, by which it is known in other processes."""
    status = os.stat(path)
    state = lasting_state(status)
    if state is None or Identity.of(status) != before:
        raise Unkept(f"{path!r} was written to a moment ago")
    return path, state
