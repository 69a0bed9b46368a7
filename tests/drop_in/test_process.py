"""Functions and types of ONNX Runtime's module."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxplug
import onnxplug_onnxruntime as ort
from onnxplug.ep import Finding, Level, random
from onnxplug.errors import InvalidArgument, OptionError, OptionWarning
from onnxplug_onnxruntime.process import global_threads
from onnxplug_testing.simulated import SimulatedFactory

CPU = "CPUExecutionProvider"
MODEL = onnx.parser.parse_model(
    '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
    "{ y = Relu (x) }"
)


@pytest.fixture
def unseeded() -> Iterator[None]:
    yield
    random._seeds = None


@pytest.mark.usefixtures("unseeded")
@pytest.mark.parametrize("op_type", ["RandomNormalLike", "RandomUniformLike"])
def test_a_seed_of_the_process_makes_random_numbers_the_same(op_type: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[N] x) => (float[N] y) '
        f"{{ y = {op_type} (x) }}"
    )
    x = np.zeros(8, np.float32)

    def drawn(seed: int | None) -> list[list[float]]:
        if seed is not None:
            onnxplug.set_seed(seed)
        session = onnxplug.InferenceSession(model)
        return [session.run(None, {"x": x})[0].tolist() for _ in range(2)]

    assert drawn(None) != drawn(None)
    first = drawn(5)
    assert first[0] != first[1]
    assert drawn(5) == first != drawn(6)
    with pytest.raises(InvalidArgument, match="no whole number"):
        onnxplug.set_seed("five")  # type: ignore[arg-type]


def test_onnxplug_says_where_what_old_programs_ask_for_is_found() -> None:
    with pytest.raises(AttributeError, match="'OrtDevice'; all names of ONNX"):
        onnxplug.OrtDevice  # noqa: B018
    with pytest.raises(ImportError, match="python -m onnxplug_onnxruntime program"):
        importlib.import_module("onnxplug.as_onnxruntime")


def test_what_is_the_same_in_both_is_found_in_both() -> None:
    assert ort.ModelCompiler is onnxplug.ModelCompiler
    for name in ("InferenceSession", "RunOptions", "SessionOptions"):
        assert issubclass(getattr(ort, name), getattr(onnxplug, name))
    for module in (onnxplug, ort):
        with pytest.raises(AttributeError, match="NoSuchName"):
            module.NoSuchName  # noqa: B018
    assert ort.get_version_string() == ort.__version__ != onnxplug.__version__


def test_names_are_found_in_the_modules_of_onnxruntime() -> None:
    state = ort.capi.onnxruntime_pybind11_state
    assert state.InvalidArgument is InvalidArgument
    assert ort.capi._pybind_state.OrtValueVector is ort.OrtValueVector
    assert ort.capi.onnxruntime_inference_collection.Session is ort.InferenceSession
    assert ort.backend.supports_device("CPU")
    collection = onnxruntime.capi.onnxruntime_inference_collection
    for kind in ("cpu", "cuda", "npu"):
        expected = collection.get_ort_device_type(kind)
        assert ort.get_ort_device_type(kind) == expected


def test_functions_without_anything_to_do_do_nothing() -> None:
    ort.enable_telemetry_events()
    ort.disable_telemetry_events()
    ort.set_default_logger_verbosity(3)
    assert ort.has_collective_ops() is onnxruntime.has_collective_ops() is False


def test_eps_load_the_libraries_that_are_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[Any] = []

    def preload(
        self: Any, libraries: Collection[str], directory: Path | None
    ) -> list[Finding]:
        asked.append((set(libraries), directory))
        if len(asked) > 2:
            raise OSError("no such library")
        return [Finding(level=Level.WARNING, message="cuDNN is not found")]

    factory = type("Loading", (SimulatedFactory,), {"preload": preload})()
    onnxplug.register_ep_library("loading", factory)
    try:
        ort.preload_dlls(cuda=True, cudnn=False, msvc=True, directory="")
        ort.preload_dlls(directory="/opt/cuda")
        ort.preload_dlls()
    finally:
        onnxplug.unregister_ep_library("loading")
    everything = {"cuda", "cudnn", "msvc"}
    assert asked == [
        ({"cuda", "msvc"}, None),
        (everything, Path("/opt/cuda")),
        (everything, None),
    ]
    first, _, last = (text for text in caplog.messages if "Simulated" in text)
    assert "cuDNN is not found" in first and "no such library" in last


def test_what_is_installed_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    ort.print_debug_info()
    printed = capsys.readouterr().out
    assert onnxplug.__version__ in printed
    assert f"{CPU}: onnxplug-cpu" in printed


def test_threads_of_the_process_are_for_sessions_that_have_none_of_their_own() -> None:
    ort.set_global_thread_pool_sizes(3, 2)
    try:
        options = ort.SessionOptions()
        own = ort.InferenceSession(MODEL, options).get_session_options()
        options.use_per_session_threads = False
        shared = ort.InferenceSession(MODEL, options).get_session_options()
        assert (own.intra_op_num_threads, shared.intra_op_num_threads) == (0, 3)
        with pytest.raises(InvalidArgument, match="expected ≥ 0"):
            ort.set_global_thread_pool_sizes(-1)
    finally:
        ort.set_global_thread_pool_sizes()
    assert global_threads() == 0


def test_a_callback_is_given_what_is_logged() -> None:
    told: list[tuple[Any, ...]] = []
    logger = logging.getLogger("onnxplug")
    level = logger.level
    ort.set_default_logger_callback(lambda *words: told.append(words), 1)
    try:
        logging.getLogger("onnxplug.session").info("placed %d nodes", 3)
        logging.getLogger("onnxplug.session").debug("in detail")
    finally:
        ort.set_default_logger_callback(None)
        logger.setLevel(level)
    logging.getLogger("onnxplug.session").error("nobody listens")
    ((severity, category, _, place, message),) = told
    assert (severity, category, message) == (1, "onnxplug.session", "placed 3 nodes")
    assert "test_process.py" in place


ENUMS = [
    "OrtAllocatorType", "OrtDeviceMemoryType", "OrtDeviceVendorId",
    "OrtHardwareDeviceType", "OrtMemType", "OrtMemoryInfoDeviceType", "OrtSparseFormat",
    "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "OrtCompileApiFlags",
    "OrtExecutionProviderDevicePolicy",
]  # fmt: skip


@pytest.mark.parametrize("name", ENUMS)
def test_enums_have_the_same_members_and_numbers(name: str) -> None:
    ours, theirs = getattr(ort, name), getattr(onnxruntime, name)
    members = theirs.__members__
    assert {key: int(value) for key, value in ours.__members__.items()} == {
        key: int(value) for key, value in members.items()
    }


def test_memories_are_described_alike() -> None:
    def described(runtime: Any) -> list[tuple[Any, ...]]:
        kind, host = runtime.OrtAllocatorType, runtime.OrtMemType
        one = runtime.OrtMemoryInfo("Cpu", kind.ORT_ARENA_ALLOCATOR, 0, host.DEFAULT)
        other = runtime.OrtMemoryInfo.create_v2(
            "Test", runtime.OrtMemoryInfoDeviceType.GPU, 0x10DE, 1,
            runtime.OrtDeviceMemoryType.HOST_ACCESSIBLE, 64, kind.ORT_DEVICE_ALLOCATOR,
        )  # fmt: skip
        return [
            (
                info.name,
                info.device_id,
                int(info.allocator_type),
                int(info.device_mem_type),
                info.device_vendor_id,
            )
            for info in (one, other)
        ]

    assert described(ort) == described(onnxruntime)


@pytest.mark.parametrize(
    "arguments",
    [("cpu", 0), ("cuda", 1), ("gpu", 2, 0x1002), ("npu", 0), ("dml", 0), ("cann", 3)],
)
def test_devices_are_described_alike(arguments: tuple[Any, ...]) -> None:
    ours, theirs = (each.OrtDevice.make(*arguments) for each in (ort, onnxruntime))
    for way in ("device_id", "device_type", "device_vendor_id", "device_mem_type"):
        assert getattr(ours, way)() == getattr(theirs, way)(), way
    with pytest.raises(InvalidArgument, match="Unsupported device type: tpu"):
        ort.OrtDevice.make("tpu", 0)


def test_sessions_tell_memories_and_devices_of_their_inputs() -> None:
    for runtime in (onnxruntime, ort):
        session = runtime.InferenceSession(MODEL.SerializeToString(), providers=[CPU])
        for infos in (
            session.get_input_memory_infos(),
            session.get_output_memory_infos(),
        ):
            assert [(info.name, info.device_id) for info in infos] == [("Cpu", 0)]
        (pair,) = session.get_input_epdevices()
        assert pair.ep_name == CPU
        assert pair.device.type == runtime.OrtHardwareDeviceType.CPU
        assert isinstance(pair, runtime.OrtEpDevice)
        assert session.get_tuning_results() == []
        assert session._model_path is None


def test_pairs_of_ep_and_device_go_both_ways() -> None:
    pair = next(each for each in ort.get_ep_devices() if each.ep_name == CPU)
    assert pair.ep_options == {} and "version" in pair.ep_metadata
    assert pair.device.vendor and pair.device in ort.get_hardware_devices()
    memory = pair.memory_info(ort.OrtDeviceMemoryType.DEFAULT)
    assert memory is not None and memory.name == "Cpu"
    options = ort.SessionOptions()
    options.add_provider_for_devices([pair], {})
    assert ort.InferenceSession(MODEL, options).get_providers() == [CPU]
    seen: list[Any] = []

    def delegate(pairs: list[Any], *rest: Any) -> list[Any]:
        seen.extend(pairs)
        return [each for each in pairs if each.ep_name == CPU]

    options = ort.SessionOptions()
    options.set_provider_selection_policy_delegate(delegate)
    assert ort.InferenceSession(MODEL, options).get_providers() == [CPU]
    assert pair in seen
    with pytest.raises(TypeError, match="expected those of get_ep_devices"):
        ort.SessionOptions().add_provider_for_devices([3], {})


def test_dynamic_options_have_no_effect() -> None:
    session = ort.InferenceSession(MODEL)
    with pytest.raises(OptionError, match="No options were provided"):
        session.set_ep_dynamic_options({})
    session.set_ep_dynamic_options({"ep.dynamic.workload_type": "Efficient"})
    session.set_tuning_results([{"ep": CPU}])
    session.release_captured_graph(0)


def test_allocators_are_registered_without_effect() -> None:
    info = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType(1), 0, ort.OrtMemType(0))
    ort.create_and_register_allocator(info, ort.OrtArenaCfg(0, -1, -1, -1))
    ort.create_and_register_allocator_v2(CPU, info, {}, None)


def test_arguments_that_nobody_has_warn() -> None:
    with pytest.warns(OptionWarning, match="'enable_falback'; did you mean 'enable_fa"):
        ort.InferenceSession(MODEL, enable_falback=0)


def test_a_session_stays_what_it_is_when_its_eps_change() -> None:
    import pickle

    session = ort.InferenceSession(MODEL, providers=[CPU])
    session.set_providers([CPU])
    assert isinstance(session.io_binding(), ort.IOBinding)
    again = pickle.loads(pickle.dumps(session))
    assert type(again) is ort.InferenceSession
    x = np.float32([-1, 2])
    assert again.run(["y", "x"], {"x": x})[1].tolist() == [-1, 2]
