"""Operators that who supplies them replaces become what they are replaced by.

Before any pass that renames or removes values: such an operator may name values in its
attributes, as ``Gradient`` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug import domains
from onnxplug.graph import Graph
from onnxplug.graph.scopes import all_graphs
from onnxplug.plugins.domains import SuppliedOperator
from onnxplug.prepare.budget import Budget


def rewrite(graph: Graph, budget: Budget | None = None) -> list[str]:
    """Replace nodes of *graph* and of bodies within by those who supply them.

    Args:
        graph: a main graph without calls of functions.
        budget: how many nodes may be made.

    Returns:
        The nodes that were replaced, described in words.

    Raises:
        InvalidModel: a node cannot be replaced, as it contradicts the model.
        UnsupportedModel: a node cannot be replaced in this model, or by more nodes than
            *budget* allows.
        PluginError: who supplies an operator failed.
    """
    budget = budget or Budget()
    replaced: list[str] = []
    shared: dict[str, dict[str, Any]] = {}
    for each in list(all_graphs(graph)):
        for found in _operators(each):
            if found.operator.rewrite is None:
                continue
            from onnxplug.prepare.editor import GraphEditor

            editor = GraphEditor(each, budget, shared.setdefault(found.supplier, {}))
            said: Sequence[str]
            said = found.ask("rewrite", found.operator.rewrite, editor)
            replaced.extend(said)
    return replaced


def _operators(graph: Graph) -> list[SuppliedOperator]:
    """The operators in *graph* of which something is known, each once."""
    first = {(node.domain, node.op_type): node for node in graph.nodes if node.domain}
    found = (domains.find(graph, node) for node in first.values())
    return [each for each in found if each is not None]
