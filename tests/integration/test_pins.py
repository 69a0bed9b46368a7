"""Nodes that the user pins to an EP: who gets them, what they become, and errors."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.authoring import files
from onnxplug.errors import OptionError, UnassignedNode
from onnxplug.plugins import registry
from onnxplug.search_path import surroundings
from onnxplug.session import start
from onnxplug.session.start.runner import StartRunner
from onnxplug_testing import SimulatedFactory, Stage, ToyFactory
from onnxplug_testing.random_models import draw_model

from .shapes_lab import DOUBLE, EP, Lab, counted, run

NPU = "SimulatedExecutionProvider"
CPU = "CPUExecutionProvider"
OPENVINO = "OpenVINOExecutionProvider"

Make = Callable[..., SimulatedFactory]

CHAIN = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x) => (float[4, 4] y)
< float[4, 4] k = {1, 0, 2, 0, 0, 1, 0, 2, 3, 0, 1, 0, 0, 3, 0, 1} >
{
    [first] a = MatMul (x, k)
    [second] b = Add (a, x)
    [third] c = MatMul (b, k)
    [last] y = Tanh (c)
}
"""

BRANCHES = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x, bool yes) => (float[4, 4] y)
{
    [before] a = Add (x, x)
    [cond] b = If (yes) <
        then_branch = one () => (float[4, 4] p) { [inner] p = Mul (a, x) },
        else_branch = other () => (float[4, 4] q) { [outer] q = Neg (a) }
    >
    [after] y = Add (b, x)
}
"""

FUNCTION = """
< ir_version: 10, opset_import: ["" : 21, "mine" : 1] >
agraph (float[4, 4] x) => (float[4, 4] y) { [call] a = mine.both (x)  y = Neg (a) }
< domain: "mine", opset_import: ["" : 21] >
both (x) => (y) { [add] s = Add (x, x)  [mul] y = Mul (s, x) }
"""

SOFTMAX = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x) => (float[4, 4] y) { [soft] a = Softmax (x)  [neg] y = Neg (a) }
"""

X = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def open_session(
    model: str | onnx.ModelProto | Path,
    place: str = "",
    require: str = "",
    providers: Sequence[str] | None = (NPU, CPU),
    **more: Any,
) -> onnxplug.InferenceSession:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.place", place)
    options.add_session_config_entry("session.require", require)
    source = onnx.parser.parse_model(model) if isinstance(model, str) else model
    return onnxplug.InferenceSession(source, options, providers, **more)


def check(session: onnxplug.InferenceSession, model: str, **feeds: Any) -> None:
    """Compare what a session computes with ``onnx.reference``."""
    feeds = {"x": X, **feeds}
    expected = ReferenceEvaluator(onnx.parser.parse_model(model)).run(None, feeds)
    for found, wanted in zip(session.run(None, feeds), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def owners(session: onnxplug.InferenceSession) -> dict[str, str]:
    return {node.name: node.ep for node in session.explain().nodes}


# who gets them


def test_only_its_ep_is_offered_a_node(simulated: Make) -> None:
    factory = simulated(ops=frozenset({"MatMul", "Add"}))
    session = open_session(CHAIN, "name:second=CPU; op:Tanh=cpu")
    assert owners(session) == {"first": NPU, "second": CPU, "third": NPU, "last": CPU}
    check(session, CHAIN)
    # there and back, around the node that is the CPU EP's
    assert {copy.value for copy in session.explain().copies} == {"x", "a", "b", "c"}
    assert len(factory.transfer.copies) == 4
    explained = session.explain()
    second = next(node for node in explained.nodes if node.name == "second")
    assert second.pin == f"session.place name:second={CPU}"
    (passed,) = second.passed_over
    assert str(passed) == f"{NPU}: other: session.place name:second={CPU} pins it"
    assert next(node for node in explained.nodes if node.name == "first").pin == ""
    assert f"  session.place name:second={CPU}: 1 node\n" in str(explained)
    assert explained.to_dict()["pinned"][0]["nodes"] == ("Add 'second'",)


def test_a_pin_wins_over_the_order(simulated: Make) -> None:
    simulated(ops=frozenset({"MatMul", "Add", "Tanh"}))
    session = open_session(CHAIN, "name:*d=simulated", providers=[CPU, NPU])
    assert owners(session) == {"first": CPU, "second": NPU, "third": NPU, "last": CPU}
    check(session, CHAIN)


def test_copies_cost_nothing_where_the_user_decides(simulated: Make) -> None:
    costly = ep.Costs(seconds_per_copy=1.0)
    simulated(ops=frozenset({"MatMul", "Add", "Tanh"}), costs=costly)
    around = "name:first=cpu;op:Tanh=cpu"
    with pytest.warns(onnxplug.errors.EpWarning, match="2 copies"):
        session = open_session(CHAIN, around)
    assert set(owners(session).values()) == {CPU}
    session = open_session(CHAIN, f"{around};name:second=simulated")
    assert owners(session)["second"] == NPU
    check(session, CHAIN)


def test_a_group_is_lost_whole(simulated: Make) -> None:
    simulated(ops=frozenset({"MatMul", "Add"}), fuse=(("MatMul", "Add"),))
    session = open_session(CHAIN, "name:second=cpu")
    assert owners(session)["first"] == CPU
    (back,) = session.explain().given_back
    assert back.nodes == ("MatMul 'first'", "Add 'second'")
    assert "pins it" in back.reason.detail
    check(session, CHAIN)


def test_eps_are_told_before_they_answer(simulated: Make) -> None:
    told: list[Any] = []

    class Telling(ToyFactory):
        name = "TellingExecutionProvider"

        def create(self, *given: Any) -> ep.ExecutionProvider:
            provider = super().create(*given)
            ask = provider.get_capability

            def asked(graph: ep.Graph) -> ep.CapabilityReport:
                told.append([graph.assigned_to(node) for node in graph.nodes])
                return ask(graph)

            provider.get_capability = asked  # type: ignore[method-assign]
            return provider

    registry.add(Telling())
    try:
        providers = ["telling", CPU]
        open_session(CHAIN, "op:MatMul=cpu;op:Add=telling", providers=providers)
    finally:
        registry.remove(Telling.name)
    assert told[-1] == [CPU, None, CPU, None]


@pytest.mark.parametrize("seed", range(12))
def test_random_models(simulated: Make, seed: int) -> None:
    draw = np.random.default_rng(seed)
    model, feeds = draw_random(seed)
    simulated()
    names = [f"name:{node.name}" for node in model.graph.node if node.name]
    chosen = [(name, draw.choice([NPU, CPU])) for name in names if draw.random() < 0.5]
    place = ";".join(f"{name}={to}" for name, to in chosen)
    try:
        session = open_session(model, place)
    except UnassignedNode as error:  # it is pinned to what does not run it
        assert f"={NPU} pins it" in str(error)
        return
    for node in session.explain().nodes:
        for pin in filter(None, node.pin.split(", ")):
            assert pin.endswith(f"={node.ep}") or node.ep == "host"
    plain = onnxplug.InferenceSession(model, providers=[CPU])
    results = zip(session.run(None, feeds), plain.run(None, feeds), strict=True)
    for found, wanted in results:
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def draw_random(seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A model whose nodes have names, and what to feed it."""
    drawn = draw_model(seed)
    for number, node in enumerate(drawn.model.graph.node):
        node.name = f"n{number}"
    return drawn.model, drawn.feeds


# what becomes of them


def test_a_body_with_a_pinned_node_is_the_hosts(simulated: Make) -> None:
    simulated(ops=frozenset({"Add", "If", "Mul", "Neg"}))
    whole = open_session(BRANCHES)
    assert owners(whole)["cond"] == NPU
    same = open_session(BRANCHES, "name:inner=simulated")
    assert owners(same)["cond"] == NPU
    session = open_session(BRANCHES, "name:inner=cpu")
    found = owners(session)
    assert (found["inner"], found["outer"], found["before"]) == (CPU, NPU, NPU)
    assert found["cond"] == "host"
    cond = next(node for node in session.explain().nodes if node.name == "cond")
    assert "in its body is Mul 'inner'" in str(cond.passed_over[0])
    for yes in (True, False):
        check(session, BRANCHES, yes=np.array(yes))


def test_control_flow_itself(simulated: Make) -> None:
    simulated(ops=frozenset({"Add", "Mul", "Neg"}))
    found = owners(open_session(BRANCHES, "name:cond=simulated"))
    assert (found["cond"], found["inner"]) == ("host", NPU)
    with pytest.raises(UnassignedNode, match=r"If 'cond' is not run by.*\n  op: If is"):
        open_session(BRANCHES, require="name:cond=simulated")


@pytest.mark.parametrize(
    ("pattern", "on_cpu"),
    [
        ("name:call", {"call/add", "call/mul"}),
        ("op:mine.both", {"call/add", "call/mul"}),
        ("name:add", {"call/add"}),
        ("name:call/mul", {"call/mul"}),
        ("op:Add", {"call/add"}),
    ],
)
def test_functions(simulated: Make, pattern: str, on_cpu: set[str]) -> None:
    simulated(ops=frozenset({"Add", "Mul", "Neg"}))
    session = open_session(FUNCTION, f"{pattern}=cpu")
    assert {name for name, to in owners(session).items() if to == CPU} == on_cpu
    check(session, FUNCTION)


def test_what_an_operator_is_replaced_by(simulated: Make) -> None:
    body = {"ReduceMax", "Sub", "Exp", "ReduceSum", "Div"}
    simulated(ops=frozenset(body))
    session = open_session(SOFTMAX, "op:Softmax=simulated")
    found = owners(session)
    assert found.pop("neg") == CPU
    assert set(found.values()) == {NPU} and len(found) == 5
    check(session, SOFTMAX)
    with pytest.raises(UnassignedNode, match="Softmax 'soft' is not run by"):
        open_session(SOFTMAX, require="op:Softmax=simulated")


def test_with_a_part_of_the_body_it_is_not_run(simulated: Make) -> None:
    simulated(ops=frozenset({"ReduceMax", "Sub", "Exp"}))
    with pytest.raises(UnassignedNode, match="no EP runs ReduceSum 'soft/ReduceSum'"):
        open_session(SOFTMAX, "op:Softmax=simulated")


def test_what_is_computed_ahead_is_told(simulated: Make) -> None:
    simulated(ops=frozenset({"Mul"}))
    model = """
    < ir_version: 10, opset_import: ["" : 21] >
    agraph (float[2] x) => (float[2] y)
    < float[2] k = {1, 2} >
    {
        [ahead] l = Mul (k, k)  [none] m = Mul (x, k)  [now] y = Mul (x, l)
    }
    """
    session = open_session(model, require="op:Mul=simulated")
    (pinned,) = session.explain().pinned
    assert pinned.nodes == ("Mul 'now'",)
    assert pinned.gone == ("Mul 'ahead'", "Mul 'none'")
    assert "1 node, 2 computed ahead or removed" in str(session.explain())


TWINS = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x) => (float[4, 4] y)
{ [one] a = Exp (x)  [two] b = Exp (x)  [sum] y = Add (a, b) }
"""


def test_twins(simulated: Make) -> None:
    simulated(ops=frozenset({"Exp", "Add"}))
    session = open_session(TWINS, "name:two=cpu")
    assert owners(session)["one"] == CPU
    check(session, TWINS)
    with pytest.raises(OptionError, match="'one'"):
        open_session(TWINS, "name:two=cpu;name:one=simulated")


class Fusing(ToyFactory):
    """Subtracts first where it gets an ``Add`` and the ``Sub`` behind it."""

    name = "FusingExecutionProvider"

    def create(self, *given: Any) -> ep.ExecutionProvider:
        provider = super().create(*given)
        provider.preferences = ep.Preferences(rewrite=self.rewrite)  # type: ignore[misc]
        return provider

    def rewrite(
        self, editor: ep.GraphEditor, nodes: Sequence[ep.Node]
    ) -> Sequence[str]:
        add, sub, *others = editor.graph.nodes
        if (add.op_type, sub.op_type) != ("Add", "Sub"):
            return []
        reads, makes = (add.inputs[0], sub.inputs[1]), ("less",)
        less = editor.make_node("Sub", reads, makes, name="less")
        reads, makes = ("less", add.inputs[1]), sub.outputs
        last = editor.make_node("Add", reads, makes, name="last")
        editor.replace_nodes([less, last, *others])
        return ["a pair"]


FUSED = """
< ir_version: 10, opset_import: ["" : 21] >
agraph (float[4, 4] x, float[1] z) => (float[4, 4] y)
{ [add] a = Add (x, x)  [sub] b = Sub (a, z)  [abs] y = Abs (b) }
"""


@pytest.fixture
def fusing() -> Iterator[str]:
    registry.add(Fusing())
    yield Fusing.name
    registry.remove(Fusing.name)


def test_what_an_ep_makes_of_nodes_is_pinned_as_they_were(fusing: str) -> None:
    place = f"name:add={fusing};name:sub={fusing}"
    # the CPU EP is asked first, and would have the new nodes
    session = open_session(FUSED, place, providers=[CPU, fusing])
    found = {node.name: (node.ep, node.pin) for node in session.explain().nodes}
    both = f"session.place name:add={fusing}, session.place name:sub={fusing}"
    assert found == {"less": (fusing, both), "last": (fusing, both), "abs": (CPU, "")}
    assert session.explain().pinned[0].gone == ()
    check(session, FUSED, z=np.array([3], np.float32))


# requirements


def test_all_that_is_not_met_is_listed_with_each_reason(simulated: Make) -> None:
    model = BRANCHES.replace("[after] y = Add", "[after] y = Sub")
    refuse = {"Mul": ep.Reason(ep.RefusalCode.DTYPE, "no floats")}
    simulated(ops=frozenset({"Add", "Mul"}), refuse=refuse)
    place = ";".join(f"op:{each}=simulated" for each in ("Mul", "Neg", "Sub"))
    with pytest.raises(UnassignedNode) as raised:
        open_session(model, require=place)
    assert raised.value.reasons == {
        "Sub 'after'": ["op: Sub is not among Knobs.ops"],
        "Mul 'inner'": ["dtype: no floats"],
        "Neg 'outer'": ["op: Neg is not among Knobs.ops"],
    }
    assert "Mul 'inner' in the body 'one' is not run by Simulated" in str(raised.value)


def test_what_is_declined_is_not_met(simulated: Make) -> None:
    simulated(ops=frozenset({"MatMul", "Add"}), decline_ops=frozenset({"Add"}))
    assert owners(open_session(CHAIN))["second"] == CPU
    with pytest.raises(UnassignedNode, match="Add 'second' is not run by"):
        open_session(CHAIN, require="op:Add=simulated")


# errors


@pytest.mark.parametrize(
    ("place", "require", "words"),
    [
        ("op:Tahn=cpu", "", r"'op:Tahn', which matches no node.*mean 'op:Tanh'"),
        ("", "name:Tanh=cpu", r"session\.require.*did you mean 'op:Tanh'"),
        ("name:secund=cpu", "", r"did you mean 'name:second'"),
        ("op:Tanh=OpenVINO", "", rf"{OPENVINO}.*not in the session, which has {NPU}"),
        ("op:Tanh=nonsense", "", r"=nonsense pins nodes to an EP that is not in"),
        (
            "op:Tanh=cpu",
            "name:l*=simulated",
            rf"session\.place op:Tanh={CPU} and session\.require name:l\*={NPU} "
            r"contradict each other: both match Tanh 'last'",
        ),
    ],
)
def test_pins_that_cannot_hold(
    simulated: Make, place: str, require: str, words: str
) -> None:
    simulated(ops=frozenset({"MatMul"}))
    with pytest.raises(OptionError, match=words):
        open_session(CHAIN, place, require)


def test_text_that_is_no_pin() -> None:
    with pytest.raises(OptionError, match="begins with 'op:'"):
        open_session(CHAIN, "Tanh=cpu")


def test_the_ep_fails(simulated: Make) -> None:
    simulated(ops=frozenset({"MatMul"}), fail_at=Stage.COMPILE)
    with (
        pytest.warns(onnxplug.errors.EpWarning),
        pytest.raises(OptionError, match=r"not in the session.*: it failed: "),
    ):
        open_session(CHAIN, "op:MatMul=simulated")
    gc.collect()


# policies, and what is kept


def test_a_policy_goes_on_to_the_ep_of_a_pin(simulated: Make) -> None:
    everything = frozenset({"MatMul", "Add", "Tanh"})
    simulated(ops=everything)
    simulated(name="OtherExecutionProvider", ops=everything)

    def policy(pairs: Sequence[ep.EpDevice], info: Any) -> list[ep.EpDevice]:
        wanted = [NPU, "OtherExecutionProvider"]
        return sorted(
            (each for each in pairs if each.ep_name in wanted),
            key=lambda each: wanted.index(each.ep_name),
        )

    plain = open_session(CHAIN, providers=None, policy=policy)
    assert set(owners(plain).values()) == {NPU}
    session = open_session(CHAIN, "name:second=other", providers=None, policy=policy)
    assert owners(session)["second"] == "OtherExecutionProvider"
    check(session, CHAIN)


def test_no_other_ep_serves_what_is_pinned(lab: Lab) -> None:
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.serve_while_compiling", "1")
    options.add_session_config_entry("session.place", f"op:*={EP}")
    session = onnxplug.InferenceSession(DOUBLE, options, [EP])
    run(session, 7)
    (note,) = counted(session).notes
    assert f"{CPU}: other: session.place op:*={EP} pins it" in note
    assert counted(session).elsewhere == {}
    assert lab.compiled == [((7, 3),)]


def test_compiled_models(simulated: Make, tmp_path: Path) -> None:
    simulated(ops=frozenset({"MatMul", "Add"}), serialises=True)
    path, target = tmp_path / "m.onnx", tmp_path / "m_ctx.onnx"
    onnx.save(onnx.parser.parse_model(CHAIN), path)
    options = onnxplug.SessionOptions()
    entries: Mapping[str, str] = {
        "session.place": "name:second=cpu",
        "ep.context_enable": "1",
        "ep.context_file_path": str(target),
    }
    for key, value in entries.items():
        options.add_session_config_entry(key, value)
    onnxplug.InferenceSession(path, options, [NPU, CPU]).close()
    kinds = [node.op_type for node in onnx.load(target).graph.node]
    assert kinds == ["EPContext", "Add", "EPContext", "Tanh"]
    session = open_session(target, require="op:*.EPContext=simulated; op:Add=cpu")
    check(session, CHAIN)
    with pytest.raises(OptionError, match=r"matches no node.*compiled already"):
        open_session(target, "name:first=cpu")
    with pytest.raises(UnassignedNode, match="it was compiled by Simulated"):
        open_session(target, "op:com.microsoft.EPContext=cpu")


def test_a_session_does_not_begin_as_one_with_other_pins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ONNXPLUG_CPU_KEEP_PLANS", "1")
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(start, "_around", surroundings)
    monkeypatch.setattr(files, "_TICK", 0)
    path = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(CHAIN), path)
    for _ in range(2):
        kept = onnxplug.InferenceSession(path)
        kept.run(None, {"x": X})
    assert isinstance(kept._runner, StartRunner)
    with pytest.raises(OptionError, match="matches no node"):
        open_session(path, "op:Nothing=cpu", providers=None)


def test_openvino() -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("onnxplug_openvino")
    providers = [OPENVINO, CPU]
    assert set(owners(open_session(CHAIN, providers=providers)).values()) == {OPENVINO}
    session = open_session(
        CHAIN, "op:Add=cpu", "op:MatMul=OpenVINO", providers=providers
    )
    assert owners(session) == {
        "first": OPENVINO, "second": CPU, "third": OPENVINO, "last": OPENVINO,
    }  # fmt: skip
    check(session, CHAIN)
