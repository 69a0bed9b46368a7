"""The memory locations of a session, and the way of a value between two of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from onnxplug.authoring.arrays import check_bound
from onnxplug.authoring.record import Record
from onnxplug.ep import HOST, DataType, MemoryLocation
from onnxplug.errors import EpError, OutputMismatch, RunError

if TYPE_CHECKING:
    from onnxplug.ep import Stream
    from onnxplug.run.device import Device


class Hop(Record):
    """One copy on the way of a value.

    Attributes:
        source, target: the two locations.
        device: whose transfer copies, and on whose stream it is queued.
    """

    source: MemoryLocation
    target: MemoryLocation
    device: Device


class Memory:
    """The devices of one session; a session on the host has none.

    Args:
        device_at: gives the device at a location, when it is first needed.
        user_streams: native handles of streams that the user wants to be used.
        checks_always: waits and copies of devices are tried.
    """

    def __init__(
        self,
        device_at: Callable[[MemoryLocation], Device],
        user_streams: Mapping[MemoryLocation, int] | None = None,
        *,
        checks_always: bool = False,
    ) -> None:
        self._checks_always = checks_always
        self._device_at = device_at
        self._devices: dict[MemoryLocation, Device | None] = {HOST: None}
        self.user_streams = dict(user_streams or {})

    def device(self, location: MemoryLocation) -> Device | None:
        """The device at *location*; ``None`` for the host.

        Raises:
            EpError: nothing owns the location.
        """
        if location not in self._devices:
            device: Device | None = None
            try:
                device = self._device_at(location)
                if self._checks_always:
                    from onnxplug.run.checked_device import CheckedDevice  # for few

                    device = CheckedDevice(device)
            except EpError:
                # what numpy reads and writes needs nobody's help
                if not location.host_accessible:
                    raise
            self._devices.setdefault(location, device)
        return self._devices[location]

    def close(self) -> None:
        """Let go of the devices, whose streams are closed."""
        for device in self._devices.values():
            if device is not None:
                device.let_go()

    def needs_copy(self, source: MemoryLocation, target: MemoryLocation) -> bool:
        """Whether a value in *source* cannot be used in *target* as it is."""
        if source == target or (source.host_accessible and target.host_accessible):
            return False
        hop = self._hop(source, target)
        if hop is None:
            return True
        return hop.device.needs_copy(source, target)

    def route(self, source: MemoryLocation, target: MemoryLocation) -> list[Hop]:
        """The copies that take a value from *source* to *target*: one, or two by way
        of the host.

        Raises:
            EpError: no EP's data transfer knows the way.
        """
        direct = self._hop(source, target)
        if direct is not None:
            return [direct]
        down, up = self._hop(source, HOST), self._hop(HOST, target)
        if down is None or up is None:
            raise EpError(
                f"no EP of the session can copy from {source} to {target}; "
                "its data transfer must know the way to the host",
                stage="run",
            )
        return [down, up]

    def _hop(self, source: MemoryLocation, target: MemoryLocation) -> Hop | None:
        for location in (target, source):
            device = self.device(location)
            if device is None:
                continue
            if device.can_copy(source, target):
                return Hop(source, target, device)
        return None

    def empty_like(
        self, value: Any, hop: Hop, stream: Stream | None, *, pinned: bool
    ) -> Any:
        """A new array at the hop's target like *value*, which is at its source.

        Args:
            pinned: one on the host is of memory that the device reaches.
        """
        target = self.device(hop.target)
        dtype = self.data_type(value, hop.source)
        shape = tuple(value.shape)
        if target is None:
            if pinned:
                return hop.device.empty_on_host(shape, dtype, stream)
            return np.empty(shape, dtype.numpy)
        if dtype is DataType.STRING:
            raise RunError(
                f"strings cannot be copied to {hop.target}; the EP there must refuse "
                "nodes with string inputs"
            )
        # an array that another device's stream fills is in no order with this one's
        return target.empty(shape, dtype, stream if target is hop.device else None)

    def check_bound(self, value: Any, bound: Any, hop: Hop) -> None:
        """Check that *bound*, at the hop's target, can take *value*, at its source.

        Raises:
            OutputMismatch: it differs in shape or element type.
        """
        if not hasattr(bound, "shape") or not hasattr(value, "shape"):
            check_bound("an output", value, bound)
        found = self.data_type(value, hop.source), tuple(value.shape)
        given = self.data_type(bound, hop.target), tuple(bound.shape)
        if found != given:
            raise OutputMismatch(
                f"an output is {found[0]}{list(found[1])}, and the array bound to it "
                f"is {given[0]}{list(given[1])}; bind one like the output"
            )

    def data_type(self, array: Any, location: MemoryLocation) -> DataType:
        """The element type of an array at *location*."""
        device = self.device(location)
        if device is None:
            return DataType.from_numpy(array.dtype)
        return device.data_type(array)

    def ep_at(self, location: MemoryLocation) -> str:
        """The name of the EP that owns *location*."""
        device = self.device(location)
        return str(location) if device is None else device.ep
