"""Methods of COM objects: where they stand in tables of functions, what crosses."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest

from onnxplug import errors as of_onnxplug
from onnxplug_directml.abi.d3d12 import (
    D3D12_COMMAND_QUEUE_DESC,
    D3D12_CPU_DESCRIPTOR_HANDLE,
    D3D12_DESCRIPTOR_HEAP_DESC,
    D3D12_RESOURCE_BARRIER,
    D3D12_RESOURCE_BARRIER_TYPE,
    D3D12_RESOURCE_DESC,
)
from onnxplug_directml.abi.directml import DML_BINDING_PROPERTIES
from onnxplug_directml.abi.types import LUID
from onnxplug_directml.com import d3d12, directml, dxcore, dxgi
from onnxplug_directml.com.d3d12 import (
    ID3D12CommandAllocator,
    ID3D12CommandQueue,
    ID3D12DescriptorHeap,
    ID3D12Device,
    ID3D12Fence,
    ID3D12GraphicsCommandList,
    ID3D12Resource,
)
from onnxplug_directml.com.directml import IDMLCompiledOperator, IDMLDevice1
from onnxplug_directml.com.dxgi import IDXGIAdapter1, IDXGIFactory4, IDXGIFactory6
from onnxplug_directml.com.errors import (
    CODES,
    ComError,
    DeviceRemoved,
    InvalidCall,
    NotFound,
    OutOfMemory,
    Unsupported,
    error_of,
)
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import Creates
from onnxplug_directml.com.unknown import IUnknown

from . import definitions

INTERFACES = {
    name: value
    for module in (d3d12, directml, dxcore, dxgi)
    for name, value in vars(module).items()
    if isinstance(value, type) and issubclass(value, IUnknown)
}

METHODS = {
    method.name: method
    for interface in INTERFACES.values()
    for method in vars(interface).values()
    if isinstance(method, Method)
}


def _kind(kind: Any) -> tuple[str, int]:
    """What a type is to the calling convention."""
    if kind is None:
        return "nothing", 0
    if isinstance(kind, type) and issubclass(kind, IUnknown):
        return "address", 8
    if issubclass(kind, ctypes.Structure):
        return "structure", ctypes.sizeof(kind)
    pointers = (ctypes.c_void_p, ctypes.c_wchar_p, ctypes._Pointer)
    if issubclass(kind, pointers):
        return "address", ctypes.sizeof(kind)
    return "float" if kind is ctypes.c_float else "integer", ctypes.sizeof(kind)


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_stands_and_takes_what_it_does_in_windows(name: str) -> None:
    ours = METHODS[name]
    interface, short = name.split(".")
    theirs = {each.name: each for each in definitions.methods(interface)}[short]
    assert ours.slot == theirs.slot
    expected = list(map(_kind, theirs.arguments))
    prototype = ours.prototype
    result, this, *arguments = prototype._restype_, *prototype._argtypes_
    assert this is ctypes.c_void_p
    if theirs.returns_structure:
        assert ctypes.sizeof(ours.result) == ctypes.sizeof(theirs.result)
        expected.insert(0, ("address", 8))
        assert result is ctypes.c_void_p
    else:
        assert _kind(result) == _kind(theirs.result)
    assert list(map(_kind, arguments)) == expected


@pytest.mark.parametrize("name", sorted(INTERFACES))
def test_an_interface_inherits_as_in_windows(name: str) -> None:
    theirs = [each.__name__ for each in definitions.find(name).__mro__]
    for base in INTERFACES[name].__mro__:
        if base is not object:
            assert base.__name__ in theirs


@pytest.mark.parametrize("name", sorted(CODES))
def test_a_code_is_that_of_windows(name: str) -> None:
    assert CODES[name].hresult == definitions.find(name) & 0xFFFFFFFF


class Fake:
    """A COM object whose every function notes what it is given.

    Args:
        answers: what functions return by name; a function is called for it.
    """

    def __init__(self, interface: str, **answers: Any) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.references = 1
        answers = {"AddRef": self._add, "Release": self._release, **answers}
        self._functions = [
            method.prototype()(self._noting(method, answers.get(method.name, 0)))
            for method in definitions.methods(interface)
        ]
        addresses = [ctypes.cast(each, ctypes.c_void_p) for each in self._functions]
        self._table = (ctypes.c_void_p * len(addresses))(
            *(address.value for address in addresses)
        )
        self._object = ctypes.c_void_p(ctypes.addressof(self._table))
        self.address = ctypes.addressof(self._object)

    def _noting(self, method: Any, answer: Any) -> Any:
        def function(this: int, *arguments: Any) -> Any:
            assert this == self.address
            self.calls.append((method.name, *arguments))
            return answer(*arguments) if callable(answer) else answer

        return function

    def _add(self) -> int:
        self.references += 1
        return self.references

    def _release(self) -> int:
        self.references -= 1
        return self.references

    @property
    def names(self) -> list[str]:
        return [name for name, *_ in self.calls]


def _writes(kind: Any, **values: Any) -> Any:
    """A function that writes a structure to the address of its last argument."""

    def function(*arguments: Any) -> int:
        ctypes.memmove(
            int(arguments[-1]), ctypes.byref(kind(**values)), ctypes.sizeof(kind)
        )
        return int(arguments[-1])

    return function


def _hands_out(address: int | None, asked: list[bytes] | None = None) -> Any:
    def function(*arguments: Any) -> int:
        if asked is not None:
            asked.append(bytes(arguments[-2].contents))
        ctypes.cast(arguments[-1], ctypes.POINTER(ctypes.c_void_p))[0] = address
        return 0

    return function


def test_an_object_is_created_used_and_released_once() -> None:
    queue = Fake("ID3D12CommandQueue")
    asked: list[bytes] = []
    seen: list[int] = []

    def create(desc: Any, *rest: Any) -> int:
        seen.extend((desc.contents.Type, desc.contents.Priority))
        return int(_hands_out(queue.address, asked)(*rest))

    device = Fake("ID3D12Device", CreateCommandQueue=create)
    with ID3D12Device(device.address) as ours:
        made = ours.CreateCommandQueue(D3D12_COMMAND_QUEUE_DESC(Type=2, Priority=100))
        assert isinstance(made, ID3D12CommandQueue)
        with made:
            with made.share():
                assert queue.references == 2
            assert queue.references == 1
        made.close()
    assert (seen, asked) == ([2, 100], [definitions.iid("ID3D12CommandQueue")])
    assert (queue.references, device.references) == (0, 0)
    assert made.is_closed
    with pytest.raises(RuntimeError, match="ID3D12CommandQueue was used after"):
        made.Wait(made, 1)
    with pytest.raises(RuntimeError, match="ID3D12Device was used after"):
        ours.CreateCommandAllocator(2)


def test_garbage_collection_releases_nothing() -> None:
    queue = Fake("ID3D12CommandQueue")
    ours = ID3D12CommandQueue(queue.address)
    del ours
    gc.collect()
    assert queue.references == 1


def test_structures_are_returned_behind_the_object() -> None:
    luid = _writes(LUID, LowPart=7, HighPart=-1)
    device = ID3D12Device(Fake("ID3D12Device", GetAdapterLuid=luid).address)
    found = device.GetAdapterLuid()
    assert (found.LowPart, found.HighPart) == (7, -1)
    heap = ID3D12DescriptorHeap(
        Fake(
            "ID3D12DescriptorHeap",
            GetCPUDescriptorHandleForHeapStart=_writes(
                D3D12_CPU_DESCRIPTOR_HANDLE, ptr=0x1234567890
            ),
            GetDesc=_writes(D3D12_DESCRIPTOR_HEAP_DESC, NumDescriptors=9),
        ).address
    )
    assert heap.GetCPUDescriptorHandleForHeapStart().ptr == 0x1234567890
    assert heap.GetDesc().NumDescriptors == 9
    resource = ID3D12Resource(
        Fake(
            "ID3D12Resource", GetDesc=_writes(D3D12_RESOURCE_DESC, Width=1 << 40)
        ).address
    )
    assert resource.GetDesc().Width == 1 << 40
    compiled = IDMLCompiledOperator(
        Fake(
            "IDMLCompiledOperator",
            GetBindingProperties=_writes(
                DML_BINDING_PROPERTIES,
                RequiredDescriptorCount=3,
                PersistentResourceSize=5,
            ),
        ).address
    )
    properties = compiled.GetBindingProperties()
    assert properties.RequiredDescriptorCount == 3
    assert properties.PersistentResourceSize == 5


def test_sequences_are_counted_and_objects_given_by_address() -> None:
    seen: list[Any] = []

    def barriers(count: int, array: Any) -> None:
        seen.append([array[place].Type for place in range(count)])

    def heaps(count: int, array: Any) -> None:
        seen.append([ctypes.cast(array, _ADDRESSES)[place] for place in range(count)])

    fake = Fake(
        "ID3D12GraphicsCommandList", ResourceBarrier=barriers, SetDescriptorHeaps=heaps
    )
    commands = ID3D12GraphicsCommandList(fake.address)
    heap = Fake("ID3D12DescriptorHeap")
    uav = D3D12_RESOURCE_BARRIER(Type=D3D12_RESOURCE_BARRIER_TYPE.UAV)
    commands.ResourceBarrier([uav, D3D12_RESOURCE_BARRIER()])
    commands.ResourceBarrier([])
    commands.SetDescriptorHeaps([ID3D12DescriptorHeap(heap.address)])
    assert seen == [[2, 0], [], [heap.address]]
    source = ID3D12Resource(Fake("ID3D12Resource").address)
    commands.CopyBufferRegion(source, 1, source, 2, 1 << 33)
    assert fake.calls[-1][1:] == (source.address, 1, source.address, 2, 1 << 33)
    with pytest.raises((TypeError, ctypes.ArgumentError), match="ID3D12Resource"):
        commands.CopyBufferRegion(commands, 0, source, 0, 1)
    with pytest.raises(TypeError, match="takes 2 arguments; 1 were given"):
        commands.Reset(None)
    closed = ID3D12CommandAllocator(Fake("ID3D12CommandAllocator").address)
    closed.close()
    with pytest.raises((RuntimeError, ctypes.ArgumentError), match="after its release"):
        commands.Reset(closed, None)


_ADDRESSES = ctypes.POINTER(ctypes.c_void_p)


def test_a_texts_units_have_16_bits() -> None:
    seen: list[bytes] = []

    def name(this: int, text: int) -> int:
        seen.append(ctypes.string_at(text, 10))
        return 0

    prototype = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p)
    function = prototype(name)
    table = (ctypes.c_void_p * 7)(*[ctypes.cast(function, ctypes.c_void_p).value] * 7)
    this = ctypes.c_void_p(ctypes.addressof(table))
    ID3D12Device(ctypes.addressof(this)).SetName("aé\N{OK HAND SIGN}")
    assert seen == ["aé\N{OK HAND SIGN}\0".encode("utf-16-le")]


def test_an_adapter_is_asked_for_by_a_structure_by_value() -> None:
    adapter = Fake("IDXGIAdapter1")
    seen: list[tuple[int, int]] = []

    def by_luid(luid: Any, *rest: Any) -> int:
        seen.append((luid.LowPart, luid.HighPart))
        return int(_hands_out(adapter.address)(*rest))

    factory = IDXGIFactory6(Fake("IDXGIFactory6", EnumAdapterByLuid=by_luid).address)
    assert factory.EnumAdapterByLuid(LUID(3, 4)).address == adapter.address
    assert seen == [(3, 4)]


@pytest.mark.parametrize(
    ("code", "kind", "builtin", "said"),
    [
        ("E_INVALIDARG", InvalidCall, ValueError, "an argument is not as it has to be"),
        ("E_OUTOFMEMORY", OutOfMemory, MemoryError, "there is not so much memory"),
        ("DXGI_ERROR_NOT_FOUND", NotFound, LookupError, "there is no such thing"),
        ("DXGI_ERROR_UNSUPPORTED", Unsupported, NotImplementedError, "does not have"),
        ("DXGI_ERROR_DEVICE_HUNG", DeviceRemoved, RuntimeError, "in time"),
        ("E_FAIL", ComError, RuntimeError, "does not say why"),
    ],
)
def test_a_failure_says_what_was_asked_and_what_it_means(
    code: str, kind: type[ComError], builtin: type[Exception], said: str
) -> None:
    status = CODES[code].hresult - (1 << 32)
    device = ID3D12Device(Fake("ID3D12Device", CreateFence=status).address)
    with pytest.raises(kind) as caught:
        device.CreateFence(0, 0, asked="for the queue's work")
    error = caught.value
    assert isinstance(error, builtin) and isinstance(error, ComError)
    assert str(error).startswith(
        "ID3D12Device.CreateFence (for the queue's work) failed: "
    )
    assert said in str(error) and code in str(error)
    assert error.hresult == CODES[code].hresult


def test_errors_are_of_the_classes_that_the_host_knows() -> None:
    assert issubclass(OutOfMemory, of_onnxplug.OutOfMemory)
    assert issubclass(DeviceRemoved, of_onnxplug.DeviceReset)
    assert DeviceRemoved.code == of_onnxplug.DeviceReset.code
    unknown = error_of(-1, "IDMLDevice1.CompileGraph")
    assert type(unknown) is ComError
    assert str(unknown).endswith("Windows answers 0xFFFFFFFF")


def test_a_removed_device_gives_its_reason() -> None:
    removed = CODES["DXGI_ERROR_DEVICE_REMOVED"].hresult - (1 << 32)
    hung = CODES["DXGI_ERROR_DEVICE_HUNG"].hresult - (1 << 32)
    fence = Fake("ID3D12Fence", Signal=removed)
    device = Fake(
        "ID3D12Device",
        CreateFence=_hands_out(fence.address),
        GetDeviceRemovedReason=hung,
    )
    ours = ID3D12Device(device.address)
    made = ours.CreateFence(0, 0)
    assert isinstance(made, ID3D12Fence)
    with pytest.raises(DeviceRemoved, match=r"reason: the device did not finish.*HUNG"):
        made.Signal(1)
    ours.close()
    with pytest.raises(DeviceRemoved, match=r"DXGI_ERROR_DEVICE_REMOVED, 0x887A0005\)"):
        made.Signal(1)


def test_success_without_an_object_is_an_error() -> None:
    device = ID3D12Device(Fake("ID3D12Device").address)
    with pytest.raises(ComError, match="succeeded, and yet gave no ID3D12Fence"):
        device.CreateFence(0, 0)
    factory = IDXGIFactory4(Fake("IDXGIFactory4").address)
    with pytest.raises(ComError, match="gave no IDXGIAdapter1"):
        factory.EnumAdapters1(0)


def test_another_interface_has_a_reference_of_its_own() -> None:
    asked: list[bytes] = []
    fake = Fake("IDMLDevice1")
    fake = Fake("IDMLDevice1", QueryInterface=_hands_out(fake.address, asked))
    ours = IUnknown(fake.address)
    with ours.query(IDMLDevice1) as device:
        assert isinstance(device, IDMLDevice1)
    assert asked == [definitions.iid("IDMLDevice1")]
    refused = Fake(
        "IDXGIAdapter1", QueryInterface=CODES["E_NOINTERFACE"].hresult - (1 << 32)
    )
    adapter = IDXGIAdapter1(refused.address)
    with pytest.raises(Unsupported, match="does not have that interface"):
        adapter.query(dxgi.IDXGIAdapter3)


def test_an_object_without_the_function_is_refused() -> None:
    table = (ctypes.c_void_p * 64)()
    this = ctypes.c_void_p(ctypes.addressof(table))
    device = ID3D12Device(ctypes.addressof(this))
    with pytest.raises(RuntimeError, match=r"has no ID3D12Device\.CreateFence"):
        device.CreateFence(0, 0)


def test_what_is_created_is_asked_for_by_its_own_identifier() -> None:
    created = [m.result for m in METHODS.values() if isinstance(m.result, Creates)]
    assert len(created) > 15
    for each in created:
        name = each.interface.__name__
        assert bytes(each.interface.IID) == definitions.iid(name)
