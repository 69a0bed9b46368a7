"""The stand-in is called as CuPy is: by its names, its arguments, and what it says."""

from __future__ import annotations

import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from onnxplug_cuda.faults import remedy, status_of

from .standin import CuPy, Machine, module


@pytest.fixture(scope="session")
def cupy() -> Any:
    """The real one, which needs no driver to be looked at."""
    try:
        import cupy
    except ImportError as error:
        message = f"CuPy cannot be imported: {error}; make test-cuda-offline"
        if "cuda-wheels" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    return cupy


@pytest.mark.parametrize(
    ("name", "own"),
    [("runtime", module.Runtime), ("driver", module.Driver), ("nvrtc", module.Nvrtc)],
)
def test_its_functions_are_those_of_cupy(cupy: Any, name: str, own: type) -> None:
    real = getattr(cupy.cuda, name)
    functions = [each for each in vars(own) if not each.startswith("_")]
    assert functions
    for each in functions:
        theirs = getattr(real, each)
        if isinstance(theirs, type):
            assert issubclass(theirs, RuntimeError)
            continue
        written = re.match(rf"{each}\((.*?)\)", theirs.__doc__)
        assert written is not None, each
        expected = [
            re.sub(r"=.*", "", one).split()[-1]
            for one in written[1].split(",")
            if one.strip()
        ]
        parameters = list(inspect.signature(getattr(own, each)).parameters)[1:]
        assert parameters == expected, each


def test_constants_are_those_of_cupy(cupy: Any) -> None:
    from onnxplug_cuda import staging, streams, timeline

    runtime = cupy.cuda.runtime
    assert runtime.streamNonBlocking == streams.NON_BLOCKING
    assert runtime.streamCaptureModeRelaxed == streams._RELAXED
    assert runtime.eventDisableTiming == timeline._PLAIN
    assert runtime.hostAllocPortable == staging._PORTABLE
    assert (
        runtime.memcpyHostToDevice,
        runtime.memcpyDeviceToHost,
        runtime.memcpyDeviceToDevice,
    ) == (streams._TO_DEVICE, streams._TO_HOST, streams._ON_DEVICE)


DRIVER = """
int cuDriverGetVersion(int *found) { *found = 13020; return 0; }
int cuGetErrorName(int status, const char **found) { *found = "NAME"; return 0; }
int cuGetErrorString(int status, const char **found) { *found = "why"; return 0; }
"""
"""As much of a driver as CuPy's errors ask for words."""


def test_errors_of_cupy_are_told_by_their_numbers(cupy: Any, tmp_path: Path) -> None:
    error = cupy.cuda.runtime.CUDARuntimeError(700)
    assert status_of(error) == 700
    assert "illegal" in str(error).lower()
    source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
    source.write_text(DRIVER, "utf-8")
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no gcc")
    subprocess.run([compiler, "-shared", "-fPIC", source, "-o", library], check=True)
    program = "import cupy; print(cupy.cuda.driver.CUDADriverError(700).status)"
    path = os.pathsep.join([str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {program}"],
        env={**os.environ, "LD_LIBRARY_PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "700", done.stderr


def test_without_a_driver_the_real_one_says_what_is_missing(cupy: Any) -> None:
    if cupy.cuda.runtime.driverGetVersion():
        pytest.skip("there is a driver")
    with pytest.raises(RuntimeError) as caught:
        cupy.cuda.driver.ctxGetCurrent()
    assert "install NVIDIA's driver" in remedy(caught.value)
    from onnxplug_cuda.driver import Driver

    with pytest.raises(RuntimeError, match="there is no driver of NVIDIA's"):
        Driver(cupy, 0)


def test_a_query_gives_the_error_and_raises_nothing(cupy: Any) -> None:
    if cupy.cuda.runtime.driverGetVersion():
        pytest.skip("there is a driver")
    assert cupy.cuda.runtime.eventQuery(0) == 35


def test_it_sees_what_may_not_be_done(machine: Machine) -> None:
    runtime = CuPy(machine).cuda.runtime
    machine.gate.clear()
    device, host = runtime.malloc(1000), runtime.hostAlloc(1000, 1)
    stream = runtime.streamCreateWithFlags(1)
    runtime.memcpyAsync(device, host, 1000, 1, stream)
    machine.region(host).bytes(host, 1)[:] = 1  # type: ignore[union-attr]
    runtime.freeHost(host)
    with pytest.raises(module.CudaError):
        runtime.memcpyAsync(device, id(machine), 10, 1, stream)
    machine.gate.set()
    with pytest.raises(module.CudaError):
        runtime.streamSynchronize(stream)
    said = " ".join(machine.violations)
    assert "is freed while it is used by copy to the device" in said
    assert "which is no pinned memory of the host" in said
    assert "not allocated" in said
    machine.violations.clear()


def test_what_is_held_up_ends_with_it(machine: Machine) -> None:
    """So a test that fails meanwhile lets nobody wait."""
    runtime = CuPy(machine).cuda.runtime
    machine.gate.clear()
    device, stream = runtime.malloc(100), runtime.streamCreateWithFlags(1)
    runtime.memsetAsync(device, 7, 100, stream)
    machine.close()
    assert (machine.bytes(device, 100, "the test") == 7).all()
    with pytest.raises(module.CudaError, match="709"):
        runtime.memsetAsync(device, 8, 100, stream)
    with pytest.raises(module.CudaError, match="709"):
        machine.wait_until(lambda: False)
