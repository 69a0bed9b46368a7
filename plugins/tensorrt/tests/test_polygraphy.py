"""Polygraphy, NVIDIA's own tool, runs engines on the stand-in as it is.

So what the stand-in asks of its callers is not only what the EP does.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator
from plugins.cuda.tests.standin import CuPy, Machine

from .standin import TensorRT
from .standin.libcuda import CONTEXT


class LibCudart:
    """``libcudart.so`` as Polygraphy calls it, of the stand-in's GPU."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._runtime = CuPy(machine).cuda.runtime

    def cudaStreamCreate(self, stream: Any) -> int:
        stream._obj.value = self._runtime.streamCreateWithFlags(1)
        return 0

    def cudaStreamSynchronize(self, stream: Any) -> int:
        self._runtime.streamSynchronize(stream.value)
        return 0

    def cudaStreamDestroy(self, stream: Any) -> int:
        self._runtime.streamDestroy(stream.value)
        return 0

    def cudaMalloc(self, address: Any, nbytes: Any) -> int:
        address._obj.value = self._runtime.malloc(max(nbytes.value, 1))
        return 0

    def cudaFree(self, address: Any) -> int:
        self._runtime.free(address.value or 0)
        return 0

    def cudaMemcpyAsync(
        self, target: Any, source: Any, nbytes: Any, kind: Any, stream: Any
    ) -> int:
        self._runtime.streamSynchronize(stream.value)  # memory of the host is paged
        ctypes.memmove(target.value, source.value, nbytes.value)
        return 0


@pytest.fixture
def polygraphy(
    machine: Machine, tensorrt: TensorRT, monkeypatch: pytest.MonkeyPatch
) -> Any:
    """Its backend for TensorRT, over the stand-ins."""
    monkeypatch.setitem(sys.modules, "tensorrt", tensorrt)
    try:
        from polygraphy.backend import trt
        from polygraphy.cuda import cuda
    except ImportError as error:
        message = f"Polygraphy cannot be imported: {error}; make test-tensorrt-offline"
        if "polygraphy" in os.environ.get("ONNXPLUG_REQUIRE", "").split(","):
            pytest.fail(message)
        pytest.skip(message)
    wrapper = cuda.Cuda.__new__(cuda.Cuda)
    wrapper.handle = LibCudart(machine)
    monkeypatch.setattr(cuda, "G_CUDA", wrapper)
    tensorrt.cuda.cuCtxPushCurrent_v2(ctypes.c_void_p(CONTEXT))
    yield trt
    gc.collect()  # what the tool let go of, in this thread
    tensorrt.cuda.pushed.clear()


class Logger:
    """What the stand-in takes for a log."""

    _is_begun = True

    def log(self, severity: Any, message: str) -> None:
        raise AssertionError(message)


MODELS = {
    "a = Exp(x) y = Sin(a)": "float[n, 3] y",
    "y = NonZero(x)": "int64[2, m] y",
}


def test_its_runner_runs_what_the_builder_built(
    polygraphy: Any, parse: Any, tensorrt: TensorRT
) -> None:
    for body, outputs in MODELS.items():
        model: onnx.ModelProto = parse(body, "float[n, 3] x", outputs)
        engine = built(tensorrt, model)
        with polygraphy.TrtRunner(engine) as runner:
            for batch in (1, 4, 2):
                x = np.arange(3 * batch, dtype=np.float32).reshape(batch, 3) % 4
                found = runner.infer({"x": x})
                (wanted,) = ReferenceEvaluator(model).run(None, {"x": x})
                np.testing.assert_allclose(found["y"], wanted, 1e-5)


def built(tensorrt: TensorRT, model: onnx.ModelProto) -> Any:
    """An engine for one to four rows."""
    builder = tensorrt.Builder(Logger())
    network = builder.create_network()
    parser = tensorrt.OnnxParser(network, Logger())
    parser.load_model_proto(model.SerializeToString())
    assert parser.parse_model_proto()
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    return tensorrt.Runtime(Logger()).deserialize_cuda_engine(plan)
