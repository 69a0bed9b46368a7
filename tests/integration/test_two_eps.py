"""Models over a simulated accelerator and the CPU EP: numbers, copies, reasons."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.ep import DataType, Reason, RefusalCode
from onnxplug.errors import EpError, EpWarning, OutOfMemory
from onnxplug.plugins import registry
from onnxplug_testing import SimulatedFactory, SimulatedFailure, Stage, ToyFactory

MakeSimulated = Callable[..., SimulatedFactory]

SIMULATED = "SimulatedExecutionProvider"
CPU = "CPUExecutionProvider"
DEVICE = "simulated:0"

SANDWICH = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x, float[4, 4] z) => (float[4, 4] y, float[4, 4] w)
< float[4, 4] k = {1, 0, 2, 0, 0, 1, 0, 2, 3, 0, 1, 0, 0, 3, 0, 1} >
{
    [down] a = MatMul (x, k)
    [bend] b = Tanh (a)
    [both] c = MatMul (b, a)
    [side] d = Sin (z)
    [join] e = Add (c, d)
    [last] y = Tanh (e)
    [more] w = Sub (e, z)
}
"""

FEEDS = {
    "x": np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4),
    "z": np.linspace(2, 3, 16, dtype=np.float32).reshape(4, 4),
}

ON_DEVICE = frozenset({"MatMul", "Add", "Sub"})


def open_session(
    model: onnx.ModelProto | str, providers: Sequence[str] = (SIMULATED, CPU)
) -> onnxplug.InferenceSession:
    if isinstance(model, str):
        model = onnx.parser.parse_model(model)
    return onnxplug.InferenceSession(model, providers=list(providers))


def assert_equals_reference(
    session: onnxplug.InferenceSession, model: str, feeds: dict[str, np.ndarray]
) -> None:
    expected = ReferenceEvaluator(onnx.parser.parse_model(model)).run(None, feeds)
    for found, wanted in zip(session.run(None, feeds), expected, strict=True):
        assert isinstance(found, np.ndarray)
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def recorded(factory: SimulatedFactory) -> Counter[tuple[str, str, int]]:
    return Counter(
        (str(copy.source), str(copy.target), copy.nbytes)
        for copy in factory.transfer.copies
    )


def reported(session: onnxplug.InferenceSession) -> Counter[tuple[str, str, Any]]:
    return Counter(
        (copy.source, copy.target, copy.nbytes) for copy in session.explain().copies
    )


# numbers


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("seed", [None, 0, 1, 2])
def test_numbers_are_those_of_the_reference(
    simulated: MakeSimulated, limit: int | None, seed: int | None
) -> None:
    simulated(ops=ON_DEVICE, seed=seed, max_concurrent_runs=limit)
    session = open_session(SANDWICH)
    for scale in (1, -3):
        feeds = {name: array * scale for name, array in FEEDS.items()}
        assert_equals_reference(session, SANDWICH, feeds)


def test_an_ep_without_streams_works_as_well(simulated: MakeSimulated) -> None:
    factory = simulated(ops=ON_DEVICE, streams=False)
    assert_equals_reference(open_session(SANDWICH), SANDWICH, FEEDS)
    assert not any(copy.queued for copy in factory.transfer.copies)


def test_a_model_may_run_on_the_device_alone(simulated: MakeSimulated) -> None:
    simulated()
    session = open_session(SANDWICH)
    assert_equals_reference(session, SANDWICH, FEEDS)
    assert {node.ep for node in session.explain().nodes} == {SIMULATED}


def test_the_first_provider_is_asked_first(simulated: MakeSimulated) -> None:
    simulated()
    with pytest.warns(EpWarning, match=f"runs no node.*taken: {CPU} is preferred"):
        session = open_session(SANDWICH, providers=[CPU, SIMULATED])
    assert {node.ep for node in session.explain().nodes} == {CPU}
    assert_equals_reference(session, SANDWICH, FEEDS)


# copies


def test_values_are_copied_at_the_borders_alone(simulated: MakeSimulated) -> None:
    factory = simulated(ops=ON_DEVICE)
    session = open_session(SANDWICH)
    session.run(None, FEEDS)
    assert Counter(
        (copy.value, copy.source, copy.target) for copy in session.explain().copies
    ) == Counter(
        [
            ("x", "host", DEVICE),
            ("a", DEVICE, "host"),  # for Tanh; MatMul finds it on the device
            ("b", "host", DEVICE),
            ("d", "host", DEVICE),
            ("z", "host", DEVICE),  # for Sub; Sin takes it as it was fed
            ("e", DEVICE, "host"),
            ("w", DEVICE, "host"),
        ]
    )
    assert recorded(factory) == reported(session)


def test_each_run_copies_what_the_report_says(simulated: MakeSimulated) -> None:
    factory = simulated(ops=ON_DEVICE)
    session = open_session(SANDWICH)
    for _ in range(3):
        factory.transfer.copies.clear()
        session.run(None, FEEDS)
        assert recorded(factory) == reported(session)


def test_a_value_used_in_several_partitions_is_copied_once(
    simulated: MakeSimulated,
) -> None:
    model = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4] x) => (float[4] y)
    {
        [one] a = Neg (x)
        [two] b = Tanh (a)
        [three] c = Add (x, b)
        [four] d = Tanh (c)
        [five] e = Add (x, d)
        [six] y = Tanh (e)
    }
    """
    factory = simulated(ops=frozenset({"Add"}))
    session = open_session(model)
    assert_equals_reference(session, model, {"x": np.ones(4, np.float32)})
    assert Counter(copy.value for copy in session.explain().copies)["x"] == 1
    assert recorded(factory) == reported(session)


def test_nothing_is_copied_when_all_runs_on_the_host(simulated: MakeSimulated) -> None:
    factory = simulated(ops=frozenset())
    with pytest.warns(EpWarning, match="runs no node"):
        session = open_session(SANDWICH)
    session.run(None, FEEDS)
    assert session.explain().copies == []
    assert factory.transfer.copies == []


def test_types_kept_on_the_host_are_not_copied(simulated: MakeSimulated) -> None:
    model = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4] x, int64[4] n) => (int64[4] m, float[4] y)
    {
        [one] i = Cast <to = 7> (x)
        [two] m = Add (i, n)
        [three] f = Cast <to = 1> (m)
        [four] y = Mul (f, x)
    }
    """
    factory = simulated(on_host=frozenset({DataType.INT64}))
    session = open_session(model)
    feeds = {"x": np.ones(4, np.float32), "n": np.arange(4)}
    assert_equals_reference(session, model, feeds)
    assert {copy.value for copy in session.explain().copies} == {"x", "y"}
    assert {copy.dtype for copy in factory.transfer.copies} == {DataType.FLOAT32}


# two accelerators


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_values_go_from_device_to_device_by_way_of_the_host(
    simulated: MakeSimulated, seed: int | None
) -> None:
    left = simulated(
        name="LeftExecutionProvider",
        ops=frozenset({"MatMul", "Sub"}),
        seed=seed,
        max_concurrent_runs=None,
    )
    right = simulated(
        name="RightExecutionProvider",
        ops=frozenset({"Tanh", "Add"}),
        seed=seed,
        max_concurrent_runs=None,
    )
    session = open_session(SANDWICH, providers=[left.name, right.name])
    assert_equals_reference(session, SANDWICH, FEEDS)
    assert {node.ep for node in session.explain().nodes} == {left.name, right.name, CPU}
    assert recorded(left) + recorded(right) == reported(session)


def test_what_a_device_wants_on_the_host_is_there_before_it_runs(
    simulated: MakeSimulated,
) -> None:
    left = simulated(name="LeftExecutionProvider", ops=frozenset({"Add"}))
    right = simulated(
        name="RightExecutionProvider",
        ops=frozenset({"Mul"}),
        on_host=frozenset({DataType.INT64}),
    )
    model = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (int64[4] x, int64[4] z) => (int64[4] y) { a = Add (x, z) y = Mul (a, z) }
    """
    session = open_session(model, providers=[left.name, right.name])
    assert_equals_reference(session, model, {"x": np.arange(4), "z": np.arange(4) + 3})


def test_a_copy_on_the_host_serves_all_who_want_it(simulated: MakeSimulated) -> None:
    left = simulated(name="LeftExecutionProvider", ops=frozenset({"Add"}))
    right = simulated(name="RightExecutionProvider", ops=frozenset({"Mul"}))
    model = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[4] x) => (float[4] y)
    { a = Add (x, x) b = Tanh (a) y = Mul (a, b) }
    """
    session = open_session(model, providers=[left.name, right.name])
    assert_equals_reference(session, model, {"x": np.arange(4, dtype=np.float32)})
    copies = Counter(copy.value for copy in session.explain().copies)
    assert copies["a"] == 2  # to the host, and from there
    assert recorded(left) + recorded(right) == reported(session)


# an EP on the host


def test_the_toy_shares_the_hosts_memory_with_the_cpu_ep() -> None:
    toy = ToyFactory()
    registry.add(toy)
    try:
        session = open_session(SANDWICH, providers=[toy.name])
    finally:
        registry.remove(toy.name)
    assert_equals_reference(session, SANDWICH, FEEDS)
    on = {node.name: node.ep for node in session.explain().nodes}
    assert {name for name, ep_name in on.items() if ep_name == toy.name} == {
        "join",
        "more",
    }
    assert session.explain().copies == []


# reasons


def test_every_node_elsewhere_has_its_reason(simulated: MakeSimulated) -> None:
    slow = Reason(RefusalCode.COST, "slow on this device")
    simulated(ops=ON_DEVICE | {"Sin"}, refuse={"Sub": slow})
    report = open_session(SANDWICH).explain()
    found = {
        node.name: [(passed.ep, passed.reason) for passed in node.passed_over]
        for node in report.nodes
    }
    taken = (CPU, Reason(RefusalCode.TAKEN, f"{SIMULATED} is preferred"))
    not_known = Reason(RefusalCode.OP, "Tanh is not among Knobs.ops")
    assert found == {
        "down": [taken],
        "bend": [(SIMULATED, not_known)],
        "both": [taken],
        "side": [taken],
        "join": [taken],
        "last": [(SIMULATED, not_known)],
        "more": [(SIMULATED, slow)],
    }
    on_cpu = {node.name for node in report.nodes if node.ep == CPU}
    assert on_cpu == {"bend", "last", "more"}


def test_a_declined_partition_is_run_elsewhere_and_told(
    simulated: MakeSimulated,
) -> None:
    simulated(ops=ON_DEVICE, decline_ops=frozenset({"Sub"}))
    session = open_session(SANDWICH)
    report = session.explain()
    assert_equals_reference(session, SANDWICH, FEEDS)
    (back,) = report.given_back
    assert back.ep == SIMULATED
    assert "Sub 'more'" in back.nodes
    assert back.reason.detail.endswith("(Knobs.decline_…)")
    on = {node.name: node.ep for node in report.nodes}
    assert on["more"] == CPU
    assert on["down"] == SIMULATED


def test_only_the_nodes_that_are_named_are_given_back(
    simulated: MakeSimulated,
) -> None:
    # the whole model is one partition at first
    factory = simulated(decline_ops=frozenset({"Sin", "Sub"}))
    session = open_session(SANDWICH)
    report = session.explain()
    assert_equals_reference(session, SANDWICH, FEEDS)
    assert {node.name for node in report.nodes if node.ep == CPU} == {"side", "more"}
    (back,) = report.given_back
    assert back.nodes == ("Sin 'side'", "Sub 'more'")
    assert factory.name == back.ep


def test_a_node_of_another_partition_cannot_be_declined(
    simulated: MakeSimulated, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = simulated()
    create = factory.create

    def create_careless(*arguments: Any) -> ep.ExecutionProvider:
        provider = create(*arguments)

        def decline(partition: ep.Partition) -> ep.CompiledPartition:
            stranger: Any = "no node"
            raise ep.Declined("not this one", nodes=[stranger])

        monkeypatch.setattr(provider, "compile", decline)
        return provider

    monkeypatch.setattr(factory, "create", create_careless)
    with pytest.warns(EpWarning, match="which is none of its nodes"):
        open_session(SANDWICH)


def test_an_atomic_group_that_is_not_convex_is_given_back(
    simulated: MakeSimulated,
) -> None:
    # down → bend → both: with bend elsewhere the two cannot be one partition
    simulated(ops=frozenset({"MatMul"}), groups=(frozenset({0, 2}),))
    with pytest.warns(EpWarning, match="runs no node.*not-convex"):
        session = open_session(SANDWICH)
    names = [node.name for node in session.explain().nodes]
    assert [names[0], names[2]] == ["down", "both"]
    assert_equals_reference(session, SANDWICH, FEEDS)
    (back,) = session.explain().given_back
    assert back.nodes == ("MatMul 'down'", "MatMul 'both'")
    assert back.reason.code is RefusalCode.NOT_CONVEX
    assert {node.ep for node in session.explain().nodes} == {CPU}


def test_a_fused_group_is_one_partition_with_its_label(
    simulated: MakeSimulated,
) -> None:
    simulated(ops=ON_DEVICE, fuse=(("MatMul", "Add"),))
    session = open_session(SANDWICH)
    assert_equals_reference(session, SANDWICH, FEEDS)
    (fused,) = (part for part in session.explain().partitions if part.label)
    assert (fused.label, fused.operators) == ("MatMul+Add", {"MatMul": 1, "Add": 1})


# breaches of contract


@pytest.mark.parametrize("knob", ["silent_nodes", "doubled_nodes"])
def test_a_report_that_breaks_the_contract_is_the_eps_failure(
    simulated: MakeSimulated, knob: str
) -> None:
    simulated(**{knob: frozenset({2})})
    with pytest.raises(EpError, match=SIMULATED) as caught:
        open_session(SANDWICH, providers=[SIMULATED])
    assert caught.value.stage == "get_capability"


@pytest.mark.parametrize("stage", [Stage.CREATE, Stage.GET_CAPABILITY, Stage.COMPILE])
def test_an_ep_that_fails_early_is_replaced_with_a_warning(
    simulated: MakeSimulated, stage: Stage
) -> None:
    simulated(fail_at=stage)
    with pytest.warns(EpWarning, match=f"told to fail at {stage}"):
        session = open_session(SANDWICH)
    assert_equals_reference(session, SANDWICH, FEEDS)
    assert {node.ep for node in session.explain().nodes} == {CPU}
    outcomes = {outcome.ep: outcome for outcome in session.explain().eps}
    assert outcomes[SIMULATED].state == "failed"
    assert f"told to fail at {stage}" in outcomes[SIMULATED].reason


def test_a_session_refused_is_not_replaced(simulated: MakeSimulated) -> None:
    simulated(refuse_session="no licence")
    with pytest.raises(ep.SessionRefused, match="no licence"):
        open_session(SANDWICH)


@pytest.mark.parametrize("limit", [1, None])
@pytest.mark.parametrize("stage", [Stage.RUN, Stage.WORK])
def test_a_failure_in_a_run_is_raised(
    simulated: MakeSimulated, stage: Stage, limit: int | None
) -> None:
    simulated(ops=ON_DEVICE, fail_at=stage, max_concurrent_runs=limit)
    session = open_session(SANDWICH)
    for _ in range(2):
        with pytest.raises(EpError, match="told to fail at") as caught:
            session.run(None, FEEDS)
        assert caught.value.ep == SIMULATED
        assert isinstance(caught.value.__cause__, SimulatedFailure)


# memory and threads


@pytest.mark.parametrize("limit", [1, None])
def test_runs_leave_nothing_on_the_device(
    simulated: MakeSimulated, limit: int | None
) -> None:
    factory = simulated(ops=ON_DEVICE, max_concurrent_runs=limit)
    session = open_session(SANDWICH)
    peaks = []
    for _ in range(3):
        session.run(None, FEEDS)
        assert factory.allocator().live_bytes == 0
        peaks.append(factory.allocator().peak_bytes)
    assert peaks[0] == peaks[-1] > 0


@pytest.mark.parametrize("limit", [1, None])
def test_memory_is_free_again_while_the_run_goes_on(
    simulated: MakeSimulated, limit: int | None
) -> None:
    steps = [
        f"a{i} = Neg (y{i}) b{i} = Abs (a{i}) y{i + 1} = Sub (b{i}, a{i})"
        for i in range(10)
    ]
    model = f"""
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[1000] y0) => (float[1000] y10) {{ {" ".join(steps)} }}
    """
    # each node is a partition of its own, so that memory between them is the host's
    groups = tuple(frozenset({index}) for index in range(30))
    factory = simulated(groups=groups, max_concurrent_runs=limit)
    session = open_session(model)
    assert len(session.explain().partitions) == 30
    assert_equals_reference(session, model, {"y0": np.ones(1000, np.float32)})
    assert factory.allocator().peak_bytes <= 4 * 4000


@pytest.mark.parametrize("limit", [1, None])
def test_memory_of_copies_is_free_again_while_the_run_goes_on(
    simulated: MakeSimulated, limit: int | None
) -> None:
    steps = [f"a{i} = Neg (y{i}) y{i + 1} = Tanh (a{i})" for i in range(20)]
    model = f"""
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[1000] y0) => (float[1000] y20) {{ {" ".join(steps)} }}
    """
    factory = simulated(ops=frozenset({"Neg"}), max_concurrent_runs=limit)
    session = open_session(model)
    assert_equals_reference(session, model, {"y0": np.ones(1000, np.float32)})
    assert len(factory.transfer.copies) == 40
    assert factory.allocator().peak_bytes <= 4 * 4000


def test_a_device_that_is_full_says_so(simulated: MakeSimulated) -> None:
    simulated(ops=ON_DEVICE, memory_limit=100)
    session = open_session(SANDWICH)
    with pytest.raises(OutOfMemory, match="64 of 100 bytes in use; 64 more") as caught:
        session.run(None, FEEDS)
    assert caught.value.ep == "SimulatedExecutionProvider"


@pytest.mark.parametrize("limit", [1, None])
def test_runs_from_many_threads_do_not_meet(
    simulated: MakeSimulated, limit: int | None
) -> None:
    simulated(ops=ON_DEVICE, max_concurrent_runs=limit)
    session = open_session(SANDWICH)
    reference = ReferenceEvaluator(onnx.parser.parse_model(SANDWICH))
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                feeds = {name: array * number for name, array in FEEDS.items()}
                for found, wanted in zip(
                    session.run(None, feeds), reference.run(None, feeds), strict=True
                ):
                    np.testing.assert_allclose(found, wanted, rtol=1e-4)
        except Exception as error:  # noqa: BLE001 - a thread's failure is the test's
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# control flow

LOOP = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (int64 n, float[4] x, float[4] step) => (float[4] y)
< bool go = {1} >
{
    [start] s = Neg (x)
    [loop] t = Loop (n, go, s) <body = body
        (int64 i, bool before, float[4] v) => (bool after, float[4] w)
        {
            [on] after = Identity (before)
            [move] u = Add (v, step)
            [bend] w = Tanh (u)
        }
    >
    [stop] y = Neg (t)
}
"""

LOOP_FEEDS = {
    "n": np.array(3),
    "x": np.linspace(-1, 1, 4, dtype=np.float32),
    "step": np.full(4, 0.5, np.float32),
}


def test_a_loop_may_be_claimed_whole(simulated: MakeSimulated) -> None:
    simulated(ops=frozenset({"Loop"}))
    session = open_session(LOOP)
    assert_equals_reference(session, LOOP, LOOP_FEEDS)
    on = {node.name: node.ep for node in session.explain().nodes}
    assert on == {"start": CPU, "loop": SIMULATED, "stop": CPU}


def test_the_body_of_a_loop_may_be_on_two_eps(simulated: MakeSimulated) -> None:
    simulated(ops=frozenset({"Add", "Neg"}))
    session = open_session(LOOP, providers=[SIMULATED])
    assert_equals_reference(session, LOOP, LOOP_FEEDS)
    on = {node.name: node.ep for node in session.explain().nodes}
    assert on["move"] == SIMULATED
    assert on["bend"] == CPU
