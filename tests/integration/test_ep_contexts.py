"""Models compiled ahead: written, loaded again, also beside other EPs, and refused."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import (
    ContextMismatch,
    EpError,
    EpWarning,
    Fail,
    ModelRequiresCompilation,
    NotImplemented,
    OptionError,
    UnassignedNode,
)
from onnxplug_testing import SimulatedFailure, Stage

from .compiled_models import (
    BRANCHES,
    EP,
    FEED,
    ON_DEVICE,
    SANDWICH,
    attribute,
    change,
    compile_ahead,
    contexts,
    expected,
    options,
    save,
)

CPU = "CPUExecutionProvider"


@pytest.fixture
def source(tmp_path: Path) -> str:
    return save(SANDWICH, tmp_path / "m.onnx")


def run(model: Any, providers: Any = (EP,), **entries: str) -> Any:
    with onnxplug.InferenceSession(model, options(**entries), providers) as session:
        return session.run(None, FEED)[0]


# written and loaded again


@pytest.mark.parametrize("embed", ["0", "1"])
def test_what_was_compiled_runs_without_being_compiled(
    simulated, source: str, tmp_path: Path, embed: str
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx", ep_context_embed_mode=embed)
    model = onnx.load(target)
    assert [node.op_type for node in model.graph.node] == [
        "EPContext", "Sin", "EPContext",
    ]  # fmt: skip
    assert not model.graph.initializer  # they are in what was compiled
    (tmp_path / "m.onnx").unlink()
    # nothing is among the operators of this one
    onnxplug.plugins.registry.remove(EP)
    factory = simulated(ops=frozenset())
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        found = session.run(None, FEED)[0]
        report = session.explain()
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    assert len(factory.created[0].partitions) == 2
    where = "within the model" if embed == "1" else f"in 'c_{EP}.bin'"
    assert [part.origin for part in report.partitions] == [where, "", where]
    assert f"restored from what is {where}" in str(report)


def test_another_process_loads_it(simulated, source: str, tmp_path: Path) -> None:
    simulated(ops=ON_DEVICE)
    compile_ahead(source, tmp_path / "c.onnx")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("c.onnx", f"c_{EP}.bin"):
        shutil.move(tmp_path / name, elsewhere / name)
    program = """
import json, sys, numpy as np, onnxplug
from onnxplug.plugins import registry
from onnxplug_testing import Knobs, SimulatedFactory
registry.add(SimulatedFactory(Knobs(ops=frozenset())))
with onnxplug.InferenceSession(sys.argv[1], providers=[sys.argv[3]]) as session:
    x = np.array(json.loads(sys.argv[2]), np.float32)
    print(json.dumps(session.run(None, {"x": x})[0].tolist()))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, elsewhere / "c.onnx",
         json.dumps(FEED["x"].tolist()), EP],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = np.array(json.loads(done.stdout), np.float32)
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


@pytest.mark.parametrize("value", [True, False])
def test_partitions_in_bodies_are_compiled_too(
    simulated, tmp_path: Path, value: bool
) -> None:
    simulated(ops=ON_DEVICE)
    source = save(BRANCHES, tmp_path / "m.onnx")
    target = compile_ahead(source, tmp_path / "c.onnx")
    (branch,) = [n for n in onnx.load(target).graph.node if n.op_type == "If"]
    bodies = {a.name: [n.op_type for n in a.g.node] for a in branch.attribute}
    assert bodies == {
        "then_branch": ["EPContext"],
        "else_branch": ["Sin", "EPContext"],
    }
    feed = {"c": np.array(value), "x": np.array([1, 2], np.float32)}
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=frozenset())
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        found = session.run(None, feed)[0]
    np.testing.assert_allclose(found, expected(BRANCHES, feed), rtol=1e-6)


def test_the_session_that_writes_runs_as_any_other(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    found = run(source, ep_context_enable="1")
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    assert (tmp_path / "m_ctx.onnx").exists()  # ONNX Runtime's name
    np.testing.assert_array_equal(run(str(tmp_path / "m_ctx.onnx")), found)


def test_nodes_have_the_attributes_that_onnx_runtime_documents(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE, engine={"simulator": "7.5"})
    target = compile_ahead(
        source, tmp_path / "c.onnx", ep_context_node_name_prefix="left_"
    )
    model = onnx.load(target)
    first, second = contexts(target)
    assert [node.name for node in (first, second)] == [f"left_{EP}_0", f"left_{EP}_1"]
    assert first.domain == "com.microsoft"
    assert (list(first.input), list(first.output)) == (["x"], ["a", "b"])
    said = {a.name: onnx.helper.get_attribute_value(a) for a in first.attribute}
    name = said.pop("partition_name").decode()
    assert name.startswith(f"left_{EP}_")
    assert name != attribute(second, "partition_name").decode()
    assert said == {
        "source": EP.encode(),
        "main_context": 1,
        "embed_mode": 0,
        "ep_cache_context": f"c_{EP}.bin".encode(),
        "ep_sdk_version": b"simulator 7.5",
        "hardware_architecture": b"npu",
        "onnx_model_filename": b"m.onnx",
        "notes": b"2 nodes, compiled by onnxplug",
    }
    assert {o.domain: o.version for o in model.opset_import}["com.microsoft"] == 1
    metadata = {each.key: each.value for each in model.metadata_props}
    assert metadata.pop("author") == "somebody"
    (key, info), *others = metadata.items()
    assert not others
    assert key == f"ep_compatibility_info.{EP}"
    assert json.loads(info)["engine"] == {"simulator": "7.5"}
    assert model.producer_name == "maker"


def test_what_no_ep_compiled_stays_as_it_was(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=frozenset({"MatMul"}))
    said = options(
        ep_context_enable="1",
        ep_context_file_path=str(tmp_path / "c.onnx"),
        ep_context_model_external_initializers_file_name="rest.bin",
    )
    with onnxplug.InferenceSession(source, said, [EP]) as session:
        left = session.explain().not_written
        text = str(session.explain())
        data = session.explain().to_dict()
    model = onnx.load(tmp_path / "c.onnx")
    operators = [node.op_type for node in model.graph.node]
    assert operators == ["EPContext", "Relu", "Sin", "Add", "Mul"]
    assert [tensor.name for tensor in model.graph.initializer] == ["v"]
    assert [each.ep for each in left] == [CPU]
    assert left[0].reason.detail == "the EP serialises nothing"
    assert f"not compiled into the model: partition 1 of {CPU} (other: the EP" in text
    assert data["not_written"][0]["reason"]["code"] == "other"
    found = run(str(tmp_path / "c.onnx"))
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


def test_large_initializers_of_other_nodes_may_be_beside_the_model(
    simulated, tmp_path: Path
) -> None:
    simulated(ops=frozenset({"MatMul"}))
    large, other = (np.full((3, 400), n, np.float32) for n in (2, 3))
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            [
                onnx.helper.make_node("MatMul", ["x", "w"], ["a"]),
                onnx.helper.make_node("Sin", ["l"], ["sl"]),
                onnx.helper.make_node("Max", ["a", "l", "o", "x1"], ["y"]),
            ],
            "g",
            [
                onnx.helper.make_tensor_value_info("x", 1, [3, 3]),
                onnx.helper.make_tensor_value_info("x1", 1, [3, 1]),
            ],
            [onnx.helper.make_tensor_value_info("y", 1, [3, 400])],
            [
                onnx.numpy_helper.from_array(np.ones((3, 400), np.float32), "w"),
                onnx.numpy_helper.from_array(large, "l"),
                onnx.numpy_helper.from_array(other, "o"),
            ],
        ),
        opset_imports=[onnx.helper.make_opsetid("", 20)],
        ir_version=9,
    )
    target = compile_ahead(
        model,
        tmp_path / "c.onnx",
        ep_context_model_external_initializers_file_name="rest.bin",
    )
    found = onnx.load(target, load_external_data=False).graph.initializer
    places = {
        each.name: {entry.key: entry.value for entry in each.external_data}
        for each in found
    }
    assert {p["location"] for p in places.values()} == {"rest.bin"}
    assert {p["offset"] for p in places.values()} == {"0", "8192"}
    feed = {"x": np.eye(3, dtype=np.float32), "x1": np.zeros((3, 1), np.float32)}
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        assert (session.run(None, feed)[0] == 3).all()


def test_a_partition_is_found_by_a_node_that_leaves_its_bytes_to_another(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    model = onnx.load(target)
    second = [n for n in model.graph.node if n.op_type == "EPContext"][1]
    for each in list(second.attribute):
        if each.name in ("main_context", "ep_cache_context"):
            second.attribute.remove(each)
    second.attribute.append(onnx.helper.make_attribute("main_context", 0))
    onnx.save(model, target)
    np.testing.assert_allclose(run(target), expected(SANDWICH, FEED), rtol=1e-6)


def test_a_compiled_model_can_be_written_again(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    once = compile_ahead(source, tmp_path / "c.onnx")
    (tmp_path / "d").mkdir()
    twice = compile_ahead(once, tmp_path / "d" / "e.onnx", ep_context_embed_mode="1")
    shutil.rmtree(tmp_path / "d" / "x", ignore_errors=True)
    assert len(contexts(twice)) == 2
    np.testing.assert_allclose(run(twice), expected(SANDWICH, FEED), rtol=1e-6)


def test_any_value_can_be_asked_for_in_a_session_that_writes(
    simulated, source: str, tmp_path: Path
) -> None:
    """By which it compiles anew, and writes nothing over what is there."""
    simulated(ops=ON_DEVICE)
    target = tmp_path / "c.onnx"
    said = options(ep_context_enable="1", ep_context_file_path=str(target))
    with onnxplug.InferenceSession(source, said, [EP]) as session:
        before = target.read_bytes()
        assert session.run(["d"], FEED)[0].shape == (2, 4)
    assert target.read_bytes() == before
    with onnxplug.InferenceSession(str(target), providers=[EP]) as session:
        assert session.run(["c"], FEED)[0].shape == (2, 4)  # the CPU EP's


def test_sessions_share_what_is_the_same(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    more = save(SANDWICH.replace("[fifth] y = Mul (d, v)", "[fifth] y = Sub (d, v)"),
                tmp_path / "n.onnx")  # fmt: skip
    first = compile_ahead(source, tmp_path / "c.onnx", ep_share_ep_contexts="1")
    last = compile_ahead(
        more,
        tmp_path / "d.onnx",
        ep_share_ep_contexts="1",
        ep_stop_share_ep_contexts="1",
    )
    after = compile_ahead(source, tmp_path / "e.onnx", ep_share_ep_contexts="1",
                          ep_stop_share_ep_contexts="1")  # fmt: skip
    files = {
        path: [attribute(node, "ep_cache_context").decode() for node in contexts(path)]
        for path in (first, last, after)
    }
    c, d, e = (f"{stem}_{EP}.bin" for stem in "cde")
    assert files == {first: [c, c], last: [c, d], after: [e, e]}
    for path in files:
        np.testing.assert_allclose(
            run(path, ep_share_ep_contexts="1"),
            expected(SANDWICH if path != last else more_text(), FEED),
            rtol=1e-6,
        )


def more_text() -> str:
    return SANDWICH.replace("[fifth] y = Mul (d, v)", "[fifth] y = Sub (d, v)")


def test_a_session_that_is_made_anew_writes_nothing_again(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    said = options(ep_context_enable="1", ep_context_file_path=str(tmp_path / "c.onnx"))
    with onnxplug.InferenceSession(source, said, [EP]) as session:
        with pickle.loads(pickle.dumps(session)) as copy:
            assert copy.run(None, FEED)[0].shape == (2, 4)
        session.set_providers([CPU])
        assert session.run(None, FEED)[0].shape == (2, 4)
    assert len(contexts(tmp_path / "c.onnx")) == 2


def test_a_compiled_partition_stays_where_it_is_whatever_its_copies_cost(
    simulated, source: str, tmp_path: Path
) -> None:
    """Nobody else could run it."""
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    onnxplug.plugins.registry.remove(EP)
    simulated(ops=ON_DEVICE, costs=ep.Costs(seconds_per_copy=1, seconds_per_byte=1))
    with onnxplug.InferenceSession(target, providers=[EP]) as session:
        owners = [node.ep for node in session.explain().nodes]
        found = session.run(None, FEED)[0]
    assert owners == [EP, CPU, EP]
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


def test_what_is_shared_is_not_looked_for_in_a_file_written_over(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    target = tmp_path / "c.onnx"
    compile_ahead(source, target, ep_share_ep_contexts="1")
    target.unlink()
    compile_ahead(save(BRANCHES, tmp_path / "b.onnx"), target)
    again = compile_ahead(source, tmp_path / "d.onnx", ep_share_ep_contexts="1")
    (tmp_path / f"d_{EP}.bin").unlink()
    last = compile_ahead(
        source,
        tmp_path / "e.onnx",
        ep_share_ep_contexts="1",
        ep_stop_share_ep_contexts="1",
    )
    files = {attribute(node, "ep_cache_context") for node in contexts(again)}
    assert files == {f"d_{EP}.bin".encode()}
    np.testing.assert_allclose(run(last), expected(SANDWICH, FEED), rtol=1e-6)


# what is not written


def test_a_file_that_is_there_is_not_written_over(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    (tmp_path / "c.onnx").write_bytes(b"mine")
    with pytest.raises(Fail, match="exists already; remove it"):
        compile_ahead(source, tmp_path / "c.onnx")
    assert (tmp_path / "c.onnx").read_bytes() == b"mine"
    with pytest.raises(OptionError, match=r"ep\.context_file_path is .* the same file"):
        compile_ahead(source, Path(source))


def test_a_model_in_memory_needs_a_path(simulated, source: str) -> None:
    simulated(ops=ON_DEVICE)
    with pytest.raises(OptionError, match=r"set ep\.context_file_path"):
        run(Path(source).read_bytes(), ep_context_enable="1")


def test_nothing_is_written_if_no_ep_serialises(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE, serialises=False)
    with pytest.warns(EpWarning, match="was not written .*EP serialises nothing; CPU"):
        compile_ahead(source, tmp_path / "c.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def test_what_an_ep_declines_to_serialise_is_left_with_its_reason(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE, kernels={"Relu": lambda x: np.maximum(x, 0)})
    with pytest.warns(EpWarning, match="functions that a test supplies"):
        compile_ahead(source, tmp_path / "c.onnx")


def test_a_failure_to_serialise_is_the_eps(
    simulated, source: str, tmp_path: Path
) -> None:
    factory = simulated(ops=ON_DEVICE, fail_at=Stage.SERIALISE)
    with pytest.raises(EpError, match="failed in serialise: SimulatedFailure") as got:
        compile_ahead(source, tmp_path / "c.onnx")
    assert got.value.stage == "serialise"
    assert isinstance(got.value.__cause__, SimulatedFailure)
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]
    assert factory.created[0].closed


# who may restore it


def test_the_ep_that_is_missing_is_named(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    with pytest.raises(NotImplemented, match="choose it: providers") as got:
        run(target, [CPU])
    assert isinstance(got.value, UnassignedNode)
    assert "not compatible with any execution provider" in str(got.value)
    onnxplug.plugins.registry.remove(EP)
    with pytest.raises(UnassignedNode, match="no installed plugin supplies"):
        run(target, [CPU])
    simulated()
    change(target, "source", "OpenVINOExecutionProvider")
    with pytest.raises(UnassignedNode, match="'OpenVINOExecutionProvider'"):
        run(target)


def test_another_ep_does_not_get_it_whatever_it_claims(
    simulated, source: str, tmp_path: Path
) -> None:
    other = "OtherExecutionProvider"
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    greedy = ON_DEVICE | {"com.microsoft.EPContext"}
    simulated(name=other, ops=greedy)
    with (
        pytest.warns(EpWarning, match=f"it was compiled by {EP}"),
        onnxplug.InferenceSession(target, providers=[other, EP]) as session,
    ):
        owners = [node.ep for node in session.explain().nodes]
        found = session.run(None, FEED)[0]
    assert owners == [EP, CPU, EP]
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)


@pytest.mark.parametrize(
    ("knobs", "settings", "reason"),
    [
        ({"engine": {"simulator": "2.0"}}, {}, "engine simulator '1.0', and here it"),
        ({}, {"level": 2}, "option 'level' as 1, and here it is 2"),
        ({}, {"share": 0.5}, "option 'share' as 1.0, and here it is 0.5"),
        ({"device_type": ep.DeviceType.GPU}, {}, "device type 'npu', and here it is"),
        ({"device_count": 2}, {}, "compiled for 1 devices, and here the EP has 2"),
    ],
)
def test_another_engine_device_or_option_is_refused_with_the_reason(
    simulated,
    source: str,
    tmp_path: Path,
    knobs: dict[str, Any],
    settings: dict[str, Any],
    reason: str,
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    onnxplug.plugins.registry.remove(EP)
    factory = simulated(ops=ON_DEVICE, fail_at=Stage.RESTORE, **knobs)
    with pytest.raises(ContextMismatch, match=reason) as got:
        run(target, [(EP, settings)])
    assert f"was compiled for {EP}, and cannot be used here" in str(got.value)
    assert isinstance(got.value, ModelRequiresCompilation)
    assert factory.created[-1].closed


def test_options_that_are_not_compiled_in_may_differ(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    run(target, [(EP, {"tag": "other", "verbose": True})])


def test_what_would_be_better_compiled_anew_is_used_with_a_warning(
    simulated, source: str, tmp_path: Path
) -> None:
    verdict = ep.Compatibility.RECOMPILE, "the driver is newer"
    simulated(ops=ON_DEVICE, compatibility=verdict)
    target = compile_ahead(source, tmp_path / "c.onnx")
    with pytest.warns(EpWarning, match="anew: the driver is newer") as caught:
        found = run(target)
    assert len(caught) == 1  # for two partitions
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    with pytest.raises(ContextMismatch, match="the driver is newer; do so, or leave"):
        run(target, session_fail_on_suboptimal_compiled_model="1")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ((ep.Compatibility.UNSUPPORTED, "no such unit"), "used here: no such unit;"),
        ((ep.Compatibility.NOT_APPLICABLE, ""), "the EP does not say why"),
    ],
)
def test_what_an_ep_does_not_support_it_is_not_given(
    simulated, source: str, tmp_path: Path, verdict: Any, reason: str
) -> None:
    simulated(ops=ON_DEVICE, compatibility=verdict, fail_at=Stage.RESTORE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    with pytest.raises(ContextMismatch, match=reason):
        run(target)


def test_an_answer_that_is_none_is_a_failure_of_the_ep(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE, compatibility="good enough")
    target = compile_ahead(source, tmp_path / "c.onnx")
    with pytest.raises(EpError, match="failed in check"):
        run(target)


def test_a_failure_to_restore_is_the_eps(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE, fail_at=Stage.RESTORE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    with pytest.raises(EpError, match=r"to restore com\.microsoft\.EPContext") as got:
        run(target)
    assert got.value.stage == "restore"


# where nothing may be compiled


def test_sessions_can_be_kept_from_compiling(
    simulated, source: str, tmp_path: Path
) -> None:
    simulated(ops=ON_DEVICE)
    target = compile_ahead(source, tmp_path / "c.onnx")
    forbidden = {"session_disable_model_compile": "1"}
    # the CPU EP compiles nothing that could be compiled ahead
    found = run(target, **forbidden)
    np.testing.assert_allclose(found, expected(SANDWICH, FEED), rtol=1e-6)
    run(source, [CPU], **forbidden)
    with pytest.raises(
        ModelRequiresCompilation, match=f"User disabled EP compilation but EP '{EP}'"
    ):
        run(source, **forbidden)


def test_nothing_warns_without_need(simulated, source: str, tmp_path: Path) -> None:
    simulated(ops=ON_DEVICE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(compile_ahead(source, tmp_path / "c.onnx"))
