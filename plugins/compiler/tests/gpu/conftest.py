"""What runs kernels in CUDA C++ without a GPU."""

from __future__ import annotations

import os

import pytest

from onnxplug_testing import cuda_on_cpu

from .cuda_on_cpu import Processor


@pytest.fixture(scope="module")
def processor(request: pytest.FixtureRequest) -> Processor:
    folder = request.config.cache.mkdir("cuda_on_cpu")
    try:
        return Processor(cuda_on_cpu.Processor(folder))
    except cuda_on_cpu.CompilerMissing as error:
        if "g++" in os.environ.get("ONNXPLUG_REQUIRE", ""):
            pytest.fail(str(error))
        pytest.skip(str(error))
