"""What CUDA's errors mean, and what is said of them.

Statuses are those of ``cudaError_t``, which ``CUresult`` has the same numbers for; see
NVIDIA's CUDA Runtime API, *Data types used by CUDA Runtime*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

OUT_OF_MEMORY: Final = 2
NOT_READY: Final = 600

STICKY: Final[Mapping[int, str]] = {
    214: "an error in its memory that ECC cannot correct",
    220: "an error of NVLink that cannot be corrected",
    221: "an error that was contained by ending what ran",
    700: "a kernel read or wrote where there is no memory",
    702: "a kernel took longer than the system allows",
    709: "its context was destroyed",
    710: "a kernel's assertion failed",
    714: "an error in the stack of a kernel",
    715: "a kernel has an instruction that the GPU does not know",
    716: "a kernel read or wrote at an address that is not aligned",
    717: "a kernel used an address of another kind of memory",
    718: "a kernel went on at an address where there is none",
    719: "a kernel failed",
    999: "the driver does not say why",
}
"""After which every call fails for as long as the process lives."""

REMEDY_OF_LOSS: Final = (
    "CUDA does nothing more in this process: restart it; if it happens again, update "
    "the driver, look into the system's log for Xid errors, and leave what runs last "
    "to another EP"
)

FORK: Final = "this is the child of a fork of a process that used it"
"""A fault of the process: CUDA's contexts are not there for its children."""

REMEDY_OF_FORK: Final = (
    "start processes by spawn, or by fork before the first session on CUDA"
)

_NO_DRIVER: Final = (
    "install NVIDIA's driver, from https://www.nvidia.com/drivers, and in a container "
    "start it with the GPUs (--gpus all)"
)

_REMEDIES: Final[Mapping[int, str]] = {
    3: "the driver does not start, as in the child of a fork: "
    f"{REMEDY_OF_FORK}; `nvidia-smi` tells more",
    34: _NO_DRIVER,
    35: "update the driver, or install what is for the CUDA of the one that is there: "
    "pip install 'onnxplug-cuda[cu12]'",
    46: "another process has the GPU for itself; `nvidia-smi` lists them",
    100: "the driver sees no GPU; CUDA_VISIBLE_DEVICES may hide them",
    101: "`nvidia-smi -L` lists the GPUs; CUDA_VISIBLE_DEVICES may hide some",
    209: "the GPU is older or newer than this CUDA compiles for; install another major "
    "version: pip install 'onnxplug-cuda[cu12]' or '[cu13]'",
    222: "update the driver, which is older than the compiler",
    802: "the system's fabric manager is not ready; `nvidia-smi` tells more",
    803: "the driver and its libraries are of different versions; restart the machine",
    804: "this GPU takes no newer CUDA than its driver's; install "
    "'onnxplug-cuda[cu12]', or a newer driver",
}


def status_of(error: BaseException) -> int | None:
    """The number of an error of CUDA's; ``None`` if it is none."""
    status = getattr(error, "status", None)
    return status if isinstance(status, int) else None


def remedy(error: BaseException) -> str:
    """What to do about an error while a device is looked for; empty: nobody knows."""
    status = status_of(error)
    if status is None:
        # of CuPy's, which does not find the driver's library
        return _NO_DRIVER if "libcuda" in str(error) or "nvcuda" in str(error) else ""
    if status in STICKY:
        return REMEDY_OF_LOSS
    return _REMEDIES.get(status, "")


def explained(error: BaseException) -> str:
    """An error, with what to do about it."""
    found = remedy(error)
    return f"{error}; {found}" if found else str(error)
