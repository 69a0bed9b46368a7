"""EPs that would rather have function bodies than some operators."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider
from onnxplug.errors import EpError
from onnxplug.plugins import registry
from onnxplug_testing import SimulatedFactory, ToyFactory

NAME = "ExpandingExecutionProvider"
X = np.array([-1.5, 0.5, 3], np.float32)


class Expanding(KernelExecutionProvider):
    """Takes what it is given functions for, and wants some of it as bodies."""

    def __init__(
        self,
        functions: Mapping[str, Callable[..., Any]],
        expands: Callable[[ep.Node], bool],
    ) -> None:
        self.functions = functions
        self.preferences = ep.Preferences(expands=lambda graph, node: expands(node))

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        function = self.functions.get(node.op_type)
        if function is None:
            return ep.Reason(ep.RefusalCode.OP, node.op_type)
        found = function
        return lambda *arrays: np.asarray(found(*arrays), np.float32)


class Factory(ToyFactory):
    name = NAME
    functions: Mapping[str, Callable[..., Any]]
    wants: Callable[[ep.Node], bool]

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        return Expanding(self.functions, self.wants)


@pytest.fixture
def expanding() -> Iterator[Callable[..., None]]:
    """``expanding(wants, Op=function, ...)`` makes such an EP known for one test."""
    factory = Factory()
    registry.add(factory)

    def make(wants: Callable[[ep.Node], bool], **functions: Callable[..., Any]) -> None:
        factory.wants, factory.functions = wants, functions

    yield make
    registry.remove(NAME)


def parse(body: str, imports: str = "") -> onnx.ModelProto:
    return onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21{imports}] >
        agraph (float[3] x) => (float[3] y) {{ {body} }}
        """
    )


def softplus(x: Any) -> Any:
    return np.log(1 + np.exp(x))


def alone() -> onnxplug.SessionOptions:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


def named(*op_types: str) -> Callable[[ep.Node], bool]:
    return lambda node: node.op_type in op_types


def test_the_body_is_what_the_ep_gets(expanding: Callable[..., None]) -> None:
    expanding(named("Softplus"), Softplus=softplus, Exp=np.exp, Add=np.add, Log=np.log)
    session = onnxplug.InferenceSession(
        parse("y = Softplus (x)"), alone(), providers=[NAME]
    )
    explained = session.explain()
    assert sorted(node.op_type for node in explained.nodes) == ["Add", "Exp", "Log"]
    assert [tuple(each) for each in explained.expanded] == [
        ("", "Softplus giving 'y'", (), NAME)
    ]
    np.testing.assert_allclose(session.run(None, {"x": X})[0], softplus(X), rtol=1e-6)


def test_a_body_may_be_anybodys(expanding: Callable[..., None]) -> None:
    expanding(named("Softplus"), Softplus=softplus, Exp=np.exp)
    session = onnxplug.InferenceSession(
        parse("y = Softplus (x)"), providers=[NAME, "cpu"]
    )
    eps = {node.op_type: node.ep for node in session.explain().nodes}
    assert eps["Exp"] == NAME
    assert eps["Log"] == "CPUExecutionProvider"
    np.testing.assert_allclose(session.run(None, {"x": X})[0], softplus(X), rtol=1e-6)


def test_a_body_that_nobody_runs_leaves_the_node(
    expanding: Callable[..., None],
) -> None:
    expanding(
        named("Softplus", "Softsign"),
        Softplus=softplus,
        Softsign=lambda x: x / (1 + abs(x)),
        Abs=np.abs, Add=np.add, Div=np.divide, Neg=np.negative,
    )  # fmt: skip
    session = onnxplug.InferenceSession(
        parse("a = Softplus (x) b = Neg (a) c = Softsign (b) y = Softplus (c)"),
        alone(),
        providers=[NAME],
    )
    explained = session.explain()
    assert [node.op_type for node in explained.nodes] == [
        "Softplus", "Neg", "Abs", "Add", "Div", "Softplus",
    ]  # fmt: skip
    assert [each.node for each in explained.expanded] == ["Softsign giving 'c'"]
    b = -softplus(X)
    np.testing.assert_allclose(
        session.run(None, {"x": X})[0], softplus(b / (1 + abs(b))), rtol=1e-5
    )
    assert len(explained.partitions) == 1


def test_who_does_not_get_a_node_is_not_asked(
    expanding: Callable[..., None], simulated: Callable[..., SimulatedFactory]
) -> None:
    asked: list[str] = []

    def wants(node: ep.Node) -> bool:
        asked.append(node.op_type)
        return True

    other = simulated(name="OtherExecutionProvider", ops=frozenset({"Neg"}))
    expanding(wants, Neg=np.negative, Abs=np.abs)
    session = onnxplug.InferenceSession(
        parse("a = Neg (x) b = Abs (a) y = Neg (b)"), providers=[other.name, NAME]
    )
    assert set(asked) == {"Abs"}
    assert len(session.explain().nodes) == 3


def test_an_operator_without_a_body_is_asked_for_once(
    expanding: Callable[..., None],
) -> None:
    expanding(lambda node: True, Neg=np.negative, Abs=np.abs)
    session = onnxplug.InferenceSession(
        parse("a = Neg (x) y = Abs (a)"), providers=[NAME]
    )
    assert session.explain().expanded == []
    assert {node.ep for node in session.explain().nodes} == {NAME}


def test_functions_that_are_made_of_each_other_end(
    expanding: Callable[..., None],
) -> None:
    """Each body is the operator itself once more, and a Neg."""
    expanding(lambda node: True, Again=lambda x: -x, Neg=np.negative)
    forever = """<domain: "com.example", opset_import: ["" : 17, "com.example" : 1]>
        Again (x) => (y) { a = Neg (x) b = Neg (a) y = com.example.Again (b) }"""
    options = alone()
    options.register_custom_ops_library(onnx.parser.parse_function(forever))
    session = onnxplug.InferenceSession(
        parse("y = com.example.Again (x)", ', "com.example" : 1'),
        options,
        providers=[NAME],
    )
    assert 0 < len(session.explain().expanded) < 100
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], -X)


def test_raising_names_the_ep(expanding: Callable[..., None]) -> None:
    def wants(node: ep.Node) -> bool:
        raise KeyError("no idea")

    expanding(wants, Neg=np.negative)
    with pytest.raises(EpError, match=f"{NAME} failed in expands: KeyError") as caught:
        onnxplug.InferenceSession(parse("y = Neg (x)"), providers=[NAME])
    assert caught.value.stage == "expands"
