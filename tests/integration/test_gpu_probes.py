"""The probes of GPUs: that no kernel is without one."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any, Final

import pytest

import onnxplug
from onnxplug_compiler.gpu import families
from onnxplug_compiler.gpu.command import Launch
from onnxplug_compiler.gpu.execution.target import ELEMENTS, GpuTarget
from onnxplug_compiler.gpu.probes import FAMILIES, probes
from onnxplug_compiler.gpu.render import steps
from onnxplug_compiler.ir.parameters import Parameters
from onnxplug_cuda.backend import CudaKernels
from onnxplug_webgpu.backend import BACKEND

from .gpu_recording import Recording

OF_TENSOR_CORES: Final = {
    "TensorProductKernel": {"f16", "bf16", "u8_i8"},
    "TensorFlashKernel": {"f16", "bf16"},
}
"""The elements of which each is launched."""
OF_VECTORS: Final = {"VectorChainKernel"}

TARGETS: Final[dict[str, GpuTarget]] = {
    "WebGPU": GpuTarget(shapes=BACKEND.target.shapes),
    "CUDA": CudaKernels((8, 0)),
}

VARIANTS: Final[dict[str, tuple[str, set[Any]]]] = {
    "FewRowsKernel": ("bits", {0, 2, 4, 8}),
    "ContractionKernel": ("wide", {1, 2, 4}),
    "ArgExtremeKernel": ("shares", {False, True}),
    "TileSortKernel": ("merges", {False, True}),
    "RecurrentKernel": ("element", {"f32", "f16"}),
}
"""Of kernels that are written otherwise by an attribute, those of its values that are
launched."""

SHARED: Final = ("ReduceKernel", "MomentsKernel")
"""Kernels whose results a lane, or a workgroup has."""


def kernels() -> Iterator[str]:
    """The names of all that families have."""
    for found in pkgutil.iter_modules(families.__path__):
        module = importlib.import_module(f"{families.__name__}.{found.name}")
        for each in vars(module).values():
            is_own = isinstance(each, type) and each.__module__ == module.__name__
            if is_own and issubclass(each, Parameters) and hasattr(each, "write"):
                yield each.__name__


@pytest.fixture(params=TARGETS)
def launched(request: pytest.FixtureRequest) -> tuple[str, list[Any]]:
    """The kernels of all probes, on a GPU of a kind."""
    recording = Recording(TARGETS[request.param])
    onnxplug.register_ep_library("recording", recording)
    try:
        commands = [
            command
            for probe in probes(wide=TARGETS[request.param].dialect.wide)
            for command in recording.record(probe.model)
        ]
    finally:
        onnxplug.unregister_ep_library("recording")
    return request.param, [each.kernel for each in commands if type(each) is Launch]


def test_every_kernel_is_launched_by_a_probe(launched: tuple[str, list[Any]]) -> None:
    """Whoever writes a kernel writes a model for it, in
    ``onnxplug_testing.gpu_probe_models``, and a family in
    ``onnxplug_compiler.gpu.probes``."""
    name, found = launched
    absent = {*OF_TENSOR_CORES, *OF_VECTORS} if name == "WebGPU" else set()
    assert {*kernels()} - {type(each).__name__ for each in found} == absent
    for kind, (attribute, values) in VARIANTS.items():
        kinds = [each for each in found if type(each).__name__ == kind]
        assert values <= {getattr(each, attribute) for each in kinds}, kind
    for kind in SHARED:
        kinds = [each for each in found if type(each).__name__ == kind]
        assert {each.lanes_of_result > 1 for each in kinds} == {False, True}, kind
    for kind in OF_TENSOR_CORES.keys() - absent:
        kinds = [each for each in found if type(each).__name__ == kind]
        assert {each.element for each in kinds} == OF_TENSOR_CORES[kind], kind


WITHOUT: Final = {
    *"Reshape Flatten Squeeze Unsqueeze Identity Dropout BitCast".split(),
    *"ScaledDotProduct MaxPlaces".split(),
}
"""What computes nothing, and names that the compiler has for others' parts."""


def test_every_operator_is_of_a_family() -> None:
    """What fails a probe is else used all the same."""
    named = {
        name.removeprefix("ai.onnx.ml.")
        for family in FAMILIES.values()
        for name in family.operators.split()
    }
    computed = {*ELEMENTS, *steps._STEPS, *steps._COMPARISONS}
    assert computed - named == WITHOUT
