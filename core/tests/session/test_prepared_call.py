"""Prepared calls of what is fed: one EP on the host, and plain arrays."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, InputError, InputTypeError, RunCancelled, RunError
from onnxplug.plugins import PluginRegistry
from onnxplug_testing import ToyFactory

Compute = Callable[[Sequence[Any]], Sequence[Any]]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[n, 2] x, float[n, 2] y) => (float[n, 2] s, float[n, 2] d)
    { d = Sub (y, x) s = Add (x, d) }
    """
)
X, Y = np.ones((3, 2), np.float32), np.full((3, 2), 5, np.float32)
FEED = {"x": X, "y": Y}


class Told(ep.ExecutionProvider):
    """Takes every node and computes what it is told to; keeps what it was given."""

    def __init__(self, compute: Compute) -> None:
        self.compute = compute
        self.calls: list[tuple[Any, ...]] = []

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        return ep.CapabilityReport.per_node(graph, lambda node: None)

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        provider, names = self, tuple(partition.inputs)

        class Computes(ep.CompiledPartition):
            def run(
                self,
                inputs: Sequence[Any],
                outputs: Sequence[Any | None],
                context: ep.RunContext | None,
            ) -> Sequence[Any]:
                provider.calls.append((names, tuple(outputs), context))
                return provider.compute(inputs)

        return Computes()


class ToldFactory(ToyFactory):
    name = "ToldExecutionProvider"
    compute: Compute

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> Any:
        self.made = Told(self.compute)
        return self.made


MakeSession = Callable[[Compute], tuple[onnxplug.InferenceSession, Told]]


@pytest.fixture
def make_session() -> MakeSession:
    factory, registry = ToldFactory(), PluginRegistry()
    registry.add(factory)

    def make(compute: Compute) -> tuple[onnxplug.InferenceSession, Told]:
        factory.compute = compute  # type: ignore[method-assign]
        session = onnxplug.InferenceSession(
            MODEL, providers=[factory.name], registry=registry
        )
        return session, factory.made

    return make


def subtract_and_add(inputs: Sequence[Any]) -> list[Any]:
    y, x = inputs  # in order of their first use
    return [y - x, y.copy()]


@pytest.mark.parametrize("names", [None, [], ["s", "d"], ("d", "s"), ["d"], "d"])
def test_values_come_in_the_partitions_order_and_go_in_the_models(
    make_session: MakeSession, names: Any
) -> None:
    session, provider = make_session(subtract_and_add)
    results = session.run(names, FEED)
    assert provider.calls == [(("y", "x"), (None, None), None)]
    expected = {"s": Y, "d": Y - X}
    wanted = [names] if isinstance(names, str) else names or ["s", "d"]
    assert len(results) == len(wanted)
    for name, result in zip(wanted, results, strict=True):
        np.testing.assert_array_equal(result, expected[name])


def test_errors_of_the_feed_are_the_same_in_every_run(
    make_session: MakeSession,
) -> None:
    session, provider = make_session(subtract_and_add)
    wrong: list[tuple[type[Exception], str, dict[str, Any]]] = [
        (InputTypeError, r"Actual: \(tensor\(double\)\)", {"x": X.astype(float)}),
        (InputError, "rank for input: x Got: 1 Expected: 2", {"x": X[0]}),
        (InputError, "index: 1 Got: 3 Expected: 2", {"x": np.ones((3, 3), np.float32)}),
        (InputError, "Invalid input name: z", {"z": X}),
    ]
    for _ in range(2):
        for kind, text, change in wrong:
            with pytest.raises(kind, match=text):
                session.run(None, {**FEED, **change})
        with pytest.raises(InputError, match=r"\(\['x'\]\) are missing"):
            session.run(None, {"y": Y})
        session.run(None, FEED)
    assert len(provider.calls) == 2


def test_a_feed_that_is_converted_gives_the_same(make_session: MakeSession) -> None:
    session, _ = make_session(subtract_and_add)
    for x in (X.tolist(), X.astype(">f4"), np.asfortranarray(X), X[::-1], X):
        sum_, difference = session.run(None, {"x": x, "y": Y})
        np.testing.assert_array_equal(sum_, Y)
        np.testing.assert_array_equal(difference, Y - X)


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        (lambda inputs: 1 / 0, "ZeroDivisionError: division by zero"),
        (lambda inputs: None, "TypeError: object of type 'NoneType' has no len"),
        (lambda inputs: inputs[:1], "1 arrays for partition 0 .*, which has 2 outputs"),
    ],
)
def test_a_failure_is_told_as_the_eps_and_nothing_is_tried_again(
    make_session: MakeSession, compute: Compute, text: str
) -> None:
    session, provider = make_session(compute)
    for count in (1, 2):
        with pytest.raises(EpError, match=text) as raised:
            session.run(None, FEED)
        assert (raised.value.ep, raised.value.stage) == (ToldFactory.name, "run")
        assert len(provider.calls) == count
    session.close()  # which the failed runs do not hold up
    with pytest.raises(RunError, match="closed"):
        session.run(None, FEED)


def test_errors_of_onnxplug_pass_as_they_are(make_session: MakeSession) -> None:
    def cancel(inputs: Sequence[Any]) -> Sequence[Any]:
        raise RunCancelled("the device was taken away")

    session, provider = make_session(cancel)
    for options in (None, onnxplug.RunOptions()):
        with pytest.raises(RunCancelled, match="taken away"):
            session.run(None, FEED, options)
    assert len(provider.calls) == 2


@pytest.mark.parametrize(
    "compute",
    [
        lambda inputs: inputs,
        lambda inputs: [inputs[0], inputs[0]],
        lambda inputs: tuple(value[:] for value in inputs),
        lambda inputs: [value.T.T for value in inputs],
    ],
)
def test_results_that_are_inputs_become_the_callers_own(
    make_session: MakeSession, compute: Compute
) -> None:
    session, _ = make_session(compute)
    for _ in range(3):
        first, second = session.run(None, FEED)
        assert not np.shares_memory(first, second)
        for result in (first, second):
            assert not any(np.shares_memory(result, fed) for fed in (X, Y))
            result[:] = -1
    assert (X == 1).all() and (Y == 5).all()


def test_threads_with_feeds_of_their_own_sizes_do_not_disturb_each_other(
    make_session: MakeSession,
) -> None:
    session, _ = make_session(subtract_and_add)
    wrong: list[object] = []

    def work(size: int) -> None:
        x = np.full((size, 2), size, np.float32)
        wider = np.zeros((size, size + 2), np.float32)
        try:
            for _ in range(300):
                sum_, difference = session.run(None, {"x": x, "y": x})
                assert sum_.shape == x.shape and (sum_ == size).all()
                assert difference.shape == x.shape and (difference == 0).all()
                with pytest.raises(InputError, match=f"index: 1 Got: {size + 2} "):
                    session.run(None, {"x": x, "y": wider})
        except Exception as error:  # noqa: BLE001
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(size,)) for size in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
