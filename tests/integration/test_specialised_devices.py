"""Partitions compiled by input shapes on a device with memory and streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpError, RunError
from onnxplug_testing import SimulatedFactory
from onnxplug_testing.simulated import SimulatedStream

from .shapes_lab import ended, started

SIMULATED = "SimulatedExecutionProvider"
MakeSimulated = Callable[..., SimulatedFactory]

NOT_THIS = ep.Reason(ep.RefusalCode.OTHER, "not this")

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    mixed (float[N,4] x, int64[N] k) => (float[N,4] y, int64[N] m, float[N,4] z)
    {
        a = Add (x, x)
        b = Softsign (a)
        z = Mul (b, a)
        m = Add (k, k)
        y = Neg (z)
    }
    """
)

DOUBLE = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    double (float[N] x) => (float[N] y) { y = Add (x, x) }
    """
)


def feed(size: int) -> dict[str, Any]:
    x = np.random.default_rng(size).standard_normal((size, 4)).astype(np.float32)
    return {"x": x, "k": np.arange(size)}


def check(found: Any, fed: dict[str, Any]) -> None:
    a = fed["x"] * 2
    z = a / (1 + np.abs(a)) * a
    y, m, z_found = found
    np.testing.assert_allclose(z_found, z, rtol=1e-6)
    np.testing.assert_allclose(y, -z, rtol=1e-6)
    np.testing.assert_array_equal(m, fed["k"] * 2)


def opened(*, serves: bool = False, model: Any = MODEL, **options: Any) -> Any:
    chosen = onnxplug.SessionOptions()
    if serves:
        chosen.add_session_config_entry("session.serve_while_compiling", "1")
    return onnxplug.InferenceSession(model, chosen, providers=[(SIMULATED, options)])


KNOBS = {
    "late": {},
    "threaded": {"schedule": "threaded"},
    "no streams": {"streams": False},
    "some on the host": {"on_host": frozenset({ep.DataType.INT64})},
    "any number of runs": {"max_concurrent_runs": None},
}


@pytest.mark.parametrize("serves", [False, True], ids=["waits", "served"])
@pytest.mark.parametrize("knobs", KNOBS.values(), ids=KNOBS)
def test_results_are_right_whatever_is_evicted(
    simulated: MakeSimulated, knobs: dict[str, Any], serves: bool
) -> None:
    factory = simulated(specialises=2, **knobs)
    with opened(serves=serves) as session:

        def work(first: int) -> None:
            for turn in range(8):
                fed = feed(1 + (first + turn) % 5)
                check(session.run(None, fed), fed)

        threads = [started(lambda first=first: work(first)) for first in range(3)]
        for thread, outcome in threads:
            ended(thread)
            assert outcome == [None]
        specialised = [
            part.specialisations
            for part in session.explain().partitions
            if part.ep == SIMULATED
        ]
        assert all(each is not None for each in specialised)
        if not serves:
            assert sum(each.evicted for each in specialised)
        (provider,) = factory.created
    assert all(partition.closed for partition in provider.partitions)


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("specialises", [0, 2])
def test_the_report_says_whether_runs_wait_for_each_other(
    simulated: MakeSimulated, specialises: int, limit: Any
) -> None:
    simulated(specialises=specialises, max_concurrent_runs=limit)
    with opened(model=DOUBLE) as session:
        session.run(None, {"x": np.ones(3, np.float32)})
        explanation = session.explain()
    (part,) = explanation.partitions
    assert part.serialised is (limit is not None)
    assert ("runs wait for each other" in str(explanation)) is part.serialised


@pytest.mark.parametrize("knobs", [{}, {"max_concurrent_runs": None}])
def test_a_stream_that_gives_no_event_is_blamed_as_anywhere(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch, knobs: dict[str, Any]
) -> None:
    simulated(specialises=1, **knobs)
    x = onnxplug.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32), "simulated")
    with opened(model=DOUBLE) as session, monkeypatch.context() as patch:
        binding = session.io_binding()
        binding.bind_ortvalue_input("x", x)
        binding.bind_output("y", "simulated")
        patch.setattr(SimulatedStream, "record", lambda self: None)
        with pytest.raises(EpError) as caught:
            session.run_with_iobinding(binding)
    assert str(caught.value) == (
        f"{SIMULATED} failed in Stream.record: it returned None; expected an Event"
    )


def test_what_is_queued_is_done_before_an_evicted_one_is_closed(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated(specialises=1, max_concurrent_runs=None)
    session = opened(model=DOUBLE)
    (provider,) = factory.created
    order: list[str] = []
    binding = session.io_binding()
    x = onnxplug.OrtValue.ortvalue_from_numpy(np.ones(3, np.float32), "simulated")
    binding.bind_ortvalue_input("x", x)
    binding.bind_output("y", "simulated")
    options = onnxplug.RunOptions()
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    session.run_with_iobinding(binding, options)
    (first,) = provider.partitions

    def close(closing: Callable[[], None] = first.close) -> None:
        (value,) = binding.get_outputs()
        order.append(f"closed when ready: {value.ready}")
        closing()

    monkeypatch.setattr(first, "close", close)
    session.run(None, {"x": np.ones(5, np.float32)})
    assert order == ["closed when ready: True"]
    np.testing.assert_array_equal(binding.get_outputs()[0].numpy(), np.full(3, 2.0))


def test_locations_other_than_announced(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated(specialises=2, on_host=frozenset({ep.DataType.INT64}))
    session = opened()
    (provider,) = factory.created
    monkeypatch.setattr(
        type(provider.specialiser), "examine", lambda self, partition: None
    )
    said = r"did not say in examine\(\)"
    with opened() as wrong, pytest.raises(onnxplug.errors.EpError, match=said):
        wrong.run(None, feed(2))
    fed = feed(2)
    check(session.run(None, fed), fed)
    session.close()


DOUBLE = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    double (float[N] x) => (float[N] y) { y = Add (x, x) }
    """
)


def captured(session: Any, size: int) -> Any:
    x = onnxplug.OrtValue.ortvalue_from_numpy(
        np.full(size, size, np.float32), "simulated"
    )
    y = onnxplug.OrtValue.ortvalue_from_shape_and_type([size], np.float32, "simulated")
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", y)
    return binding, y


@pytest.mark.parametrize("serves", [False, True])
def test_what_is_captured_stays(simulated: MakeSimulated, serves: bool) -> None:
    factory = simulated(specialises=1, captures=True, max_concurrent_runs=None)
    with opened(serves=serves, model=DOUBLE, enable_graph_capture=True) as session:
        (provider,) = factory.created
        pairs = [captured(session, size) for size in (2, 3, 4)]
        for _ in range(3):
            for binding, _ in pairs:
                session.run_with_iobinding(binding)
        assert not any(partition.closed for partition in provider.partitions)
        assert len(provider.partitions) == 3
        for size, (_, y) in zip((2, 3, 4), pairs, strict=True):
            np.testing.assert_array_equal(y.numpy(), np.full(size, 2.0 * size))
        del binding, pairs


def test_runs_that_may_not_overlap_are_not_captured(simulated: MakeSimulated) -> None:
    simulated(specialises=1, captures=True, max_concurrent_runs=1)
    with opened(model=DOUBLE, enable_graph_capture=True) as session:
        binding, _ = captured(session, 2)
        with pytest.raises(RunError, match="cannot be captured"):
            session.run_with_iobinding(binding)


def test_an_array_of_another_shape_is_the_hosts_mistake(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the tests above count on it."""
    factory = simulated(specialises=2)
    session = opened(model=DOUBLE)
    session.run(None, {"x": np.ones(3, np.float32)})
    (provider,) = factory.created
    (first,) = provider.partitions
    monkeypatch.setattr(type(provider), "compile", lambda self, partition: first)
    with pytest.raises(onnxplug.errors.EpError, match="was compiled for"):
        session.run(None, {"x": np.ones(4, np.float32)})


@pytest.mark.parametrize("groups", [[{0}], [{0, 1}], [{0, 1}, {2, 3}], [{1, 2}]])
def test_another_serves_that_takes_its_nodes_together(
    simulated: MakeSimulated, groups: list[set[int]]
) -> None:
    other = "OtherExecutionProvider"
    simulated(specialises=2, refuse={"Sub": NOT_THIS, "Mul": NOT_THIS})
    simulated(name=other, groups=tuple(map(frozenset, groups)))
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        four (float[N,4] x) => (float[N,4] y)
        { a = Add (x, x) b = Neg (a) c = Sub (b, x) y = Mul (c, c) }
        """
    )
    chosen = onnxplug.SessionOptions()
    chosen.add_session_config_entry("session.serve_while_compiling", "1")
    fed = feed(3)["x"]
    with onnxplug.InferenceSession(model, chosen, [SIMULATED, other]) as session:
        (found,) = session.run(None, {"x": fed})
        np.testing.assert_allclose(found, (-2 * fed - fed) ** 2, rtol=1e-6)
        part = session.explain().partitions[0]
        assert part.ep == SIMULATED
        # its own nodes are the first two
        serves = {1, 2} not in groups
        assert (other in part.specialisations.elsewhere) is serves
