"""Options, arguments and errors that programs written for ONNX Runtime use."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as theirs

import onnxplug
from onnxplug import entries, errors, foreign
from onnxplug.errors import (
    EpError,
    EpWarning,
    InvalidModel,
    ModelWarning,
    OptionError,
    OptionWarning,
    UnsupportedModel,
)
from onnxplug_testing import ToyFactory

CPU = "CPUExecutionProvider"
TOY = "ToyExecutionProvider"
MODEL = onnx.parser.parse_model(
    """
    < ir_version: 10, opset_import: ["" : 21] >
    g (float[N, M] x) => (float[N, M] y)
    < float[1] w = {2} > { z = Identity (x)  y = Mul (z, w) }
    """
)
FEED = {"x": np.float32([[1, -2]])}


@pytest.fixture(scope="module")
def binary() -> bytes:
    """The machine code of ONNX Runtime, in which its names are."""
    return Path(theirs.__file__).read_bytes()


def test_every_session_entry_of_onnxruntime_is_known(binary: bytes) -> None:
    pattern = rb"\0((?:session|optimization|mlas|ep)\.[a-z0-9_]+(?:\.[a-z0-9_]+)*)\0"
    found = {name.decode() for name in re.findall(pattern, binary)}
    assert len(found) > 60
    options = onnxplug.SessionOptions()
    refused = set()
    for name in sorted(found):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OptionWarning)
            try:
                options.add_session_config_entry(name, "1")
            except OptionError:
                refused.add(name)
    assert not refused
    assert not foreign.SESSION_ENTRIES.keys() & entries.SESSION


def test_every_optimizer_that_is_known_is_one_of_onnxruntimes(binary: bytes) -> None:
    # short names are in instructions rather than in the table of texts
    assert not [
        name
        for name in foreign.PASSES
        if len(name) > 15 and name[:5] != "Level" and name.encode() not in binary
    ]


def test_entries_without_effect_warn_unless_they_hold_anyway() -> None:
    options = onnxplug.SessionOptions()
    with pytest.warns(OptionWarning, match="set_denormal_as_zero' has no effect"):
        options.add_session_config_entry("session.set_denormal_as_zero", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        options.add_session_config_entry("session.set_denormal_as_zero", "0")
    with pytest.raises(OptionError, match=r"did you mean 'session\.set_denormal"):
        options.add_session_config_entry("session.set_denormals_as_zero", "1")


def test_optimizers_may_have_the_names_of_onnxruntime() -> None:
    def nodes(*disabled: str) -> list[str]:
        session = onnxplug.InferenceSession(MODEL, disabled_optimizers=disabled)
        return [node.op_type for node in session.explain().nodes]

    assert nodes() == nodes("ConstantFolding", "NchwcTransformer") == ["Mul"]
    assert nodes("EliminateIdentity") == nodes("eliminate") == ["Identity", "Mul"]
    with pytest.raises(OptionError, match="did you mean 'EliminateIdentity'"):
        nodes("EliminateIdentities")


def test_options_of_the_cpu_ep_without_effect_warn() -> None:
    options = {"arena_extend_strategy": "kSameAsRequested"}
    with pytest.warns(OptionWarning, match="'arena_extend_strategy' of CPUE.*no effec"):
        session = onnxplug.InferenceSession(MODEL, providers=[(CPU, options)])
    assert session.run(None, FEED)[0].tolist() == [[2, -4]]
    with pytest.raises(OptionError, match="expected one of 'kNextPowerOfTwo'"):
        onnxplug.InferenceSession(
            MODEL, providers=[(CPU, {"arena_extend_strategy": "large"})]
        )


def test_initializers_of_the_prepared_model_may_be_in_a_file(tmp_path: Path) -> None:
    weights = np.arange(4096, dtype=np.float32)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "large"], ["a"]),
         helper.make_node("Add", ["a", "small"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4096])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4096])],
        [onnx.numpy_helper.from_array(weights, "large"),
         onnx.numpy_helper.from_array(np.float32([1]), "small")],
    )  # fmt: skip
    prefix = "session.optimized_model_external_initializers_"
    options = onnxplug.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "prepared.onnx")
    options.add_session_config_entry(f"{prefix}file_name", "prepared.bin")
    options.add_session_config_entry(f"{prefix}min_size_in_bytes", "100")
    onnxplug.InferenceSession(helper.make_model(graph, ir_version=10), options)
    assert (tmp_path / "prepared.bin").read_bytes() == weights.tobytes()
    written = onnx.load(tmp_path / "prepared.onnx", load_external_data=False)
    places = {each.name: each.data_location for each in written.graph.initializer}
    external, inside = TensorProto.EXTERNAL, TensorProto.DEFAULT
    assert sorted(places.values()) == [inside, external]
    session = onnxruntime.InferenceSession(options.optimized_model_filepath)
    (result,) = session.run(None, {"x": np.zeros(4096, np.float32)})
    np.testing.assert_array_equal(result, weights + 1)
    options.add_session_config_entry(f"{prefix}file_name", "../elsewhere.bin")
    with pytest.raises(OptionError, match="expected the name of a file"):
        onnxplug.InferenceSession(MODEL, options)


def denoting() -> onnx.ModelProto:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    batch, other = model.graph.input[0].type.tensor_type.shape.dim
    batch.denotation = "DATA_BATCH"
    other.denotation = "DATA_FEATURE"
    other.ClearField("dim_param")
    return model


def test_free_dimensions_are_fixed_by_what_they_denote() -> None:
    expected: list[Any] = []
    for runtime in (onnxruntime, onnxplug):
        options = runtime.SessionOptions()
        options.add_free_dimension_override_by_denotation("DATA_BATCH", 3)
        options.add_free_dimension_override_by_denotation("DATA_FEATURE", 5)
        session = runtime.InferenceSession(denoting().SerializeToString(), options)
        expected.append([arg.shape for arg in session.get_inputs()])
    assert expected == [[[3, 5]], [[3, 5]]]
    for denotation, message in {
        "DATA_BACH": "denotes 'DATA_BACH'; did you mean 'DATA_BATCH'",
        "DATA_CHANNEL": "what they denote is 'DATA_BATCH', 'DATA_FEATURE'",
    }.items():
        wrong = onnxplug.SessionOptions()
        wrong.add_free_dimension_override_by_denotation(denotation, 3)
        with pytest.raises(OptionError, match=message):
            onnxplug.InferenceSession(denoting(), wrong)


def test_a_newer_opset_is_read_as_the_newest_if_released_ones_are_not_asked_for():
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.opset_import[0].version = 99
    with pytest.raises(UnsupportedModel, match="opset 99"):
        onnxplug.InferenceSession(model)
    options = onnxplug.SessionOptions()
    options.add_session_config_entry("session.allow_released_opsets_only", "0")
    with pytest.warns(ModelWarning, match="opset 99 .* read as one of opset"):
        session = onnxplug.InferenceSession(model, options)
    assert session.run(None, FEED)[0].tolist() == [[2, -4]]


def with_config(config: str) -> bytes:
    model = onnx.ModelProto()
    model.CopyFrom(MODEL)
    model.metadata_props.add(key="ort_config", value=config)
    return model.SerializeToString()


def test_options_are_read_from_the_model_if_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # which ONNX Runtime wants, too
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    stated = {"intra_op_num_threads": 3, "graph_optimization_level": 0}
    source = with_config(json.dumps({"session_options": stated}))
    for runtime in (onnxruntime, onnxplug):
        session = runtime.InferenceSession(
            source, providers=[CPU], read_config_from_model=1
        )
        options = session.get_session_options()
        assert options.intra_op_num_threads == 3
        level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        assert options.graph_optimization_level == level
    unread = onnxplug.InferenceSession(source).get_session_options()
    assert unread.intra_op_num_threads == 0
    for config in ("{", "[]", '{"session_options": {"intra_op_num_threads": "2"}}'):
        with pytest.raises(InvalidModel, match=r"'ort_config' is .* expected JSON"):
            onnxplug.InferenceSession(with_config(config), read_config_from_model=1)
    with pytest.warns(OptionWarning, match="sets 'threads', which has no effect"):
        onnxplug.InferenceSession(
            with_config('{"session_options": {"threads": 2}}'), read_config_from_model=1
        )


@pytest.fixture
def failing() -> Iterator[None]:
    """A library whose EP runs nothing to the end."""

    class Failing(ToyFactory):
        def create(self, *arguments: Any) -> Any:
            provider = super().create(*arguments)
            compiled = provider.compile

            def compile(partition: Any) -> Any:
                made = compiled(partition)

                def run(*arguments: Any) -> Any:
                    raise EpError("the device is gone", ep=TOY, stage="run")

                made.run = run
                return made

            provider.compile = compile
            return provider

    onnxplug.register_ep_library("failing", Failing())
    yield
    onnxplug.unregister_ep_library("failing")


@pytest.mark.usefixtures("failing")
@pytest.mark.parametrize("by", ["argument", "method", "ort values"])
def test_a_run_falls_back_to_the_cpu_only_if_that_is_enabled(by: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
        "{ y = Relu (x) }"
    )
    feed = {"x": np.float32([-1, 2])}
    with onnxplug.InferenceSession(model, providers=[TOY]) as session:
        with pytest.raises(EpError, match="the device is gone"):
            session.run(None, feed)
        session.enable_fallback()
        session.disable_fallback()
        with pytest.raises(EpError, match="the device is gone"):
            session.run(None, feed)
    enabled = int(by == "argument")
    with onnxplug.InferenceSession(
        model, providers=[TOY], enable_fallback=enabled
    ) as session:
        if not enabled:
            session.enable_fallback()
        with pytest.warns(EpWarning, match="anew with CPU.*: .*the device is gone"):
            if by == "ort values":
                value = onnxplug.OrtValue.ortvalue_from_numpy(feed["x"])
                (result,) = session.run_with_ort_values(None, {"x": value})
                assert result.numpy().tolist() == [0, 2]
            else:
                assert session.run(None, feed)[0].tolist() == [0, 2]
        assert session.get_providers() == [CPU]
        assert session.run(None, feed)[0].tolist() == [0, 2]


STATUSES = [
    name
    for name, value in vars(theirs).items()
    if isinstance(value, type) and issubclass(value, Exception)
]


@pytest.mark.parametrize("name", STATUSES)
def test_every_error_of_onnxruntime_has_a_class(name: str) -> None:
    error = getattr(errors, name)
    assert issubclass(error, errors.OnnxplugError)
    assert isinstance(error.code, int)
    assert len(STATUSES) > 13


def a_session(runtime: Any) -> Any:
    return runtime.InferenceSession(MODEL.SerializeToString(), providers=[CPU])


def a_value(runtime: Any) -> Any:
    return runtime.OrtValue.ortvalue_from_numpy(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    "misuse",
    [
        lambda ort: ort.InferenceSession(None),
        lambda ort: ort.InferenceSession(3, providers=[CPU]),
        lambda ort: ort.InferenceSession(MODEL.SerializeToString(), 3),
        lambda ort: ort.SessionOptions().add_session_config_entry(1, "1"),
        lambda ort: ort.SessionOptions().add_session_config_entry("x", [1]),
        lambda ort: ort.SessionOptions().add_free_dimension_override_by_name("x", "y"),
        lambda ort: setattr(ort.SessionOptions(), "intra_op_num_threads", "two"),
        lambda ort: setattr(ort.SessionOptions(), "graph_optimization_level", 99),
        lambda ort: setattr(ort.SessionOptions(), "logid", 3),
        lambda ort: setattr(ort.SessionOptions(), "inter_op_num_threads", "two"),
        lambda ort: setattr(ort.SessionOptions(), "execution_mode", 1),
        lambda ort: setattr(ort.SessionOptions(), "enable_cpu_mem_arena", "no"),
        lambda ort: ort.RunOptions().add_run_config_entry(1, "1"),
        lambda ort: a_session(ort).run(None, FEED, "options"),
        lambda ort: a_value(ort).update_inplace([1, 2]),
        lambda ort: ort.ModelCompiler(ort.SessionOptions(), 3),
        lambda ort: ort.ModelCompiler(
            ort.SessionOptions(), b"x", external_initializers_file_path=3
        ),
    ],
)
def test_what_is_a_type_error_there_is_one_here(misuse: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError):
        misuse(onnxruntime)
    with pytest.raises(TypeError) as caught:
        misuse(onnxplug)
    assert isinstance(caught.value, errors.OnnxplugError)


def test_a_delegate_that_raises_is_a_failure() -> None:
    def delegate(*arguments: Any) -> Any:
        raise ValueError("boom")

    options = onnxplug.SessionOptions()
    options.set_provider_selection_policy_delegate(delegate)
    with pytest.raises(errors.Fail, match="delegate failed: ValueError: boom") as error:
        onnxplug.InferenceSession(MODEL, options)
    assert error.value.code == errors.Fail.code


def test_numbers_of_numpy_are_taken_as_options() -> None:
    options = onnxplug.SessionOptions()
    options.intra_op_num_threads = np.int64(2)  # type: ignore[assignment]
    options.enable_profiling = np.bool_(False)  # type: ignore[assignment]
    options.add_free_dimension_override_by_name("N", np.int32(4))  # type: ignore[arg-type]
    assert (type(options.intra_op_num_threads), options.intra_op_num_threads) == (
        int,
        2,
    )
    session = onnxplug.InferenceSession(MODEL, options)
    assert session.get_inputs()[0].shape == [4, "M"]


def test_numbers_are_taken_as_switches() -> None:
    for runtime in (onnxruntime, onnxplug):
        options = runtime.SessionOptions()
        options.enable_profiling = 0
        options.enable_cpu_mem_arena = 1
        assert options.enable_profiling is False
        assert options.enable_cpu_mem_arena is True


def test_enums_compare_with_numbers() -> None:
    for name in ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"):
        for member in getattr(onnxplug, name):
            assert member == int(getattr(getattr(onnxruntime, name), member.name))


def test_the_models_path_is_where_clients_look_for_it(tmp_path: Path) -> None:
    onnx.save(MODEL, tmp_path / "model.onnx")
    for runtime in (onnxruntime, onnxplug):
        session = runtime.InferenceSession(tmp_path / "model.onnx", providers=[CPU])
        assert session._model_path == str(tmp_path / "model.onnx")
        assert a_session(runtime)._model_path is None
