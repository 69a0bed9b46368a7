"""What a simulated EP takes of a graph, by its knobs."""

from __future__ import annotations

import random
from collections.abc import Iterator

from onnxplug import ep
from onnxplug_testing.simulated.kernels import KERNELS, find_kernel
from onnxplug_testing.simulated.knobs import Knobs


def judge(graph: ep.Graph, knobs: Knobs) -> ep.CapabilityReport:
    """Claim or refuse every node, the knobs' breaches of contract aside."""
    reasons = {node.index: refusal(graph, node, knobs) for node in graph.nodes}
    free = {index for index, reason in reasons.items() if reason is None}
    free -= knobs.silent_nodes
    claims: list[ep.ComputeCapability] = []
    for group in _groups(graph, free, knobs):
        if group <= free:
            free -= group
            label = "+".join(graph.nodes[index].op_type for index in sorted(group))
            claims.append(_claim(group, knobs, atomic=True, label=label))
    if free:
        claims.append(_claim(free | knobs.doubled_nodes, knobs))
    return ep.CapabilityReport(
        claims=tuple(claims),
        refusals=tuple(
            ep.Refusal(
                node=index, reason=reason or ep.Reason(ep.RefusalCode.OTHER, "doubled")
            )
            for index, reason in reasons.items()
            if index not in knobs.silent_nodes
            and (reason is not None or index in knobs.doubled_nodes)
        ),
    )


def refusal(graph: ep.Graph, node: ep.Node, knobs: Knobs) -> ep.Reason | None:
    """Why *node* is not taken; ``None`` when it is."""
    op = operator(node)
    if op in knobs.refuse:
        return knobs.refuse[op]
    if op not in knobs.ops:
        return ep.Reason(ep.RefusalCode.OP, f"{op} is not among Knobs.ops")
    if op in KERNELS:
        kernel = find_kernel(graph, node)
        if isinstance(kernel, ep.Reason):
            return kernel
    if op == "Loop" and (len(node.inputs) < 2 or node.inputs[1] is None):
        return ep.Reason(
            ep.RefusalCode.OTHER,
            "onnx.reference takes a condition left out for a false one",
        )
    for name in filter(None, (*node.inputs, *node.captures, *node.outputs)):
        dtype = graph.value(name).dtype
        if dtype not in knobs.dtypes:
            takes = ", ".join(sorted(knobs.dtypes))
            found = dtype or "not a tensor of known type"
            return ep.Reason(
                ep.RefusalCode.DTYPE, f"{name!r} is {found}; takes {takes}"
            )
    # by what the node makes, not by its index: the answer must not change when the
    # host asks again about a graph whose other nodes were expanded
    if (
        random.Random(f"{knobs.seed} {node.outputs}").random()
        >= knobs.claim_probability
    ):
        return ep.Reason(ep.RefusalCode.OTHER, "by chance (Knobs.claim_probability)")
    return None


def operator(node: ep.Node) -> str:
    """The operator's name as :class:`Knobs` spells it."""
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _claim(
    nodes: set[int] | frozenset[int],
    knobs: Knobs,
    *,
    atomic: bool = False,
    label: str = "",
) -> ep.ComputeCapability:
    return ep.ComputeCapability(
        nodes=tuple(sorted(nodes)),
        atomic=atomic,
        keeps_constants=knobs.keeps_constants,
        label=label,
    )


def _groups(graph: ep.Graph, free: set[int], knobs: Knobs) -> Iterator[frozenset[int]]:
    yield from knobs.groups
    for sequence in knobs.fuse:
        for node in graph.nodes:
            chain = _chain(graph, node, sequence)
            if chain is not None:
                yield chain
    draw = random.Random(f"{knobs.seed} {len(graph.nodes)}")
    for _ in range(knobs.random_groups):
        if len(free) >= 2:
            size = min(draw.randint(2, 3), len(free))
            yield frozenset(draw.sample(sorted(free), size))


def _chain(
    graph: ep.Graph, first: ep.Node, sequence: tuple[str, ...]
) -> frozenset[int] | None:
    # nodes of these operators, each reading what the one before makes
    chain = [first]
    for op in sequence[1:]:
        user = next(
            (
                node
                for node in graph.nodes
                if operator(node) == op and chain[-1].outputs[0] in node.inputs
            ),
            None,
        )
        if user is None:
            return None
        chain.append(user)
    if operator(first) != sequence[0]:
        return None
    return frozenset(node.index for node in chain)
