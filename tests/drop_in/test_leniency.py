"""What ONNX Runtime accepts without a word does not end programs written for it.

What nobody knows ``onnxplug_onnxruntime`` tells of in one warning, and what has no
effect in the log, to who debugs.  Outside it they are errors and warnings: see
tests/quirks and test_options.
"""

from __future__ import annotations

import logging
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxplug
import onnxplug_onnxruntime as ort
from onnxplug.errors import EpWarning, Fail, OptionError, OptionWarning, PluginNotFound
from onnxplug_testing import ToyFactory

CPU = "CPUExecutionProvider"
CUDA = "CUDAExecutionProvider"
TOY = "ToyExecutionProvider"
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
    "{ y = Relu (x) }"
).SerializeToString()
X = np.float32([-1, 2])

BOTH = pytest.mark.parametrize("runtime", [onnxruntime, ort], ids=["theirs", "ours"])


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What onnxplug has logged of options."""
    caplog.set_level(logging.DEBUG, "onnxplug.options")
    return lambda: [
        record.getMessage()
        for record in caplog.records
        if record.name == "onnxplug.options"
    ]


def relu(session: Any, *options: Any) -> list[float]:
    (result,) = session.run(None, {"x": X}, *options)
    values: list[float] = result.tolist()
    return values


# config entries that nobody has

UNKNOWN = ["session.disable_cpu_ep_fallbak", "my.key", "ep.dynamic.workload_type"]
OF_EPS = ["ep.cpu.compiel", "ep.nobody.key", "ep.qnn.key"]


@BOTH
@pytest.mark.parametrize("key", [*UNKNOWN, *OF_EPS])
def test_entries_of_sessions_that_nobody_has_are_kept(runtime: Any, key: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        options = runtime.SessionOptions()
        options.add_session_config_entry(key, "1")
        session = runtime.InferenceSession(MODEL, options, providers=[CPU])
    assert options.get_session_config_entry(key) == "1"
    assert session.get_session_options().get_session_config_entry(key) == "1"
    assert relu(session) == [0, 2]


@pytest.mark.parametrize("key", UNKNOWN)
def test_one_warning_tells_of_a_sessions_entry(key: str) -> None:
    options = ort.SessionOptions()
    with pytest.warns(OptionWarning, match=f"{key}'.* is kept and has no effect") as of:
        options.add_session_config_entry(key, "1")
    assert of[0].filename == __file__
    options.add_session_config_entry(key, "2")
    ort.InferenceSession(MODEL, options, providers=[CPU])
    assert len(of) == 1
    with pytest.raises(OptionError, match=key):
        onnxplug.SessionOptions().add_session_config_entry(key, "1")


@pytest.mark.parametrize("key", OF_EPS)
def test_one_warning_tells_of_an_entry_for_an_ep(key: str) -> None:
    options = ort.SessionOptions()
    options.add_session_config_entry(key, "1")  # which EPs have it is not known yet
    with pytest.warns(OptionWarning, match="is kept and has no effect") as caught:
        session = ort.InferenceSession(MODEL, options, providers=[CPU])
    assert key.split(".")[1 if "no EP" in str(caught[0].message) else 2] in str(
        caught[0].message
    )
    ort.InferenceSession(MODEL, options)
    session.set_providers([CPU])
    assert relu(pickle.loads(pickle.dumps(session))) == [0, 2]
    assert len(caught) == 1
    strict = onnxplug.SessionOptions()
    strict.add_session_config_entry(key, "1")
    with pytest.raises(OptionError, match=r"did you mean 'compile'|is for no EP"):
        ort.InferenceSession(MODEL, strict)


@BOTH
@pytest.mark.parametrize("key", ["gpu_graph", "qnn.htp_perf_mode"])
def test_entries_of_runs_that_nobody_has_are_kept(runtime: Any, key: str) -> None:
    options = runtime.RunOptions()
    options.add_run_config_entry(key, "burst")
    assert options.get_run_config_entry(key) == "burst"
    session = runtime.InferenceSession(MODEL, providers=[CPU])
    if runtime is ort:
        with pytest.warns(OptionWarning, match=f"entry '{key}'.* is kept and") as one:
            assert relu(session, options) == [0, 2]
        assert len(one) == 1
    assert relu(session, options) == [0, 2]
    other = runtime.InferenceSession(MODEL, providers=[CPU])
    assert relu(other, options) == [0, 2]


def test_a_run_with_strict_options_is_refused_after_one_with_lenient_ones() -> None:
    session = ort.InferenceSession(MODEL)
    lenient, strict = ort.RunOptions(), onnxplug.RunOptions()
    for options in (lenient, strict):
        options.add_run_config_entry("gpu_graph", "1")
    with pytest.warns(OptionWarning):
        session.run(None, {"x": X}, lenient)
    with pytest.raises(OptionError, match="did you mean 'gpu_graph_id'"):
        session.run(None, {"x": X}, strict)
    with pytest.raises(AttributeError):
        lenient.logids = "mine"  # type: ignore[attr-defined]


def test_an_entry_that_is_known_still_has_to_be_right() -> None:
    with pytest.raises(OptionError, match="expected '0' or '1'"):
        ort.SessionOptions().add_session_config_entry(
            "session.disable_cpu_ep_fallback", "yes"
        )


# what has no effect


def set_attribute(name: str, value: Any) -> Callable[[Any], None]:
    return lambda runtime: setattr(runtime.SessionOptions(), name, value)


def set_entry(key: str, value: str) -> Callable[[Any], None]:
    return lambda ort: ort.SessionOptions().add_session_config_entry(key, value)


def with_arena(runtime: Any) -> None:
    options = {"arena_extend_strategy": "kSameAsRequested"}
    runtime.InferenceSession(MODEL, providers=[(CPU, options)])


def with_shrinkage(runtime: Any) -> None:
    options = runtime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    relu(runtime.InferenceSession(MODEL, providers=[CPU]), options)


def with_allocator(runtime: Any) -> None:
    kind, memory = runtime.OrtAllocatorType, runtime.OrtMemType
    info = runtime.OrtMemoryInfo("Cpu", kind.ORT_ARENA_ALLOCATOR, 0, memory.DEFAULT)
    runtime.create_and_register_allocator(info, None)


WITHOUT_EFFECT = {
    "inter_op_num_threads": set_attribute("inter_op_num_threads", 2),
    "enable_cpu_mem_arena": set_attribute("enable_cpu_mem_arena", False),
    "enable_mem_pattern": set_attribute("enable_mem_pattern", False),
    "enable_mem_reuse": set_attribute("enable_mem_reuse", False),
    "use_deterministic_compute": set_attribute("use_deterministic_compute", True),
    "execution_mode": lambda ort: set_attribute(
        "execution_mode", ort.ExecutionMode.ORT_PARALLEL
    )(ort),
    "session.set_denormal_as_zero": set_entry("session.set_denormal_as_zero", "1"),
    "session.intra_op.allow_spinning": set_entry(
        "session.intra_op.allow_spinning", "0"
    ),
    "arena_extend_strategy": with_arena,
    "memory.enable_memory_arena_shrinkage": with_shrinkage,
    "create_and_register_allocator": with_allocator,
    "ep.dynamic.workload_type": lambda runtime: runtime.InferenceSession(
        MODEL, providers=[CPU]
    ).set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"}),
}


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_options_without_effect_are_told_to_who_debugs(
    name: str, told: Callable[[], list[str]]
) -> None:
    if name != "create_and_register_allocator":  # which is for its process
        WITHOUT_EFFECT[name](onnxruntime)
    WITHOUT_EFFECT[name](ort)
    assert [message for message in told() if name in message and "no effect" in message]


def test_threads_between_operators_are_told_to_who_debugs(
    told: Callable[[], list[str]],
) -> None:
    ort.set_global_thread_pool_sizes(0, 2)
    assert told() == ["inter_op_num_threads has no effect in onnxplug"]


# EPs that are not there


def test_every_ep_of_the_wheel_is_known() -> None:
    known = ort.get_all_providers()
    theirs = onnxruntime.get_all_providers()
    assert [name for name in known if name in theirs] == theirs


KNOWN = [[CUDA], ["QNNExecutionProvider"], ["DmlExecutionProvider"]]


@BOTH
@pytest.mark.parametrize("fallback", [0, 1])
@pytest.mark.parametrize("providers", [*KNOWN, [(CUDA, {"device_id": 0})]])
def test_the_cpu_serves_for_an_ep_that_is_known(
    runtime: Any, fallback: int, providers: list[Any]
) -> None:
    with pytest.warns(UserWarning) as caught:
        session = runtime.InferenceSession(
            MODEL, providers=providers, enable_fallback=fallback
        )
    assert len(caught) == 1
    assert session.get_providers() == [CPU]
    assert relu(session) == [0, 2]
    with pytest.warns(UserWarning):
        session.set_providers(providers)
    assert session.get_providers() == [CPU]


def test_the_warning_says_what_is_missing_and_where() -> None:
    with pytest.warns(EpWarning, match="CPUExecutionProvider is used instead") as one:
        ort.InferenceSession(MODEL, providers=[CUDA])
    assert one[0].filename == __file__
    assert "no installed plugin supplies CUDAExecutionProvider" in str(one[0].message)
    with pytest.raises(PluginNotFound, match=CUDA):
        onnxplug.InferenceSession(MODEL, providers=[CUDA])


@BOTH
def test_the_cpu_serves_for_an_unknown_ep_only_if_that_is_enabled(
    runtime: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.warns(UserWarning):
        session = runtime.InferenceSession(MODEL, providers=["FooExecutionProvider"])
    assert session.get_providers() == [CPU]
    assert ("EP Error" in capfd.readouterr().out) is (runtime is onnxruntime)
    with (
        warnings.catch_warnings(),
        pytest.raises(RuntimeError, match="Unknown Provider Type: FooExec"),
    ):
        warnings.simplefilter("ignore", UserWarning)
        runtime.InferenceSession(
            MODEL, providers=["FooExecutionProvider"], enable_fallback=0
        )


@BOTH
def test_the_cpu_does_not_serve_where_that_is_forbidden(runtime: Any) -> None:
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    kind = Fail if runtime is ort else onnxruntime.capi.onnxruntime_pybind11_state.Fail
    with warnings.catch_warnings(), pytest.raises(kind):
        warnings.simplefilter("ignore", UserWarning)
        runtime.InferenceSession(MODEL, options, providers=[CUDA])


def test_an_ep_that_is_there_runs_before_the_cpu() -> None:
    onnxplug.register_ep_library("toys", ToyFactory())
    onnxplug.set_default_providers([TOY])
    try:
        with pytest.warns(EpWarning, match="ToyExecutionProvider is used instead"):
            session = ort.InferenceSession(MODEL, providers=[CUDA])
        assert session.get_providers() == [TOY, CPU]
        assert relu(session) == [0, 2]
        session.close()
    finally:
        onnxplug.set_default_providers(None)
        onnxplug.unregister_ep_library("toys")


def test_an_ep_that_must_not_fail_is_not_replaced() -> None:
    with pytest.raises(PluginNotFound, match=CUDA):
        ort.InferenceSession(
            MODEL, providers=[onnxplug.provider(CUDA, error_on_failure=True)]
        )
    with pytest.raises(PluginNotFound, match=CUDA):
        ort.SessionOptions().add_provider(CUDA)
