"""A program that calls DirectML through tables of functions, as C++ would.

It is what the stand-in's own tests drive it with: it shares nothing with the plugin.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import definitions
from .schema import operator_names, schema
from .windows import Windows

DEFAULT, UPLOAD, READBACK = 1, 2, 3
COMMON, UNORDERED_ACCESS, COPY_DEST, COPY_SOURCE = 0, 8, 0x400, 0x800
GENERIC_READ = 0xAC3
OWNED = 1
LIBRARIES = {
    "CreateDXGIFactory2": "dxgi.dll",
    "DXCoreCreateAdapterFactory": "dxcore.dll",
    "D3D12CreateDevice": "d3d12.dll",
    "DMLCreateDevice1": "DirectML.dll",
}


class Answer(Exception):
    """An HRESULT that says no."""

    def __init__(self, result: int) -> None:
        super().__init__(f"{result & 0xFFFFFFFF:#x}")
        self.result = result


class Reference:
    """A pointer to an interface, whose methods it has."""

    def __init__(self, interface: str, address: int) -> None:
        self.interface = interface
        self.address = address

    def __getattr__(self, name: str) -> Any:
        method, prototype = _methods(self.interface)[name]
        table = ctypes.cast(self.address, ctypes.POINTER(ctypes.c_void_p))[0]
        functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
        function = prototype(functions[method.slot])

        def called(*arguments: Any) -> Any:
            values = [a.address if isinstance(a, Reference) else a for a in arguments]
            if method.returns_structure:
                found = method.result()
                function(self.address, ctypes.addressof(found), *values)
                return found
            return function(self.address, *values)

        return called

    def make(self, interface: str, method: str, *arguments: Any) -> Reference:
        """What a method makes that ends in an identifier and a place.

        Raises:
            Answer: it fails.
        """
        place = ctypes.c_void_p()
        check(getattr(self, method)(*arguments, guid(interface), ctypes.pointer(place)))
        return Reference(interface, place.value or 0)


@functools.cache
def _methods(interface: str) -> dict[str, tuple[Any, Any]]:
    return {m.name: (m, m.prototype()) for m in definitions.methods(interface)}


def check(result: int) -> None:
    """Raises an `Answer` if an HRESULT says no."""
    if result < 0:
        raise Answer(result)


def guid(interface: str) -> Any:
    """A pointer to an identifier."""
    return ctypes.pointer(definitions.find(interface)._iid_)


def create(
    windows: Windows, function: str, interface: str, *arguments: Any
) -> Reference:
    """What an exported function makes.

    Raises:
        Answer: it fails.
    """
    place = ctypes.c_void_p()
    values = [a.address if isinstance(a, Reference) else a for a in arguments]
    called = getattr(windows.load(LIBRARIES[function]), function)
    check(called(*values, guid(interface), ctypes.byref(place)))
    return Reference(interface, place.value or 0)


def structure(name: str, **fields: Any) -> Any:
    """A structure of Windows' with some fields set."""
    found = definitions.find(name)()
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def tensor(
    sizes: Sequence[int],
    data_type: str = "FLOAT32",
    *,
    strides: Sequence[int] | None = None,
    flags: int = 0,
    size: int | None = None,
    alignment: int = 0,
) -> Any:
    """A pointer to a ``DML_TENSOR_DESC``."""
    types = definitions.members("DML_TENSOR_DATA_TYPE")
    count = len(sizes)
    item = np.dtype(data_type.lower()).itemsize
    if size is None:
        steps = strides or [int(np.prod(sizes[i + 1 :])) for i in range(count)]
        last = sum((n - 1) * s for n, s in zip(sizes, steps, strict=True))
        size = -(-(last + 1) * item // 4) * 4
    buffer = structure(
        "DML_BUFFER_TENSOR_DESC",
        DataType=types[f"DML_TENSOR_DATA_TYPE_{data_type}"],
        Flags=flags,
        DimensionCount=count,
        Sizes=(ctypes.c_uint32 * count)(*sizes),
        TotalTensorSizeInBytes=size,
        GuaranteedBaseOffsetAlignment=alignment,
    )
    if strides is not None:
        buffer.Strides = (ctypes.c_uint32 * count)(*strides)
    found = structure("DML_TENSOR_DESC", Type=1, Desc=ctypes.addressof(buffer))
    found.kept = buffer
    return ctypes.pointer(found)


def operator_desc(name: str, **fields: Any) -> Any:
    """A ``DML_OPERATOR_DESC``."""
    numbers = {n: number for number, n in operator_names().items()}
    desc = schema(name).structure()
    for field, value in fields.items():
        setattr(desc, field, value)
    found = structure(
        "DML_OPERATOR_DESC", Type=numbers[name], Desc=ctypes.addressof(desc)
    )
    found.kept = desc, fields
    return found


class Program:
    """A device, a queue and a list, and what a program does with them."""

    def __init__(self, windows: Windows, *, adapter: Reference | None = None) -> None:
        self.windows = windows
        self.kernel32 = windows.load("kernel32.dll")
        self.made: list[Reference] = []
        level, kind = (0xB000, 0) if adapter is None else (0x100, 2)
        self.kind = kind
        self.device = self.keep(
            create(windows, "D3D12CreateDevice", "ID3D12Device", adapter, level)
        )
        self.dml = self.keep(
            create(windows, "DMLCreateDevice1", "IDMLDevice1", self.device, 0, 0x2000)
        )
        desc = structure("D3D12_COMMAND_QUEUE_DESC", Type=kind)
        self.queue = self.new(
            "ID3D12CommandQueue", "CreateCommandQueue", ctypes.pointer(desc)
        )
        self.allocator = self.new(
            "ID3D12CommandAllocator", "CreateCommandAllocator", kind
        )
        self.list = self.new(
            "ID3D12GraphicsCommandList",
            "CreateCommandList",
            0,
            kind,
            self.allocator,
            None,
        )
        self.fence = self.new("ID3D12Fence", "CreateFence", 0, 0)
        self.recorder = self.keep(
            self.dml.make("IDMLCommandRecorder", "CreateCommandRecorder")
        )
        self.value = 0

    def keep(self, made: Reference) -> Reference:
        """To be released by `close`."""
        self.made.append(made)
        return made

    def new(self, interface: str, method: str, *arguments: Any) -> Reference:
        """What the device makes, to be released by `close`."""
        return self.keep(self.device.make(interface, method, *arguments))

    def release(self, reference: Reference) -> None:
        """Releases one now."""
        self.made.remove(reference)
        reference.Release()

    def close(self) -> None:
        """Releases everything, the last first."""
        while self.made:
            self.made.pop().Release()

    def buffer(
        self,
        size: int,
        kind: int = DEFAULT,
        *,
        heap_flags: int = 0,
        flags: int | None = None,
        **fields: Any,
    ) -> Reference:
        """A buffer with a heap of its own."""
        properties = structure("D3D12_HEAP_PROPERTIES", Type=kind)
        desc = self.described(size, kind, flags, **fields)
        state = {UPLOAD: GENERIC_READ, READBACK: COPY_DEST}.get(kind, COMMON)
        return self.new(
            "ID3D12Resource",
            "CreateCommittedResource",
            ctypes.pointer(properties),
            heap_flags,
            ctypes.pointer(desc),
            state,
            None,
        )

    @staticmethod
    def described(
        size: int, kind: int = DEFAULT, flags: int | None = None, **fields: Any
    ) -> Any:
        """The description of a buffer."""
        desc = structure(
            "D3D12_RESOURCE_DESC",
            Dimension=1,
            Width=size,
            Height=1,
            DepthOrArraySize=1,
            MipLevels=1,
            Layout=1,
            Flags=(4 if kind == DEFAULT else 0) if flags is None else flags,
            **fields,
        )
        desc.SampleDesc.Count = 1
        return desc

    def uploaded(self, array: np.ndarray[Any, Any]) -> Reference:
        """An upload buffer with an array's bytes, and zeros up to a multiple of 4."""
        buffer = self.buffer(-(-array.nbytes // 4) * 4, UPLOAD)
        place = ctypes.c_void_p()
        check(buffer.Map(0, None, ctypes.pointer(place)))
        ctypes.memmove(place.value or 0, array.tobytes(), array.nbytes)
        buffer.Unmap(0, None)
        return buffer

    def resident(self, array: np.ndarray[Any, Any]) -> Reference:
        """A default buffer into which the list copies an array, for dispatches."""
        upload = self.uploaded(array)
        size = upload.GetDesc().Width
        buffer = self.buffer(size)
        self.list.CopyBufferRegion(buffer, 0, upload, 0, size)
        self.transition(buffer, COPY_DEST, UNORDERED_ACCESS)
        return buffer

    def transition(self, buffer: Reference, before: int, after: int) -> None:
        """Records a transition barrier."""
        barrier = structure("D3D12_RESOURCE_BARRIER", Type=0)
        barrier.Transition.pResource = buffer.address
        barrier.Transition.Subresource = 0xFFFFFFFF
        barrier.Transition.StateBefore = before
        barrier.Transition.StateAfter = after
        self.list.ResourceBarrier(1, ctypes.pointer(barrier))

    def barrier(self, **fields: Any) -> None:
        """Records a barrier of no buffer."""
        barrier = structure("D3D12_RESOURCE_BARRIER", **fields)
        self.list.ResourceBarrier(1, ctypes.pointer(barrier))

    def uav_barrier(self, buffer: Reference | None = None) -> None:
        """Records a barrier between dispatches."""
        barrier = structure("D3D12_RESOURCE_BARRIER", Type=2)
        barrier.UAV.pResource = buffer.address if buffer else None
        self.list.ResourceBarrier(1, ctypes.pointer(barrier))

    def submit(self) -> None:
        """Closes the list and executes it."""
        check(self.list.Close())
        self.execute()

    def execute(self) -> None:
        """Executes the closed list."""
        lists = (ctypes.c_void_p * 1)(self.list.address)
        pointer = dict(
            zip(
                ("count", "lists"),
                _methods("ID3D12CommandQueue")["ExecuteCommandLists"][0].arguments,
                strict=True,
            )
        )["lists"]
        self.queue.ExecuteCommandLists(1, ctypes.cast(lists, pointer))

    def wait(self) -> None:
        """Waits until the GPU has done everything."""
        self.value += 1
        check(self.queue.Signal(self.fence, self.value))
        event = self.kernel32.CreateEventW(None, 0, 0, None)
        check(self.fence.SetEventOnCompletion(self.value, event))
        assert self.kernel32.WaitForSingleObject(event, 60_000) == 0
        self.kernel32.CloseHandle(event)

    def again(self) -> None:
        """Starts a new list, after `wait`."""
        check(self.allocator.Reset())
        check(self.list.Reset(self.allocator, None))

    def read(
        self, buffer: Reference, like: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """What is in a buffer, by a list of its own."""
        size = buffer.GetDesc().Width
        back = self.buffer(size, READBACK)
        self.list.CopyBufferRegion(back, 0, buffer, 0, size)
        self.submit()
        self.wait()
        place = ctypes.c_void_p()
        check(back.Map(0, None, ctypes.pointer(place)))
        raw = ctypes.string_at(place.value or 0, like.nbytes)
        back.Unmap(0, None)
        self.release(back)
        self.again()
        return np.frombuffer(raw, like.dtype).reshape(like.shape)

    def operator(self, name: str, **fields: Any) -> Reference:
        """An operator."""
        desc = operator_desc(name, **fields)
        return self.keep(
            self.dml.make("IDMLOperator", "CreateOperator", ctypes.pointer(desc))
        )

    def compiled(self, operator: Reference, flags: int = 0) -> Reference:
        """A compiled operator."""
        return self.keep(
            self.dml.make("IDMLCompiledOperator", "CompileOperator", operator, flags)
        )

    def compiled_graph(self, desc: Any, flags: int = 0) -> Reference:
        """A compiled graph."""
        return self.keep(
            self.dml.make(
                "IDMLCompiledOperator", "CompileGraph", ctypes.pointer(desc), flags
            )
        )

    def initializer(self, *operators: Reference) -> Reference:
        """An initializer of compiled operators."""
        pointer = _methods("IDMLDevice1")["CreateOperatorInitializer"][0].arguments[1]
        array = (ctypes.c_void_p * len(operators))(*(o.address for o in operators))
        return self.keep(
            self.dml.make(
                "IDMLOperatorInitializer",
                "CreateOperatorInitializer",
                len(operators),
                ctypes.cast(array, pointer),
            )
        )

    def heap(self, count: int, flags: int = 1) -> Reference:
        """A descriptor heap."""
        desc = structure(
            "D3D12_DESCRIPTOR_HEAP_DESC", NumDescriptors=max(count, 1), Flags=flags
        )
        return self.new(
            "ID3D12DescriptorHeap", "CreateDescriptorHeap", ctypes.pointer(desc)
        )

    def set_heap(self, *heaps: Reference) -> None:
        """Sets descriptor heaps on the list."""
        array = (ctypes.c_void_p * len(heaps))(*(heap.address for heap in heaps))
        method = _methods("ID3D12GraphicsCommandList")["SetDescriptorHeaps"][0]
        self.list.SetDescriptorHeaps(
            len(heaps), ctypes.cast(array, method.arguments[1])
        )

    def table(
        self,
        dispatchable: Reference,
        heap: Reference | None = None,
        *,
        first: int = 0,
        count: int | None = None,
    ) -> Reference:
        """A binding table, on a new heap, which is set, if none is given."""
        needed = dispatchable.GetBindingProperties().RequiredDescriptorCount
        count = needed if count is None else count
        if heap is None:
            heap = self.heap(count)
            self.set_heap(heap)
        step = first * self.device.GetDescriptorHandleIncrementSize(0)
        desc = structure(
            "DML_BINDING_TABLE_DESC",
            Dispatchable=dispatchable.address,
            SizeInDescriptors=count,
        )
        desc.CPUDescriptorHandle = heap.GetCPUDescriptorHandleForHeapStart()
        desc.CPUDescriptorHandle.ptr += step
        desc.GPUDescriptorHandle = heap.GetGPUDescriptorHandleForHeapStart()
        desc.GPUDescriptorHandle.ptr += step
        return self.keep(
            self.dml.make(
                "IDMLBindingTable", "CreateBindingTable", ctypes.pointer(desc)
            )
        )

    def dispatch(self, dispatchable: Reference, table: Reference) -> None:
        """Records a dispatch."""
        self.recorder.RecordDispatch(self.list, dispatchable, table)


Range = tuple[Reference, int, int] | Reference | None
"""A buffer, or a part of it from an offset of some bytes, or nothing."""


def binding(found: Range) -> Any:
    """A ``DML_BINDING_DESC``."""
    if found is None:
        return structure("DML_BINDING_DESC")
    ranged = _range(found)
    desc = structure("DML_BINDING_DESC", Type=1, Desc=ctypes.addressof(ranged))
    desc.kept = ranged
    return desc


def array_binding(found: Sequence[Range]) -> Any:
    """A ``DML_BINDING_DESC`` of an array of buffers."""
    kind = definitions.find("DML_BUFFER_BINDING")
    array = (kind * len(found))(*map(_range, found))
    held = structure(
        "DML_BUFFER_ARRAY_BINDING", BindingCount=len(found), Bindings=array
    )
    desc = structure("DML_BINDING_DESC", Type=2, Desc=ctypes.addressof(held))
    desc.kept = array, held
    return desc


def _range(found: Range) -> Any:
    if found is None:
        return structure("DML_BUFFER_BINDING")
    if isinstance(found, Reference):
        found = found, 0, found.GetDesc().Width
    buffer, offset, size = found
    return structure(
        "DML_BUFFER_BINDING", Buffer=buffer.address, Offset=offset, SizeInBytes=size
    )


def bind(
    table: Reference,
    *,
    inputs: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    temporary: Range = None,
    persistent: Range = None,
) -> None:
    """Binds what is given; inputs and outputs may be bindings already."""
    kind = definitions.find("DML_BINDING_DESC")
    for method, found in (("BindInputs", inputs), ("BindOutputs", outputs)):
        if found is not None:
            descs = [b if isinstance(b, kind) else binding(b) for b in found]
            array = (kind * len(descs))(*descs)
            getattr(table, method)(len(descs), array)
    if temporary is not None:
        table.BindTemporaryResource(ctypes.pointer(binding(temporary)))
    if persistent is not None:
        table.BindPersistentResource(ctypes.pointer(binding(persistent)))


def graph_desc(
    nodes: Sequence[Reference],
    inputs: Sequence[tuple[int, int, int]],
    between: Sequence[tuple[int, int, int, int]],
    outputs: Sequence[tuple[int, int, int]],
    *,
    input_count: int | None = None,
    output_count: int | None = None,
) -> Any:
    """A ``DML_GRAPH_DESC``: edges are the indices that their structures have."""
    kept: list[Any] = []

    def many(kind: str, count: int, descs: list[tuple[int, Any]]) -> Any:
        array = (definitions.find(kind) * max(count, 1))()
        for i, (number, desc) in enumerate(descs):
            array[i].Type, array[i].Desc = number, ctypes.addressof(desc)
            kept.append(desc)
        return array

    named = [
        structure("DML_OPERATOR_GRAPH_NODE_DESC", Operator=node.address)
        for node in nodes
    ]
    kinds = {
        "Input": (1, "GraphInputIndex ToNodeIndex ToNodeInputIndex", inputs),
        "Output": (2, "FromNodeIndex FromNodeOutputIndex GraphOutputIndex", outputs),
        "Intermediate": (
            3,
            "FromNodeIndex FromNodeOutputIndex ToNodeIndex ToNodeInputIndex",
            between,
        ),
    }
    desc = structure(
        "DML_GRAPH_DESC",
        InputCount=_count(input_count, [i[0] for i in inputs]),
        OutputCount=_count(output_count, [o[2] for o in outputs]),
        NodeCount=len(nodes),
        Nodes=many("DML_GRAPH_NODE_DESC", len(nodes), [(1, n) for n in named]),
    )
    for name, (number, fields, edges) in kinds.items():
        descs = [
            structure(
                f"DML_{name.upper()}_GRAPH_EDGE_DESC",
                **dict(zip(fields.split(), edge, strict=True)),
            )
            for edge in edges
        ]
        setattr(desc, f"{name}EdgeCount", len(descs))
        array = many("DML_GRAPH_EDGE_DESC", len(descs), [(number, d) for d in descs])
        setattr(desc, f"{name}Edges", array)
    desc.kept = kept, named
    return desc


def _count(given: int | None, indices: list[int]) -> int:
    return max(indices, default=-1) + 1 if given is None else given
