"""The on-device check, on the stand-in."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import onnx
import pytest

import onnxplug
from onnxplug import ep
from onnxplug.errors import EpWarning
from onnxplug_compiler.gpu.execution import linking
from onnxplug_compiler.gpu.families import few_rows
from onnxplug_compiler.gpu.probes import WIDE, probes
from onnxplug_cuda.factory import CudaFactory
from onnxplug_testing.probe_models import write

from .conftest import EP, StandInFactory
from .planted import Planted

PROBES = {probe.family: probe for probe in probes(wide=True)}

OF_LIBRARIES = {
    "convolution": "cudnn",
    "depthwise": "cudnn",
    "half_convolution": "cudnn",
    "exact_products": "cudnn",
    "half_attention": "cudnn",
    "bfloat16_attention": "cudnn",
    "large_product": "cublasLt",
    "large_half_product": "cublasLt",
    "large_double_product": "cublasLt",
}
"""What a library computes where it is installed; kernels do where it is not."""


def check(probe: ep.Probe, alone: Any) -> None:
    """As the host does, by the EP with its defaults."""
    relative, absolute = probe.tolerance
    session = alone(probe.model)
    found = session.run(None, dict(probe.inputs))
    cpu = onnxplug.InferenceSession(probe.model, providers=["cpu"])
    for ours, wanted in zip(found, cpu.run(None, dict(probe.inputs)), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=relative, atol=absolute)
    assert {node.tier for node in session.explain().nodes} == {"compiled"}


@pytest.mark.parametrize("family", PROBES)
def test_a_probe_passes_where_results_are_right(family: str, alone: Any) -> None:
    check(PROBES[family], alone)


@pytest.mark.parametrize("family", PROBES)
def test_a_probe_passes_by_libraries(family: str, planted: Planted, alone: Any) -> None:
    check(PROBES[family], alone)
    ran = {"cudnn": planted.graphs.ran, "cublasLt": planted.products.ran}
    found = [library for library, calls in ran.items() if calls]
    assert found == ([OF_LIBRARIES[family]] if family in OF_LIBRARIES else [])


class Some(ep.Verification):
    """Has the probes of some families run."""

    compile_seconds = 600.0

    def probes(self, device: ep.EpDevice) -> Iterable[ep.Probe]:
        return [PROBES["few_rows"], PROBES["activation"]]


@pytest.fixture
def partial_sums(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A wrong kernel: lanes that share a sum do not add theirs."""
    linking._written.cache_clear()
    monkeypatch.setattr(few_rows._Writer, "join", lambda *given: None)
    yield
    linking._written.cache_clear()


def test_operators_of_a_wrong_kernel_are_left_to_the_next_ep(
    partial_sums: None,
    factory: StandInFactory,
    parse: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("onnxplug.verify.check.SECONDS", 600)
    factory.verification = Some()
    model = parse("m = MatMul (x, x)\n y = Relu (m)", "float[3, 3] x", "float[3, 3] y")
    with pytest.warns(EpWarning, match=r"'few_rows': \d+ of 49 elements of 'y'"):
        session = onnxplug.InferenceSession(model, providers=[EP, "cpu"])
    placed = {node.op_type: node.ep for node in session.explain().nodes}
    assert placed == {"MatMul": "CPUExecutionProvider", "Relu": EP}
    x = np.sin(np.arange(9, dtype=np.float32)).reshape(3, 3)
    (y,) = session.run(None, {"x": x})
    np.testing.assert_allclose(y, np.maximum(x @ x, 0), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", WIDE)
def test_a_probe_is_a_file_that_the_tool_writes(family: str) -> None:
    model = onnx.load_from_string(PROBES[family].model)
    assert model == onnx.load_from_string(write(family))


def test_gpus_are_checked_before_they_are_used() -> None:
    gpu = ep.HardwareDevice(type=ep.DeviceType.GPU, vendor="NVIDIA", vendor_id=0x10DE)
    pair = ep.EpDevice(ep_name=CudaFactory.name, device=gpu)
    assert CudaFactory.verification is not None
    assert {each.family for each in CudaFactory.verification.probes(pair)} == {*PROBES}
