"""Sessions as people use them: what they are told, what they ask, how they end."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import (
    EpError,
    EpWarning,
    InputError,
    InvalidModel,
    ModelNotFound,
    NodeError,
    OptionError,
    PluginNotFound,
    RunError,
    UnassignedNode,
    UnknownOutput,
    UnsupportedModel,
)
from onnxplug_testing import SimulatedFactory, Stage

CPU = "CPUExecutionProvider"
SIMULATED = "SimulatedExecutionProvider"

MakeSimulated = Callable[..., SimulatedFactory]

MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21], producer_name: "test",
      metadata_props: ["key" : "value"] >
    agraph (float[batch, 2] x, float[2, 2] w = {1, 0, 0, 1})
        => (float[batch, 2] y, float[batch, 2] z)
    {
        [product] y = MatMul (x, w)
        [bend] z = Relu (y)
    }
    """
)
X = np.array([[1, -2], [3, -4]], np.float32)


def test_all_outputs_or_those_asked_for_in_that_order() -> None:
    session = onnxplug.InferenceSession(MODEL)
    y, z = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, X)
    np.testing.assert_array_equal(z, np.maximum(X, 0))
    again = session.run(["z", "y", "z"], {"x": X})
    np.testing.assert_array_equal(again[1], y)
    np.testing.assert_array_equal(again[0], again[2])
    with pytest.raises(UnknownOutput, match=r"name: 'q'; .*\['y', 'z'\]"):
        session.run(["q"], {"x": X})


def test_every_source_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(MODEL, path)
    data = MODEL.SerializeToString()
    with path.open("rb") as file:
        for source in (path, str(path), data, bytearray(data), MODEL, file):
            session = onnxplug.InferenceSession(source)
            np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], X)


def test_what_the_model_tells() -> None:
    session = onnxplug.InferenceSession(MODEL)
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["batch", 2])
    assert str(x) == "NodeArg(name='x', type='tensor(float)', shape=['batch', 2])"
    assert [arg.name for arg in session.get_outputs()] == ["y", "z"]
    assert [arg.name for arg in session.get_overridable_initializers()] == ["w"]
    meta = session.get_modelmeta()
    assert meta.producer_name == "test"
    assert meta.custom_metadata_map == {"key": "value"}
    assert session.get_providers() == [CPU]
    assert session.get_provider_options() == {
        CPU: {
            "compile": "True",
            "fp32_matmul": "auto",
            "precision": "auto",
            "winograd": "2x2",
        }
    }


@pytest.mark.parametrize("declared", ["unk__215, 2", "N, unk__3", "unk__0, M"])
def test_sizes_of_outputs_have_the_names_that_the_model_gives(declared: str) -> None:
    """Also those that a converter made up, such as TensorFlow's; as in ONNX Runtime."""
    model = onnx.parser.parse_model(
        f"""
        < ir_version: 8, opset_import: ["" : 17] >
        agraph (float[unk__214, 2] x) => (float[{declared}] y)
        {{ a = Relu (x) y = Exp (a) }}
        """
    ).SerializeToString()
    ours, theirs = (
        runtime.InferenceSession(model, providers=[CPU]).get_outputs()[0].shape
        for runtime in (onnxplug, onnxruntime)
    )
    assert ours == theirs


def test_an_overridable_initializer_is_used_and_overridden() -> None:
    session = onnxplug.InferenceSession(MODEL)
    doubled = 2 * np.eye(2, dtype=np.float32)
    (y,) = session.run(["y"], {"x": X, "w": doubled})
    np.testing.assert_array_equal(y, 2 * X)


def test_results_are_the_callers_own() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2, 2] x) => (float[2, 2] same, float[2, 2] turned, float[2] c)
        <float[2] k = {1, 2}>
        {
            same = Identity (x)
            turned = Transpose (x)
            c = Identity (k)
        }
        """
    )
    session = onnxplug.InferenceSession(model)
    fed = X.copy()
    first = session.run(None, {"x": fed})
    for array in first:
        array[:] = 7
    np.testing.assert_array_equal(fed, X)
    same, turned, constant = session.run(None, {"x": fed})
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(turned, X.T)
    np.testing.assert_array_equal(constant, [1, 2])


@pytest.mark.parametrize(
    ("source", "kind", "message"),
    [
        ("no/such.onnx", ModelNotFound, r"no/such\.onnx"),
        (b"", InvalidModel, "found 0 graphs"),
        (b"\xff\xff\xff", InvalidModel, "byte"),
    ],
)
def test_models_that_cannot_be_loaded(
    source: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        onnxplug.InferenceSession(source)


def test_a_model_newer_than_this_onnxplug_is_refused_with_both_versions() -> None:
    newer = onnx.ModelProto()
    newer.CopyFrom(MODEL)
    newer.opset_import[0].version = 99
    with pytest.raises(UnsupportedModel, match=r"99.*28"):
        onnxplug.InferenceSession(newer)


def test_an_operator_nobody_knows_is_named_with_every_eps_reason() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21, "my.domain" : 1] >
        agraph (float[2] x) => (float[2] y) { [odd] y = my.domain.Odd (x) }
        """
    )
    with pytest.raises(
        UnassignedNode, match=r"no EP runs my\.domain\.Odd 'odd':\s+CPU.*op:"
    ) as raised:
        onnxplug.InferenceSession(model)
    assert "my.domain.Odd 'odd'" in raised.value.reasons


def test_a_failing_node_is_named_with_its_inputs() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[N] x, int64[2] shape) => (float[M, K] y)
        { [bend] r = Relu (x) [fold] y = Reshape (r, shape) }
        """
    )
    session = onnxplug.InferenceSession(model)
    feed = {"x": np.zeros(6, np.float32), "shape": np.array([4, 2])}
    with pytest.raises(
        NodeError, match=r"Reshape 'fold' failed on float32\[6\], int64"
    ):
        session.run(None, feed)


def test_an_unknown_ep_is_an_error_that_lists_the_installed() -> None:
    with pytest.raises(PluginNotFound, match="CPUExecutionProvider"):
        onnxplug.InferenceSession(MODEL, providers=["NoSuchExecutionProvider"])


def test_a_missing_ep_before_one_that_works_is_one_warning() -> None:
    with pytest.warns(EpWarning, match="NoSuch.* is not used; CPU") as caught:
        session = onnxplug.InferenceSession(MODEL, providers=["NoSuch", "cpu"])
    assert len(caught) == 1
    assert session.get_providers() == [CPU]
    failed = session.explain().eps[0]
    assert (failed.ep, failed.state) == ("NoSuch", "failed")


def test_error_on_failure_makes_it_an_error() -> None:
    strict = onnxplug.provider("NoSuch", error_on_failure=True)
    with pytest.raises(PluginNotFound):
        onnxplug.InferenceSession(MODEL, providers=[strict, "cpu"])


@pytest.mark.parametrize(
    "stage", [Stage.DEVICES, Stage.CREATE, Stage.GET_CAPABILITY, Stage.COMPILE]
)
def test_an_ep_that_fails_is_replaced_only_by_one_that_was_named(
    simulated: MakeSimulated, stage: Stage
) -> None:
    simulated(fail_at=stage)
    with pytest.raises(EpError, match=f"{SIMULATED} failed .*{stage}|{SIMULATED}"):
        onnxplug.InferenceSession(MODEL, providers=[SIMULATED])
    with pytest.warns(EpWarning, match=SIMULATED) as caught:
        session = onnxplug.InferenceSession(MODEL, providers=[SIMULATED, CPU])
    assert len(caught) == 1
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], X)
    assert {outcome.state for outcome in session.explain().eps} == {"failed", "used"}
    strict = onnxplug.provider(SIMULATED, error_on_failure=True)
    with pytest.raises(EpError):
        onnxplug.InferenceSession(MODEL, providers=[strict, CPU])


def test_an_ep_that_claims_nothing_is_one_warning_with_its_reasons(
    simulated: MakeSimulated,
) -> None:
    simulated(ops=frozenset({"Tan"}))
    with pytest.warns(EpWarning, match=r"runs no node .*op: ") as caught:
        session = onnxplug.InferenceSession(MODEL, providers=[SIMULATED])
    assert len(caught) == 1
    assert session.explain().eps[0].state == "claimed nothing"
    strict = onnxplug.provider(SIMULATED, error_on_failure=True)
    with pytest.raises(EpError, match="runs no node"):
        onnxplug.InferenceSession(MODEL, providers=[strict])


def test_without_the_cpu_fallback_every_node_must_be_taken(
    simulated: MakeSimulated,
) -> None:
    simulated(ops=frozenset({"MatMul"}))
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    with pytest.raises(UnassignedNode, match=r"Relu 'bend' was replaced .*\n.*Relu is"):
        onnxplug.InferenceSession(MODEL, options, providers=[SIMULATED])


def test_unknown_options_and_entries_are_errors() -> None:
    with pytest.raises(OptionError, match="has no option 'threads'"):
        onnxplug.InferenceSession(MODEL, providers=[("cpu", {"threads": 1})])
    with pytest.raises(OptionError, match=r"did you mean 'session\.disable"):
        onnxplug.SessionOptions().add_session_config_entry(
            "session.disable_cpu_fallback", "1"
        )
    with pytest.raises(OptionError, match="did you mean 'fold'"):
        onnxplug.InferenceSession(MODEL, disabled_optimizers=["folds"])


def test_an_island_that_is_not_worth_its_copies_is_given_back(
    simulated: MakeSimulated,
) -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[4] x) => (float[4] y)
        { a = Erf (x) b = Neg (a) [back] y = Erf (b) }
        """
    )
    ops = frozenset({"Neg"})
    simulated(ops=ops, costs=ep.Costs(seconds_per_copy=1e-3))
    with pytest.warns(EpWarning, match="runs no node"):
        session = onnxplug.InferenceSession(model, providers=[SIMULATED])
    explanation = session.explain()
    (back,) = explanation.given_back
    assert back.reason.code == "cost" and "2 copies" in back.reason.detail
    assert not explanation.copies
    assert len(explanation.partitions) == 1


def test_a_closed_session_says_so_and_a_dropped_one_is_closed() -> None:
    with onnxplug.InferenceSession(MODEL) as session:
        session.run(None, {"x": X})
    session.close()
    with pytest.raises(RunError, match="closed"):
        session.run(None, {"x": X})
    dropped = onnxplug.InferenceSession(MODEL)
    reference = weakref.ref(dropped)
    del dropped
    gc.collect()
    assert reference() is None


def test_threads_share_a_session() -> None:
    session = onnxplug.InferenceSession(MODEL)
    wrong: list[int] = []

    def work(number: int) -> None:
        for step in range(200):
            fed = np.full((3, 2), number * 1000 + step, np.float32)
            if not np.array_equal(session.run(["z"], {"x": fed})[0], fed):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_the_report_is_plain_data() -> None:
    import json

    report = onnxplug.InferenceSession(MODEL).explain()
    data = json.loads(json.dumps(report.to_dict()))
    assert [node["ep"] for node in data["nodes"]] == [CPU, CPU]
    assert sum(data["partitions"][0]["tiers"].values()) == 2
    assert str(report).startswith("2 nodes: 2 on CPUExecutionProvider")


def test_an_input_that_no_node_takes_must_be_fed_all_the_same() -> None:
    model = onnx.parser.parse_model(
        """
        < ir_version: 10, opset_import: ["" : 21] >
        agraph (float[2] unused, float[2] x) => (float[2] y) { y = Add (x, x) }
        """
    )
    session = onnxplug.InferenceSession(model)
    two = np.ones(2, np.float32)
    for _ in range(2):
        (y,) = session.run(None, {"x": two, "unused": two})
        np.testing.assert_array_equal(y, 2 * two)
        with pytest.raises(InputError, match=r"\(\['unused'\]\) are missing"):
            session.run(None, {"x": two})


def test_the_process_tells_which_devices_are_driven() -> None:
    assert onnxplug.get_device().endswith("CPU")
