"""What is different where tensors are in a device's memory."""

from __future__ import annotations

import gc
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug.errors import InvalidArgument, OptionError
from onnxplug_torch.devices import SPACES, Place

EP = "DeviceExecutionProvider"
SPACE = "pretended"
X = np.arange(12, dtype=np.float32).reshape(3, 4) - 5


@pytest.fixture(params=["own", "of another EP"])
def factory(torch: Any, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The EP's, in a memory that is its own or that another EP owns."""
    module = load_devices()
    streamless = "no streams" in request.param
    made = module.DeviceFactory(
        module.StreamlessPlace if streamless else module.PretendedPlace
    )
    handle = 0 if "handle" in request.param else 77
    owner = module.OwnerFactory(handle, made.log)
    onnxplug.register_ep_library("on_device", made)
    shared = not request.param.startswith("own")
    if shared:
        onnxplug.register_ep_library("owner", owner)
    yield made
    onnxplug.unregister_ep_library("on_device")
    if shared:
        onnxplug.unregister_ep_library("owner")


def load_devices() -> Any:
    path = Path(__file__).with_name("on_device.py")
    specification = importlib.util.spec_from_file_location("on_device", path)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["on_device"] = module
    specification.loader.exec_module(module)
    return module


def open_alone(model: onnx.ModelProto, **options: Any) -> onnxplug.InferenceSession:
    settings = onnxplug.SessionOptions()
    settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])


def on_device(array: np.ndarray[Any, Any]) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, SPACE)


def test_shapes_are_computed_on_the_host(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse(
        """
        shape = Shape (x)
        rows = Gather <axis = 0> (shape, zero)
        double = Mul (rows, two)
        one = Unsqueeze (double, zeros)
        wanted = Concat <axis = 0> (one, rest)
        more = Concat <axis = 0> (x, x)
        same = Reshape (more, wanted)
        y = Reshape (same, fed)
        """,
        inputs="float[n, 4] x, int64[k] fed",
        outputs="float[a, b] y",
        weights="int64 zero = {0}, int64 two = {2}, int64[1] zeros = {0}, "
        "int64[1] rest = {4}",
    )
    session = open_alone(model)
    feed = {"x": X, "fed": np.array([4, -1])}
    wanted = ReferenceEvaluator(model).run(None, feed)
    np.testing.assert_array_equal(session.run(None, feed)[0], wanted[0])
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_cpu_input("fed", np.array([2, -1]))
    binding.bind_output("y", SPACE)
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == SPACE
    assert found.shape() == [2, 12]
    np.testing.assert_array_equal(found.numpy().ravel(), np.tile(X.ravel(), 2))


@pytest.mark.parametrize("factory", ["own"], indirect=True)
def test_work_is_queued_on_streams(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    session = open_alone(parse("y = Relu (x)", "float[3, 4] x", "float[3, 4] y"))
    (found,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X, 0))
    # the copy in, the partition, the copy out, and then the wait for it
    assert factory.log.count("used") >= 3
    assert factory.log[-1] == "synchronize"


@pytest.mark.parametrize("factory", ["own"], indirect=True)
def test_work_is_queued_on_the_stream_of_the_user(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse("y = Relu (x)", "float[3, 4] x", "float[3, 4] y")
    session = open_alone(model, user_compute_stream=77)
    (found,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X, 0))
    assert "adopted 77" in factory.log


@pytest.mark.parametrize("factory", ["own, with no streams"], indirect=True)
def test_a_device_may_have_no_streams(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    session = open_alone(parse("y = Relu (x)", "float[3, 4] x", "float[3, 4] y"))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", SPACE)
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == SPACE
    np.testing.assert_array_equal(found.numpy(), np.maximum(X, 0))
    assert factory.log == []


@pytest.mark.parametrize(
    ("factory", "log"),
    [
        ("of another EP", ["adopted 77", "used", "synchronize"]),
        (
            "of another EP, without a native handle",
            ["synchronize", "synchronize all", "synchronize"],
        ),
    ],
    indirect=["factory"],
)
def test_work_is_queued_on_the_streams_of_who_owns_the_memory(
    factory: Any, parse: Callable[..., onnx.ModelProto], log: list[str]
) -> None:
    session = open_alone(parse("y = Relu (x)", "float[3, 4] x", "float[3, 4] y"))
    (found,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(found, np.maximum(X, 0))
    assert factory.log == log


def test_results_share_no_memory_with_constants_and_inputs(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse(
        "y = Identity (x)\n z = Reshape (x, flat)\n s = Add (x, w)",
        "float[2, 2] x",
        "float[2, 2] y, float[4] z, float[2, 2] s",
        weights="int64[1] flat = {-1}, float[2, 2] w = {1, 2, 3, 4}",
    )
    session = open_alone(model)
    x = on_device(np.ones((2, 2), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    for name in ("y", "z", "s"):
        binding.bind_output(name, SPACE)
    session.run_with_iobinding(binding)
    values = [x, *binding.get_outputs()]
    assert len({value.raw.data_ptr() for value in values}) == 4
    values[1].update_inplace(np.zeros((2, 2), np.float32))
    np.testing.assert_array_equal(values[2].numpy(), np.ones(4))


def test_bound_outputs_are_filled(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    session = open_alone(parse("y = Exp (x)", "float[3, 4] x", "float[3, 4] y"))
    room = on_device(np.zeros((3, 4), np.float32))
    place = room.raw.data_ptr()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_ortvalue_output("y", room)
    session.run_with_iobinding(binding)
    assert room.raw.data_ptr() == place
    np.testing.assert_allclose(room.numpy(), np.exp(X), rtol=1e-6)


def test_constants_are_made_once_for_all_sessions(
    factory: Any, torch: Any, parse: Callable[..., onnx.ModelProto], tmp_path: Path
) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    model = parse("y = MatMul (x, w)", "float[2, 64] x", "float[2, 64] y")
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, size_threshold=0)
    time.sleep(0.2)  # a file that was just written may change and tell no other time
    x = np.ones((2, 64), np.float32)
    seen: list[Any] = []
    multiply = torch.matmul

    def look(left: Any, right: Any) -> Any:
        seen.append(right.data_ptr())
        return multiply(left, right)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "matmul", look)
        sessions = [
            onnxplug.InferenceSession(path, providers=[EP, "cpu"]) for _ in range(2)
        ]
        for session in sessions:
            (found,) = session.run(None, {"x": x})
            np.testing.assert_allclose(found, x @ weight, rtol=1e-5, atol=1e-5)
    assert len(seen) == 2 and len(set(seen)) == 1


def test_a_loop_leaves_its_values_on_the_device(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse(
        """
        last, all = Loop (count, go, x) <body = grow
            (int64 n, bool c, float[3] v) => (bool more, float[3] next, float[3] kept) {
                more = Identity (c)
                next = Add (v, v)
                kept = Neg (v)
            }>
        """,
        "float[3] x, int64 count",
        "float[3] last, float[m, 3] all",
        weights="bool go = {1}",
    )
    session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    feed = {"x": np.array([1, 2, 3], np.float32), "count": np.array(4)}
    wanted = ReferenceEvaluator(model).run(None, feed)
    for found, right in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_array_equal(found, right)


def test_tensors_are_given_by_dlpack_without_a_copy(
    factory: Any, torch: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    session = open_alone(parse("y = Neg (x)", "float[3, 4] x", "float[3, 4] y"))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_device(X))
    binding.bind_output("y", SPACE)
    session.run_with_iobinding(binding)
    (value,) = binding.get_outputs()
    tensor = torch.from_dlpack(value)
    assert tensor.data_ptr() == value.raw.data_ptr()
    np.testing.assert_array_equal(tensor.numpy(), -X)


def test_every_type_crosses(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    import ml_dtypes

    for name, dtype in (
        ("bfloat16", ml_dtypes.bfloat16),
        ("float8e4m3fn", ml_dtypes.float8_e4m3fn),
        ("uint16", np.uint16),
        ("uint64", np.uint64),
        ("bool", np.bool_),
        ("double", np.float64),
    ):
        model = parse(
            "y = Transpose <perm = [1, 0]> (x)", f"{name}[3, 4] x", f"{name}[4, 3] y"
        )
        x = abs(X).astype(dtype)
        (found,) = open_alone(model).run(None, {"x": x})
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, x.T)


@pytest.mark.parametrize("factory", ["own"], indirect=True)
def test_runs_on_bound_values_are_captured_once_and_replayed(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse(
        "p = MatMul (x, w)\n y = Relu (p)", "float[3, 4] x", "float[3, 2] y",
        weights="float[4, 2] w = {1, -2, 3, -4, 5, -6, 7, -8}",
    )  # fmt: skip
    session = open_alone(model, cuda_graphs=True)
    x, room = on_device(X), on_device(np.zeros((3, 2), np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", x)
    binding.bind_ortvalue_output("y", room)
    for factor in (1, 2, -3, 4):
        x.update_inplace(factor * X)
        session.run_with_iobinding(binding)
        (wanted,) = ReferenceEvaluator(model).run(None, {"x": factor * X})
        np.testing.assert_array_equal(room.numpy(), wanted)
    # the first run is no captured one
    assert factory.log.count("capture") == 1
    assert factory.log.count("replay") == 3
    del binding, session
    gc.collect()
    assert factory.log.count("reset") == 1


def test_cuda_graphs_need_shapes_that_depend_on_no_values(
    factory: Any, parse: Callable[..., onnx.ModelProto]
) -> None:
    model = parse("y = NonZero (x)", "float[3, 4] x", "int64[2, n] y")
    with pytest.raises(onnxplug.errors.SessionRefused, match="cuda_graphs"):
        open_alone(model, cuda_graphs=True)


def test_a_device_that_torch_lacks_is_an_error(torch: Any) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[2] x) => (float[2] y) '
        "{ y = Relu (x) }"
    )
    for device in ("tpu:0", "cpu:1", f"cuda:{torch.cuda.device_count()}"):
        with pytest.raises(OptionError, match=device):
            onnxplug.InferenceSession(model, providers=[("torch", {"device": device})])


@pytest.mark.parametrize("space", sorted(SPACES))
def test_memory_that_torch_lacks_is_refused_before_it_is_used(
    torch: Any, space: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = Place(space, 63)
    with pytest.raises(InvalidArgument, match=r"built without|finds no device"):
        onnxplug.OrtValue.ortvalue_from_numpy(X, space, 63)
    foreign = SimpleNamespace(
        __dlpack__=lambda **_: None, __dlpack_device__=lambda: place.dlpack
    )
    with pytest.raises(InvalidArgument, match="whose memory no installed EP owns"):
        onnxplug.OrtValue.from_dlpack(foreign)
    gc.collect()  # a context that was made is closed with its last user
    assert not caplog.records
