"""What the kit asks of graphs, contents, costs and time tells right from wrong."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_testing.conformance import Settings, examine
from onnxplug_testing.conformance.cases import as_case
from onnxplug_testing.conformance.opinions import by_cpu, by_reference, difference
from onnxplug_testing.conformance.pitfalls import load_pitfalls, pitfalls_of

from .planted import program
from .planted.compile_ep import (
    GeneratedCosts,
    GeneratedExecutionProvider,
    GeneratedFactory,
    GeneratedPartition,
)
from .planted.compile_mistakes import changed
from .planted.device_ep import DeviceFactory
from .planted.fourth.compile_runs import RunsWaitForALock
from .planted.fourth.device_runs import ARunWaits
from .planted.operators import Operator, why_not


class FailsOfNoTensors(GeneratedExecutionProvider):
    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        for node in graph.nodes:
            for name in filter(None, node.inputs):
                kind: Any = graph.value(name).type
                assert kind.dtype is not None
        return super().get_capability(graph)


class ClaimsByName(GeneratedExecutionProvider):
    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        said = {node.name: why_not(graph, node, self.operators) for node in graph.nodes}
        return ep.CapabilityReport.per_node(graph, lambda node: said[node.name])


class CostsOfAll(GeneratedCosts):
    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        return super().estimate(graph, list(graph.nodes))


class WholeSeconds(GeneratedCosts):
    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        seconds = super().estimate(graph, nodes)
        return None if seconds is None else float(int(seconds))


class CostsByRows(GeneratedCosts):
    def estimate(self, graph: ep.Graph, nodes: Sequence[ep.Node]) -> float | None:
        for node in nodes:
            shape: Any = graph.value(str(node.inputs[0])).shape
            assert shape[0] is not None
        return super().estimate(graph, nodes)


class KeepsResults(GeneratedPartition):
    """Gives the last results again where the shape is the same."""

    kept: Any = None

    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        shapes = [array.shape for array in inputs]
        if self.kept is None or self.kept[0] != shapes:
            found = super().run(inputs, [None] * len(outputs), context)
            self.kept = shapes, [np.array(each) for each in found]
        return self.finish([each.copy() for each in self.kept[1]], outputs)


class CopiesConstants(GeneratedPartition):
    def values(self, inputs: Sequence[Any]) -> list[Any]:
        constants = [np.array(each) for each in self.program.constants]
        return [*inputs, *constants, *[None] * len(self.program.steps)]


class Polls(GeneratedPartition):
    def run(self, inputs: Any, outputs: Any, context: Any) -> Any:
        time.sleep(0.01)
        return super().run(inputs, outputs, context)


class GeneratesAllBefore(GeneratedPartition):
    """Generates what is before each step anew."""

    def __init__(
        self, made: Any, operators: Mapping[str, Operator], double: bool, limit: int
    ) -> None:
        super().__init__(made, operators, double, limit)
        for end in range(len(made.steps)):
            before = made._replace(steps=made.steps[:end])
            program.generate(program.source_of(before, limit))


def _shape(attributes: Mapping[str, Any], version: int) -> Any:
    start, end = attributes.get("start", 0), attributes.get("end", 0)
    return lambda x: np.array(x.shape[start : end or None], np.int64)


def with_parts(**parts: Any) -> ep.EpFactory:
    """The EP without mistakes, some of whose parts are others."""
    return type("Broken", (GeneratedFactory,), parts)()


def with_costs(model: ep.CostModel) -> ep.EpFactory:
    parts: dict[str, ClassVar[Any]] = {"cost_model": model}  # type: ignore[valid-type]
    return with_parts(provider=type("Costly", (GeneratedExecutionProvider,), parts))


@pytest.fixture
def found_in() -> Iterator[Callable[[ep.EpFactory, str], Sequence[Any]]]:
    """Examines an EP."""
    names: list[str] = []

    def ask(factory: ep.EpFactory, check: str, budget: float = 4) -> Sequence[Any]:
        registry.add(factory)
        names.append(factory.name)
        report = examine(factory.name, only=[check], settings=Settings(budget=budget))
        registry.remove(names.pop())
        return report.findings

    yield ask
    for name in names:
        registry.remove(name)


@pytest.mark.parametrize(
    ("check", "make", "words"),
    [
        pytest.param(
            "claims/any-graph",
            lambda: with_parts(provider=FailsOfNoTensors),
            "sequences",
            marks=pytest.mark.exhaustive,  # importing ONNX's cases takes seconds
        ),
        ("claims/whatever-names", lambda: with_parts(provider=ClaimsByName), "claims"),
        (
            "specialisation/sizes",
            lambda: with_parts(partition=KeepsResults),
            "after others",
        ),
        (
            "specialisation/computed-sizes",
            lambda: with_parts(
                operators_taken=dict(changed(Shape=_shape))
                | {"Transpose": changed(Transpose=lambda a, v: np.array)["Transpose"]}
            ),
            "after other shapes",
        ),
        ("costs/estimates", lambda: with_costs(CostsOfAll()), "of all"),
        pytest.param(
            "costs/estimates",
            lambda: with_costs(WholeSeconds()),
            "0 s",
            marks=pytest.mark.exhaustive,
        ),
        ("costs/each-operator", lambda: with_costs(CostsByRows()), "raised"),
        (
            "speed/large-constants",
            lambda: with_parts(partition=CopiesConstants),
            "elements",
        ),
        (
            "speed/long-graphs",
            lambda: with_parts(partition=GeneratesAllBefore),
            "four times",
        ),
        ("speed/overheads", lambda: with_parts(partition=Polls), "nothing to do"),
    ],
)
def test_a_mistake_is_found_and_nothing_without(
    found_in: Callable[..., Sequence[Any]],
    check: str,
    make: Callable[[], ep.EpFactory],
    words: str,
) -> None:
    said = [each.what for each in found_in(make(), check)]
    assert any(words in each for each in said), said
    # where nothing is found it takes all its time
    assert not found_in(GeneratedFactory(), check, 1.5)


def test_each_pitfall_is_a_model() -> None:
    for operator in load_pitfalls():
        made = next(pitfalls_of(operator, random.Random(0)))
        assert as_case(made).model, operator


def test_the_cpu_ep_agrees_with_the_reference_on_pitfalls() -> None:
    for operator in ("Gather", "Slice", "Split", "Expand", "CumSum", "ArgMax", "Where"):
        of_operator = pitfalls_of(operator, random.Random(1))
        for _, made in zip(range(4), of_operator, strict=False):
            case = as_case(made)
            if made.kind != "version":
                assert not difference(by_cpu(case), by_reference(case)), case.name


def test_what_an_old_version_says_is_not_asked_of_the_reference() -> None:
    made = list(pitfalls_of("Softmax", random.Random(0)))
    assert {each.kind for each in made if each.opset < 13} == {"version"}
    assert {each.kind for each in made if each.opset > 13} == {"pitfall"}
    lists = pitfalls_of("ReduceSum", random.Random(0))
    assert next(each for each in lists if each.lists()).constants == {1}


@pytest.mark.parametrize(
    ("factory", "clean", "check", "words"),
    [
        (RunsWaitForALock, GeneratedFactory, "in-two-threads", "did not end within 2"),
        (ARunWaits, DeviceFactory, "on-busy-streams", "waits for the device"),
    ],
)
def test_runs_that_wait_without_need_are_told_of(
    found_in: Callable[..., Sequence[Any]],
    factory: type[ep.EpFactory],
    clean: type[ep.EpFactory],
    check: str,
    words: str,
) -> None:
    assert not found_in(clean(), f"speed/{check}")
    said = [each.what for each in found_in(factory(), f"speed/{check}")]
    assert said and all(words in each for each in said)
