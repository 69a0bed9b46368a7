"""What happens when a device is lost, has no memory, or refuses a kernel."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug_compiler.gpu.execution.device import DeviceLost, filling
from onnxplug_webgpu.adapters import find_adapters, import_wgpu
from onnxplug_webgpu.device import Device
from onnxplug_webgpu.pool import Pool
from onnxplug_webgpu.readback import Readback

EP = "WebGpuExecutionProvider"
RNG = np.random.default_rng(2)


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.standard_normal(shape).astype(np.float32)


class Planted:
    """A device of wgpu's of which some calls fail.

    Attributes:
        failures: what calls raise, by name; a function is called with the arguments.
    """

    def __init__(self, native: Any) -> None:
        self._native = native
        self.failures: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._native, name)
        if name not in self.failures:
            return found

        def call(**given: Any) -> Any:
            self.failures[name](given)
            return found(**given)

        return call


@pytest.fixture
def model(parse: Any) -> onnx.ModelProto:
    found = parse(
        "h = MatMul(x, w) y = Relu(h)",
        "float[N, 4] x",
        "float[N, 3] y",
        weights="float[4, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}",
    )
    found.graph.node[0].name = "product"
    return found


W = np.arange(1, 13, dtype=np.float32).reshape(4, 3)


def check(session: onnxplug.InferenceSession, rows: int = 2) -> None:
    x = normal(rows, 4)
    found = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(found, np.maximum(x @ W, 0), 1e-5, 1e-5)


def test_a_session_goes_on_after_its_device_was_lost(
    device: Device, alone: Any, model: onnx.ModelProto
) -> None:
    session, other = alone(model), alone(model)
    check(session)
    check(other)
    value = onnxplug.OrtValue.ortvalue_from_numpy(normal(2, 4), "webgpu", 0)
    before = device.generation
    device.native.destroy()
    with pytest.raises(onnxplug.errors.DeviceReset, match="the next run makes a new"):
        check(session)
    # weights are uploaded and kernels compiled anew, also of the other session
    check(session)
    check(session, 5)
    check(other)
    assert device.generation == before + 1
    with pytest.raises(onnxplug.errors.DeviceReset, match="feed or bind again"):
        value.numpy()
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "webgpu")
    with pytest.raises(onnxplug.errors.DeviceReset, match="was lost"):
        session.run_with_iobinding(binding)
        binding.get_outputs()[0].numpy()
    check(session)
    check(alone(model))


def test_a_device_that_is_lost_while_work_is_queued(
    device: Device, alone: Any, model: onnx.ModelProto
) -> None:
    session = alone(model)
    check(session)
    planted = Planted(device.native)
    planted.failures["create_bind_group"] = lambda given: (
        device.native._native.destroy()
    )
    device.native = planted
    with pytest.raises(onnxplug.errors.DeviceReset, match="product"):
        check(session, 3)
    check(session, 3)
    # and one that is lost for good says so
    device.native.destroy()
    with pytest.raises(onnxplug.errors.DeviceReset):
        check(session)
    device.adapter = device.adapter._replace(number=-1, native=_Gone(device.adapter))
    with pytest.raises(onnxplug.errors.EpError, match="gives no device: unplugged"):
        check(session)


class _Gone:
    """An adapter that gives no device any more."""

    def __init__(self, adapter: Any) -> None:
        self.limits = adapter.native.limits

    def request_device_sync(self, **given: Any) -> Any:
        raise RuntimeError("unplugged")


def test_threads_get_what_is_right_or_are_told_of_a_loss(
    device: Device, alone: Any, parse: Any
) -> None:
    session = alone(
        parse(
            "g = Gather(x, i) y = Softmax(g)", "float[N, 6] x, int64[K] i",
            "float[K, 6] y",
        )
    )  # fmt: skip
    wrong: list[BaseException] = []
    counts = {"right": 0, "lost": 0}
    has_ended = threading.Event()

    def work(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        binding = session.io_binding()
        while not has_ended.is_set():
            n = int(numbers.integers(1, 9))
            x = numbers.standard_normal((n, 6)).astype(np.float32)
            i = numbers.integers(0, n, 3)
            shares = np.exp(x[i])
            try:
                value = onnxplug.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
                binding.bind_ortvalue_input("x", value)
                binding.bind_cpu_input("i", i)
                binding.bind_output("y", "webgpu" if seed % 2 else "cpu")
                session.run_with_iobinding(binding)
                found = binding.get_outputs()[0].numpy()
                expected = shares / shares.sum(-1, keepdims=True)
                np.testing.assert_allclose(found, expected, 1e-4)
                counts["right"] += 1
            except onnxplug.errors.DeviceReset:
                counts["lost"] += 1
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)
                return

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        time.sleep(0.2)
        with device.lock:
            device.native.destroy()
    time.sleep(0.2)
    has_ended.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not wrong, wrong
    assert counts["right"] and counts["lost"], counts


def test_a_captured_graph_does_not_outlive_its_device(
    device: Device, alone: Any, model: onnx.ModelProto
) -> None:
    session = alone(model, enableGraphCapture="1")
    x = normal(2, 4)

    def bound() -> Any:
        binding = session.io_binding()
        value = onnxplug.OrtValue.ortvalue_from_numpy(x, "webgpu", 0)
        binding.bind_ortvalue_input("x", value)
        room = onnxplug.OrtValue.ortvalue_from_numpy(normal(2, 3), "webgpu", 0)
        binding.bind_ortvalue_output("y", room)
        return binding

    binding = bound()
    for _ in range(3):
        session.run_with_iobinding(binding)
    device.native.destroy()
    for _ in range(2):
        with pytest.raises(onnxplug.errors.DeviceReset):
            session.run_with_iobinding(binding)
            binding.get_outputs()[0].numpy()
    binding = bound()
    for _ in range(3):
        session.run_with_iobinding(binding)
    found = binding.get_outputs()[0].numpy()
    np.testing.assert_allclose(found, np.maximum(x @ W, 0), 1e-5, 1e-5)


def test_without_memory_the_node_is_named_and_the_session_goes_on(
    device: Device, alone: Any, model: onnx.ModelProto
) -> None:
    session = alone(model)
    check(session)
    device.native = planted = Planted(device.native)

    def none_left(given: dict[str, Any]) -> None:
        # 800 rows of 4 have 12800 bytes, of 3 9600
        if given["size"] == 10240:
            raise import_wgpu().GPUOutOfMemoryError("out of memory, planted")

    planted.failures["create_buffer"] = none_left
    with pytest.raises(
        onnxplug.errors.OutOfMemory, match="out of memory, planted"
    ) as e:
        check(session, 800)
    assert "product" in e.value.node
    assert isinstance(e.value, MemoryError)
    check(session)
    planted.failures.clear()
    check(session, 800)


def test_what_is_kept_is_given_up_before_there_is_no_memory(adapter: Any) -> None:
    """What some sessions have given back is there for others, of whatever size."""
    device = Device(import_wgpu(), adapter)
    device.native = planted = Planted(device.native)
    held = [device.memory(1 << 20), device.memory(2 << 20)]

    def scarce(given: dict[str, Any]) -> None:
        if device._pool.idle or held:
            raise import_wgpu().GPUOutOfMemoryError("planted")

    planted.failures["create_buffer"] = scarce
    with pytest.raises(MemoryError, match="close sessions that share it"):
        device.memory(3 << 20)
    held.clear()
    assert device.memory(3 << 20).nbytes == 3 << 20
    with pytest.raises(MemoryError, match="has arrays of at most"):
        device.memory(device.largest_buffer + 1)


def test_sessions_share_the_memory_of_an_adapter(
    device: Device, alone: Any, model: onnx.ModelProto
) -> None:
    """Sessions of different sizes take turns with less memory than all have at once;
    who asks for too much is told, and the others go on."""
    budget, live = 3 << 20, [0]
    device.lose()
    sessions = [alone(model) for _ in range(3)]
    device.native = planted = Planted(device.native)
    create = planted.create_buffer

    def scarce(**given: Any) -> Any:
        size = given["size"]
        gc.collect()
        if live[0] + size > budget:
            raise import_wgpu().GPUOutOfMemoryError("over the budget")
        buffer = create(**given)
        live[0] += size
        weakref.finalize(buffer, lambda: live.__setitem__(0, live[0] - size))
        return buffer

    planted.create_buffer = scarce
    for turn in range(6):
        for number, session in enumerate(sessions):
            check(session, 10_000 + 7_000 * number + 1_000 * turn)
    with pytest.raises(onnxplug.errors.OutOfMemory, match="over the budget"):
        check(sessions[0], 200_000)
    for session in sessions:
        check(session, 20_000)


@pytest.mark.parametrize("mode", ["disabled", "lazyRelease", "simple", "bucket"])
def test_memory_is_kept_as_the_option_says(mode: str) -> None:
    made: list[int] = []

    def create(size: int) -> object:
        made.append(size)
        return object()

    pool = Pool(1 << 20, 1, lambda: None)
    for nbytes in (100_000, 100_100, 1 << 20):
        memory = pool.take(nbytes, create, mode)
        assert nbytes <= memory.nbytes <= 1 << 20
        del memory
    pool.collect()
    kept = {"bucket": 2, "simple": 3}.get(mode, 0)
    assert len(pool._buffers) == kept
    assert len(made) == (2 if mode == "bucket" else 3)


def test_a_kernel_that_a_driver_refuses_is_for_the_next_ep(
    device: Device, parse: Any, beside: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parse("a = Relu(x) m = Softmax(a) y = Neg(m)", "float[2, 3] x")
    model.graph.node[1].name = "shares"
    make = Device._make

    def planted(self: Device) -> None:
        make(self)
        self.native = Planted(self.native)
        error = import_wgpu().GPUValidationError("unsupported by this driver, planted")

        def refuse(given: dict[str, Any]) -> None:
            if "exp(" in given["code"]:
                raise error

        self.native.failures["create_shader_module"] = refuse

    monkeypatch.setattr(Device, "_make", planted)
    device.lose()
    session = beside(model)
    monkeypatch.undo()
    places = {node.op_type: node.ep for node in session.explain().nodes}
    assert places == {"Relu": EP, "Softmax": "CPUExecutionProvider", "Neg": EP}
    report = str(session.explain())
    assert "unsupported by this driver, planted" in report
    assert "update the driver" in report
    x = normal(2, 3)
    a = np.exp(np.maximum(x, 0))
    found = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(found, -a / a.sum(-1, keepdims=True), 1e-5)


class Unsettled:
    """A promise that nobody keeps or breaks."""

    def __init__(self) -> None:
        self._thread_event = threading.Event()


def test_a_wait_ends_when_the_device_is_lost_meanwhile(
    adapter: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device(import_wgpu(), find_adapters(import_wgpu())[0])
    memory = device.memory(64)
    array = np.empty(64, np.uint8)
    readback = Readback(device)
    readback.add(memory, array.nbytes, filling(array))
    readback.seal()
    # the thread of wgpu's that tells what is done ends with the device
    readback._promise = Unsettled()
    device.native.destroy()
    assert not readback.is_done()
    monkeypatch.setattr("onnxplug_webgpu.readback._PATIENCE", 0.02)
    for _ in range(2):
        with pytest.raises(DeviceLost):
            readback.finish()
    assert readback.is_done()
    device.ensure()
    assert device.generation == 2
    assert not device.has(memory)
