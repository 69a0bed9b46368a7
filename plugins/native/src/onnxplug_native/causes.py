"""What to do about failures that libraries tell of in their own words."""

from __future__ import annotations

import re
from typing import Final

_REMEDIES: Final = (
    (
        r"libvulkan|vulkan loader|No supported adapters|adapter_result",
        "it found no Vulkan driver that serves: install your GPU's, or Mesa's "
        "(mesa-vulkan-drivers, which computes on the processor; WebGPU's library takes "
        "that with ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 in the environment)",
    ),
    (
        r"default backend path|load backend",
        "it wants to be told on what to compute: set its option backend_type, such as "
        "htp, or backend_path, the file of one of the libraries beside it",
    ),
    (
        r"libcuda|libnvinfer|libcudart|libnvrtc|no CUDA-capable",
        "it wants a GPU of NVIDIA's, its driver, and the libraries that it names",
    ),
    (
        r"is not implemented by onnxplug-native",
        "that is onnxplug's to mend: tell its makers which library asked for it",
    ),
)


def remedy(said: str) -> str:
    """What to do about what a library *said*; empty if that is not known."""
    for pattern, text in _REMEDIES:
        if re.search(pattern, said, re.IGNORECASE):
            return text
    return ""
