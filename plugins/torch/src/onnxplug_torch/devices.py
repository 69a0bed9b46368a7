"""Which of torch's devices a piece of hardware is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.record import Record
from onnxplug_torch.installation import INSTALL, Build

_APPLE: Final = 0x106B
_PLATFORMS: Final = {
    0x10DE: ("cuda", "CUDA"),
    0x1002: ("hip", "ROCm"),
    0x8086: ("xpu", "XPU"),
}
"""By the maker of a GPU: the attribute of a build, and what it is called."""

_TITLES: Final = dict(_PLATFORMS.values())

_DLPACK: Final = {"cpu": 1, "cuda": 2, "mps": 8, "hip": 10, "xpu": 14}

SPACES: Final = frozenset({"cuda", "hip", "mps", "xpu"})
"""The memories of torch's devices, by the names that the host has for them."""


class Place(Record):
    """One of torch's devices.

    Attributes:
        space: the host's name for its memory, ``hip`` where torch says ``cuda``.
        ordinal: which of them.
    """

    space: str
    ordinal: int

    @property
    def torch_name(self) -> str:
        """As ``torch.device`` takes it."""
        if self.space in ("cpu", "mps"):
            return self.space
        return f"{'cuda' if self.space == 'hip' else self.space}:{self.ordinal}"

    @property
    def location(self) -> ep.MemoryLocation:
        """Its memory."""
        if self.space == "cpu":
            return ep.HOST
        return ep.MemoryLocation(self.space, self.ordinal)

    @property
    def has_streams(self) -> bool:
        """Whether torch queues work there on streams that one can choose."""
        return self.space in ("cuda", "hip", "xpu")

    @property
    def pins(self) -> bool:
        """Whether torch makes memory of the host that it copies to by itself."""
        return self.has_streams

    @property
    def captures(self) -> bool:
        """Whether torch captures what is queued."""
        return self.space in ("cuda", "hip")

    @property
    def dlpack(self) -> tuple[int, int]:
        """DLPack's type and number."""
        return _DLPACK[self.space], self.ordinal


def match(
    devices: Sequence[ep.HardwareDevice], build: Build
) -> Iterator[tuple[ep.HardwareDevice, Place | str]]:
    """Each processor and GPU with its place, or with why torch does not drive it."""
    seen: Counter[str] = Counter()
    for device in devices:
        if device.type is ep.DeviceType.CPU:
            yield device, Place("cpu", 0)
        elif device.type is not ep.DeviceType.GPU:
            continue  # torch drives no NPUs
        elif device.vendor_id == _APPLE:
            yield device, Place("mps", 0)
        elif device.vendor_id not in _PLATFORMS:
            yield device, "torch drives GPUs of NVIDIA, AMD, Intel and Apple"
        else:
            space, title = _PLATFORMS[device.vendor_id]
            if getattr(build, space):
                yield device, Place(space, seen[space])
                seen[space] += 1
            else:
                yield device, _without(build, title)


def parse(name: str, build: Build) -> Place:
    """The place that a user means by *name*, ``cuda:1``.

    Raises:
        OptionError: it is none of torch's.
    """
    kind, _, number = name.partition(":")
    if kind not in ("cpu", "cuda", "mps", "xpu") or (number and not number.isdecimal()):
        raise ep.OptionError(
            f"option 'device' is {name!r}; expected cpu, cuda, mps or xpu, and a "
            "number after a colon where there are several, as cuda:1"
        )
    space = "hip" if kind == "cuda" and build.hip else kind
    return Place(space, int(number or 0))


def facts(torch: Any, place: Place) -> dict[str, str]:
    """What torch says of a device: its name and memory."""
    if place.space in ("cpu", "mps"):
        return {}
    module = getattr(torch, place.torch_name.partition(":")[0])
    if place.ordinal >= module.device_count():
        return {}
    properties = module.get_device_properties(place.ordinal)
    return {
        "name": str(properties.name),
        "total_memory": str(properties.total_memory),
    }


def obstacle(torch: Any, build: Build, place: Place) -> str:
    """What keeps torch from driving *place* in this process; empty: nothing."""
    title = _TITLES.get(place.space)
    # asked of the build, as torch's cuda is there with and without, and ROCm's, too
    if title is not None and not getattr(build, place.space):
        return f"{_without(build, title)}; {INSTALL}"
    kind = place.torch_name.partition(":")[0]
    if place.ordinal < _count(torch, kind):
        return ""
    return (
        f"torch {build.version} finds no device {kind}:{place.ordinal} here; its "
        "driver may be missing, or older than torch needs"
    )


def _count(torch: Any, kind: str) -> int:
    """How many devices torch finds of what it calls *kind*."""
    if kind == "cpu":
        return 1
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    module = getattr(torch, kind)
    return int(module.device_count()) if module.is_available() else 0


def _without(build: Build, title: str) -> str:
    return f"torch {build.version} is built without {title}"
