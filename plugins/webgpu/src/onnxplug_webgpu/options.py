"""What users may set, by ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug import ep
from onnxplug_webgpu.pool import CACHE_MODES

AUTOTUNE: Final = ("off", "vendor", "device")
"""Where the shapes of workgroups are from."""


def _cache(default: str, why: str) -> ep.Option:
    return ep.Option(
        default=default,
        choices=CACHE_MODES,
        doc="for programs that set it for ONNX Runtime",
        ignored=why,
    )


OPTIONS: Final[Mapping[str, ep.Option]] = {
    "deviceId": ep.Option(
        default=-1,
        minimum=-1,
        doc="which adapter, by its place in what `onnxplug doctor` lists; -1: the "
        "session's device, or the best there is",
        compiled_in=False,
    ),
    "powerPreference": ep.Option(
        default="high-performance",
        choices=("high-performance", "low-power"),
        doc="which adapter, where several are left to choose from",
        compiled_in=False,
    ),
    "forceCpuNodeNames": ep.Option(
        default="",
        doc="names of nodes that are left to the next EP, one a line",
        compiled_in=False,
    ),
    "keepCompiled": ep.Option(
        default=False,
        doc="partitions whose sizes are known are kept on disk when they are compiled, "
        "with their weights, and found there by other processes",
        compiled_in=False,
    ),
    "preferredLayout": ep.Option(
        default="NHWC",
        choices=("NHWC", "NCHW"),
        doc="how images lie around convolutions, where the graph leaves it open: with "
        "channels last, or as in the model",
    ),
    "autotune": ep.Option(
        default="off",
        choices=AUTOTUNE,
        doc="which shapes the workgroups of products, rows and reductions have: `off` "
        "those that tests run on all adapters, `vendor` those that were measured on "
        "others of the adapter's vendor, if any were, and `device` those that are "
        "measured on the adapter, which takes some seconds once, and kept on disk",
    ),
    "enableGraphCapture": ep.Option(
        default=False,
        doc="bound runs are captured once, and replayed from then on",
        compiled_in=False,
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
    "storageBufferCacheMode": ep.Option(
        default="bucket",
        choices=CACHE_MODES,
        doc="memory of values that nobody uses any more: `simple` keeps it for others "
        "of the same size, `bucket` for those of about the same size; `lazyRelease` "
        "and `disabled` give it back",
        compiled_in=False,
    ),
    "uniformBufferCacheMode": _cache(
        "simple", "a plan has its uniform buffer for good"
    ),
    "queryResolveBufferCacheMode": _cache("disabled", "nothing is queried"),
    "defaultBufferCacheMode": _cache(
        "disabled", "the other buffers are those for copies to the host, which are few"
    ),
}
