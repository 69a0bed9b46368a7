"""Which devices the EP drives, and what is said of what is missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from plugins.cuda.tests.standin import Machine

import onnxplug
from onnxplug import ep, errors
from onnxplug_tensorrt import diagnosis, factory, installation
from onnxplug_tensorrt.driver import CurrentContext, find_device, load_driver
from onnxplug_tensorrt.factory import TensorrtFactory
from onnxplug_tensorrt.probes import FAMILIES

from .conftest import EP, GPU
from .standin import LibCuda, TensorRT


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has distributions be installed, by their versions."""

    def planted(**versions: str) -> None:
        known = {name.replace("_", "-"): version for name, version in versions.items()}
        for module in (installation,):
            monkeypatch.setattr(module, "_version", lambda name: known.get(name, ""))
            monkeypatch.setattr(module, "_is_there", lambda name: False)

    return planted


def judged() -> list[Any]:
    devices = [GPU, ep.HardwareDevice(type=ep.DeviceType.CPU)]
    return list(TensorrtFactory().supported_devices(devices))


def test_gpus_of_nvidia_are_driven(plant: Any) -> None:
    plant(tensorrt_cu13="11.4.0.106", cupy_cuda13x="14.2.0")
    (pair,) = judged()
    assert (pair.ep_name, pair.device) == (EP, GPU)
    assert pair.metadata == {"version": "0.1.0", "engine_version": "11.4.0.106"}
    assert TensorrtFactory().engine_versions(pair) == {"tensorrt-cu13": "11.4.0.106"}


@pytest.mark.parametrize(
    ("versions", "reason", "remedy"),
    [
        ({}, "is not installed", "pip install 'onnxplug-tensorrt[cu13]'"),
        ({"cupy_cuda12x": "14.2"}, "is not installed", "onnxplug-tensorrt[cu12]"),
        ({"tensorrt_cu13": "10.9.0"}, "is older than 10.13", "[cu13]"),
        ({"tensorrt_cu12": "12.0.1"}, "is not older than 12", "[cu12]"),
        (
            {"tensorrt_cu12": "11.4", "cupy_cuda13x": "14.2"},
            "is for CUDA 12, and the installed CuPy for CUDA 13",
            "pip uninstall tensorrt-cu12, then",
        ),
    ],
)
def test_what_is_missing(
    plant: Any, versions: dict[str, str], reason: str, remedy: str
) -> None:
    plant(**versions)
    (refused,) = judged()
    assert reason in refused.reason and remedy in refused.remedy
    (finding,) = TensorrtFactory().diagnose()
    assert finding.level is ep.Level.ERROR and finding.message == refused.reason


def test_what_doctor_says(plant: Any, machine: Machine) -> None:
    plant(tensorrt_cu13="11.4.0.106", cupy_cuda13x="14.2.0")
    tensorrt = TensorRT(LibCuda(machine))
    (finding,) = diagnosis.findings(lambda: tensorrt)
    assert finding.message == "TensorRT 11.4.0.106, for CUDA 13, with parser 110400"
    plant(tensorrt_cu13="11.4.0.106")
    _, lacking = diagnosis.findings(lambda: tensorrt)
    assert "has no CuPy" in lacking.message

    def broken() -> Any:
        raise RuntimeError("libnvinfer.so.11 is missing")

    (finding,) = diagnosis.findings(broken)
    assert finding.level is ep.Level.ERROR and "libnvinfer" in finding.message


def test_a_tensorrt_that_cannot_be_imported(
    plant: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tensorrt_cu13="11.4.0.106")
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", None)
    with pytest.raises(RuntimeError, match=r"cannot be imported.*pip install"):
        installation.import_tensorrt()


def test_the_gpu_is_that_of_the_device(machine: Machine) -> None:
    cuda = LibCuda(machine, devices=3)
    pair = ep.EpDevice(ep_name=EP, device=GPU)
    other = GPU.__class__(
        type=ep.DeviceType.GPU, metadata={"pci_bus_id": "0000:12:00.0"}
    )
    assert find_device(cuda, [pair], -1) == 0
    assert find_device(cuda, [ep.EpDevice(ep_name=EP, device=other)], -1) == 2
    assert find_device(cuda, [pair], 1) == 1
    away = ep.HardwareDevice(
        type=ep.DeviceType.GPU, metadata={"pci_bus_id": "0000:99:00.0"}
    )
    with pytest.raises(LookupError, match="CUDA_VISIBLE_DEVICES"):
        find_device(cuda, [ep.EpDevice(ep_name=EP, device=away)], -1)


def test_a_driver_that_fails(machine: Machine) -> None:
    cuda = LibCuda(machine)
    cuda.failures["cuInit"] = 100
    with pytest.raises(RuntimeError, match="cuInit failed with status 100"):
        find_device(cuda, [], 0)
    with pytest.raises(RuntimeError, match="cuCtxPushCurrent_v2 failed"):
        CurrentContext(5, cuda).facts()
    facts = CurrentContext(4096, cuda).facts()
    assert (facts.name, facts.architecture, facts.processors) == (
        "Stand-in", "sm_90", 132,
    )  # fmt: skip
    assert not cuda.pushed


def test_the_driver_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere(name: str) -> Any:
        raise OSError(f"{name}: no such file")

    load_driver.cache_clear()
    monkeypatch.setattr("ctypes.CDLL", nowhere)
    with pytest.raises(RuntimeError, match="docker run --gpus all"):
        load_driver()


def test_without_the_cuda_ep_a_session_is_refused(
    tensorrt: TensorRT, parse: Any
) -> None:
    from onnxplug.plugins import registry

    from .conftest import StandInFactory

    spare = "TorchExecutionProvider"
    if has_spare := spare in [record.name for record in registry.records()]:
        registry.remove(spare)  # which takes seconds to say no
    onnxplug.register_ep_library("stand-in", StandInFactory(tensorrt))
    try:
        with pytest.raises(errors.EpError, match=r"memory of cuda:0.*pip install"):
            onnxplug.InferenceSession(parse("y = Exp(x)"), providers=[EP])
    finally:
        onnxplug.unregister_ep_library("stand-in")
        if has_spare:
            registry.refresh()


def test_probes_are_whole_models(alone: Any) -> None:
    """The stand-in, which computes by the CPU EP, takes some of them."""
    pair = ep.EpDevice(ep_name=EP, device=GPU)
    assert isinstance(TensorrtFactory.verification, factory.TensorrtVerification)
    probes = list(TensorrtFactory.verification.probes(pair))
    assert [probe.family for probe in probes] == list(FAMILIES)
    for probe in probes[:4]:
        model = onnx.load_from_string(probe.model)
        found = alone(model).run(None, dict(probe.inputs))
        wanted = ReferenceEvaluator(model).run(None, dict(probe.inputs))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-4, 1e-5)
