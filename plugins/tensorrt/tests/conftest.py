"""What the tests of the EP need: a GPU that there is not, and a TensorRT."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from plugins.cuda.tests.standin import CuPy, Machine

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_cuda.factory import CudaFactory
from onnxplug_cuda.spaces import CudaSpaces
from onnxplug_tensorrt.factory import TensorrtFactory

from .standin import LibCuda, TensorRT

EP = "TensorrtExecutionProvider"
CUDA = "CUDAExecutionProvider"

GPU = ep.HardwareDevice(
    type=ep.DeviceType.GPU,
    vendor="NVIDIA",
    vendor_id=0x10DE,
    metadata={"pci_bus_id": "0000:10:00.0", "is_virtual": "1"},
)


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    """Tests register the EPs themselves, also where they are installed."""
    names = [record.name for record in registry.records()]
    installed = [name for name in (EP, CUDA) if name in names]
    for name in installed:
        registry.remove(name)
    yield
    if installed:
        registry.refresh()


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    """The stand-in's GPU, on which nobody does in the end what may not be done."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    found = Machine()
    yield found
    found.close()
    assert found.violations == []


class StandInCuda(CudaFactory):
    """The CUDA EP's, which has the GPU's memory and runs no kernels."""

    verification = None

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self.memory_spaces = _Spaces(CuPy(machine))

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        return [
            ep.EpDevice(
                ep_name=self.name, device=GPU, default_options={"device_id": "-1"}
            )
        ]


class _Spaces(CudaSpaces):
    owned = frozenset({"cuda"})

    def __init__(self, cupy: CuPy) -> None:
        self._cupy = cupy

    def import_cupy(self) -> CuPy:
        return self._cupy


class StandInFactory(TensorrtFactory):
    """The EP's factory, on the stand-in for TensorRT."""

    verification = None

    def __init__(self, tensorrt: TensorRT) -> None:
        super().__init__()
        self.tensorrt = tensorrt

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        return [
            ep.EpDevice(
                ep_name=self.name, device=GPU, default_options={"device_id": "-1"}
            )
        ]

    def import_tensorrt(self) -> TensorRT:
        return self.tensorrt

    def load_driver(self) -> LibCuda:
        return self.tensorrt.cuda


@pytest.fixture
def tensorrt(machine: Machine) -> TensorRT:
    """The stand-in."""
    return TensorRT(LibCuda(machine))


@pytest.fixture
def factory(tensorrt: TensorRT) -> Iterator[StandInFactory]:
    """The EP's, registered with that of the GPU's memory."""
    found = StandInFactory(tensorrt)
    onnxplug.register_ep_library("stand-in for CUDA", StandInCuda(tensorrt.machine))
    onnxplug.register_ep_library("stand-in", found)
    yield found
    gc.collect()
    # those of a test that failed, whose frames are kept; it may have held work up
    tensorrt.machine.gate.set()
    tensorrt.gate.set()
    left: set[Any] = registry.table.sessions(EP)
    for session in left:
        session.close()
    onnxplug.unregister_ep_library("stand-in")
    onnxplug.unregister_ep_library("stand-in for CUDA")


@pytest.fixture
def parse() -> Callable[..., onnx.ModelProto]:
    """A model from the text of its nodes."""

    def parse_text(
        body: str, inputs: str = "float[2, 3] x", outputs: str = "float[2, 3] y",
        opset: int = 21, weights: str = "",
    ) -> onnx.ModelProto:  # fmt: skip
        held = f"<{weights}>" if weights else ""
        return onnx.parser.parse_model(
            f"""
            < ir_version: 10, opset_import: ["" : {opset}] >
            agraph ({inputs}) => ({outputs}) {held} {{ {body} }}
            """
        )

    return parse_text


@pytest.fixture
def make(factory: StandInFactory) -> Callable[..., onnxplug.InferenceSession]:
    """A session on the EP, with the CPU EP, and *entries* of its config."""

    def made(
        model: Any, entries: dict[str, str] | None = None, **options: Any
    ) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        for key, value in (entries or {}).items():
            settings.add_session_config_entry(key, value)
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return made


@pytest.fixture
def alone(
    make: Callable[..., onnxplug.InferenceSession],
) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the EP."""

    def made(
        model: Any, entries: dict[str, str] | None = None, **options: Any
    ) -> onnxplug.InferenceSession:
        own = {"session.disable_cpu_ep_fallback": "1"} | (entries or {})
        return make(model, own, **options)

    return made
