"""Random graphs with random claims: partitions that are convex, in an order without
cycles, no more than levels would make, and compute what the reference computes.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpWarning
from onnxplug.partition.report import Explanation
from onnxplug_testing import SimulatedExecutionProvider, SimulatedFactory

GRAPHS = 400
CHUNK = 20
OFTEN = 8
"""How many chunks run each time."""
UNARY = ("Abs", "Neg", "Relu", "Sigmoid", "Sin", "Tanh")
BINARY = ("Add", "Max", "Min", "Sub")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """A random model, and what its claims are drawn from."""

    model: onnx.ModelProto
    feeds: Mapping[str, np.ndarray]


def draw_case(seed: int) -> Case:
    """A model of 3 to 25 nodes on square and on flat matrices.

    No two nodes are alike and every node is used, so that preparing leaves them be.
    """
    draw = random.Random(seed)
    numbers = np.random.default_rng(seed)
    shapes: dict[str, Shape] = {
        f"in{index}": draw.choice([(4, 4), (2, 4)])
        for index in range(draw.randint(1, 3))
    }
    shapes["in0"] = (4, 4)  # the one that is square in every model
    feeds = {
        name: numbers.uniform(-1, 1, shape).astype(np.float32)
        for name, shape in shapes.items()
    }
    weights = {
        name: numbers.uniform(-0.5, 0.5, shape).astype(np.float32)
        for name, shape in (("square", (4, 4)), ("row", (4,)), ("scalar", ()))
    }
    nodes: list[onnx.NodeProto] = []
    seen: set[tuple[str, ...]] = set()
    for index in range(draw.randint(3, 25)):
        node, made = draw_node(draw, index, shapes)
        key = (node.op_type, *node.input)
        if key not in seen:
            seen.add(key)
            nodes.append(node)
            shapes |= made
    used = {name for node in nodes for name in node.input}
    ends = [name for node in nodes for name in node.output if name not in used]
    extra = [name for node in nodes for name in node.output if name in used]
    outputs = ends + [name for name in extra if draw.random() < 0.1]
    graph = helper.make_graph(
        nodes,
        f"random{seed}",
        [value_info(name, shapes[name]) for name in feeds],
        [value_info(name, shapes[name]) for name in outputs],
        [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    return Case(model, feeds)


def draw_node(
    draw: random.Random, index: int, shapes: Mapping[str, Shape]
) -> tuple[onnx.NodeProto, dict[str, Shape]]:
    first = draw.choice(list(shapes))
    alike = [name for name, shape in shapes.items() if shape == shapes[first]]
    name, out = f"node{index}", f"v{index}"
    kind = draw.choices(
        ("unary", "binary", "matmul", "weight", "split", "concat"), (3, 4, 2, 2, 2, 1)
    )[0]
    if kind == "split" and shapes[first] == (4, 4):
        halves = [f"{out}a", f"{out}b"]
        node = helper.make_node("Split", [first], halves, name, axis=0, num_outputs=2)
        return node, dict.fromkeys(halves, (2, 4))
    if kind == "concat" and shapes[first] == (2, 4):
        pair = [first, draw.choice(alike)]
        return helper.make_node("Concat", pair, [out], name, axis=0), {out: (4, 4)}
    if kind == "matmul":
        squares = [n for n, shape in shapes.items() if shape == (4, 4)] + ["square"]
        inputs = [first, draw.choice(squares)]
        return helper.make_node("MatMul", inputs, [out], name), {out: shapes[first]}
    if kind == "weight":
        inputs = [first, draw.choice(["row", "scalar"])]
        return helper.make_node("Mul", inputs, [out], name), {out: shapes[first]}
    if kind == "binary":
        inputs = [first, draw.choice(alike)]
        op = draw.choice(BINARY)
        return helper.make_node(op, inputs, [out], name), {out: shapes[first]}
    op = draw.choice(UNARY)
    return helper.make_node(op, [first], [out], name), {out: shapes[first]}


def value_info(name: str, shape: Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def draw_knobs(seed: int) -> dict[str, object]:
    draw = random.Random(-seed)
    return {
        "claim_probability": draw.choice([0.3, 0.5, 0.8]),
        "random_groups": draw.choice([0, 0, 1, 3]),
        "fuse": draw.choice([(), (("MatMul", "Add"), ("Mul", "Sin"))]),
        "max_concurrent_runs": draw.choice([1, None]),
        "seed": draw.choice([None, seed]),
    }


# what the partitions are checked against: paths between the model's own nodes


def edges(model: onnx.ModelProto) -> dict[str, set[str]]:
    """The nodes that read what each node makes."""
    maker = {out: node.name for node in model.graph.node for out in node.output}
    users: dict[str, set[str]] = {node.name: set() for node in model.graph.node}
    for node in model.graph.node:
        for name in node.input:
            if name in maker:
                users[maker[name]].add(node.name)
    return users


def reachable(users: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """All nodes on a path from each node; nodes come after what they read."""
    reach: dict[str, set[str]] = {}
    for name in reversed(users):
        reach[name] = set().union(*({user} | reach[user] for user in users[name]))
    return reach


def assert_convex(users: Mapping[str, set[str]], partition: Mapping[str, int]) -> None:
    reach = reachable(users)
    for start, reached in reach.items():
        for between in reached:
            if partition[between] != partition[start]:
                back = {n for n in reach[between] if partition[n] == partition[start]}
                assert not back, f"{start} → {between} → {back} leaves and comes back"


def assert_acyclic(users: Mapping[str, set[str]], partition: Mapping[str, int]) -> None:
    between: dict[int, set[int]] = {number: set() for number in partition.values()}
    for name, followers in users.items():
        between[partition[name]] |= {partition[user] for user in followers}
    for number, followers in between.items():
        followers.discard(number)
    while between:
        free = [n for n in between if not any(n in f for f in between.values())]
        assert free, f"a cycle among partitions {sorted(between)}"
        for number in free:
            del between[number]


def assert_in_order(
    users: Mapping[str, set[str]], partition: Mapping[str, int]
) -> None:
    """Partitions are numbered in the order in which they are run."""
    for name, followers in users.items():
        assert all(partition[name] <= partition[user] for user in followers)


def assert_groups_whole(
    report: Explanation,
    partition: Mapping[str, int],
    name: str,
    groups: Sequence[tuple[str, ...]],
) -> None:
    """An atomic group is one partition of its EP, or none of it runs there; why not is
    told for each of its nodes."""
    nodes = {node.name: node for node in report.nodes}
    for group in groups:
        if any(nodes[member].ep == name for member in group):
            (number,) = {partition[member] for member in group}
            members = {other for other in partition if partition[other] == number}
            assert members == set(group)
            assert report.partitions[number].label
        else:
            for member in group:
                passed = {passed.ep: passed for passed in nodes[member].passed_over}
                assert passed[name].reason.code in ("not-convex", "taken")


def partitions_by_level(
    users: Mapping[str, set[str]],
    report: Explanation,
    groups: Sequence[tuple[str, ...]],
) -> int:
    """How many partitions there are if nodes of one EP share one when the most changes
    of EP on paths to them are as many; *groups* are atomic."""
    kind = {node.name: node.ep for node in report.nodes}
    whole = {name: (name,) for name in kind}
    for group in groups:
        kind |= dict.fromkeys(group, f"group {group[0]}")
        whole |= dict.fromkeys(group, group)
    level = dict.fromkeys(kind, 0)
    former: dict[str, int] = {}
    while level != former:
        former = dict(level)
        for name, followers in users.items():
            for user in followers:
                least = level[name] + (kind[name] != kind[user])
                least = max(least, level[user])
                level |= dict.fromkeys(whole[user], least)
    return len({(level[name], kind[name]) for name in kind})


@pytest.fixture
def groups_seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, ...]]]:
    """The atomic groups last claimed by each simulated EP, by node names."""
    judge = SimulatedExecutionProvider.get_capability
    seen: dict[str, list[tuple[str, ...]]] = {}

    def get_capability(
        provider: SimulatedExecutionProvider, graph: ep.Graph
    ) -> ep.CapabilityReport:
        report = judge(provider, graph)
        seen[provider.location.space] = [
            tuple(graph.nodes[index].name for index in claim.nodes)
            for claim in report.claims
            if claim.atomic
        ]
        return report

    monkeypatch.setattr(SimulatedExecutionProvider, "get_capability", get_capability)
    return seen


@pytest.mark.parametrize(
    "chunk",
    [
        pytest.param(chunk, marks=[pytest.mark.exhaustive] if chunk >= OFTEN else [])
        for chunk in range(GRAPHS // CHUNK)
    ],
)
def test_random_graphs_are_cut_well_and_run_right(
    simulated: Callable[..., SimulatedFactory],
    groups_seen: dict[str, list[tuple[str, ...]]],
    chunk: int,
) -> None:
    cut_up = fewer = 0
    for seed in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        case = draw_case(seed)
        # sometimes a second accelerator takes what the first leaves
        names = [f"{kind}{seed}ExecutionProvider" for kind in ("First", "Second")]
        names = names[: 1 + seed % 2]
        for offset, name in enumerate(names):
            simulated(name=name, **draw_knobs(seed + GRAPHS * offset))
        with warnings.catch_warnings():
            # with few claims, or none that is convex, the EP may end with nothing
            warnings.simplefilter("ignore", EpWarning)
            session = onnxplug.InferenceSession(case.model, providers=names)
        report = session.explain()
        partition = {node.name: node.partition for node in report.nodes}
        users = edges(case.model)
        assert partition.keys() == users.keys(), f"graph {seed} was changed"
        assert_convex(users, partition)
        assert_acyclic(users, partition)
        assert_in_order(users, partition)
        nodes = {node.name: node for node in report.nodes}
        placed: list[tuple[str, ...]] = []
        for name in names:
            space = name.removesuffix("ExecutionProvider").lower()
            groups = groups_seen[space]
            assert_groups_whole(report, partition, name, groups)
            placed += [group for group in groups if nodes[group[0]].ep == name]
        by_level = partitions_by_level(users, report, placed)
        assert len(report.partitions) <= by_level, f"graph {seed}"
        fewer += len(report.partitions) < by_level
        cut_up += len(report.partitions) > 2
        expected = ReferenceEvaluator(case.model).run(None, dict(case.feeds))
        for found, wanted in zip(session.run(None, case.feeds), expected, strict=True):
            np.testing.assert_allclose(
                found, wanted, rtol=1e-4, atol=1e-5, err_msg=f"graph {seed}"
            )
    # or the claims tell nothing about cutting
    assert cut_up > CHUNK // 3
    assert fewer > 0


# the checks themselves


CHAIN = {"a": {"b"}, "b": {"c"}, "c": set()}


@pytest.mark.parametrize("check", [assert_convex, assert_acyclic])
def test_the_checks_find_a_path_that_comes_back(check: Callable[..., None]) -> None:
    check(CHAIN, {"a": 0, "b": 1, "c": 2})
    with pytest.raises(AssertionError):
        check(CHAIN, {"a": 0, "b": 1, "c": 0})


def test_the_checks_find_a_cycle_of_convex_partitions() -> None:
    users = {"a": {"b"}, "b": set(), "c": {"d"}, "d": set()}
    partition = {"a": 0, "d": 0, "b": 1, "c": 1}
    assert_convex(users, partition)
    with pytest.raises(AssertionError, match="a cycle among partitions"):
        assert_acyclic(users, partition)


def test_the_checks_find_a_wrong_order() -> None:
    assert_in_order(CHAIN, {"a": 0, "b": 0, "c": 1})
    with pytest.raises(AssertionError):
        assert_in_order(CHAIN, {"a": 1, "b": 1, "c": 0})
