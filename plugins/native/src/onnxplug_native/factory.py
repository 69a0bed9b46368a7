"""A factory of a library, as one of onnxplug's."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from onnxplug import ep
from onnxplug.authoring.compilers import SameCompiler
from onnxplug.authoring.locks import new_lock
from onnxplug_native.functions.devices import (
    Device,
    Hardware,
    IncompatibilityDetails,
    MemoryInfo,
)
from onnxplug_native.interface.handles import find
from onnxplug_native.measured import OPTIONS, PREFIX, choose_list, measured
from onnxplug_native.presented import presented

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure
    from onnxplug_native.library import NativeLibrary

_MOST_DEVICES: Final = 8
"""How many pairs a factory may make, as in ONNX Runtime."""


_VERDICTS: Final = (
    ep.Compatibility.NOT_APPLICABLE,
    ep.Compatibility.OPTIMAL,
    ep.Compatibility.RECOMPILE,
    ep.Compatibility.UNSUPPORTED,
)
"""By the interface's numbers."""


class NativeFactory(ep.EpFactory):
    """Drives what a factory of a library says that it drives.

    Each library's factory has a subclass, whose attributes are what the library says
    of itself.  Options are all that the library may know: it is told what users write,
    as texts, but for those of the host (:data:`onnxplug_native.measured.OPTIONS`).
    """

    spi_version = (1, 0)
    options = ep.OpenOptions(OPTIONS)
    library: ClassVar[NativeLibrary]
    structure: ClassVar[Structure]

    def __init__(self) -> None:
        self._lock = new_lock()
        self._hardware: list[Hardware] = []
        self._pairs: list[Device] = []
        self._asked: tuple[ep.HardwareDevice, ...] | None = None

    def supported_devices(
        self, devices: Sequence[ep.HardwareDevice]
    ) -> Iterable[ep.EpDevice | ep.RefusedDevice]:
        """The pairs that the library makes.

        Raises:
            OnnxplugError: it fails, or makes pairs that are none.
        """
        devices = (*devices, *self.library.devices, *presented())
        pairs = self._ask(devices)
        driven = [pair.hardware.device for pair in pairs]
        for pair in pairs:
            metadata = {"version": self.version, **pair.metadata.pairs}
            metadata["library_path"] = str(self.library.path)
            options = pair.options.pairs
            found = measured(self.name, self.vendor)
            if found is not None:
                metadata["measured_version"] = found.version
                options = {**found.options, **options}
            yield ep.EpDevice(
                ep_name=self.name,
                device=pair.hardware.device,
                ep_vendor=self.vendor,
                metadata=metadata,
                default_options=options,
            )
        for device in devices:
            if device not in driven:
                reason = self._why_not(device)
                if reason:
                    yield ep.RefusedDevice(device=device, reason=reason)

    def _ask(self, devices: tuple[ep.HardwareDevice, ...]) -> list[Device]:
        """The library's pairs for *devices*, asked for when these change."""
        with self._lock:
            if devices == self._asked:
                return self._pairs
            handles = [self._handle(device) for device in devices]
            given = (ctypes.c_void_p * max(1, len(handles)))(
                *(each.address for each in handles)
            )
            room = (ctypes.c_void_p * _MOST_DEVICES)()
            count = ctypes.c_size_t()
            try:
                self.structure.call(
                    "GetSupportedDevices",
                    ctypes.addressof(given),
                    len(handles),
                    ctypes.addressof(room),
                    _MOST_DEVICES,
                    ctypes.addressof(count),
                )
                pairs = self._read(room, count.value)
            except BaseException:
                for address in room:
                    made = find(Device, address, quiet=True)
                    if made is not None:
                        made.release()
                raise
            self._asked, self._pairs = devices, pairs
            return pairs

    def _read(self, room: Any, count: int) -> list[Device]:
        """The pairs that a library made.

        Raises:
            EPFail: they are none, or too many.
        """
        who = f"{self.name} of {self.library.name}"
        if count > _MOST_DEVICES:
            raise ep.EPFail(
                f"{who} says that it made {count} devices; there is room for "
                f"{_MOST_DEVICES}"
            )
        pairs = []
        for address in room[:count]:
            pair = find(Device, address, quiet=True)
            if pair is None:
                raise ep.EPFail(f"{who} gave a device that CreateEpDevice did not make")
            pairs.append(pair)
        return pairs

    def _handle(self, device: ep.HardwareDevice) -> Hardware:
        for handle in self._hardware:
            if handle.device == device:
                return handle
        self._hardware.append(Hardware(device))
        return self._hardware[-1]

    def _why_not(self, device: ep.HardwareDevice) -> str:
        """What the library says against *device*; empty if it says nothing."""
        if not self.structure.has("GetHardwareDeviceIncompatibilityDetails"):
            return ""
        details = IncompatibilityDetails()
        try:
            self.structure.call(
                "GetHardwareDeviceIncompatibilityDetails",
                self._handle(device).address,
                details.address,
            )
            return incompatibility(details)
        finally:
            details.release()

    def create(
        self,
        devices: Sequence[ep.EpDevice],
        options: Mapping[str, ep.OptionValue],
        session: ep.SessionContext,
    ) -> ep.ExecutionProvider:
        """An EP for one session.

        Raises:
            OptionError: an option of the host is wrong.
            OnnxplugError: the library makes none, and says why.
        """
        from onnxplug_native.provider import NativeProvider

        chosen = choose_list(self.name, self.vendor, options)
        prefix = f"ep.{self.name.lower()}."
        entries = {
            **session.config,
            **{f"{prefix}{key}": str(value) for key, value in options.items()},
        }
        told = {
            name: value
            for name, value in entries.items()
            if not name.startswith(prefix + PREFIX)
        }
        pairs = [self.pair(device) for device in devices]
        return NativeProvider(self, pairs, told, session, chosen)

    @property
    def compatibility(self) -> ep.CompatibilityCheck:  # type: ignore[override]
        """As by default, but for what ONNX Runtime has written."""
        return _Compatibility(self)

    def judge(self, hardware: Sequence[Hardware], info: str) -> ep.Compatibility:
        """What the library says of what it compiled, by its own words."""
        entry = "ValidateCompiledModelCompatibilityInfo"
        if not info or not self.structure.has(entry):
            return ep.Compatibility.NOT_APPLICABLE
        given = (ctypes.c_void_p * len(hardware))(*(each.address for each in hardware))
        out = ctypes.c_int32()
        self.structure.call(
            entry,
            ctypes.addressof(given),
            len(hardware),
            info.encode(),
            ctypes.addressof(out),
        )
        if not 0 <= out.value < len(_VERDICTS):
            return ep.Compatibility.UNSUPPORTED
        return _VERDICTS[out.value]

    @property
    def memory_spaces(self) -> ep.MemorySpaces:  # type: ignore[override]
        """The memories that the host cannot use."""
        return _Spaces(self)

    def own_memories(self) -> list[MemoryInfo]:
        """Those of the devices that the library was asked for."""
        from onnxplug_native.device import own_memory

        found = (own_memory(pair.memories) for pair in self._pairs)
        return [info for info in found if info is not None]

    def pair(self, device: ep.EpDevice) -> Device:
        """The library's own of *device*.

        Raises:
            EPFail: there is none.
        """
        for pair in self._pairs:
            if pair.hardware.device == device.device:
                return pair
        raise ep.EPFail(f"{self.name} of {self.library.name} does not drive {device}")

    def diagnose(self) -> Iterable[ep.Finding]:
        """Which library it is, and for which version of the interface it was made."""
        yield ep.Finding(
            level=ep.Level.OK,
            message=f"{self.library.path} is loaded: {self.name} {self.version} by "
            f"{self.vendor or 'an unnamed vendor'}, for version "
            f"{self.structure.version} of ONNX Runtime's interface; {self._trust}",
        )

    @property
    def _trust(self) -> str:
        """How far the library is taken at its word."""
        found = measured(self.name, self.vendor)
        if found is None:
            return "what it computes was not measured, and it is taken at its word"
        return (
            f"what version {found.version} computes rightly was measured, and it gets "
            "nothing else"
        )

    def close(self) -> None:
        """Release the library's factory, and what was made for it."""
        for each in (*self._pairs, *self._hardware):
            each.release()
        self._pairs, self._hardware, self._asked = [], [], None
        self.library.release(self.structure)


class _Compatibility(SameCompiler):
    """What ONNX Runtime has written, the library judges."""

    def __init__(self, factory: NativeFactory) -> None:
        super().__init__(factory)
        self._native = factory

    def check(self, device: ep.EpDevice, info: str) -> tuple[ep.Compatibility, str]:
        """As by default; if that is not of use, as the library says."""
        verdict, reason = super().check(device, info)
        if verdict is ep.Compatibility.UNSUPPORTED and not info.startswith("{"):
            factory = self._native
            judged = factory.judge([factory.pair(device).hardware], info)
            if judged is not ep.Compatibility.NOT_APPLICABLE:
                return judged, f"{factory.name} of {factory.library.name} says so"
        return verdict, reason


class _Spaces(ep.MemorySpaces):
    """What a library has on devices."""

    # as ONNX Runtime does, for which libraries are made
    keeps_contexts = True

    def __init__(self, factory: NativeFactory) -> None:
        from onnxplug_native.device import location_of

        self._factory = factory
        # known once the library was asked for devices
        self.owned = frozenset(
            location_of(info).space for info in factory.own_memories()
        )

    def create_context(self, location: ep.MemoryLocation) -> ep.DeviceContext:
        """The memory of a device of the library's.

        Raises:
            LookupError: there is no such device, or nothing that allocates or copies.
            OnnxplugError: the library fails.
        """
        from onnxplug_native.device import NativeContext, location_of

        for info in self._factory.own_memories():
            if location_of(info) == location:
                return NativeContext(self._factory, [info])
        raise LookupError(
            f"{self._factory.name} drives no device with memory {location}"
        )


def incompatibility(details: IncompatibilityDetails) -> str:
    """What a library says against a device, in words."""
    if not details.reasons:
        return ""
    known = {1: "its driver", 2: "the device itself", 4: "a dependency that is missing"}
    said = [text for bit, text in known.items() if details.reasons & bit]
    why = details.notes or " and ".join(said) or "for a reason it does not name"
    return f"{why} (code {details.code})" if details.code else why


def make_factory(library: NativeLibrary, structure: Structure) -> NativeFactory:
    """One of onnxplug's for *structure* of *library*.

    Raises:
        PluginLoadError: it has no name.
    """
    name = structure.text("GetName")
    if not name:
        raise ep.PluginLoadError(f"a factory of {library.name} has no name")
    attributes = {
        "name": name,
        "vendor": structure.text("GetVendor"),
        "vendor_id": (
            structure.call("GetVendorId") if structure.has("GetVendorId") else 0
        ),
        "version": (structure.text("GetVersion") if structure.has("GetVersion") else "")
        or "0",
        "library": library,
        "structure": structure,
        "__doc__": f"{name} of {library.name}.",
        "__module__": __name__,
    }
    kind: type[NativeFactory] = type("NativeFactory", (NativeFactory,), attributes)
    return kind()
