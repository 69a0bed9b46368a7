"""Adapters, libraries, levels and memory of the stand-in, and how it may fail."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from .. import definitions
from ..standin import GPU, NPU, SOFTWARE, Violation, Windows
from ..standin.driving import (
    UPLOAD,
    Answer,
    Program,
    Reference,
    check,
    create,
    guid,
    structure,
)
from .product import (
    DEVICE_HUNG,
    DEVICE_REMOVED,
    E_OUTOFMEMORY,
    EXPECTED,
    NOT_FOUND,
    UNSUPPORTED,
    Run,
    gemm,
)


def test_adapters_are_listed_by_dxgi_and_by_dxcore(windows: Windows) -> None:
    dxgi = create(windows, "CreateDXGIFactory2", "IDXGIFactory6", 0)
    adapter = Reference("IDXGIAdapter4", 0)
    names = []
    for i in range(3):
        place = (ctypes.c_void_p * 1)()
        kind = definitions.methods("IDXGIFactory6")[12].arguments[1]
        result = dxgi.EnumAdapters1(i, ctypes.cast(place, kind))
        if result:
            assert result == NOT_FOUND
            break
        adapter = Reference("IDXGIAdapter4", place[0] or 0)
        desc = definitions.find("DXGI_ADAPTER_DESC1")()
        check(adapter.GetDesc1(ctypes.pointer(desc)))
        names.append(bytes(desc.Description).decode("utf-16-le").rstrip("\0"))
        assert (desc.Flags == 2) == (names[-1] == SOFTWARE.name)
        adapter.Release()
    assert names == [GPU.name, SOFTWARE.name]
    dxgi.Release()
    dxcore = create(windows, "DXCoreCreateAdapterFactory", "IDXCoreAdapterFactory")
    npus = definitions.module("dxcore").DXCORE_HARDWARE_TYPE_ATTRIBUTE_NPU
    found = dxcore.make(
        "IDXCoreAdapterList", "CreateAdapterList", 1, ctypes.pointer(npus)
    )
    assert found.GetAdapterCount() == 1
    npu = found.make("IDXCoreAdapter", "GetAdapter", 0)
    with pytest.raises(Answer) as error:
        create(windows, "D3D12CreateDevice", "ID3D12Device", npu, 0xB000)
    assert error.value.result == UNSUPPORTED
    program = Program(windows, adapter=npu)
    luid = program.device.GetAdapterLuid()
    assert luid.HighPart << 32 | luid.LowPart == NPU.luid
    assert not supports(program, "FLOAT64")
    assert supports(program, "FLOAT16")
    program.close()
    for each in (npu, found, dxcore):
        each.Release()


def supports(program: Program, data_type: str) -> bool:
    """Whether the device computes with a data type."""
    types = definitions.members("DML_TENSOR_DATA_TYPE")
    query = structure(
        "DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT",
        DataType=types[f"DML_TENSOR_DATA_TYPE_{data_type}"],
    )
    data = definitions.find("DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT")()
    sizes = ctypes.sizeof(query), ctypes.sizeof(data)
    where = ctypes.addressof(query), ctypes.addressof(data)
    check(program.dml.CheckFeatureSupport(0, sizes[0], where[0], sizes[1], where[1]))
    return bool(data.IsSupported)


def test_an_adapter_is_found_by_its_luid(windows: Windows) -> None:
    dxgi = create(windows, "CreateDXGIFactory2", "IDXGIFactory4", 0)
    luid = SOFTWARE.by_parts
    adapter = dxgi.make("IDXGIAdapter1", "EnumAdapterByLuid", luid)
    desc = definitions.find("DXGI_ADAPTER_DESC1")()
    check(adapter.GetDesc1(ctypes.pointer(desc)))
    assert (desc.VendorId, desc.Flags) == (SOFTWARE.vendor, 2)
    assert bytes(desc.AdapterLuid) == bytes(luid)
    with pytest.raises(Answer) as error:  # which draws nothing
        dxgi.make("IDXGIAdapter1", "EnumAdapterByLuid", NPU.by_parts)
    assert error.value.result == NOT_FOUND
    adapter.Release()
    dxgi.Release()


def test_an_npu_has_no_direct_queue(windows: Windows) -> None:
    dxcore = create(windows, "DXCoreCreateAdapterFactory", "IDXCoreAdapterFactory")
    luid = ctypes.pointer(NPU.by_parts)
    npu = dxcore.make("IDXCoreAdapter", "GetAdapterByLuid", luid)
    program = Program(windows, adapter=npu)
    desc = structure("D3D12_COMMAND_QUEUE_DESC", Type=0)
    with windows.expected("has no direct queue"), pytest.raises(Answer):
        program.new("ID3D12CommandQueue", "CreateCommandQueue", ctypes.pointer(desc))
    run = Run(program)
    run.initialize()
    run.execute()
    np.testing.assert_array_equal(run.result(), EXPECTED)
    program.close()
    npu.Release()
    dxcore.Release()


def test_a_device_says_its_feature_level() -> None:
    with Windows(directml_level=(5, 1)) as windows:
        program = Program(windows)
        levels = (ctypes.c_int32 * 3)(0x1000, 0x5100, 0x6200)
        query = structure(
            "DML_FEATURE_QUERY_FEATURE_LEVELS", RequestedFeatureLevelCount=3
        )
        query.RequestedFeatureLevels = levels
        data = definitions.find("DML_FEATURE_DATA_FEATURE_LEVELS")()
        check(
            program.dml.CheckFeatureSupport(
                1,
                ctypes.sizeof(query),
                ctypes.addressof(query),
                4,
                ctypes.addressof(data),
            )
        )
        assert data.MaxSupportedFeatureLevel == 0x5100
        with pytest.raises(Answer) as error:
            create(windows, "DMLCreateDevice1", "IDMLDevice", program.device, 0, 0x6000)
        assert error.value.result == UNSUPPORTED
        program.close()


def test_libraries_are_those_that_the_machine_has() -> None:
    path = r"C:\program\DirectML.dll"
    with Windows(
        lacking=("dxcore.dll", "CreateDXGIFactory2"),
        directml_level=(2, 0),
        files={path: (6, 3)},
    ) as windows:
        with pytest.raises(OSError, match=r"lacks DXCore\.dll"):
            windows.load("DXCore.dll")
        with pytest.raises(OSError, match="no file"):
            windows.load(path.replace("program", "elsewhere"))
        with pytest.raises(OSError, match=r"no nvcuda\.dll"):
            windows.load("nvcuda.dll")
        for place in (windows, windows.load("dxgi.dll")):
            assert not hasattr(place, "CreateDXGIFactory2")
        assert callable(windows.D3D12CreateDevice)
        device = create(windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
        place_of_it = ctypes.c_void_p()
        wanted = guid("IDMLDevice"), ctypes.byref(place_of_it)
        for name, result in {"DirectML.dll": UNSUPPORTED, path: 0}.items():
            make = windows.load(name).DMLCreateDevice1
            assert make(device.address, 0, 0x6300, *wanted) == result
        Reference("IDMLDevice", place_of_it.value or 0).Release()
        device.Release()


def test_a_device_is_the_only_one_of_its_adapter(program: Program) -> None:
    again = create(program.windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
    assert again.address == program.device.address
    again.Release()


def test_interfaces_are_those_of_the_chain(program: Program) -> None:
    place = ctypes.c_void_p()
    for name, known in {
        "IUnknown": True,
        "IDMLObject": True,
        "IDMLDevice": True,
        "IDMLDevice1": True,
        "ID3D12Device": False,
    }.items():
        iid = ctypes.pointer(definitions.find(name)._iid_)
        result = program.dml.QueryInterface(iid, ctypes.pointer(place))
        assert (result == 0) == known, name
        assert place.value == (program.dml.address if known else None)
        if known:
            program.dml.Release()


def test_wrong_descriptions_of_buffers_are_refused(program: Program) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "at least one byte": {"size": 0},
        "Format of a buffer is 0": {"size": 4, "Format": 2},
        "flags 0x8": {"size": 4, "flags": 8},
        "only a buffer on a default heap": {"size": 4, "kind": UPLOAD, "flags": 4},
        "heaps of type 7": {"size": 4, "kind": 7},
    }
    for words, fields in wrong.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.buffer(**fields)


def test_buffers_are_placed_in_heaps(program: Program) -> None:
    desc = structure("D3D12_HEAP_DESC", SizeInBytes=131072, Flags=0x44)
    desc.Properties.Type = 1
    heap = program.new("ID3D12Heap", "CreateHeap", ctypes.pointer(desc))
    buffer = ctypes.pointer(Program.described(1024))
    placed = "ID3D12Resource", "CreatePlacedResource"
    program.new(*placed, heap, 65536, buffer, 0, None)
    for words, offset in {"no multiple of 65536": 16, "of a heap of": 131072}.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.new(*placed, heap, offset, buffer, 0, None)


def test_a_device_is_removed_at_a_call(program: Program) -> None:
    windows = program.windows
    windows.faults.remove_at_call = windows.counts.calls + 1
    with pytest.raises(Answer) as error:
        program.buffer(4)
    assert error.value.result == DEVICE_REMOVED
    assert program.device.GetDeviceRemovedReason() == DEVICE_HUNG
    assert program.dml.GetDeviceRemovedReason() == DEVICE_HUNG
    with pytest.raises(Answer) as error:
        create(windows, "D3D12CreateDevice", "ID3D12Device", None, 0xB000)
    assert error.value.result == DEVICE_HUNG


def test_a_device_of_directml_may_be_removed_alone(program: Program) -> None:
    counts, faults = program.windows.counts, program.windows.faults
    faults.lose_directml_at_call = counts.directml_calls + 1
    with pytest.raises(Answer) as error:
        gemm(program)
    assert error.value.result == DEVICE_REMOVED
    assert program.dml.GetDeviceRemovedReason() == DEVICE_HUNG
    assert program.device.GetDeviceRemovedReason() == 0
    again = create(
        program.windows, "DMLCreateDevice1", "IDMLDevice1", program.device, 0, 0x2000
    )
    assert again.GetDeviceRemovedReason() == 0
    again.Release()


def test_a_device_is_removed_while_it_works(program: Program) -> None:
    run = Run(program)
    program.windows.faults.remove_at_submission = 1
    program.dispatch(run.initializer, run.table)
    program.submit()
    event = program.kernel32.CreateEventW(None, 0, 0, None)
    # either the signal finds the device removed, or its fence is set by the removal
    result = program.queue.Signal(program.fence, 1)
    assert result in (0, DEVICE_REMOVED)
    check(program.fence.SetEventOnCompletion(1, event))
    assert program.kernel32.WaitForSingleObject(event, 10_000) == 0
    program.kernel32.CloseHandle(event)
    assert program.fence.GetCompletedValue() == 2**64 - 1
    assert program.device.GetDeviceRemovedReason() == DEVICE_HUNG


def test_a_fence_may_never_come(program: Program) -> None:
    windows = program.windows
    windows.faults.stall_at_signal = 1
    check(program.list.Close())
    program.execute()
    check(program.queue.Signal(program.fence, 1))
    event = program.kernel32.CreateEventW(None, 0, 0, None)
    check(program.fence.SetEventOnCompletion(1, event))
    assert program.kernel32.WaitForSingleObject(event, 30) == 0x102
    assert program.fence.GetCompletedValue() == 0
    windows.resume()
    assert program.kernel32.WaitForSingleObject(event, 10_000) == 0
    program.kernel32.CloseHandle(event)


def test_memory_runs_out(program: Program) -> None:
    windows = program.windows
    windows.faults.no_memory_at = windows.counts.allocations + 2
    program.buffer(4)
    for size in (4, 8 << 30):
        with pytest.raises(Answer) as error:
            program.buffer(size)
        assert error.value.result == E_OUTOFMEMORY
    program.buffer(4)


def test_a_compilation_fails(program: Program) -> None:
    program.windows.faults.compile_at = 1
    operator = gemm(program)
    with pytest.raises(Answer) as error:
        program.compiled(operator)
    assert error.value.result == E_OUTOFMEMORY
    program.compiled(operator)


def test_what_is_left_is_counted() -> None:
    windows = Windows()
    program = Program(windows)
    left = program.buffer(4)
    left.AddRef()
    program.close()
    program.kernel32.CreateEventW(None, 0, 0, None)
    with pytest.raises(Violation) as error:
        windows.check()
    assert "ID3D12Resource" in str(error.value)
    assert "ID3D12Device" in str(error.value)  # to which the buffer refers
    assert "is open" in str(error.value)
