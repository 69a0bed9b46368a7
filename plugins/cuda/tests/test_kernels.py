"""Kernels: compiled, found on disk, refused, and unloaded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from onnxplug_compiler.gpu.execution.device import DeviceLost, KernelRefused
from onnxplug_cuda import kernels as kernels_module
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.driver import Driver
from onnxplug_cuda.streams import CudaCapture

from .additions import ADD, COUNT, added, content, placed
from .standin import CuPy, Machine


def test_kernels_are_compiled_once_and_found_on_disk(
    machine: Machine, kernels: Path
) -> None:
    for compiled in (1, 0):
        gpu = CudaDevice(Driver(CuPy(machine, kernels), 0))
        stream = gpu.new_stream()
        first, second = placed(gpu, stream, 5), gpu.memory(4 * COUNT, stream)
        for _ in range(2):
            stream.queue(added(gpu, first, second, 7))
        assert (content(stream, second) == 12).all()
        assert gpu._kernels.compiled == compiled
        assert machine.counts["compileProgram"] == 1


@pytest.fixture
def two_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two kernels are kept though nothing holds them, and modules unloaded at once."""
    monkeypatch.setattr(kernels_module, "_MOST_KERNELS", 2)
    monkeypatch.setattr(kernels_module, "_UNLOADED_AT_ONCE", 1)


def variants(gpu: CudaDevice) -> Callable[[int], Any]:
    """Kernels whose texts differ in a comment."""
    return lambda number: gpu.kernel(f"{ADD}// {number}", (False, True), 32)


@pytest.mark.usefixtures("two_at_most")
def test_kernels_that_nothing_holds_are_unloaded_the_oldest_first(
    machine: Machine, gpu: CudaDevice
) -> None:
    kernel, driver = variants(gpu), gpu.driver.driver
    kernel(0), kernel(1)
    held = kernel(0)  # which makes 1 the one that was asked for longest ago
    kernel(2), kernel(3)
    assert machine.counts["moduleLoadData"] == 4
    assert len(driver._modules) == 3  # 1 went with the last
    assert kernel(0) is held
    assert machine.counts["moduleLoadData"] == 4
    kernel(1)  # with which 2 goes
    assert machine.counts["moduleLoadData"] == 5
    assert len(driver._modules) == 3
    del held
    gpu.close()
    assert driver._modules == {}


@pytest.mark.usefixtures("two_at_most")
def test_a_kernel_is_there_as_long_as_its_launches_and_graphs(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream = gpu.new_stream()
    source, target = placed(gpu, stream, 1), placed(gpu, stream)
    work = added(gpu, source, target, 4)
    CudaCapture().begin(stream)
    stream.queue(work)
    graph = CudaCapture().end(stream)
    del work
    kernel = variants(gpu)
    for number in range(4):
        kernel(number)
    gpu._launches.clear()
    kernel(5)
    graph.launch(stream)
    assert (content(stream, target) == 5).all()
    unloaded = machine.counts["moduleUnload"]
    machine.gate.clear()
    stream.queue(added(gpu, source, target, 6))
    graph.close()
    gpu._launches.clear()
    for number in range(6, 9):
        threading.Timer(0.05, machine.gate.set).start()
        kernel(number)  # which waits for the launch
    assert machine.counts["moduleUnload"] > unloaded
    assert (content(stream, target) == 7).all()


@pytest.mark.usefixtures("two_at_most")
def test_no_module_is_unloaded_while_a_run_is_captured(
    machine: Machine, gpu: CudaDevice
) -> None:
    stream, kernel = gpu.new_stream(), variants(gpu)
    CudaCapture().begin(stream)
    for number in range(5):
        kernel(number)
    assert machine.counts["moduleUnload"] == 0
    CudaCapture().end(stream).close()
    kernel(5)
    assert machine.counts["moduleUnload"] == 3


def test_machine_code_that_is_none_is_compiled_anew(
    machine: Machine, kernels: Path
) -> None:
    CudaDevice(Driver(CuPy(machine, kernels), 0)).kernel(ADD, (False, True), 32)
    machine.plan("moduleLoadData", 200)
    gpu = CudaDevice(Driver(CuPy(machine, kernels), 0))
    gpu.kernel(ADD, (False, True), 32)
    assert machine.counts["compileProgram"] == 2
    assert machine.counts["moduleLoadData"] == 3


def test_a_kernel_that_is_not_compiled_is_refused_in_the_compilers_words(
    machine: Machine, kernels: Path
) -> None:
    cupy = CuPy(machine, kernels)
    cupy.cuda.nvrtc.refused = "kernel.cu(3): error: nothing is right\n\n1 error"
    gpu = CudaDevice(Driver(cupy, 0))
    with pytest.raises(KernelRefused) as caught:
        gpu.kernel(ADD, (False, True), 32)
    said = str(caught.value)
    assert "NVRTC 13.0 does not compile a kernel for sm_90" in said
    assert "nothing is right 1 error; another version" in said
    cupy.cuda.nvrtc.refused = ""
    machine.plan("moduleLoadData", 209)
    with pytest.raises(KernelRefused, match="does not load a kernel"):
        gpu.kernel(ADD, (False, True), 32)
    gpu.kernel(ADD, (False, True), 32)


@pytest.mark.parametrize(("status", "error"), [(2, MemoryError), (719, DeviceLost)])
def test_what_is_not_the_kernels_fault_is_not_said_to_be(
    machine: Machine, gpu: CudaDevice, status: int, error: type[Exception]
) -> None:
    machine.plan("moduleLoadData", status)
    with pytest.raises(error):
        gpu.kernel(ADD, (False, True), 32)


def test_more_arguments_than_cuda_passes_are_refused(gpu: CudaDevice) -> None:
    kernel = gpu.kernel(ADD, (False, True), 32)
    with pytest.raises(KernelRefused, match="4096"), gpu.lock:
        gpu.launch(kernel, bytes(4096), 0, 4096, (1, 1), [(gpu.memory(4), 0, 0)])
