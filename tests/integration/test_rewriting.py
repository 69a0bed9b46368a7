"""EPs that rewrite the nodes that they get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.errors import EpError, EpWarning
from onnxplug.plugins import registry
from onnxplug_testing import SimulatedFactory, ToyFactory

NAME = "FusingExecutionProvider"
X = np.array([-1.5, 0.5, 3], np.float32)

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "AddNeg": lambda x, y: -(x + y),
    "Cast": lambda x: x,
    "Neg": np.negative,
    "Reshape": lambda x, shape: x.reshape(shape),
}

Rewrite = Callable[[ep.GraphEditor, Sequence[ep.Node]], Any]


def fuse(editor: ep.GraphEditor, nodes: Sequence[ep.Node]) -> Sequence[str]:
    """Add and the Neg of its result, read by nobody else, become AddNeg."""
    graph = editor.graph
    replaced: dict[int, ep.Node | None] = {}
    for add in nodes:
        readers = [node for node in graph.nodes if add.outputs[0] in node.inputs]
        if add.op_type == "Add" and [node.op_type for node in readers] == ["Neg"]:
            (neg,) = readers
            replaced[add.index] = None
            replaced[neg.index] = editor.make_node(
                "AddNeg", add.inputs, neg.outputs, domain="com.example"
            )
    kept = (replaced.get(node.index, node) for node in graph.nodes)
    editor.replace_nodes([node for node in kept if node is not None])
    return [f"{len(replaced) // 2} pairs"] if replaced else []


class Fusing(KernelExecutionProvider):
    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        if node.op_type not in self.factory.takes:
            return ep.Reason(ep.RefusalCode.OP, node.op_type)
        return FUNCTIONS[node.op_type]

    @property
    def preferences(self) -> ep.Preferences:  # type: ignore[override]
        return ep.Preferences(rewrite=self.asked)

    def asked(self, editor: ep.GraphEditor, nodes: Sequence[ep.Node]) -> Sequence[str]:
        self.factory.asked.append([node.op_type for node in nodes])
        said: Sequence[str] = self.factory.rewrite(editor, nodes)
        return said

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        fused = [node for node in partition.nodes if node.domain]
        if fused and self.factory.declines:
            raise ep.Declined("not now", nodes=fused)
        if fused and self.factory.fails:
            raise RuntimeError("not at all")
        return super().compile(partition)


class Factory(ToyFactory):
    name = NAME
    takes: frozenset[str] = frozenset(FUNCTIONS)
    rewrite: Rewrite = staticmethod(fuse)
    declines = fails = False

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return Fusing(self)


@pytest.fixture
def fusing() -> Iterator[Factory]:
    factory = Factory()
    registry.add(factory)
    yield factory
    registry.remove(NAME)


def parse(body: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[N] x, bool yes) => (float[N] y)
        {{ {body} }}
        """
    )


PAIR = "a = Add (x, x) b = Neg (a) y = Abs (b)"
EXPECTED = np.abs(-(X + X))
FEED = {"x": X, "yes": np.array(True)}


def placed(session: onnxplug.InferenceSession) -> list[tuple[str, str]]:
    return [(node.op_type, node.ep) for node in session.explain().nodes]


def test_what_it_makes_is_what_it_gets(fusing: Factory) -> None:
    session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    assert placed(session) == [("AddNeg", NAME), ("Abs", "CPUExecutionProvider")]
    assert fusing.asked == [["Add", "Neg"]]
    assert [tuple(each) for each in session.explain().rewritten] == [
        ("", NAME, ("1 pairs",), "")
    ]
    assert f"rewritten by {NAME}: 1 pairs" in str(session.explain())
    np.testing.assert_array_equal(session.run(None, FEED)[0], EXPECTED)


def test_it_is_not_given_what_others_get(
    fusing: Factory, simulated: Callable[..., SimulatedFactory]
) -> None:
    other = simulated(name="OtherExecutionProvider", ops=frozenset({"Neg"}))
    fusing.rewrite = lambda editor, nodes: ()
    onnxplug.InferenceSession(parse(PAIR), providers=[other.name, NAME, "cpu"])
    assert fusing.asked == [["Add"]]


def test_bodies_are_rewritten_too(fusing: Factory) -> None:
    session = onnxplug.InferenceSession(
        parse(
            """
            c = Add (x, x)
            y = If (yes) <
                then_branch = t () => (float[N] u) { p = Add (x, c) u = Neg (p) },
                else_branch = e () => (float[N] v) { q = Add (x, x) v = Abs (q) }
            >
            """
        ),
        providers=[NAME, "cpu"],
    )
    assert [(each.graph, each.what) for each in session.explain().rewritten] == [
        ("If giving 'y'.then_branch", ("1 pairs",))
    ]
    for yes, expected in ((True, -3 * X), (False, abs(2 * X))):
        (y,) = session.run(None, {"x": X, "yes": np.array(yes)})
        np.testing.assert_array_equal(y, expected)


def test_what_it_does_not_claim_is_undone(fusing: Factory) -> None:
    fusing.takes = frozenset({"Add", "Neg"})
    session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    assert [op_type for op_type, _ in placed(session)] == ["Add", "Neg", "Abs"]
    (rewritten,) = session.explain().rewritten
    assert "com.example.AddNeg" in rewritten.undone
    assert "undone: no EP runs" in str(session.explain())
    np.testing.assert_array_equal(session.run(None, FEED)[0], EXPECTED)


def test_what_another_claims_is_undone(
    fusing: Factory, simulated: Callable[..., SimulatedFactory]
) -> None:
    def to_abs(editor: ep.GraphEditor, nodes: Sequence[ep.Node]) -> Sequence[str]:
        new = editor.make_node("Abs", nodes[-1].inputs, nodes[-1].outputs)
        editor.replace_nodes([*editor.graph.nodes[:1], new, editor.graph.nodes[2]])
        return ["wrongly"]

    fusing.rewrite = to_abs
    session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    assert [op_type for op_type, _ in placed(session)] == ["Add", "Neg", "Abs"]
    (rewritten,) = session.explain().rewritten
    assert rewritten.undone.startswith("it does not claim Abs giving 'b', which is new")


def test_what_it_declines_afterwards_is_undone(fusing: Factory) -> None:
    fusing.declines = True
    session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    assert placed(session)[:2] == [("Add", NAME), ("Neg", NAME)]
    (rewritten,) = session.explain().rewritten
    assert rewritten.undone
    np.testing.assert_array_equal(session.run(None, FEED)[0], EXPECTED)


def test_others_go_on_when_it_fails_afterwards(fusing: Factory) -> None:
    fusing.fails = True
    with pytest.warns(EpWarning, match="not at all"):
        session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    assert {name for _, name in placed(session)} == {"CPUExecutionProvider"}
    assert "not at all" in session.explain().rewritten[0].undone
    np.testing.assert_array_equal(session.run(None, FEED)[0], EXPECTED)


def replaced(
    wanted: Callable[[ep.GraphEditor, Sequence[ep.Node]], Sequence[ep.Node]],
) -> Rewrite:
    def rewrite(editor: ep.GraphEditor, nodes: Sequence[ep.Node]) -> Sequence[str]:
        editor.replace_nodes(wanted(editor, nodes))
        return ["something"]

    return rewrite


@pytest.mark.parametrize(
    ("rewrite", "told"),
    [
        (lambda editor, nodes: {}[0], "failed in rewrite: KeyError"),
        (lambda editor, nodes: "text", "returned 'text'; expected texts"),
        (
            lambda editor, nodes: setattr(nodes[0], "op_type", "Abs") or [],
            "Abs giving 'a' was changed, not replaced",
        ),
        (
            replaced(lambda editor, nodes: editor.graph.nodes[1:]),
            "Neg giving 'b' reads 'a', which nothing makes",
        ),
        (
            replaced(lambda editor, nodes: editor.graph.nodes[:2]),
            "Abs giving 'y' is gone, and was not among the nodes",
        ),
        (
            replaced(
                lambda editor, nodes: [
                    *editor.graph.nodes,
                    editor.make_node("Neg", ["x"], ["b"]),
                ]
            ),
            "'b' is made twice",
        ),
        (
            replaced(
                lambda editor, nodes: [
                    editor.make_node("Neg", ["b"], ["a"]),
                    *editor.graph.nodes[1:],
                ]
            ),
            "has a cycle",
        ),
        (
            replaced(
                lambda editor, nodes: [
                    editor.make_node("Cast", ["x"], ["a"], {"to": 7}),
                    *editor.graph.nodes[1:],
                ]
            ),
            "float32, but Neg giving 'b' makes a tensor of int64",
        ),
        (
            replaced(
                lambda editor, nodes: [
                    editor.make_node(
                        "Reshape",
                        ["x", editor.add_constant("c", np.array([1, -1]))],
                        ["a"],
                    ),
                    *editor.graph.nodes[1:],
                ]
            ),
            r"'a' was float32\[N\], and is float32\[1, N\]",
        ),
    ],
    ids=[
        "raises", "a text", "changed", "never made", "not its own", "twice", "a cycle",
        "another dtype", "another rank",
    ],
)  # fmt: skip
def test_what_is_no_valid_graph_is_its_failure(
    fusing: Factory, rewrite: Rewrite, told: str
) -> None:
    fusing.rewrite = rewrite
    with pytest.raises(EpError, match=told) as caught:
        onnxplug.InferenceSession(parse(PAIR), providers=[NAME])
    assert (caught.value.ep, caught.value.stage) == (NAME, "rewrite")
    with pytest.warns(EpWarning, match=told):
        session = onnxplug.InferenceSession(parse(PAIR), providers=[NAME, "cpu"])
    np.testing.assert_array_equal(session.run(None, FEED)[0], EXPECTED)
