"""What users may set, by ONNX Runtime's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from onnxplug import ep

UNLIMITED: Final = (1 << 64) - 1
"""What ONNX Runtime has as the limit where there is none."""

OPTIONS: Final[Mapping[str, ep.Option]] = {
    "device_id": ep.Option(
        default=0,
        minimum=-1,
        doc="which GPU, as CUDA counts those that it sees; -1: that of the session's "
        "device",
        compiled_in=False,
    ),
    "gpu_mem_limit": ep.Option(
        default=UNLIMITED,
        minimum=1,
        doc="bytes of device memory that the session's arena takes, at most; what "
        "CUDA and its libraries take is not counted",
        compiled_in=False,
    ),
    "arena_extend_strategy": ep.Option(
        default="kNextPowerOfTwo",
        choices=("kNextPowerOfTwo", "kSameAsRequested", "0", "1"),
        doc="how much memory is asked of the driver where the arena has none left: the "
        "next power of two, or what is needed",
        compiled_in=False,
    ),
    "do_copy_in_default_stream": ep.Option(
        default=True,
        doc="copies from and to the host are queued where kernels are; off: on a "
        "stream of their own, beside them",
        compiled_in=False,
    ),
}
