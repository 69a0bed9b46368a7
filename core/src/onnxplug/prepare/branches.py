"""An ``If`` that always goes one way becomes the nodes of the branch it takes.

What stands in the other branch is then no business of any EP.
Source: operator ``If``, versions 1 to 25.
"""

from __future__ import annotations

from onnxplug.authoring.nodes import describe
from onnxplug.graph import Graph, Node
from onnxplug.graph.scopes import Names, all_graphs
from onnxplug.prepare.budget import Budget
from onnxplug.prepare.instantiate import splice


def take_branches(graph: Graph, budget: Budget | None = None) -> list[str]:
    """Replace the ``If`` nodes of constant condition in *graph* and bodies within.

    Args:
        budget: asked now and then whether to go on.

    Returns:
        The nodes that were replaced, described in words.
    """
    names: Names | None = None
    taken: list[str] = []
    for each in all_graphs(graph):  # whose nodes may be replaced when it is given out
        while decided := {
            node.index: branch
            for node in each.nodes
            if (branch := _taken(each, node)) is not None
        }:
            if budget is not None:
                budget.check()
            names = names or Names(graph)
            nodes: list[Node] = []
            for node in each.nodes:
                branch = decided.get(node.index)
                if branch is None:
                    nodes.append(node)
                else:
                    nodes += splice(branch, node, each, names)
                    taken.append(describe(node))
            each.replace_nodes(nodes)
    return taken


def _taken(graph: Graph, node: Node) -> Graph | None:
    """The branch that *node* always takes, if it is an ``If`` that does."""
    if node.op_type != "If" or node.domain or not node.inputs or not node.inputs[0]:
        return None
    condition = graph.constant(node.inputs[0])
    if condition is None or condition.size != 1:  # left to fail when it is run
        return None
    name = "then_branch" if condition.item() else "else_branch"
    return node.subgraphs.get(name)
