"""Adapters, libraries, levels and memory of the stand-in, and how it may fail."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from .. import definitions
from ..standin import GPU, NPU, SOFTWARE, Violation, Windows
from ..standin.driving import (
    DEFAULT,
    READBACK,
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
    E_INVALIDARG,
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


def test_dxcore_tells_properties_of_adapters(windows: Windows) -> None:
    dxcore = create(windows, "DXCoreCreateAdapterFactory", "IDXCoreAdapterFactory")
    luid = ctypes.pointer(GPU.by_parts)
    gpu = dxcore.make("IDXCoreAdapter", "GetAdapterByLuid", luid)
    names = definitions.module("dxcore").DXCoreAdapterProperty

    def told(number: int) -> bytes:
        prop, size = names(number), ctypes.c_size_t()
        check(gpu.GetPropertySize(prop, ctypes.pointer(size)))
        place = ctypes.create_string_buffer(size.value)
        where = ctypes.addressof(place)
        with windows.expected("bytes for one of"):
            assert gpu.GetProperty(prop, size.value - 1, where) == E_INVALIDARG
        check(gpu.GetProperty(prop, size.value, where))
        return place.raw

    assert told(names.DriverDescription) == GPU.name.encode() + b"\0"
    assert told(names.InstanceLuid) == bytes(GPU.by_parts)
    assert told(names.IsHardware) == b"\1"
    assert told(names.DedicatedAdapterMemory) == GPU.memory.to_bytes(8, "little")
    assert gpu.GetPropertySize(names(99), None) == E_INVALIDARG
    gpu.Release()
    dxcore.Release()


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
        "flags 0x2 of a heap": {"size": 4, "heap_flags": 2},
        "alignment of 4096": {"size": 4, "Alignment": 4096},
    }
    for words, fields in wrong.items():
        with program.windows.expected(words), pytest.raises(Answer):
            program.buffer(**fields)


def test_a_buffer_starts_in_the_state_of_its_heap(program: Program) -> None:
    desc = ctypes.pointer(Program.described(4, READBACK))
    for words, kind, state in (
        ("the first state on a heap of type 3 is 0x400", READBACK, 0),
        ("no buffer can be in the state 0x10", DEFAULT, 0x10),
    ):
        properties = structure("D3D12_HEAP_PROPERTIES", Type=kind)
        with program.windows.expected(words), pytest.raises(Answer) as error:
            program.new(
                "ID3D12Resource",
                "CreateCommittedResource",
                ctypes.pointer(properties),
                0,
                desc,
                state,
                None,
            )
        assert error.value.result == E_INVALIDARG


DESCRIPTORS: dict[str, dict[str, int]] = {
    "heaps of type 1": {"Type": 1, "NumDescriptors": 1},
    "at least one descriptor": {},
    "flags 0x2": {"NumDescriptors": 1, "Flags": 2},
    "a million": {"NumDescriptors": 1_000_001, "Flags": 1},
}


@pytest.mark.parametrize("words", DESCRIPTORS)
def test_wrong_descriptor_heaps_are_refused(program: Program, words: str) -> None:
    desc = structure("D3D12_DESCRIPTOR_HEAP_DESC", **DESCRIPTORS[words])
    with program.windows.expected(words), pytest.raises(Answer):
        program.new(
            "ID3D12DescriptorHeap", "CreateDescriptorHeap", ctypes.pointer(desc)
        )


def test_handles_are_of_descriptors_that_are_there(program: Program) -> None:
    plain = program.heap(2, 0)
    with program.windows.expected("is not visible to shaders"):
        assert plain.GetGPUDescriptorHandleForHeapStart().ptr == 0
    first = plain.GetCPUDescriptorHandleForHeapStart
    for words, offset in {
        "multiple of the increment": 1,
        "no descriptor heap": 80,
    }.items():
        handle = first()
        handle.ptr += offset
        with program.windows.expected(words):
            program.device.CopyDescriptorsSimple(1, handle, first(), 0)
    handle = program.heap(2).GetGPUDescriptorHandleForHeapStart()
    cpu = definitions.find("D3D12_CPU_DESCRIPTOR_HANDLE")(handle.ptr)
    with program.windows.expected("is no handle for CPUs"):
        program.device.CopyDescriptorsSimple(1, cpu, first(), 0)


def test_questions_have_the_size_of_their_structures(program: Program) -> None:
    query = definitions.find("DML_FEATURE_QUERY_TENSOR_DATA_TYPE_SUPPORT")()
    data = definitions.find("DML_FEATURE_DATA_TENSOR_DATA_TYPE_SUPPORT")()
    where = ctypes.addressof(query), ctypes.addressof(data)
    ask = program.dml.CheckFeatureSupport
    assert ask(9, 4, where[0], 4, where[1]) == UNSUPPORTED
    for words, sizes in {"8 bytes for": (8, 4), "2 bytes for": (4, 2)}.items():
        with program.windows.expected(words):
            assert ask(0, sizes[0], where[0], sizes[1], where[1]) == E_INVALIDARG
    with program.windows.expected("for D3D12_FEATURE_DATA_FEATURE_LEVELS"):
        assert program.device.CheckFeatureSupport(2, where[0], 4) == E_INVALIDARG


def test_a_device_says_its_level_and_architecture(program: Program) -> None:
    levels = (ctypes.c_int32 * 3)(0xB000, 0xC100, 0xC200)
    data = structure("D3D12_FEATURE_DATA_FEATURE_LEVELS", NumFeatureLevels=3)
    data.pFeatureLevelsRequested = levels
    ask = program.device.CheckFeatureSupport
    check(ask(2, ctypes.addressof(data), ctypes.sizeof(data)))
    assert data.MaxSupportedFeatureLevel == GPU.level == 0xC100
    found = definitions.find("D3D12_FEATURE_DATA_ARCHITECTURE")()
    check(ask(1, ctypes.addressof(found), ctypes.sizeof(found)))
    assert not found.UMA


def test_wrong_calls_of_exports_are_refused(program: Program) -> None:
    windows = program.windows
    missing = 0x887A002D - 2**32
    for function, interface, arguments, result, words in (
        ("CreateDXGIFactory2", "IDXGIFactory2", [1], missing, ()),
        ("CreateDXGIFactory2", "IDXGIFactory2", [8], 0x887A0001 - 2**32, ("flags",)),
        ("DMLCreateDevice1", "IDMLDevice", [program.device, 1, 0x1000], missing, ()),
        ("DMLCreateDevice1", "IDMLDevice", [program.device, 0, 7], None, ("0x7",)),
        ("DMLCreateDevice1", "IDMLDevice", [None, 0, 0x1000], None, ("is null",)),
        ("D3D12CreateDevice", "ID3D12Device", [program.fence, 0xB000], None, ("is",)),
    ):
        with windows.expected(*words), pytest.raises(Answer) as error:
            create(windows, function, interface, *arguments)
        assert error.value.result == (result or E_INVALIDARG), function
    windows.faults.no_directml = UNSUPPORTED
    with pytest.raises(Answer):
        create(windows, "DMLCreateDevice1", "IDMLDevice", program.device, 0, 0x1000)


def test_a_fence_is_kept_until_it_is_signalled(program: Program) -> None:
    program.windows.faults.stall_at_signal = 1
    check(program.queue.Signal(program.fence, 1))
    with program.windows.expected("before the GPU came to signal it"):
        program.release(program.fence)
    program.windows.resume()


def test_what_the_stand_in_lacks_is_said(program: Program) -> None:
    with program.windows.expected("the stand-in has no ID3D12Device.CreateQueryHeap"):
        program.device.CreateQueryHeap(None, None, None)


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
