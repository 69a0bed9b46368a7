"""Model-local functions become nodes of the graphs that call them.

Source: ONNX IR specification, *Functions*.  After this pass no EP has to know that
functions exist.
"""

from __future__ import annotations

from collections import Counter
from typing import TypeAlias

from onnxplug.authoring.nodes import describe
from onnxplug.errors import InvalidModel, UnsupportedModel
from onnxplug.graph import Function, Graph, Model, Node
from onnxplug.graph.scopes import Names, all_graphs, outermost
from onnxplug.prepare.budget import Budget
from onnxplug.prepare.compatible import means_the_same
from onnxplug.prepare.instantiate import instantiate, too_deep

_Key: TypeAlias = tuple[str, str, str]


def inline_functions(model: Model, budget: Budget | None = None) -> list[str]:
    """Replace all calls of *model*'s functions; the functions are gone then.

    Args:
        budget: how many nodes they may become.

    Returns:
        The calls that were replaced, described in words.

    Raises:
        InvalidModel: a function calls itself, or a call does not fit its function.
        UnsupportedModel: a function was written for another version of an operator
            that has another meaning in the model's opset, or the calls become more
            nodes, or bodies within each other, than *budget* allows.
    """
    if not model.functions:
        return []
    budget = budget or Budget()
    _check_size(model, budget)
    replaced = _Inlining(model, budget).replace_calls()
    model.functions.clear()
    return replaced


# what the calls become, before they do


def _check_size(model: Model, budget: Budget) -> None:
    """Check that no function calls itself, and how many nodes the calls become.

    Raises:
        InvalidModel: a function calls itself.
        UnsupportedModel: there are more nodes than *budget* allows.
    """
    limit = budget.limits.nodes
    sizes: dict[_Key, int] = {}
    called = {key: _calls(function.body, model) for key, function in _all(model)}
    total = 0
    for key, count in _calls(model.graph, model).items():
        for each in _callees_first(key, model, called, sizes):
            nodes = sum(len(g.nodes) for g in all_graphs(model.functions[each].body))
            sizes[each] = nodes + sum(
                times * sizes[callee] for callee, times in called[each].items()
            )
        total += count * sizes[key]
        if total > limit:
            raise UnsupportedModel(
                f"inlining the model's functions makes {_in_words(total)} nodes, most "
                f"of them of {model.functions[key].name!r}, which becomes "
                f"{_in_words(sizes[key])}; onnxplug makes at most {limit:,}"
            )


def _all(model: Model) -> list[tuple[_Key, Function]]:
    return list(model.functions.items())


def _calls(graph: Graph, model: Model) -> Counter[_Key]:
    """How often *graph* and bodies within call each function."""
    return Counter(
        key
        for each in all_graphs(graph)
        for node in each.nodes
        if (key := _key(node)) in model.functions
    )


def _callees_first(
    key: _Key,
    model: Model,
    called: dict[_Key, Counter[_Key]],
    done: dict[_Key, int],
) -> list[_Key]:
    """*key* and what it calls that is not in *done*, each after what it calls itself.

    Raises:
        InvalidModel: a function calls itself.
    """
    order: list[_Key] = []
    seen = set(done)
    path: dict[_Key, None] = {}
    # a function comes up again, to leave the path, when all that it calls is done
    pending = [key]
    while pending:
        current = pending[-1]
        if current in path:
            pending.pop()
            del path[current]
            order.append(current)
            continue
        if current in seen:
            pending.pop()
            continue
        seen.add(current)
        path[current] = None
        for callee in reversed(called[current]):
            if callee in path:
                function = model.functions[callee]
                chain = [name for _, name, _ in path]
                start = chain.index(function.name)
                raise InvalidModel(
                    f"the function {function.name!r} of domain {function.domain!r} "
                    f"calls itself ({_chain([*chain[start:], function.name])}); ONNX "
                    "functions may not be recursive"
                )
            pending.append(callee)
    return order


def _chain(names: list[str]) -> str:
    if len(names) > 10:
        names = [*names[:5], "…", *names[-4:]]
    return " -> ".join(names)


def _in_words(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1} or more"


def _key(node: Node) -> _Key:
    return node.domain, node.op_type, node.overload


# what they become


class _Inlining:
    def __init__(self, model: Model, budget: Budget) -> None:
        self._model = model
        self._budget = budget
        self._names = Names(model.graph)
        self._checked: set[_Key] = set()
        self._replaced: list[str] = []

    def replace_calls(self) -> list[str]:
        """Replace all calls; these in words."""
        graphs = [(self._model.graph, 0)]
        while graphs:
            graph, depth = graphs.pop()
            nodes = self._nodes(graph)
            if nodes != graph.nodes:
                graph.replace_nodes(nodes)
            bodies = [body for node in nodes for body in node.subgraphs.values()]
            if bodies and depth == self._budget.limits.depth:
                raise too_deep(graph.name, depth)
            graphs += ((body, depth + 1) for body in bodies)
        return self._replaced

    def _nodes(self, graph: Graph) -> list[Node]:
        """The nodes of *graph* with functions' nodes in place of their calls."""
        nodes: list[Node] = []
        pending = graph.nodes[::-1]
        while pending:
            node = pending.pop()
            function = self._model.functions.get(_key(node))
            if function is None:
                nodes.append(node)
                for body in node.subgraphs.values():
                    body.parent = graph
                continue
            self._budget.check()
            self._adopt_opsets(function, node)
            self._replaced.append(describe(node))
            made = instantiate(function, node, graph, self._names, self._budget)
            pending += reversed(made)
        return nodes

    def _adopt_opsets(self, function: Function, call: Node) -> None:
        """Let the model import what *function* imports.

        Raises:
            UnsupportedModel: the model imports a version that means something else.
        """
        key = _key(call)
        if key in self._checked:
            return
        self._checked.add(key)
        adopt_imports(function, self._model.graph)
        theirs, ours = function.body.opset_imports, self._model.graph.opset_imports
        found = find_conflict(function, self._model.graph, self._model.functions.keys())
        if found is not None:
            domain = found.domain
            raise UnsupportedModel(
                f"{describe(call)} cannot be inlined: the function "
                f"{function.name!r} is written for opset {theirs.get(domain, 0)} of "
                f"domain {domain!r}, the model imports {ours.get(domain, 0)}, and "
                f"{describe(found)} means something else there; convert the model with "
                "onnx.version_converter, or export it with one opset version"
            )


def adopt_imports(function: Function, graph: Graph) -> None:
    """Let *graph* and all graphs around and within import what *function* does.

    Domains that *graph* imports already keep their version.
    """
    new = {
        domain: version
        for domain, version in function.body.opset_imports.items()
        if domain not in graph.opset_imports
    }
    if new:
        for each in all_graphs(outermost(graph)):
            each.opset_imports.update(new)


def find_conflict(
    function: Function, graph: Graph, calls: object = frozenset()
) -> Node | None:
    """A node of *function* that has another meaning under *graph*'s opsets.

    Args:
        calls: a container of (domain, name, overload) that are not operators.
    """
    theirs = function.body.opset_imports
    differing = {
        domain
        for domain, version in theirs.items()
        if graph.opset(domain) not in (0, version)
    }
    if not differing:
        return None
    for body in all_graphs(function.body):
        for node in body.nodes:
            if node.domain not in differing:
                continue
            if (node.domain, node.op_type, node.overload) in calls:  # type: ignore[operator]
                continue
            if not means_the_same(node, theirs[node.domain], graph.opset(node.domain)):
                return node
    return None
