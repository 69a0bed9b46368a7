"""What the tests of the EP need: a GPU that there is not."""

from __future__ import annotations

import functools
import gc
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.plugins import registry
from onnxplug_cuda.device import CudaDevice
from onnxplug_cuda.driver import Driver
from onnxplug_cuda.engines import opening
from onnxplug_cuda.factory import CudaFactory
from onnxplug_cuda.pool import Arena, Memory
from onnxplug_cuda.spaces import CudaSpaces

from .planted import Planted
from .standin import CuPy, Machine

EP = "CUDAExecutionProvider"


@pytest.fixture(autouse=True)
def uninstalled() -> Iterator[None]:
    """Tests register the EP themselves, also where it is installed."""
    is_installed = EP in [record.name for record in registry.records()]
    if is_installed:
        registry.remove(EP)
    yield
    if is_installed:
        registry.refresh()


@pytest.fixture(scope="session")
def kernels(request: pytest.FixtureRequest) -> Path:
    """A folder for kernels that g++ compiles for the processor, which takes long."""
    if "g++" not in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
        pytest.skip("kernels are compiled by make test-cuda-offline")
    folder: Path = request.config.cache.mkdir("cuda_on_cpu")
    return folder


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Machine]:
    """The stand-in's GPU, on which nobody does in the end what may not be done."""
    monkeypatch.setenv("ONNXPLUG_CACHE_DIR", str(tmp_path / "cache"))
    found = Machine()
    with watching_blocks(found):
        yield found
    found.close()
    assert found.violations == []


class watching_blocks:
    """Tells a machine which blocks arenas cut its regions into, and hand out."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._taken: dict[int, weakref.ref[Memory]] = {}

    def __enter__(self) -> None:
        taken, take = self._taken, Arena.take

        def watched(arena: Arena, *given: Any) -> Memory:
            memory = take(arena, *given)
            taken[memory.address] = weakref.ref(memory)
            return memory

        def end(address: int) -> int | None:
            best = None
            for reference in list(taken.values()):
                memory = reference()
                if memory is not None and memory.address <= address:
                    stop = memory.address + memory.nbytes
                    if address < stop:
                        best = stop
            return best

        self._take = take
        Arena.take = watched  # type: ignore[method-assign]
        self._machine.block_at = end

    def __exit__(self, *error: object) -> None:
        Arena.take = self._take  # type: ignore[method-assign]


@pytest.fixture
def make_device(
    machine: Machine, request: pytest.FixtureRequest
) -> Callable[..., CudaDevice]:
    """Makes a device of the stand-in."""

    def make(*, runs_kernels: bool = False) -> CudaDevice:
        folder = request.getfixturevalue("kernels") if runs_kernels else None
        return CudaDevice(Driver(CuPy(machine, folder), 0))

    return make


class StandInFactory(CudaFactory):
    """The EP's factory, where the stand-in's GPUs are all that there are.

    Args:
        cupy: the stand-in.
    """

    verification = None

    def __init__(self, cupy: CuPy) -> None:
        super().__init__()
        self.memory_spaces = _Spaces(cupy)

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice]:
        gpu = ep.HardwareDevice(
            type=ep.DeviceType.GPU,
            vendor="NVIDIA",
            vendor_id=0x10DE,
            metadata={"pci_bus_id": "0000:10:00.0", "is_virtual": "1"},
        )
        return [
            ep.EpDevice(
                ep_name=self.name, device=gpu, default_options={"device_id": "-1"}
            )
        ]


class _Spaces(CudaSpaces):
    owned = frozenset({"cuda"})

    def __init__(self, cupy: CuPy) -> None:
        self._cupy = cupy

    def import_cupy(self) -> CuPy:
        return self._cupy


@pytest.fixture
def cupy(machine: Machine, kernels: Path) -> CuPy:
    """The stand-in, with kernels."""
    return CuPy(machine, kernels)


@pytest.fixture
def factory(cupy: CuPy) -> Iterator[StandInFactory]:
    """The EP's, registered."""
    found = StandInFactory(cupy)
    onnxplug.register_ep_library("stand-in", found)
    yield found
    gc.collect()
    # those of a test that failed, whose frames are kept; it may have held work up
    cupy.machine.gate.set()
    left: set[Any] = registry.table.sessions(EP)
    for session in left:
        session.close()
    onnxplug.unregister_ep_library("stand-in")


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
def alone(factory: StandInFactory) -> Callable[..., onnxplug.InferenceSession]:
    """A session whose every node is on the EP."""

    def make(model: Any, **options: Any) -> onnxplug.InferenceSession:
        settings = onnxplug.SessionOptions()
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return onnxplug.InferenceSession(model, settings, providers=[(EP, options)])

    return make


@pytest.fixture
def device(make_device: Callable[..., CudaDevice]) -> CudaDevice:
    """A device on which no kernels run."""
    return make_device()


@pytest.fixture
def gpu(make_device: Callable[..., CudaDevice]) -> CudaDevice:
    """A device that runs kernels."""
    return make_device(runs_kernels=True)


@pytest.fixture
def planted(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Planted:
    libraries = Planted(machine)
    monkeypatch.setattr(
        opening,
        "open_engines",
        functools.partial(
            opening.open_engines,
            look=libraries.look,
            frontend=lambda: libraries.graphs,
        ),
    )
    return libraries
