"""EPs that break the contract of the SPI: who did, and where, is always told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, EpWarning
from onnxplug.plugins import registry
from onnxplug_testing import SimulatedFactory, ToyFactory
from onnxplug_testing.toy import ToyExecutionProvider

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] y, float[2] z) { y = Add (x, x) z = Mul (x, x) }
    """
)
NAME = "BrokenExecutionProvider"
FEED = {"x": [1.0, 2.0]}


class Partition(ep.CompiledPartition):
    def __init__(self, results: Callable[[], Any]) -> None:
        self.results = results

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        made: Sequence[Any] = self.results()
        return made


class Broken(ToyExecutionProvider):
    def __init__(self, breach: str) -> None:
        self.breach = breach

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        if self.breach == "no report":
            return None  # type: ignore[return-value]
        return super().get_capability(graph)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        if self.breach == "not compiled":
            return None  # type: ignore[return-value]
        results: dict[str, Callable[[], Any]] = {
            "one result": lambda: [1],
            "no results": lambda: None,
            "raises": lambda: {}["a weight"],
        }
        compiled = Partition(results.get(self.breach, lambda: [1, 2]))
        if self.breach == "one location":
            compiled.output_locations = [ep.HOST]
        return compiled


class BrokenFactory(ToyFactory):
    name = NAME
    breach = ""

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ToyExecutionProvider:
        return Broken(self.breach)


@pytest.fixture
def broken() -> Iterator[BrokenFactory]:
    factory = BrokenFactory()
    registry.add(factory)
    yield factory
    registry.remove(NAME)


@pytest.mark.parametrize(
    ("breach", "stage", "told"),
    [
        ("no report", "get_capability", "returned a NoneType; expected a Capability"),
        ("not compiled", "compile", "returned a NoneType; expected a CompiledPart"),
        ("one location", "compile", "output_locations has 1 entries.*2 outputs"),
    ],
)
def test_a_breach_when_the_session_is_made(
    broken: BrokenFactory, breach: str, stage: str, told: str
) -> None:
    broken.breach = breach
    with pytest.raises(EpError, match=f"{NAME} failed.*{told}") as caught:
        onnxplug.InferenceSession(MODEL, providers=[NAME])
    assert (caught.value.ep, caught.value.stage) == (NAME, stage)
    with pytest.warns(EpWarning, match=told):
        onnxplug.InferenceSession(MODEL, providers=[NAME, "cpu"]).run(None, FEED)


@pytest.mark.parametrize("options", [None, onnxplug.RunOptions()])
@pytest.mark.parametrize(
    ("breach", "told"),
    [
        ("one result", "returned 1 arrays for partition 0 .*, which has 2 outputs"),
        ("no results", "TypeError"),
        ("raises", "KeyError: 'a weight'"),
    ],
)
def test_a_breach_in_a_run(
    broken: BrokenFactory, options: onnxplug.RunOptions | None, breach: str, told: str
) -> None:
    broken.breach = breach
    session = onnxplug.InferenceSession(MODEL, providers=[NAME])
    with pytest.raises(EpError, match=f"{NAME} failed in run: .*{told}") as caught:
        session.run(None, FEED, options)
    assert (caught.value.ep, caught.value.stage) == (NAME, "run")


def test_eps_are_asked_again_once_for_all_that_is_declined(
    simulated: Callable[..., SimulatedFactory], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = " ".join(f"a{i} = Neg (y{i}) y{i + 1} = Tanh (a{i})" for i in range(20))
    model = onnx.parser.parse_model(
        f"""
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[4] y0) => (float[4] y20) {{ {steps} }}
        """
    )
    factory = simulated(
        ops=frozenset({"Neg"}),
        decline_ops=frozenset({"Neg"}),
        costs=ep.Costs(seconds_gained_per_node=1e-3),
    )
    asked: list[int] = []
    original = ep.CapabilityReport.__init__

    def count(report: ep.CapabilityReport, **fields: Any) -> None:
        asked.append(1)
        original(report, **fields)

    monkeypatch.setattr(ep.CapabilityReport, "__init__", count)
    with pytest.warns(EpWarning, match="runs no node"):
        session = onnxplug.InferenceSession(model, providers=[factory.name])
    assert len(session.explain().given_back) == 20
    assert len(asked) <= 6


def test_what_was_expanded_is_told_though_an_ep_failed_afterwards(
    broken: BrokenFactory,
) -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2] x) => (float[2] y, float[k] z)
        {
            y = Add (x, x)
            s = SequenceConstruct (x, y)
            t = SequenceMap (s) <body = b (float[2] i) => (float[2] o) { o = Neg (i) }>
            z = ConcatFromSequence <axis = 0> (t)
        }
        """
    )
    plain = onnxplug.InferenceSession(model).explain()
    broken.breach = "not compiled"
    with pytest.warns(EpWarning, match="NoneType"):
        session = onnxplug.InferenceSession(model, providers=[NAME, "cpu"])
    assert [item.node for item in session.explain().expanded] == [
        item.node for item in plain.expanded
    ]
    assert len(plain.expanded) == 1


def test_what_is_not_worth_its_copies_stays_when_nobody_else_can_take_it(
    simulated: Callable[..., SimulatedFactory],
) -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[4] x) => (float[4] y)
        { a = Add (x, x) t = Tanh (a) n = Neg (t) y = Sin (n) }
        """
    )
    first = simulated(
        name="FirstExecutionProvider",
        ops=frozenset({"Add", "Neg"}),
        costs=ep.Costs(seconds_gained_per_node=1e-6),
    )
    # claims the two as one, which is not convex: Tanh is between them
    second = simulated(name="SecondExecutionProvider", groups=(frozenset({0, 2}),))
    third = simulated(name="ThirdExecutionProvider", ops=frozenset({"Tanh", "Sin"}))
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    names = [first.name, third.name, second.name]
    with pytest.warns(EpWarning, match=second.name):
        session = onnxplug.InferenceSession(model, options, providers=names)
    report = session.explain()
    assert [node.ep for node in report.nodes] == [names[0], names[1]] * 2
    assert {back.ep for back in report.given_back} == {second.name}


def test_a_run_that_waits_for_another_one_can_be_timed_out(
    simulated: Callable[..., SimulatedFactory],
) -> None:
    factory = simulated(max_concurrent_runs=1)
    session = onnxplug.InferenceSession(MODEL, providers=[factory.name])
    (limit,) = (
        step.concurrency_limit
        for step in session._built.plan.steps
        if hasattr(step, "ep")
    )
    options = onnxplug.RunOptions()
    options.timeout = 0.2
    limit.begin("another", None, lambda: None)
    with pytest.raises(onnxplug.errors.RunCancelled, match="timeout"):
        session.run(None, FEED, options)
    limit.running.discard("another")
    assert len(session.run(None, FEED, onnxplug.RunOptions())) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("session.disable_cpu_ep_fallback", "true"),
        ("session.intra_op_num_threads", "many"),
    ],
)
def test_a_config_entry_of_a_wrong_value_is_an_error(key: str, value: str) -> None:
    with pytest.raises(onnxplug.errors.OptionError, match=f"{value!r}; expected"):
        onnxplug.SessionOptions().add_session_config_entry(key, value)
