"""Has the real cuDNN plan what the EP asks of it, for an H100 that is not there.

    python plugins/cuda/tools/plan_without_gpu.py

It needs Linux, a C compiler, and the distributions nvidia-cudnn-cu13, nvidia-cublas,
nvidia-cuda-nvrtc and nvidia-cudnn-frontend, but no driver: cuDNN plans for a device by
its properties, and a library with the names of the driver's says that kernels were
loaded.  Nothing is executed.  For each call it prints how many plans cuDNN has, which
of them is the first that is built, and what workspace that takes; a call without a plan
is an error.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

H100: Final = {
    "deviceName": "NVIDIA H100 80GB HBM3",
    "cudaDeviceId": 0,
    "deviceVer": 900,
    "driverVer": 13000,
    "totalGlobalMem": 80 << 30,
    "maxGridSize": [2147483647, 65535, 65535],
    "maxBlockSize": [1024, 1024, 64],
    "regsPerBlock": 65536,
    "multiProcessorCount": 132,
    "smCountOrigin": 0,
    "smClockRateKHz": 1980000,
    "memClockRateKHz": 2619000,
    "memoryBusWidth": 5120,
    "l2CacheSize": 50 << 20,
    "warpSize": 32,
    "maxSharedMemoryPerBlock": 48 << 10,
    "maxSharedMemoryPerBlockOptin": 227 << 10,
    "oversizedSharedMemoryPerBlock": 0,
    "reservedSharedMemoryPerBlock": 1024,
    "maxRegistersPerSM": 65536,
    "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024,
    "maxThreadsPerSM": 2048,
    "pciDeviceId": 0,
    "isTccDriver": 0,
    "supportCoopLaunch": 1,
}
"""The properties by which cuDNN plans, by the names that it has for them."""

MAKING: Final = (
    "cuKernelGetFunction cuLibraryGetKernel cuLibraryLoadData cuLibraryLoadFromFile "
    "cuModuleGetFunction cuModuleLoadData"
).split()
"""Functions of the driver that give a handle, which is any here."""

OTHERS: Final = (
    "cuCtxGetCurrent cuCtxGetLimit cuCtxPopCurrent cuCtxPushCurrent cuDeviceGet "
    "cuDeviceGetCount cuGetErrorName cuGetErrorString cuKernelGetAttribute "
    "cuKernelSetAttribute cuLaunchCooperativeKernel cuLaunchKernel cuLaunchKernelEx "
    "cuLibraryUnload cuLinkAddData cuLinkComplete cuLinkCreate cuLinkDestroy "
    "cuModuleUnload cuOccupancyMaxPotentialClusterSize cuStreamGetCtx "
    "cuTensorMapEncodeIm2col cuTensorMapEncodeTiled"
).split()
"""Those that cuDNN looks for, and that have no device: all but attributes fail."""

_FINE: Final = frozenset({"cuKernelGetAttribute", "cuKernelSetAttribute"})
_INNER: Final = "ONNXPLUG_PLANS_WITHOUT_GPU"


def main() -> None:
    """Plan in a process that finds the stand-in of the driver."""
    if os.environ.get(_INNER):
        plan()
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_driver(folder)
        paths = [name, *map(str, library_folders())]
        environment = {**os.environ, "LD_LIBRARY_PATH": ":".join(paths), _INNER: "1"}
        done = subprocess.run([sys.executable, *sys.argv], env=environment, check=False)
    sys.exit(done.returncode)


def write_driver(folder: Path) -> None:
    """A ``libcuda.so.1`` that has no device and loads any kernel."""
    lines = ["int cuDriverGetVersion(int* v) { *v = 13000; return 0; }"]
    lines += [
        f"int {name}(void** h) {{ *h = (void*)64; return 0; }}" for name in MAKING
    ]
    lines += [f"int {x}(void) {{ return {0 if x in _FINE else 100}; }}" for x in OTHERS]
    source = folder / "driver.c"
    source.write_text("\n".join(lines) + "\n", encoding="utf-8")
    output = folder / "libcuda.so.1"
    command = ["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", output]
    subprocess.run([*command, source], check=True)


def library_folders() -> list[Path]:
    """Where the distributions of NVIDIA's have their libraries."""
    found = []
    for entry in sys.path:
        for inner in ("nvidia/cudnn/lib", "nvidia/cu13/lib"):
            if (folder := Path(entry) / inner).is_dir():
                found.append(folder)
    return found


class WithoutGpu:
    """cuDNN's frontend, whose graphs are for a device that is not there."""

    def __init__(self) -> None:
        import cudnn

        self._cudnn = cudnn
        self._device = cudnn.create_device_properties(json.dumps(H100))
        self.graphs: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cudnn, name)

    def create_handle(self) -> None:
        """None, which would be of a device."""

    def pygraph(self, **given: Any) -> Any:
        """A graph for that device."""
        given |= {"device_property": self._device, "sm_version": H100["deviceVer"]}
        self.graphs.append(Unasked(self._cudnn.pygraph(**given)))
        return self.graphs[-1]


class Unasked:
    """A graph whose support is seen from its plans; a device would be asked."""

    def __init__(self, graph: Any) -> None:
        self._graph = graph

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)

    def check_support(self) -> None:
        """Nothing."""


def calls() -> dict[str, Any]:
    """What is planned: calls as layers of networks are, by their names."""
    from onnxplug_cuda.engines.graphs import Attention, Convolution, Tensor

    def plain(*shape: int) -> Tensor:
        strides = [1]
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        return Tensor(shape, tuple(strides))

    def last(*shape: int) -> Tensor:
        images, channels, *spatial = shape
        found = plain(images, *spatial, channels).strides
        return Tensor(shape, (found[0], found[-1], *found[1:-1]))

    ones = (1, 1)
    layer = (64, 64, 56, 56), (64, 64, 3, 3), (64, 64, 56, 56)
    first = (8, 3, 224, 224), (64, 3, 7, 7), (8, 64, 112, 112)
    found: dict[str, Any] = {}
    for element in ("f16", "bf16", "f32"):
        for name, lie in (("channels last", last), ("as its shape", plain)):
            around = ones, ones, ones, ones
            call = Convolution(element, *(lie(*each) for each in layer), *around)
            found[f"3×3 of {element}, {name}"] = call
        found[f"3×3 of {element}, bias and Relu"] = Convolution(
            element, *(last(*each) for each in layer), *around, has_bias=True, relu=True
        )
        found[f"7×7 by 2 of {element}"] = Convolution(
            element, *(last(*x) for x in first), (3, 3), (2, 2), (2, 2), ones
        )
    found["3×3 of f32, TF32"] = found["3×3 of f32, channels last"]._replace(tf32=True)
    found["of each channel, f16"] = Convolution(
        "f16", last(8, 64, 56, 56), last(64, 1, 3, 3), last(8, 64, 56, 56), *around
    )
    found["of three axes, f16"] = Convolution(
        "f16", last(1, 16, 8, 32, 32), last(32, 16, 3, 3, 3), last(1, 32, 8, 32, 32),
        *((1, 1, 1),) * 4,
    )  # fmt: skip
    found["along one axis, f16"] = Convolution(
        "f16", last(8, 80, 3000, 1), last(384, 80, 3, 1), last(8, 384, 3000, 1),
        (1, 0), (1, 0), ones, ones,
    )  # fmt: skip
    found["transposed by 2, f16"] = Convolution(
        "f16", last(8, 64, 28, 28), last(64, 32, 2, 2), last(8, 32, 56, 56),
        (0, 0), (0, 0), (2, 2), ones, transposed=True,
    )  # fmt: skip
    for element in ("f16", "bf16"):
        q = plain(8, 12, 128, 64)
        found[f"attention of {element}"] = Attention(element, q, q, q, None, q, 0.125)
        found[f"causal attention of {element}"] = Attention(
            element, q, q, q, None, q, 0.125, "first"
        )
        found[f"masked attention of {element}"] = Attention(
            element, q, q, q, plain(8, 1, 128, 128), q, 0.125
        )
    one, many = plain(1, 32, 1, 128), plain(1, 8, 512, 128)
    found["a word that attends to 512, f16"] = Attention(
        "f16", one, many, many, None, one, 0.088, "last"
    )
    return found


def plan() -> None:
    """Plan all calls, and print what comes of it."""
    from onnxplug_compiler.gpu.execution.device import KernelRefused
    from onnxplug_cuda.engines.cudnn import Cudnn

    frontend = WithoutGpu()
    print(f"cuDNN {frontend.backend_version()}, frontend {frontend.__version__}")
    library, refused = Cudnn(frontend), 0
    for name, call in calls().items():
        call.check(call.needed)
        try:
            workspace = library.workspace(call)
        except KernelRefused as error:
            refused += 1
            print(f"{name}: {error}"[:300])
            continue
        number = library._plan(call).number
        graph = frontend.graphs[-1]
        count = graph.get_execution_plan_count()
        which = graph.get_plan_name_at_index(number)
        print(f"{name}: {count} plans; number {number}, {which}; {workspace} bytes")
    sys.exit(refused > 0)


if __name__ == "__main__":
    main()
