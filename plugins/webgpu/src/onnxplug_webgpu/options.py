"""What users may set, by ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug import ep

_CACHE: Final = "this EP has one pool of buffers for all"
_MODES: Final = ("disabled", "lazyRelease", "simple", "bucket")


def _cache(default: str) -> ep.Option:
    return ep.Option(
        default=default,
        choices=_MODES,
        doc="for programs that set it for ONNX Runtime",
        ignored=_CACHE,
    )


OPTIONS: Final[Mapping[str, ep.Option]] = {
    "deviceId": ep.Option(
        default=-1,
        minimum=-1,
        doc="which adapter, by its place in what `onnxplug doctor` lists; -1: the "
        "session's device, or the best there is",
    ),
    "powerPreference": ep.Option(
        default="high-performance",
        choices=("high-performance", "low-power"),
        doc="which adapter, where several are left to choose from",
    ),
    "forceCpuNodeNames": ep.Option(
        default="",
        doc="names of nodes that are left to the next EP, one a line",
    ),
    "preferredLayout": ep.Option(
        default="NHWC",
        choices=("NHWC", "NCHW"),
        doc="for programs that set it for ONNX Runtime",
        ignored="how values lie is decided for each plan",
    ),
    "enableGraphCapture": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="runs are not captured yet",
    ),
    "enableInt64": ep.Option(
        default=False,
        doc="for programs that set it for ONNX Runtime",
        ignored="int64 is computed exactly, by pairs of words",
    ),
    "validationMode": ep.Option(
        default="basic",
        choices=("disabled", "wgpuOnly", "basic", "full"),
        doc="for programs that set it for ONNX Runtime",
        ignored="wgpu always validates what is queued",
    ),
    "storageBufferCacheMode": _cache("bucket"),
    "uniformBufferCacheMode": _cache("simple"),
    "queryResolveBufferCacheMode": _cache("disabled"),
    "defaultBufferCacheMode": _cache("disabled"),
}
