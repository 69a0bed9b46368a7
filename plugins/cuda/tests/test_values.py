"""Values on a GPU: arrays, what others read and lend without copies, and sessions."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import onnxplug
from onnxplug import ep
from onnxplug.authoring.dlpack import tensor_of
from onnxplug.errors import InvalidArgument
from onnxplug_cuda import spaces
from onnxplug_cuda.array import CudaArray
from onnxplug_cuda.spaces import CudaSpaces

from .conftest import EP, StandInFactory
from .standin import CuPy, Machine

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def on_gpu(array: Any) -> onnxplug.OrtValue:
    return onnxplug.OrtValue.ortvalue_from_numpy(array, "cuda", 0)


def test_a_session_computes_on_the_device(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    model = parse("a = Exp (x)\n y = Add (a, x)")
    session = alone(model)
    (found,) = session.run(None, {"x": X})
    (wanted,) = ReferenceEvaluator(model).run(None, {"x": X})
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    assert machine.counts["launchKernel"] >= 1
    before = machine.counts.copy()
    session.run(None, {"x": X})
    after = machine.counts - before
    assert after["copy to the device"] == after["copy to the host"] == 1
    assert after["eventSynchronize"] + after["streamSynchronize"] <= 2
    # what the first run was copied from may still be in use
    assert after["malloc"] == 0 and after["hostAlloc"] <= 1


def test_values_are_made_read_and_changed_on_the_device(
    factory: Any, machine: Machine
) -> None:
    import ml_dtypes

    value = on_gpu(X)
    assert (value.device_name(), value.shape()) == ("cuda", [2, 3])
    np.testing.assert_array_equal(value.numpy(), X)
    value.update_inplace(2 * X)
    np.testing.assert_array_equal(value.numpy(), 2 * X)
    for dtype in (np.float64, np.bool_, np.int8, ml_dtypes.bfloat16, np.complex64):
        array = np.array([[1, 0, 1]], dtype)
        found = on_gpu(array).numpy()
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, array)
    assert on_gpu(np.zeros((0, 3), np.float32)).numpy().shape == (0, 3)
    assert on_gpu(np.float32(3)).numpy() == 3
    with pytest.raises(InvalidArgument, match="sees no device 1"):
        onnxplug.OrtValue.ortvalue_from_numpy(X, "cuda", 1)


def test_bound_values_stay_on_the_device(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    session = alone(parse("y = Mul (x, x)"))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", on_gpu(X))
    binding.bind_output("y", "cuda")
    session.run_with_iobinding(binding)
    before = machine.counts.copy()
    session.run_with_iobinding(binding)
    after = machine.counts - before
    # nothing is copied, and nobody waits
    assert "memcpyAsync" not in after and "malloc" not in after
    assert not after.keys() & {"eventSynchronize", "streamSynchronize"}
    (found,) = binding.get_outputs()
    assert found.device_name() == "cuda"
    np.testing.assert_array_equal(found.numpy(), X * X)


def test_the_documented_sample_of_captured_graphs(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    """As in ONNX Runtime's documentation of its CUDA EP."""
    model = parse(
        "Y = MatMul (X, W)", "float[3, 2] X", "float[3, 1] Y",
        weights="float[2, 1] W = {1, 2}",
    )  # fmt: skip
    session = alone(model, enable_cuda_graph="1")
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    y = np.zeros((3, 1), np.float32)
    x_value, y_value = on_gpu(x), on_gpu(y)
    binding = session.io_binding()
    binding.bind_ortvalue_input("X", x_value)
    binding.bind_ortvalue_output("Y", y_value)
    wanted = np.array([[5], [11], [17]], np.float32)
    for _ in range(2):
        session.run_with_iobinding(binding)
        np.testing.assert_array_equal(y_value.numpy(), wanted)
    launched = machine.counts["launchKernel"]
    x_value.update_inplace(10 * x)
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(y_value.numpy(), 10 * wanted)
    assert machine.counts["graphLaunch"] >= 1
    assert machine.counts["launchKernel"] == launched


@pytest.mark.parametrize("apart", [0, 1])
def test_copies_have_a_stream_of_their_own_where_that_is_said(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
    apart: int,
) -> None:
    machine.late = 5
    session = alone(parse("y = Mul (x, x)"), do_copy_in_default_stream=1 - apart)
    for factor in range(1, 6):
        (found,) = session.run(None, {"x": factor * X})
        np.testing.assert_array_equal(found, (factor * X) ** 2)
    # the session's, and one for its copies
    assert machine.counts["streamCreateWithFlags"] == 1 + apart


def test_work_is_queued_on_the_stream_of_the_user(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
    cupy: CuPy,
) -> None:
    handle = cupy.cuda.runtime.streamCreateWithFlags(1)
    session = alone(parse("y = Mul (x, x)"), user_compute_stream=str(handle))
    (found,) = session.run(None, {"x": X})
    np.testing.assert_array_equal(found, X * X)
    assert machine.counts["streamCreateWithFlags"] == 1
    del session
    gc.collect()
    assert handle in machine.streams


def test_a_session_has_its_limit_of_memory(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    model = parse("y = Mul (x, x)", "float[n] x", "float[n] y")
    session = alone(
        model, gpu_mem_limit=1 << 20, arena_extend_strategy="kSameAsRequested"
    )
    (found,) = session.run(None, {"x": X.ravel()})
    np.testing.assert_array_equal(found, X.ravel() ** 2)
    large = np.ones(1 << 19, np.float32)
    with pytest.raises(onnxplug.errors.OutOfMemory, match="gpu_mem_limit") as caught:
        session.run(None, {"x": large})
    assert "Mul" in str(caught.value)
    (found,) = session.run(None, {"x": X.ravel()})
    np.testing.assert_array_equal(found, X.ravel() ** 2)
    with pytest.raises(onnxplug.errors.OptionError, match="sees 1 devices"):
        alone(model, device_id=1)


def test_what_is_not_queued_fails_the_run_with_its_nodes(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    session = alone(parse("m = Softmax (x)\n y = Softmax <axis = 0> (m)"))
    (right,) = session.run(None, {"x": X})
    for after in (0, 1):
        machine.plan("launchKernel", 701, after=after)
        with pytest.raises(onnxplug.errors.EpError) as caught:
            session.run(None, {"x": X})
        said = str(caught.value)
        assert "Softmax giving 'm' and 1 others: cudaError 701" in said
        assert "CUDAExecutionProvider" in said and "another EP" in said
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], right)


def test_a_fault_fails_the_run_and_refuses_sessions(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    model = parse("y = Mul (x, x)")
    session = alone(model)
    session.run(None, {"x": X})
    machine.break_down(700)
    with pytest.raises(onnxplug.errors.DeviceReset, match="restart it"):
        session.run(None, {"x": X})
    with pytest.raises(onnxplug.errors.DeviceReset, match=f"{EP}.*restart it"):
        alone(model)


# what others read and lend


class Capsule:
    """What another library lends: memory of the device, in a capsule."""

    def __init__(self, cupy: CuPy, content: np.ndarray[Any, Any], begin: int = 0):
        self._machine = cupy.machine
        self.address = cupy.cuda.runtime.malloc(content.nbytes + 256) + begin
        room = self._machine.bytes(self.address, content.nbytes, "a test")
        room[:] = content.reshape(-1).view(np.uint8)
        self._seen = room.view(content.dtype).reshape(content.shape)
        self.streams: list[Any] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, 0

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        self.streams.append(stream)
        capsule = self._seen.__dlpack__(max_version=options.get("max_version"))
        tensor = tensor_of(capsule)
        tensor.device_type, tensor.device_id = 2, 0
        return capsule


def test_memory_of_others_is_used_without_a_copy(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    cupy: CuPy,
) -> None:
    lent, room = Capsule(cupy, X), Capsule(cupy, np.zeros_like(X))
    values = [onnxplug.OrtValue.from_dlpack(each) for each in (lent, room)]
    assert lent.streams[0] in cupy.machine.streams
    session = alone(parse("y = Mul (x, x)"))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", values[0])
    binding.bind_ortvalue_output("y", values[1])
    session.run_with_iobinding(binding)
    np.testing.assert_array_equal(values[1].numpy(), X * X)
    np.testing.assert_array_equal(room._seen, X * X)
    assert values[1].raw.address == room.address


@pytest.mark.parametrize(
    ("content", "begin", "said"),
    [
        (X, 4, "no multiple of 256"),
        (np.zeros((2, 3), "m8[s]").view(np.int64).T, 0, "not next to each other"),
    ],
)
def test_memory_that_kernels_do_not_take_is_refused(
    factory: Any, cupy: CuPy, content: Any, begin: int, said: str
) -> None:
    lent = Capsule(cupy, np.ascontiguousarray(content), begin)
    if not content.flags.c_contiguous:
        lent._seen = lent._seen.reshape(content.T.shape).T
    with pytest.raises(onnxplug.errors.EpError, match=said):
        onnxplug.OrtValue.from_dlpack(lent)


def test_arrays_are_lent_by_dlpack_and_cudas_interface(
    factory: Any, cupy: CuPy, machine: Machine
) -> None:
    import ml_dtypes

    machine.late = 10
    value = on_gpu(X)
    array = value.raw
    interface = array.__cuda_array_interface__
    assert interface["data"] == (array.address, False)
    assert (interface["shape"], interface["typestr"]) == ((2, 3), "<f4")
    assert (interface["version"], interface["stream"]) == (3, 1)
    capsule = value.__dlpack__(stream=1)
    tensor = tensor_of(capsule)
    assert (tensor.data, tensor.device_type, tensor.device_id) == (array.address, 2, 0)
    assert (tensor.code, tensor.bits, tensor.shape[:2]) == (2, 32, [2, 3])
    narrow = on_gpu(np.ones(3, ml_dtypes.bfloat16)).raw
    capsule = narrow.__dlpack__()
    assert tensor_of(capsule).code == 4
    with pytest.raises(AttributeError, match="bfloat16; DLPack has"):
        _ = narrow.__cuda_array_interface__
    with pytest.raises(BufferError, match="as it is"):
        array.__dlpack__(copy=True)
    for stream in (0, -2):
        with pytest.raises(ValueError, match=f"stream is {stream}; expected"):
            array.__dlpack__(stream=stream)


def test_memory_that_was_lent_is_handed_out_when_all_work_is_done(
    factory: Any, cupy: CuPy, machine: Machine
) -> None:
    value = on_gpu(np.ones(1 << 16, np.float32))
    address, device = value.raw.address, value.raw.device
    capsule = value.__dlpack__(stream=1)
    del value
    gc.collect()
    assert device.memory(1 << 18).address != address
    del capsule
    gc.collect()
    waited = machine.counts["deviceSynchronize"]
    taken = [device.memory(1 << 18) for _ in range(4)]
    assert address in [memory.address for memory in taken]
    assert machine.counts["deviceSynchronize"] == waited + 1


class Spare(ep.EpFactory):
    """An EP that has the memory to spare, as the torch EP has."""

    spi_version = (0, 6)
    name = "AExecutionProvider"

    class Spaces(ep.MemorySpaces):
        spare = frozenset({"cuda"})

        def create_context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
            raise RuntimeError("of the other EP")

    memory_spaces = Spaces()

    def supported_devices(self, devices: Any) -> Any:
        return []

    def create(self, devices: Any, options: Any, session: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("first", ["spare", "cuda"])
def test_the_memory_is_this_eps_where_another_has_it_to_spare(
    cupy: CuPy, first: str
) -> None:
    makers: dict[str, Any] = {"spare": Spare, "cuda": lambda: StandInFactory(cupy)}
    for name in sorted(makers, reverse=first == "spare"):
        onnxplug.register_ep_library(name, makers[name]())
    try:
        assert isinstance(on_gpu(X).raw, CudaArray)
    finally:
        gc.collect()
        for name in makers:
            onnxplug.unregister_ep_library(name)


def test_without_cupy_the_memory_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spaces, "problem", lambda: "CuPy is not installed")
    assert CudaSpaces().owned == frozenset()
    monkeypatch.setattr(spaces, "problem", lambda: None)
    assert CudaSpaces().owned == {"cuda"}


# sessions beside each other


def test_threads_and_sessions_share_the_device(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    machine.late = 0.5
    model = parse("a = Mul (x, x)\n y = Add (a, x)", "float[n] x", "float[n] y")
    sessions = [alone(model), alone(model, gpu_mem_limit=1 << 21)]
    failures: list[Exception] = []

    def work(number: int) -> None:
        try:
            for step in range(12):
                x = np.full(1000 + 500 * (step % 3), number + step, np.float32)
                (found,) = sessions[number % 2].run(None, {"x": x})
                np.testing.assert_array_equal(found, x * x + x)
        except Exception as error:  # noqa: BLE001
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_what_a_closed_session_had_is_given_back(
    alone: Callable[..., onnxplug.InferenceSession],
    parse: Callable[..., onnx.ModelProto],
    machine: Machine,
) -> None:
    model = parse("y = Mul (x, x)")
    kept = on_gpu(X)
    used = machine.used
    session = alone(model, gpu_mem_limit=1 << 21)
    session.run(None, {"x": X})
    assert machine.used > used
    del session
    gc.collect()
    assert machine.used == used
    del kept
    gc.collect()
    assert machine.used == 0
    assert not [stream for stream in machine.streams if stream > 2]


def test_a_loop_leaves_its_values_on_the_device(
    factory: StandInFactory, parse: Callable[..., onnx.ModelProto], machine: Machine
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
    session = onnxplug.InferenceSession(model, providers=[EP, "CPUExecutionProvider"])
    feed = {"x": np.array([1, 2, 3], np.float32), "count": np.array(4)}
    wanted = ReferenceEvaluator(model).run(None, feed)
    for found, right in zip(session.run(None, feed), wanted, strict=True):
        np.testing.assert_array_equal(found, right)
    assert machine.counts["launchKernel"] >= 8


def test_gpus_are_driven_beside_each_other(
    machine: Machine, kernels: Path, parse: Callable[..., onnx.ModelProto]
) -> None:
    onnxplug.register_ep_library(
        "two", StandInFactory(CuPy(machine, kernels, devices=2))
    )
    try:
        model = parse("y = Mul (x, x)")
        sessions = [
            onnxplug.InferenceSession(model, providers=[(EP, {"device_id": number})])
            for number in (1, 0)
        ]
        values = [
            onnxplug.OrtValue.ortvalue_from_numpy((number + 1) * X, "cuda", number)
            for number in (0, 1)
        ]
        for factor in (1, 2):
            for session in sessions:
                (found,) = session.run(None, {"x": factor * X})
                np.testing.assert_array_equal(found, (factor * X) ** 2)
        for number, value in enumerate(values):
            assert value.raw.__dlpack_device__() == (2, number)
            np.testing.assert_array_equal(value.numpy(), (number + 1) * X)
        assert machine.device == 0
        del session, sessions, value, values
    finally:
        gc.collect()
        onnxplug.unregister_ep_library("two")
