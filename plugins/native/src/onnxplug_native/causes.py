"""What is behind failures that libraries tell of in their own words."""

from __future__ import annotations

import re
from typing import Final

_CAUSES: Final = (
    (
        r"libvulkan|vulkan loader|No supported adapters|adapter_result",
        "it found no Vulkan driver that serves",
        "install your GPU's, or Mesa's (mesa-vulkan-drivers, which computes on the "
        "processor; WebGPU's library takes that with "
        "ORT_WEBGPU_EP_ALLOW_SOFTWARE_ADAPTER=1 in the environment)",
    ),
    (
        r"default backend path|load backend",
        "it wants to be told on what to compute",
        "set its option backend_type, such as htp, or backend_path, the file of one of "
        "the libraries beside it",
    ),
    (
        r"libcuda|libnvidia|libnvinfer|libcudart|libnvrtc|no CUDA-capable",
        "it is for a GPU of NVIDIA's, and does not find what it needs for one",
        "install the GPU's driver, and the libraries that it names",
    ),
    (
        r"is not implemented by onnxplug-native",
        "it asks for what onnxplug-native has not",
        "tell the makers of onnxplug which library asked for it",
    ),
)


def cause_and_remedy(said: str) -> tuple[str, str]:
    """What is behind what a library *said*, and what to do about it; both are empty if
    that is not known."""
    for pattern, cause, remedy in _CAUSES:
        if re.search(pattern, said, re.IGNORECASE):
            return cause, remedy
    return "", ""


def explained(said: str) -> str:
    """What a library *said*, with what is known of it."""
    cause, remedy = cause_and_remedy(said)
    return f"{said.rstrip()}; {cause}: {remedy}" if cause else said
