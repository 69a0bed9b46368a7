"""A device that an EP might drive, and does not."""

from __future__ import annotations

from onnxplug.authoring.fact import fact
from onnxplug.ep.devices import HardwareDevice


@fact()
class RefusedDevice:
    """A device that an EP of its kind might drive, and does not.

    May stand beside the pairs that ``EpFactory.supported_devices`` gives.  What is no
    device of the EP's kind, such as a GPU for an EP of processors, is just left out.

    Attributes:
        device: the hardware.
        reason: why not, for people: what was found, and what is needed.
        remedy: what to do about it; empty where nothing can be done.
    """

    device: HardwareDevice
    reason: str
    remedy: str = ""
