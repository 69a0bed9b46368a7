"""The options: their defaults, all spellings of values, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from onnxplug.errors import OptionError, OptionWarning
from onnxplug.selection import parse_options
from onnxplug_cuda.options import (
    CUDNN,
    FLASH,
    MATH,
    OPTIONS,
    SMALL_WORKSPACE,
    UNLIMITED,
    Allocator,
    Settings,
    read_settings,
)

EP = "CUDAExecutionProvider"

DOCUMENTED: dict[str, Any] = {
    "device_id": 0,
    "gpu_mem_limit": UNLIMITED,
    "arena_extend_strategy": "kNextPowerOfTwo",
    "cudnn_conv_algo_search": "EXHAUSTIVE",
    "cudnn_conv_use_max_workspace": True,
    "cudnn_conv1d_pad_to_nc1d": False,
    "do_copy_in_default_stream": True,
    "enable_cuda_graph": False,
    "enable_skip_layer_norm_strict_mode": False,
    "use_tf32": True,
    "prefer_nhwc": False,
    "fuse_conv_bias": False,
    "sdpa_kernel": 0,
    "user_compute_stream": 0,
    "tunable_op_enable": False,
    "tunable_op_tuning_enable": False,
    "tunable_op_max_tuning_duration_ms": 0,
    "use_ep_level_unified_stream": False,
}
"""ONNX Runtime's options of its CUDA EP, with the defaults that it documents."""


def read(**given: Any) -> Settings:
    return read_settings(parse_options(EP, OPTIONS, given))


def test_all_documented_options_are_there_with_their_defaults() -> None:
    assert {name: OPTIONS[name].default for name in DOCUMENTED} == DOCUMENTED
    assert read() == read(**DOCUMENTED) == Settings()


@pytest.mark.parametrize("value", [True, 1, "1", "True", "true"])
def test_switches_are_bools_numbers_or_texts(value: Any) -> None:
    settings = read(enable_cuda_graph=value, prefer_nhwc=value, fuse_conv_bias=value)
    assert settings.captures and settings.channels_last
    assert settings.convolution.fuses_bias


@pytest.mark.parametrize(
    ("given", "search"),
    [
        ("EXHAUSTIVE", "EXHAUSTIVE"),
        (0, "EXHAUSTIVE"),
        ("HEURISTIC", "HEURISTIC"),
        ("1", "HEURISTIC"),
        (2, "DEFAULT"),
    ],
)
def test_words_may_be_their_numbers(given: Any, search: str) -> None:
    assert read(cudnn_conv_algo_search=given).convolution.search == search


def test_memory_is_limited_as_options_say() -> None:
    memory = read(
        gpu_mem_limit=str(2 << 30),
        arena_extend_strategy="kSameAsRequested",
        do_copy_in_default_stream="0",
        gpu_external_alloc="4096",
        gpu_external_free=8192,
    ).memory
    assert (memory.limit, memory.doubles, memory.copies_apart) == (2 << 30, False, True)
    assert memory.allocator == Allocator(4096, 8192, 0)
    assert read(arena_extend_strategy=0).memory.doubles


def test_convolutions_and_tuning_are_as_options_say() -> None:
    settings = read(
        cudnn_conv_use_max_workspace=0,
        cudnn_conv1d_pad_to_nc1d=1,
        tunable_op_enable=1,
        tunable_op_tuning_enable=1,
        tunable_op_max_tuning_duration_ms="250",
        use_tf32="0",
        enable_cudnn=False,
    )
    assert settings.convolution.workspace == SMALL_WORKSPACE == 32 << 20
    assert settings.convolution.rows_first
    assert settings.tuning == (True, True, 0.25)
    assert not settings.tf32 and not settings.cudnn


@pytest.mark.parametrize(
    ("bits", "kernels"),
    [
        (0, set()),
        (1, {FLASH}),
        (2, {FLASH}),
        (256, {FLASH}),
        (8, {CUDNN}),
        (16, {MATH}),
        (1 | 8 | 4, {FLASH, CUDNN}),
        ("24", {CUDNN, MATH}),
    ],
)
def test_kernels_of_attention_are_bits(bits: Any, kernels: set[int]) -> None:
    assert read(sdpa_kernel=bits).attention == kernels


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cudnn_conv_algo_search": "FASTEST"}, "'EXHAUSTIVE', 'HEURISTIC', 'DEFAULT'"),
        ({"cudnn_conv_algo_search": 3}, "expected one of"),
        ({"arena_extend_strategy": "kDouble"}, "'kNextPowerOfTwo', 'kSameAsRequested'"),
        ({"enable_cuda_graph": 2}, "expected bool"),
        ({"gpu_mem_limit": 0}, "from 1"),
        ({"gpu_mem_limit": "all"}, "expected int"),
        ({"device_id": -2}, "from -1"),
        ({"sdpa_kernel": 512}, "up to 511"),
        ({"sdpa_kernel": 4 | 128}, "TensorRT's only"),
        ({"sdpa_kernel": 8, "enable_cudnn": 0}, "'enable_cudnn' is off"),
        ({"gpu_external_alloc": 4096}, "belong together"),
        ({"gpu_external_empty_cache": 4096}, "belong together"),
        ({"has_user_compute_stream": 1}, "'user_compute_stream' is not"),
        ({"user_compute_stream": 2}, "set it to a stream that you create, or to 1"),
        ({"user_compute_stream": 1, "enable_cuda_graph": 1}, "cannot be captured"),
        ({"tunable_op_tuning_enable": 1}, "without 'tunable_op_enable'"),
        ({"cudnn_conv_algo": "DEFAULT"}, "did you mean 'cudnn_conv_algo_search'"),
    ],
)
def test_what_has_no_meaning_is_refused_with_what_has(
    given: dict[str, Any], text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        read(**given)


@pytest.mark.parametrize(
    "name", ["enable_skip_layer_norm_strict_mode", "use_ep_level_unified_stream"]
)
def test_what_is_so_anyway_warns(name: str) -> None:
    with pytest.warns(OptionWarning, match=name):
        read(**{name: True})
