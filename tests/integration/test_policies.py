"""Policies choose EPs by what these claim of the model, and load no others."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.compile import build
from onnxplug.errors import EpError, EpWarning, UnassignedNode
from onnxplug.partition.report import EpOutcome
from onnxplug.plugins import PluginRegistry
from onnxplug_cpu.factory import CpuFactory
from onnxplug_testing import Knobs, SimulatedFactory, Stage, ToyFactory
from onnxplug_testing.random_models import draw_model

CPU = "CPUExecutionProvider"
X = np.array([-1.5, 0.5, 2], np.float32)

Add = Callable[..., SimulatedFactory]


def chain(*ops: str) -> onnx.ModelProto:
    """A model of *ops*, of which each reads what the one before makes."""
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3])
        for name in ("v0", f"v{len(ops)}")
    ]
    nodes = [
        helper.make_node(op, [f"v{place}"], [f"v{place + 1}"], name=f"node{place}")
        for place, op in enumerate(ops)
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


THIRDS = chain(*["Neg", "Abs", "Erf"] * 3)


@pytest.fixture
def registry() -> PluginRegistry:
    """One that knows the CPU EP only."""
    registry = PluginRegistry({}, find=lambda group: [])
    registry.add(CpuFactory())
    return registry


@pytest.fixture
def add(registry: PluginRegistry) -> Add:
    """Makes an EP known: ``add("Npu", "npu", "Neg", "Abs")`` claims two operators."""

    def make(name: str, kind: str, *ops: str, **knobs: Any) -> SimulatedFactory:
        full = f"{name}ExecutionProvider"
        device_type = ep.DeviceType(kind)
        settings = {"ops": frozenset(ops), **knobs}
        factory = SimulatedFactory(
            Knobs(name=full, device_type=device_type, **settings)
        )
        registry.add(factory)
        return factory

    return make


class Opened:
    """A session, and what its report says of EPs, by their short names."""

    def __init__(self, session: onnxplug.InferenceSession) -> None:
        self.session = session
        self.report = session.explain()
        self.text = str(self.report)
        self.eps: dict[str, EpOutcome] = {
            short(each.ep): each for each in self.report.eps
        }
        self.states = {name: each.state for name, each in self.eps.items()}
        self.claimed = {name: each.claimed for name, each in self.eps.items()}

    def runs(self) -> dict[str, int]:
        """How many nodes each EP runs."""
        names = [short(node.ep) for node in self.report.nodes]
        return {name: names.count(name) for name in sorted({*names})}


def short(name: str) -> str:
    return name.removesuffix("ExecutionProvider")


Open = Callable[..., Opened]


@pytest.fixture
def opened(registry: PluginRegistry) -> Open:
    """Opens a session by a policy; its result is right."""

    def make(policy: Any, model: onnx.ModelProto = THIRDS, **options: Any) -> Opened:
        session = onnxplug.InferenceSession(
            model, policy=policy, registry=registry, **options
        )
        (wanted,) = ReferenceEvaluator(model).run(None, {"v0": X})
        (found,) = session.run(None, {"v0": X})
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        return Opened(session)

    return make


def no_fallback() -> onnxplug.SessionOptions:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return options


# five installed EPs, of which two claim nothing and one a third


@pytest.fixture
def five(add: Add) -> dict[str, SimulatedFactory]:
    return {
        "ANpu": add("ANpu", "npu", "Tan"),
        "BNpu": add("BNpu", "npu", "Neg", "Abs", "Erf"),
        "AGpu": add("AGpu", "gpu", "Tan"),
        "BGpu": add("BGpu", "gpu", "Neg"),
        "Maker": add("Maker", "cpu", "Neg", "Abs"),
    }


BY_CPU = {
    "Maker": "used",
    "CPU": "used",
    "ANpu": "not chosen",
    "BNpu": "not chosen",
    "AGpu": "not chosen",
    "BGpu": "not chosen",
}
BY_NPU = {
    "ANpu": "passed over",
    "BNpu": "used",
    "Maker": "not needed",
    "CPU": "not needed",
    "AGpu": "not chosen",
    "BGpu": "not chosen",
}
BY_GPU = {
    "AGpu": "passed over",
    "BGpu": "used",
    "Maker": "used",
    "CPU": "used",
    "ANpu": "not chosen",
    "BNpu": "not chosen",
}


@pytest.mark.parametrize(
    ("policy", "states", "runs"),
    [
        ("default", BY_CPU, {"Maker": 6, "CPU": 3}),
        ("prefer_cpu", BY_CPU, {"Maker": 6, "CPU": 3}),
        ("prefer_npu", BY_NPU, {"BNpu": 9}),
        ("max_efficiency", BY_NPU, {"BNpu": 9}),
        ("min_overall_power", BY_NPU, {"BNpu": 9}),
        ("prefer_gpu", BY_GPU, {"BGpu": 3, "Maker": 3, "CPU": 3}),
        ("max_performance", BY_GPU, {"BGpu": 3, "Maker": 3, "CPU": 3}),
    ],
)
def test_who_is_chosen_of_five_and_why(
    five: dict[str, SimulatedFactory],
    opened: Open,
    policy: str,
    states: dict[str, str],
    runs: dict[str, int],
) -> None:
    found = opened(policy)
    assert found.report.policy == policy
    assert found.states == states
    assert found.runs() == runs
    used = [name for name, state in states.items() if state == "used"]
    names = [short(name) for name in found.session.get_providers()]
    assert [name for name in names if name in used] == used
    claims = {"ANpu": 0, "AGpu": 0, "BNpu": 9, "BGpu": 3, "Maker": 6, "CPU": 9}
    for name, factory in five.items():
        state = states[name]
        asked = state in ("used", "passed over")
        assert len(factory.created) == asked, name
        assert [each.closed for each in factory.created] == [state != "used"] * asked
        assert found.claimed[name] == (claims[name] if asked else 0)
        if state == "used":
            assert f"{name}ExecutionProvider used: claims {claims[name]} node" in (
                found.text
            )
    assert f"EPs by the policy {policy}:" in found.text
    for name in ("ANpu", "AGpu"):
        if states[name] == "passed over":
            told = f"{name}ExecutionProvider passed over: claims nothing of this model"
            assert f"{told}: op: Neg is not among Knobs.ops (3×); op: Abs" in found.text


def test_those_passed_over_are_among_the_reasons_of_nodes(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    node = opened("max_performance").report.nodes[2]
    assert [short(passed.ep) for passed in node.passed_over] == [
        "AGpu",
        "BGpu",
        "Maker",
    ]


def test_the_report_is_data(five: dict[str, SimulatedFactory], opened: Open) -> None:
    data = opened("prefer_npu").report.to_dict()
    assert data["policy"] == "prefer_npu"
    assert data["eps"][1] == {
        "ep": "BNpuExecutionProvider",
        "device": "npu",
        "state": "used",
        "reason": "",
        "claimed": 9,
    }
    assert data["eps"][2]["device"] == "cpu"
    assert data["eps"][2]["reason"] == "every node has an EP that the policy prefers"
    assert data["eps"][-1]["reason"] == "prefer_npu does not choose it"


# how the policy goes on


def test_an_exotic_operator_does_not_leave_the_rest_to_the_cpu(
    add: Add, opened: Open
) -> None:
    add("Exotic", "gpu", "Erf")
    add("Full", "gpu", "Neg", "Abs")
    found = opened("max_performance")
    assert found.runs() == {"Exotic": 3, "Full": 6}
    assert found.states["CPU"] == "not needed"


def test_what_an_ep_claims_may_all_be_others(add: Add, opened: Open) -> None:
    add("A", "gpu", "Neg", "Abs")
    add("B", "gpu", "Neg")
    found = opened("prefer_gpu")
    assert found.states == {"A": "used", "B": "passed over", "CPU": "used"}
    assert found.eps["B"].claimed == 3
    assert found.eps["B"].reason.startswith(
        "claims nothing that is left of this model: "
    )
    assert "taken: AExecutionProvider is preferred (3×)" in found.eps["B"].reason


def test_an_atomic_group_that_cannot_be_is_no_claim(add: Add, opened: Open) -> None:
    add("A", "gpu", groups=(frozenset({0, 2}),), ops=frozenset({"Neg", "Erf"}))
    found = opened("prefer_gpu", chain("Neg", "Abs", "Erf"))
    assert found.states == {"A": "passed over", "CPU": "used"}
    assert "not-convex" in found.eps["A"].reason


def test_bodies_of_control_flow_count_as_claims(
    add: Add, registry: PluginRegistry
) -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        looped (float[3] v0) => (float[3] y)
        {
            trips = Constant <value_int = 3> ()
            go = Constant <value = bool {1}> ()
            y = Loop (trips, go, v0) <body = body
                (int64 i, bool cond, float[3] state) => (bool again, float[3] next)
                { again = Identity (cond) a = Neg (state) next = Erf (a) }>
        }
        """
    )
    add("Other", "npu", "Tan")
    inner = add("Inner", "npu", "Neg")
    session = onnxplug.InferenceSession(model, policy="prefer_npu", registry=registry)
    states = {short(each.ep): each.state for each in session.explain().eps}
    assert states == {"Other": "passed over", "Inner": "used", "CPU": "used"}
    assert len(inner.created) == 1
    wanted = ReferenceEvaluator(model).run(None, {"v0": X})
    found = session.run(None, {"v0": X})
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


def test_an_ep_of_several_devices_is_judged_once_with_all(
    add: Add, opened: Open, registry: PluginRegistry
) -> None:
    two = add("Two", "gpu", "Tan", device_count=2)
    found = opened("prefer_gpu")
    assert found.states == {"Two": "passed over", "CPU": "used"}
    assert len(two.created) == 1


def test_eps_are_asked_once_and_the_model_is_prepared_once(
    five: dict[str, SimulatedFactory],
    opened: Open,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []
    prepared: list[object] = []
    for name, factory in five.items():
        create = factory.create

        def counted(*arguments: Any, create: Any = create, name: str = name) -> Any:
            provider = create(*arguments)
            ask = provider.get_capability

            def get_capability(graph: ep.Graph) -> ep.CapabilityReport:
                asked.append(name)
                return ask(graph)

            provider.get_capability = get_capability
            return provider

        monkeypatch.setattr(factory, "create", counted)
    prepare = build.prepare
    monkeypatch.setattr(
        build,
        "prepare",
        lambda *args, **named: (prepared.append(1), prepare(*args, **named))[1],
    )
    opened("max_performance")
    assert asked == ["AGpu", "BGpu", "Maker"]
    assert len(prepared) == 1


def test_a_variant_has_the_eps_of_its_session(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    session = opened("prefer_gpu").session
    session.run(["v3"], {"v0": X})
    assert len(five["AGpu"].created) == 1
    assert len(five["BGpu"].created) == 2


# failures


@pytest.mark.parametrize("stage", [Stage.CREATE, Stage.GET_CAPABILITY, Stage.COMPILE])
def test_the_next_of_the_policy_stands_in_for_one_that_fails(
    add: Add, opened: Open, stage: Stage
) -> None:
    add("A", "gpu", "Neg", "Abs", "Erf", fail_at=stage)
    add("B", "gpu", "Neg", "Abs", "Erf")
    told = f"AExecutionProvider was chosen by the policy and is not used; B.*{stage}"
    with pytest.warns(EpWarning, match=told) as caught:
        found = opened("prefer_gpu")
    assert len(caught) == 1
    assert found.runs() == {"B": 9}
    assert found.states == {"A": "failed", "B": "used", "CPU": "not needed"}


def test_the_next_of_the_policy_stands_in_for_one_without_preferences(
    add: Add, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    factory = add("A", "gpu", "Neg", "Abs", "Erf")
    create = factory.create

    def create_broken(*arguments: Any) -> ep.ExecutionProvider:
        provider = create(*arguments)
        provider.preferences = None  # type: ignore[assignment]
        return provider

    monkeypatch.setattr(factory, "create", create_broken)
    add("B", "gpu", "Neg", "Abs", "Erf")
    with pytest.warns(EpWarning, match="failed in preferences"):
        found = opened("prefer_gpu")
    assert found.states == {"A": "failed", "B": "used", "CPU": "not needed"}


def test_one_whose_nodes_another_had_is_tried_again_when_that_fails(
    add: Add, opened: Open
) -> None:
    add("A", "gpu", "Neg", "Abs", fail_at=Stage.COMPILE)
    again = add("B", "gpu", "Neg")
    with pytest.warns(EpWarning, match="AExecutionProvider.*BExecutionProvider is"):
        found = opened("prefer_gpu")
    assert found.runs() == {"B": 3, "CPU": 6}
    assert [each.closed for each in again.created] == [True, False]
    assert [short(passed.ep) for passed in found.report.nodes[0].passed_over] == ["CPU"]


@pytest.mark.parametrize("stage", [Stage.CREATE, Stage.GET_CAPABILITY, Stage.COMPILE])
def test_it_is_an_error_when_nothing_that_was_chosen_works(
    add: Add, opened: Open, stage: Stage
) -> None:
    factory = add("A", "gpu", "Neg", fail_at=stage)

    def only_that(pairs: Any, model: Any) -> Any:
        return [pair for pair in pairs if pair.ep_name == factory.name]

    with pytest.raises(EpError, match=f"told to fail at {stage}"):
        opened(only_that)
    assert all(each.closed for each in factory.created)


def test_wrong_options_are_the_users_error(five: Any, opened: Open) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("ep.bgpuexecutionprovider.level", "9")
    with pytest.raises(onnxplug.errors.OptionError, match="level"):
        opened("prefer_gpu", sess_options=options)
    assert all(each.closed for each in five["AGpu"].created)


def test_a_cpu_ep_that_fails_is_told(
    add: Add, opened: Open, registry: PluginRegistry
) -> None:
    registry.remove(CPU)
    add("CPU", "cpu", "Neg", fail_at=Stage.CREATE)
    add("B", "gpu", "Neg", "Abs", "Erf")
    with pytest.warns(EpWarning, match=f"{CPU} was chosen by the policy and is not"):
        assert opened("prefer_gpu").states == {"B": "used", "CPU": "failed"}


def test_without_a_cpu_ep_the_reasons_of_all_that_were_tried_are_told(
    add: Add, opened: Open, registry: PluginRegistry
) -> None:
    registry.remove(CPU)
    add("A", "gpu", "Tan")
    add("B", "cpu", "Neg")
    with pytest.raises(UnassignedNode) as caught:
        opened("prefer_gpu")
    told = str(caught.value)
    assert "AExecutionProvider: op: Abs is not among Knobs.ops" in told
    assert "BExecutionProvider: op: Abs is not among Knobs.ops" in told


# no fallback to the CPU EP


def test_without_the_fallback_the_cpu_ep_is_not_created(
    five: Any, opened: Open, registry: PluginRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    created: list[object] = []
    monkeypatch.setattr(CpuFactory, "create", lambda *args: created.append(args))
    assert opened("prefer_npu", sess_options=no_fallback()).runs() == {"BNpu": 9}
    with pytest.raises(UnassignedNode, match="Erf"):
        opened("prefer_gpu", sess_options=no_fallback())
    assert created == []


def test_without_the_cpu_ep_the_first_choice_computes_constants(
    registry: PluginRegistry,
) -> None:
    registry.add(ToyFactory())
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 21]>
        sums (float[3] v0) => (float[3] y) <float[1] one = {1}>
        { two = Add (one, one) y = Add (v0, two) }
        """
    )
    options = no_fallback()
    session = onnxplug.InferenceSession(
        model, options, policy="prefer_cpu", registry=registry
    )
    assert len(session.explain().nodes) == 1
    np.testing.assert_array_equal(session.run(None, {"v0": X})[0], X + 2)


def test_a_model_without_nodes_is_opened(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    value = helper.make_tensor_value_info("v0", TensorProto.FLOAT, [3])
    graph = helper.make_graph([], "empty", [value], [value])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    assert opened("prefer_gpu", model).session.get_providers() == [CPU]
    without = opened("prefer_gpu", model, sess_options=no_fallback())
    assert without.session.get_providers() == ["AGpuExecutionProvider"]


# functions


def choosing(*names: str) -> tuple[list[int], Any]:
    """A policy that chooses these, and how many pairs each of its calls was given."""
    calls: list[int] = []

    def policy(pairs: Sequence[ep.EpDevice], model: ep.ModelInfo) -> Any:
        calls.append(len(pairs))
        return [p for name in names for p in pairs if short(p.ep_name) == name]

    return calls, policy


def test_a_function_is_called_once_and_its_order_is_kept(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    calls, policy = choosing("BGpu", "ANpu", "Maker", "AGpu")
    found = opened(policy)
    assert calls == [6]
    assert found.states == {
        "BGpu": "used",
        "ANpu": "passed over",
        "Maker": "used",
        "AGpu": "passed over",
        "CPU": "used",
        "BNpu": "not chosen",
    }
    assert found.runs() == {"BGpu": 3, "Maker": 3, "CPU": 3}


def test_what_a_function_chose_is_not_loaded_once_all_is_claimed(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    _, policy = choosing("ANpu", "BNpu", "BGpu")
    found = opened(policy)
    assert found.states["BGpu"] == "not needed"
    assert five["BGpu"].created == []


def test_a_function_may_prefer_the_cpu_ep(
    five: dict[str, SimulatedFactory], opened: Open
) -> None:
    _, policy = choosing("BGpu", "CPU", "BNpu")
    found = opened(policy)
    assert found.runs() == {"BGpu": 3, "CPU": 6}
    assert found.states["BNpu"] == "not needed"
    assert five["BNpu"].created == []
    assert found.session.get_providers() == ["BGpuExecutionProvider", CPU]


def test_a_delegate_is_asked_once_as_well(
    five: dict[str, SimulatedFactory], registry: PluginRegistry
) -> None:
    calls: list[int] = []

    def delegate(pairs: list[ep.EpDevice], *rest: Any) -> list[ep.EpDevice]:
        calls.append(len(pairs))
        return pairs[:2]

    options = onnxplug.SessionOptions()
    options.set_provider_selection_policy_delegate(delegate)
    session = onnxplug.InferenceSession(THIRDS, options, registry=registry)
    assert calls == [6]
    assert session.get_providers() == ["BNpuExecutionProvider", CPU]


# random graphs

SEEDS = 30


def random_claims(draw: random.Random) -> dict[str, Any]:
    nothing = draw.random() < 0.3
    return {
        "ops": frozenset() if nothing else Knobs().ops,
        "claim_probability": draw.choice([0.2, 0.5, 1.0]),
        "random_groups": draw.choice([0, 0, 2]),
        "seed": draw.randint(0, 99),
    }


@pytest.mark.parametrize("policy", ["prefer_cpu", "prefer_npu", "prefer_gpu"])
def test_random_graphs_are_divided_as_if_the_used_eps_were_named(
    policy: str, add: Add, registry: PluginRegistry
) -> None:
    passed_over = 0
    for seed in range(SEEDS):
        case, draw = draw_model(seed, control_flow=False), random.Random(seed)
        names = []
        for number, kind in enumerate(("npu", "npu", "gpu", "gpu", "cpu")):
            names.append(add(f"Ep{number}", kind, **random_claims(draw)).name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EpWarning)
            session = onnxplug.InferenceSession(
                case.model, policy=policy, registry=registry
            )
            report = session.explain()
            considered = [
                each.ep for each in report.eps if each.state in ("used", "passed over")
            ]
            passed_over += len(considered) - len(session.get_providers())
            named = onnxplug.InferenceSession(
                case.model, providers=considered, registry=registry
            )
        assert report.partitions == named.explain().partitions
        fed = {each.name: case.feeds[each.name] for each in session.get_inputs()}
        wanted = ReferenceEvaluator(case.model).run(None, fed)
        for found, want in zip(session.run(None, fed), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-3, atol=1e-4)
        session.close()
        named.close()
        for name in names:
            registry.remove(name)
    assert passed_over
