"""All options of ONNX Runtime's TensorRT EP, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onnxplug import errors
from onnxplug_tensorrt.options import OPTIONS

from .standin import LibCuda, TensorRT

NAMES = """
device_id has_user_compute_stream user_compute_stream trt_auxiliary_streams
trt_bf16_enable trt_build_heuristics_enable trt_builder_optimization_level
trt_context_memory_sharing_enable trt_cuda_graph_enable trt_detailed_build_log
trt_dla_core trt_dla_enable trt_dump_ep_context_model trt_dump_subgraphs
trt_engine_cache_enable trt_engine_cache_path trt_engine_cache_prefix
trt_engine_decryption_enable trt_engine_decryption_lib_path trt_engine_hw_compatible
trt_ep_context_embed_mode trt_ep_context_file_path trt_external_data_bytestream
trt_external_data_bytestream_size trt_extra_plugin_lib_paths
trt_force_sequential_engine_build trt_force_timing_cache trt_fp16_enable
trt_int8_calibration_table_name trt_int8_enable trt_int8_use_native_calibration_table
trt_fp32_nodes trt_fp32_op_types
trt_layer_norm_fp32_fallback trt_load_user_initializer trt_max_partition_iterations
trt_max_workspace_size trt_min_subgraph_size trt_onnx_bytestream
trt_onnx_bytestream_size trt_onnx_model_folder_path trt_op_types_to_exclude
trt_preview_features trt_profile_max_shapes trt_profile_min_shapes
trt_profile_opt_shapes trt_sparsity_enable trt_tactic_sources trt_timing_cache_enable
trt_timing_cache_path trt_weight_stripped_engine_enable
"""
"""What the binary of ONNX Runtime 1.31.1's TensorRT EP has."""


def test_they_are_those_of_onnx_runtime() -> None:
    assert sorted(OPTIONS) == sorted(NAMES.split())
    assert all(option.doc or option.refused for option in OPTIONS.values())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"trt_engine_decryption_enable": 1}, "decrypt the model before"),
        ({"trt_engine_decryption_lib_path": "lib.so"}, "decrypt the model before"),
        (
            {"trt_int8_calibration_table_name": "table", "trt_int8_enable": 1},
            "is for TensorRT 10.*quantise the model",
        ),
        ({"trt_dump_ep_context_model": 1}, "ep.context_enable"),
        ({"trt_builder_optimization_level": 6}, "up to 5"),
        ({"trt_auxiliary_streams": 1 << 31}, "up to 2147483647"),
        ({"trt_min_subgraph_size": 0}, "from 1"),
        ({"trt_fp16_enable": "yes please"}, "expected bool"),
        ({"trt_fp17_enable": 1}, "has no option 'trt_fp17_enable'"),
        ({"trt_tactic_sources": "CUBLAS"}, r"with \+ or - before each"),
        ({"trt_tactic_sources": "+CUBLAS"}, "it has EDGE_MASK_CONVOLUTIONS, JIT"),
        ({"trt_preview_features": "FASTER"}, "it has ALIASED_PLUGIN_IO_10_03"),
        ({"trt_extra_plugin_lib_paths": "/nowhere.so"}, "there is no such file"),
        ({"has_user_compute_stream": 1}, "set the latter"),
        ({"user_compute_stream": 2}, "a stream that you create"),
        ({"user_compute_stream": 1, "trt_cuda_graph_enable": 1}, "cannot be captured"),
        ({"trt_engine_cache_prefix": "../mine"}, "names of files begin with it"),
        ({"device_id": 3}, "CUDA sees 1 devices"),
        ({"trt_fp16_enable": 1, "trt_bf16_enable": 1}, "set one of them"),
    ],
)
def test_what_is_refused(
    alone: Any, parse: Any, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.OptionError, match=message):
        alone(parse("y = Exp(x)"), **given)


@pytest.mark.parametrize(
    "given",
    [
        {"trt_build_heuristics_enable": 1},
        {"trt_load_user_initializer": 1},
    ],
)
def test_what_has_no_meaning_is_told(
    alone: Any, parse: Any, given: dict[str, Any]
) -> None:
    with pytest.warns(errors.OptionWarning, match="has no effect"):
        alone(parse("y = Exp(x)"), **given)


def test_how_engines_are_built(alone: Any, parse: Any, tensorrt: TensorRT) -> None:
    alone(
        parse("y = Exp(x)"),
        trt_max_workspace_size=1 << 30,
        trt_builder_optimization_level=5,
        trt_auxiliary_streams=2,
        trt_sparsity_enable=1,
        trt_engine_hw_compatible=1,
        trt_weight_stripped_engine_enable=1,
        trt_preview_features="ALIASED_PLUGIN_IO_10_03",
        trt_tactic_sources="-JIT_CONVOLUTIONS",
        trt_int8_enable=1,
    )
    (config,) = tensorrt.configs
    assert config._limits == {tensorrt.MemoryPoolType.WORKSPACE: 1 << 30}
    assert (config.builder_optimization_level, config.max_aux_streams) == (5, 2)
    assert {flag.name for flag in config._flags} == {
        "SPARSE_WEIGHTS", "STRIP_PLAN", "REFIT_IDENTICAL",
    }  # fmt: skip
    assert config.hardware_compatibility_level.name == "AMPERE_PLUS"
    assert config._previews == {tensorrt.PreviewFeature.ALIASED_PLUGIN_IO_10_03: True}
    assert config._tactics == 1
    assert tensorrt.networks[-1]._flags == 0


def test_a_device_without_accelerators_for_deep_learning(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    with pytest.raises(errors.SessionRefused, match="turn 'trt_dla_enable' off"):
        alone(parse("y = Exp(x)"), trt_dla_enable=1)
    tensorrt.Builder.num_DLA_cores = 2
    alone(parse("y = Exp(x)"), trt_dla_enable=1, trt_dla_core=1)
    config = tensorrt.configs[-1]
    assert (config.DLA_core, config.default_device_type.name) == (1, "DLA")


def test_libraries_of_plugins_are_loaded_once(
    alone: Any, parse: Any, tensorrt: TensorRT, tmp_path: Path
) -> None:
    library, other = tmp_path / "plugin.so", tmp_path / "plugin.txt"
    for path in (library, other):
        path.write_text("")
    for _ in range(2):
        alone(parse("y = Exp(x)"), trt_extra_plugin_lib_paths=library)
    assert tensorrt.registry._loaded == [str(library)]
    with pytest.raises(errors.OptionError, match="TensorRT did not load it"):
        alone(parse("y = Exp(x)"), trt_extra_plugin_lib_paths=other)


class TestTensorrt10:
    """Types that the builder chooses, as flags allow."""

    @pytest.fixture
    def tensorrt(self, machine: Any) -> TensorRT:
        return TensorRT(LibCuda(machine), "10.13.3.9")

    def test_types_are_those_of_the_model(
        self, alone: Any, parse: Any, tensorrt: TensorRT
    ) -> None:
        alone(parse("y = Exp(x)"))
        assert tensorrt.networks[-1]._flags == 1 << 1
        assert not tensorrt.configs[-1]._flags

    def test_types_may_be_others(
        self, alone: Any, parse: Any, tensorrt: TensorRT
    ) -> None:
        session = alone(
            parse("y = Exp(x)"),
            trt_fp16_enable=1,
            trt_bf16_enable=1,
            trt_int8_enable=1,
        )
        assert tensorrt.networks[-1]._flags == 0
        flags = {flag.name for flag in tensorrt.configs[-1]._flags}
        assert flags == {"FP16", "BF16", "INT8"}
        x = np.ones((2, 3), np.float32)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], np.exp(x), 1e-5)

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("trt_layer_norm_fp32_fallback", 1),
            ("trt_fp32_op_types", "Exp"),
            ("trt_fp32_nodes", "first"),
        ],
    )
    def test_nodes_are_not_told_apart(
        self, alone: Any, parse: Any, option: str, value: Any
    ) -> None:
        with pytest.raises(errors.OptionError, match=f"'{option}' is for.* from 11 on"):
            alone(parse("y = Exp(x)"), trt_fp16_enable=1, **{option: value})


@pytest.mark.parametrize("option", ["trt_fp16_enable", "trt_bf16_enable"])
def test_types_of_fewer_bits(
    alone: Any, parse: Any, tensorrt: TensorRT, option: str
) -> None:
    """From TensorRT 11 on the network says them: inputs and outputs keep theirs."""
    weights = "float[3, 3] w = {1,2,3,4,5,6,7,8,9}"
    session = alone(
        parse("m = MatMul(x, w) y = Relu(m)", weights=weights), **{option: 1}
    )
    network = tensorrt.networks[-1].model
    assert "Cast" in [node.op_type for node in network.graph.node]
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    wanted = np.maximum(x @ np.arange(1, 10, dtype=np.float32).reshape(3, 3), 0)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, 2e-2, 2e-2)


def test_operators_and_nodes_stay_float32(
    alone: Any, parse: Any, tensorrt: TensorRT
) -> None:
    model = parse("e = Exp(x) n = Neg(e) y = Relu(n)")
    model.graph.node[1].name = "minus"
    session = alone(
        model, trt_fp16_enable=1, trt_fp32_op_types="Exp", trt_fp32_nodes="a,minus"
    )
    # which are beyond the range of float16
    x = np.full((2, 3), 12, np.float32)
    assert (session.run(None, {"x": x})[0] == 0).all()
    made = {node.op_type: node for node in tensorrt.networks[-1].model.graph.node}
    assert made["Exp"].output[0] == made["Neg"].input[0]
    assert made["Relu"].output[0] != "y"
