"""The calls of the Windows reader, against COM objects made of ctypes callbacks.

This shows that places in tables, signatures, layouts and references agree with each
other; only a Windows machine can show that they agree with Windows.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from onnxplug.hardware import windows_api
from onnxplug.hardware.windows import DxcoreAdapter, DxgiAdapter
from onnxplug.hardware.windows_api import AdapterDesc1, Guid, SystemReader

FUNCTION = getattr(ctypes, "WINFUNCTYPE", ctypes.CFUNCTYPE)
FAILED = -2005270526  # DXGI_ERROR_NOT_FOUND
HRESULT, BOOL = ctypes.c_int32, ctypes.c_bool
U32, SIZE, POINTER = ctypes.c_uint32, ctypes.c_size_t, ctypes.c_void_p

Method = tuple[Callable[..., Any], Any, tuple[Any, ...]]


class ComObject:
    """A table of functions, and the count of references to it."""

    def __init__(self, methods: Mapping[int, Method]) -> None:
        self.references = 0
        release: Method = (self._release, U32, ())
        everything = {2: release, **methods}
        self._functions = {
            place: FUNCTION(result, POINTER, *arguments)(self._drop_this(method))
            for place, (method, result, arguments) in everything.items()
        }
        self._table = (POINTER * 32)()
        for place, function in self._functions.items():
            self._table[place] = ctypes.cast(function, POINTER).value
        self._this = ctypes.pointer(self._table)

    def give(self, into: int) -> int:
        """What a method does that makes an object."""
        self.references += 1
        ctypes.cast(into, ctypes.POINTER(POINTER))[0] = ctypes.addressof(self._this)
        return 0

    def _release(self) -> int:
        self.references -= 1
        return self.references

    @staticmethod
    def _drop_this(method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda this, *values: method(*values)


def same(pointer: int, guid: Guid) -> bool:
    return ctypes.string_at(pointer, 16) == bytes(guid)


def dxgi_adapter(adapter: DxgiAdapter) -> ComObject:
    def get_desc1(into: int) -> int:
        desc = ctypes.cast(into, ctypes.POINTER(AdapterDesc1))[0]
        text = adapter.description.encode("utf-16-le")
        ctypes.memmove(desc.description, text, len(text))
        desc.vendor_id, desc.device_id = adapter.vendor_id, adapter.device_id
        desc.dedicated_video_memory = adapter.video_memory
        desc.luid_low = adapter.luid & 0xFFFFFFFF
        desc.luid_high = adapter.luid >> 32
        desc.flags = 2 if adapter.software else 0
        return 0

    return ComObject({10: (get_desc1, HRESULT, (POINTER,))})


class Dxgi:
    """dxgi.dll; *fastest* is None before Windows 10 version 1803."""

    def __init__(
        self, adapters: Sequence[DxgiAdapter], fastest: Sequence[int] | None
    ) -> None:
        self.adapters = [dxgi_adapter(adapter) for adapter in adapters]
        self.by_speed = fastest
        self.factory = ComObject(
            {
                12: (self._enum_adapters1, HRESULT, (U32, POINTER)),
                29: (self._enum_by_preference, HRESULT, (U32, U32, POINTER, POINTER)),
            }
        )

    def CreateDXGIFactory1(self, iid: Any, into: Any) -> int:
        wanted = bytes(iid._obj)
        known = [bytes(windows_api.IID_FACTORY1)]
        if self.by_speed is not None:
            known.append(bytes(windows_api.IID_FACTORY6))
        return self.factory.give(ctypes.addressof(into._obj)) if wanted in known else -1

    def _enum_adapters1(self, number: int, into: int) -> int:
        return self._give(list(range(len(self.adapters))), number, into)

    def _enum_by_preference(
        self, number: int, preference: int, iid: int, into: int
    ) -> int:
        assert preference == 2
        assert same(iid, windows_api.IID_ADAPTER1)
        return self._give(self.by_speed or (), number, into)

    def _give(self, order: Sequence[int], number: int, into: int) -> int:
        if number >= len(order):
            return FAILED
        return self.adapters[order[number]].give(into)

    @property
    def objects(self) -> list[ComObject]:
        return [self.factory, *self.adapters]


class CoreFake:
    """An adapter of DXCore; *properties* are bytes by number."""

    def __init__(
        self, properties: Mapping[int, bytes], attributes: Sequence[Guid]
    ) -> None:
        self.properties, self.attributes = properties, attributes
        self.com = ComObject(
            {
                4: (self.has_attribute, BOOL, (POINTER,)),
                5: (lambda number: number in properties, BOOL, (U32,)),
                6: (self._get, HRESULT, (U32, SIZE, POINTER)),
                7: (self._size, HRESULT, (U32, POINTER)),
            }
        )

    def has_attribute(self, guid: int) -> bool:
        return any(same(guid, attribute) for attribute in self.attributes)

    def _get(self, number: int, size: int, into: int) -> int:
        value = self.properties[number]
        if size < len(value):
            return -1
        ctypes.memmove(into, value, len(value))
        return 0

    def _size(self, number: int, into: int) -> int:
        if number not in self.properties:
            return -1
        ctypes.cast(into, ctypes.POINTER(SIZE))[0] = len(self.properties[number])
        return 0


class Dxcore:
    """dxcore.dll."""

    def __init__(self, adapters: Sequence[CoreFake]) -> None:
        self.adapters = adapters
        self.lists: list[ComObject] = []
        self.factory = ComObject(
            {3: (self._create_list, HRESULT, (U32, POINTER, POINTER, POINTER))}
        )

    def DXCoreCreateAdapterFactory(self, iid: Any, into: Any) -> int:
        assert bytes(iid._obj) == bytes(windows_api.IID_CORE_FACTORY)
        return self.factory.give(ctypes.addressof(into._obj))

    def _create_list(self, count: int, attribute: int, iid: int, into: int) -> int:
        assert count == 1
        assert same(iid, windows_api.IID_CORE_LIST)
        chosen = [each for each in self.adapters if each.has_attribute(attribute)]

        def get_adapter(index: int, iid: int, into: int) -> int:
            assert same(iid, windows_api.IID_CORE_ADAPTER)
            return chosen[index].com.give(into)

        self.lists.append(
            ComObject(
                {
                    3: (get_adapter, HRESULT, (U32, POINTER, POINTER)),
                    4: (lambda: len(chosen), U32, ()),
                }
            )
        )
        return self.lists[-1].give(into)

    @property
    def objects(self) -> list[ComObject]:
        return [self.factory, *self.lists, *(each.com for each in self.adapters)]


def reader(**libraries: Any) -> SystemReader:
    def load(name: str) -> Any:
        try:
            return libraries[name.removesuffix(".dll")]
        except KeyError:
            raise FileNotFoundError(name) from None

    return SystemReader(load)


def core_properties(
    luid: int, ids: tuple[int, int], name: str, *, integrated: bool | None
) -> dict[int, bytes]:
    parts = b"".join(part.to_bytes(4, "little") for part in (*ids, 0, 0, 0))
    properties = {
        0: luid.to_bytes(8, "little"),
        2: name.encode() + b"\0",
        11: b"\1",
        14: parts,
    }
    if integrated is not None:
        properties[12] = bytes([integrated])
    return properties


def test_layouts_are_those_of_the_headers() -> None:
    if ctypes.sizeof(POINTER) == 8:
        assert ctypes.sizeof(AdapterDesc1) == 312
        assert AdapterDesc1.luid_low.offset == 296
    assert ctypes.sizeof(windows_api.HardwareIdParts) == 20
    assert bytes(windows_api.IID_FACTORY1).hex() == "78ae0a776ff2ba4da829253c83d1b387"


def test_dxgi_is_read_and_released() -> None:
    igpu = DxgiAdapter(
        luid=0x7_0000_0001,
        number=0,
        vendor_id=0x8086,
        device_id=0x7D55,
        description="Intel® Arc™",
        video_memory=128 << 20,
        performance_rank=1,
    )
    dgpu = DxgiAdapter(
        luid=2, number=1, vendor_id=0x10DE, device_id=0x28A1, performance_rank=0
    )
    software = DxgiAdapter(
        luid=3, number=2, vendor_id=0x1414, device_id=0x8C, software=True
    )
    dxgi = Dxgi([igpu, dgpu, software], fastest=[1, 0])
    assert reader(dxgi=dxgi).dxgi() == [igpu, dgpu, software]
    assert [each.references for each in dxgi.objects] == [0, 0, 0, 0]


def test_an_old_dxgi_gives_no_performance_order() -> None:
    gpu = DxgiAdapter(luid=2, number=0, vendor_id=0x10DE, device_id=0x28A1)
    dxgi = Dxgi([gpu], fastest=None)
    assert reader(dxgi=dxgi).dxgi() == [gpu]
    assert [each.references for each in dxgi.objects] == [0, 0]


def test_dxcore_is_read_and_released() -> None:
    gpu = CoreFake(
        core_properties(1, (0x10DE, 0x28A1), "NVIDIA", integrated=False),
        [
            windows_api.D3D12_GRAPHICS,
            windows_api.D3D12_CORE_COMPUTE,
            windows_api.D3D12_GENERIC_ML,
        ],
    )
    npu = CoreFake(
        core_properties(2, (0x8086, 0x7D1D), "Intel AI Boost", integrated=True),
        [windows_api.D3D12_GENERIC_ML, windows_api.HARDWARE_NPU],
    )
    older_npu = CoreFake(
        core_properties(3, (0x8086, 0x643E), "NPU", integrated=None),
        [windows_api.D3D12_CORE_COMPUTE],
    )
    headless = CoreFake(
        core_properties(4, (0x10DE, 0x2330), "H100", integrated=False),
        [windows_api.D3D12_CORE_COMPUTE, windows_api.HARDWARE_GPU],
    )
    silent = CoreFake({0: bytes(8)}, [windows_api.D3D12_CORE_COMPUTE])
    dxcore = Dxcore([gpu, npu, older_npu, headless, silent])

    found = {adapter.luid: adapter for adapter in reader(dxcore=dxcore).dxcore()}
    assert found[1] == DxcoreAdapter(
        luid=1,
        vendor_id=0x10DE,
        device_id=0x28A1,
        description="NVIDIA",
        gpu=True,
        integrated=False,
    )
    assert found[2].description == "Intel AI Boost"
    assert {luid: each.gpu for luid, each in found.items()} == {
        1: True,
        2: False,
        3: False,
        4: True,
    }
    assert found[3].integrated is None
    assert {each.references for each in dxcore.objects} == {0}


def test_libraries_that_are_missing_or_too_old_mean_no_adapters() -> None:
    assert reader().dxgi() == []
    assert reader().dxcore() == []
    empty = SimpleNamespace()
    assert reader(dxgi=empty).dxgi() == []
    assert reader(dxcore=empty).dxcore() == []


def test_factories_that_fail_mean_no_adapters() -> None:
    def fail(iid: Any, into: Any) -> int:
        return -2147467262  # E_NOINTERFACE

    assert reader(dxgi=SimpleNamespace(CreateDXGIFactory1=fail)).dxgi() == []
    broken = SimpleNamespace(DXCoreCreateAdapterFactory=fail)
    assert reader(dxcore=broken).dxcore() == []


class Registry:
    """winreg, as far as it is used."""

    HKEY_LOCAL_MACHINE = "HKLM"

    def __init__(self, values: Mapping[str, str] | None) -> None:
        self.values = values

    def OpenKey(self, root: str, path: str) -> Registry:
        assert (root, path.rpartition("\\")[2]) == ("HKLM", "0")
        if self.values is None:
            raise FileNotFoundError(path)
        return self

    def QueryValueEx(self, key: Registry, name: str) -> tuple[str, int]:
        assert self.values is not None
        if name not in self.values:
            raise FileNotFoundError(name)
        return self.values[name], 1

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *error: object) -> None:
        pass


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            {"VendorIdentifier": "AuthenticAMD", "ProcessorNameString": "AMD Ryzen"},
            ("AuthenticAMD", "AMD Ryzen"),
        ),
        ({"VendorIdentifier": "GenuineIntel"}, ("GenuineIntel", "")),
        ({}, ("", "")),
        (None, ("", "")),
    ],
)
def test_the_processor_is_read_from_the_registry(
    monkeypatch: pytest.MonkeyPatch,
    values: Mapping[str, str] | None,
    expected: tuple[str, str],
) -> None:
    monkeypatch.setitem(sys.modules, "winreg", Registry(values))
    assert SystemReader().processor() == expected


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has all of it")
def test_elsewhere_the_reader_finds_nothing() -> None:
    system = SystemReader()
    assert (system.processor(), system.dxgi(), system.dxcore()) == (("", ""), [], [])
