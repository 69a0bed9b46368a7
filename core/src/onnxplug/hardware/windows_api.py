"""What Windows says of its processors and adapters, by ctypes and winreg.

Written against the headers dxgi.h, dxgi1_6.h and dxcore_interface.h.  It has never run
on Windows: its tests give it COM objects made of ctypes callbacks.  No graphics driver
is loaded: adapters are described by the kernel, and no device is created.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any, Final

from onnxplug.authoring.record import Record
from onnxplug.hardware.log import left_out


class DxgiAdapter(Record):
    """A GPU as DXGI describes it.

    Attributes:
        luid: the adapter's number until the next boot.
        number: its place in the order of ``EnumAdapters1``; DirectML's device id.
        software: it is software, or another machine's.
        video_memory: bytes of memory of its own.
        performance_rank: its place among all adapters, the fastest first; None where
            Windows does not say (before Windows 10 version 1803).
    """

    luid: int
    number: int
    vendor_id: int
    device_id: int
    description: str = ""
    software: bool = False
    video_memory: int = 0
    performance_rank: int | None = None


class DxcoreAdapter(Record):
    """A GPU or NPU as DXCore describes it; ``integrated`` is None when not said."""

    luid: int
    vendor_id: int
    device_id: int
    description: str = ""
    hardware: bool = True
    gpu: bool = True
    integrated: bool | None = None


_FUNCTION: Final = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
_SYSTEM32_ONLY: Final = 0x800  # LOAD_LIBRARY_SEARCH_SYSTEM32
_MAX_ADAPTERS: Final = 64  # a bound on loops that a broken driver could keep going

_PROCESSOR_KEY: Final = r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"

# places in the tables of functions
_RELEASE: Final = 2
_FACTORY1_ENUM_ADAPTERS1: Final = 12
_FACTORY6_ENUM_BY_PREFERENCE: Final = 29
_ADAPTER1_GET_DESC1: Final = 10
_CORE_FACTORY_CREATE_LIST: Final = 3
_CORE_LIST_GET_ADAPTER: Final = 3
_CORE_LIST_COUNT: Final = 4
_CORE_IS_ATTRIBUTE_SUPPORTED: Final = 4
_CORE_IS_PROPERTY_SUPPORTED: Final = 5
_CORE_GET_PROPERTY: Final = 6
_CORE_GET_PROPERTY_SIZE: Final = 7

_HIGH_PERFORMANCE: Final = 2  # DXGI_GPU_PREFERENCE_HIGH_PERFORMANCE
_REMOTE_OR_SOFTWARE: Final = 1 | 2  # DXGI_ADAPTER_FLAG_REMOTE, _SOFTWARE

# DXCoreAdapterProperty
_LUID: Final = 0
_DRIVER_DESCRIPTION: Final = 2
_IS_HARDWARE: Final = 11
_IS_INTEGRATED: Final = 12
_HARDWARE_ID_PARTS: Final = 14


class Guid(ctypes.Structure):
    """A GUID, from its usual spelling."""

    _fields_ = (
        ("data1", ctypes.c_uint32),
        ("data2", ctypes.c_uint16),
        ("data3", ctypes.c_uint16),
        ("data4", ctypes.c_ubyte * 8),
    )

    def __init__(self, text: str = "00000000-0000-0000-0000-000000000000") -> None:
        digits = text.replace("-", "")
        tail = (ctypes.c_ubyte * 8)(*bytes.fromhex(digits[16:]))
        first, second, third = digits[:8], digits[8:12], digits[12:16]
        super().__init__(int(first, 16), int(second, 16), int(third, 16), tail)


class AdapterDesc1(ctypes.Structure):
    """DXGI_ADAPTER_DESC1, its text as code units of 16 bits on every system."""

    _fields_ = (
        ("description", ctypes.c_uint16 * 128),
        ("vendor_id", ctypes.c_uint32),
        ("device_id", ctypes.c_uint32),
        ("subsystem_id", ctypes.c_uint32),
        ("revision", ctypes.c_uint32),
        ("dedicated_video_memory", ctypes.c_size_t),
        ("dedicated_system_memory", ctypes.c_size_t),
        ("shared_system_memory", ctypes.c_size_t),
        # a LUID, which is aligned to 4 bytes
        ("luid_low", ctypes.c_uint32),
        ("luid_high", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
    )


class HardwareIdParts(ctypes.Structure):
    """DXCoreHardwareIDParts."""

    _fields_ = (
        ("vendor_id", ctypes.c_uint32),
        ("device_id", ctypes.c_uint32),
        ("subsystem_id", ctypes.c_uint32),
        ("subvendor_id", ctypes.c_uint32),
        ("revision_id", ctypes.c_uint32),
    )


IID_FACTORY1: Final = Guid("770aae78-f26f-4dba-a829-253c83d1b387")
IID_FACTORY6: Final = Guid("c1b6694f-ff09-44a9-b03c-77900a0a1d17")
IID_ADAPTER1: Final = Guid("29038f61-3839-4626-91fd-086879011a05")
IID_CORE_FACTORY: Final = Guid("78ee5945-c36e-4b13-a669-005dd11c0f06")
IID_CORE_LIST: Final = Guid("526c7776-40e9-459b-b711-f32ad76dfc28")
IID_CORE_ADAPTER: Final = Guid("f0db4c7f-fe5a-42a2-bd62-f2a6cf6fc83e")

D3D12_GRAPHICS: Final = Guid("0c9ece4d-2f6e-4f01-8c96-e89e331b47b1")
D3D12_CORE_COMPUTE: Final = Guid("248e2800-a793-4724-abaa-23a6de1be090")
D3D12_GENERIC_ML: Final = Guid("b71b0d41-1088-422f-a27c-0250b7d3a988")
HARDWARE_GPU: Final = Guid("b69eb219-3ded-4464-979f-a00bd4687006")
HARDWARE_NPU: Final = Guid("d46140c4-add7-451b-9e56-06fe8c3b58ed")


def _load(name: str) -> Any:
    # from the system's folder only, never from the current directory
    library = getattr(ctypes, "WinDLL", ctypes.CDLL)
    return library(name, winmode=_SYSTEM32_ONLY)


class SystemReader:
    """The running system's answers; *load* gives a library by its file name."""

    def __init__(self, load: Callable[[str], Any] = _load) -> None:
        self._load = load

    def processor(self) -> tuple[str, str]:
        """From the registry, where the kernel writes them at boot."""
        try:
            import winreg
        except ImportError:
            return "", ""
        return _registry_processor(winreg)

    def dxgi(self) -> list[DxgiAdapter]:
        """All adapters, in DXGI's order."""
        try:
            create = self._load("dxgi.dll").CreateDXGIFactory1
        except (OSError, AttributeError) as error:
            left_out("no DXGI: %s", error)
            return []
        ranks: dict[int, int] = {}
        with _created(create, IID_FACTORY6) as factory:
            if factory:
                order = _described(factory, _FACTORY6_ENUM_BY_PREFERENCE)
                ranks = {_luid(desc): rank for rank, desc in order}
        with _created(create, IID_FACTORY1) as factory:
            if not factory:
                return []
            return [
                DxgiAdapter(
                    luid=_luid(desc),
                    number=number,
                    vendor_id=desc.vendor_id,
                    device_id=desc.device_id,
                    description=_text(desc.description),
                    software=bool(desc.flags & _REMOTE_OR_SOFTWARE),
                    video_memory=desc.dedicated_video_memory,
                    performance_rank=ranks.get(_luid(desc)),
                )
                for number, desc in _described(factory, _FACTORY1_ENUM_ADAPTERS1)
            ]

    def dxcore(self) -> list[DxcoreAdapter]:
        """All adapters that can compute; none before Windows 10 version 2004."""
        try:
            create = self._load("dxcore.dll").DXCoreCreateAdapterFactory
        except (OSError, AttributeError) as error:
            left_out("no DXCore: %s", error)
            return []
        found: dict[int, DxcoreAdapter] = {}
        with _created(create, IID_CORE_FACTORY) as factory:
            if not factory:
                return []
            # a list holds what has all the attributes asked for; any one will do
            for attribute in (D3D12_CORE_COMPUTE, D3D12_GENERIC_ML, HARDWARE_NPU):
                for adapter in _core_adapters(factory, attribute):
                    described = _core_adapter(adapter)
                    if described is not None:
                        found.setdefault(described.luid, described)
        return list(found.values())


def _registry_processor(winreg: Any) -> tuple[str, str]:
    def value(key: Any, name: str) -> str:
        try:
            return str(winreg.QueryValueEx(key, name)[0])
        except OSError:
            return ""

    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, _PROCESSOR_KEY) as key:
            return value(key, "VendorIdentifier"), value(key, "ProcessorNameString")
    except OSError:
        return "", ""


def _method(this: int, place: int, result: Any, *arguments: Any) -> Callable[..., Any]:
    """A method of a COM object, bound to it."""
    table = ctypes.cast(this, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    function = _FUNCTION(result, ctypes.c_void_p, *arguments)(table[place])
    return lambda *values: function(this, *values)


@contextlib.contextmanager
def _created(create: Any, iid: Guid, *before: Any) -> Iterator[int]:
    """What *create* makes, released in the end; 0 where it failed."""
    made = ctypes.c_void_p()
    status = create(*before, ctypes.byref(iid), ctypes.byref(made))
    if ctypes.c_int32(status).value < 0 or not made.value:
        yield 0
        return
    with _owned(made.value):
        yield made.value


@contextlib.contextmanager
def _owned(this: int) -> Iterator[None]:
    try:
        yield
    finally:
        _method(this, _RELEASE, ctypes.c_uint32)()


def _described(factory: int, place: int) -> Iterator[tuple[int, AdapterDesc1]]:
    """The adapters of a DXGI factory, in the order of the method at *place*."""
    preference = place == _FACTORY6_ENUM_BY_PREFERENCE
    extra: tuple[Any, ...] = (ctypes.c_uint32, ctypes.c_void_p) if preference else ()
    values = (_HIGH_PERFORMANCE, ctypes.byref(IID_ADAPTER1)) if preference else ()
    enumerate_adapters = _method(
        factory, place, ctypes.c_int32, ctypes.c_uint32, *extra, ctypes.c_void_p
    )
    for number in range(_MAX_ADAPTERS):
        made = ctypes.c_void_p()
        status = enumerate_adapters(number, *values, ctypes.byref(made))
        if status < 0 or not made.value:
            return
        with _owned(made.value):
            desc = AdapterDesc1()
            get = _method(
                made.value, _ADAPTER1_GET_DESC1, ctypes.c_int32, ctypes.c_void_p
            )
            if get(ctypes.byref(desc)) >= 0:
                yield number, desc


def _core_adapters(factory: int, attribute: Guid) -> Iterator[int]:
    create_list = _method(
        factory,
        _CORE_FACTORY_CREATE_LIST,
        ctypes.c_int32,
        ctypes.c_uint32,
        *(ctypes.c_void_p,) * 3,
    )
    with _created(create_list, IID_CORE_LIST, 1, ctypes.byref(attribute)) as adapters:
        if not adapters:
            return
        count = _method(adapters, _CORE_LIST_COUNT, ctypes.c_uint32)()
        get = _method(
            adapters,
            _CORE_LIST_GET_ADAPTER,
            ctypes.c_int32,
            ctypes.c_uint32,
            ctypes.c_void_p,
            ctypes.c_void_p,
        )
        for index in range(min(count, _MAX_ADAPTERS)):
            with _created(get, IID_CORE_ADAPTER, index) as adapter:
                if adapter:
                    yield adapter


def _core_adapter(this: int) -> DxcoreAdapter | None:
    luid = _property(this, _LUID, ctypes.c_uint64())
    ids = _property(this, _HARDWARE_ID_PARTS, HardwareIdParts())
    hardware = _property(this, _IS_HARDWARE, ctypes.c_bool())
    if luid is None or ids is None or hardware is None:
        left_out("DXCore does not tell what an adapter is")
        return None
    integrated = _property(this, _IS_INTEGRATED, ctypes.c_bool())
    return DxcoreAdapter(
        luid=luid.value,
        vendor_id=ids.vendor_id,
        device_id=ids.device_id,
        description=_core_description(this),
        hardware=hardware.value,
        gpu=_is_gpu(this),
        integrated=None if integrated is None else integrated.value,
    )


def _is_gpu(this: int) -> bool:
    """Not an NPU: Windows 11 says which; before, an adapter without graphics is one."""
    has = _method(this, _CORE_IS_ATTRIBUTE_SUPPORTED, ctypes.c_bool, ctypes.c_void_p)
    if has(ctypes.byref(HARDWARE_NPU)):
        return False
    return any(has(ctypes.byref(each)) for each in (HARDWARE_GPU, D3D12_GRAPHICS))


def _property(this: int, number: int, into: Any) -> Any:
    """*into*, filled with a property of a DXCore adapter; None when there is none."""
    supported = _method(
        this, _CORE_IS_PROPERTY_SUPPORTED, ctypes.c_bool, ctypes.c_uint32
    )
    if not supported(number):
        return None
    get = _method(
        this,
        _CORE_GET_PROPERTY,
        ctypes.c_int32,
        ctypes.c_uint32,
        ctypes.c_size_t,
        ctypes.c_void_p,
    )
    status = get(number, ctypes.sizeof(into), ctypes.byref(into))
    return into if status >= 0 else None


def _core_description(this: int) -> str:
    size = ctypes.c_size_t()
    get_size = _method(
        this,
        _CORE_GET_PROPERTY_SIZE,
        ctypes.c_int32,
        ctypes.c_uint32,
        ctypes.c_void_p,
    )
    if get_size(_DRIVER_DESCRIPTION, ctypes.byref(size)) < 0 or not size.value:
        return ""
    text = _property(this, _DRIVER_DESCRIPTION, ctypes.create_string_buffer(size.value))
    return "" if text is None else text.value.decode("utf-8", "replace")


def _luid(desc: AdapterDesc1) -> int:
    return int(desc.luid_high) << 32 | int(desc.luid_low)


def _text(units: Any) -> str:
    text = bytes(units).decode("utf-16-le", "replace")
    return text.split("\0", 1)[0]
