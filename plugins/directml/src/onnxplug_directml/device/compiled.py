"""Graphs that DirectML has compiled, and the command lists that run them.

A list is recorded for a set of arrays, and executed again whenever these come again:
memory from the pool does, and so does what is bound.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_directml.abi.d3d12 import (
    D3D12_DESCRIPTOR_HEAP_DESC,
    D3D12_DESCRIPTOR_HEAP_FLAGS,
    D3D12_DESCRIPTOR_HEAP_TYPE,
)
from onnxplug_directml.abi.directml import DML_BINDING_TABLE_DESC, DML_EXECUTION_FLAGS
from onnxplug_directml.com.directml import (
    IDMLBindingTable,
    IDMLCompiledOperator,
    IDMLDispatchable,
)
from onnxplug_directml.com.errors import InvalidCall, Unsupported
from onnxplug_directml.device.bindings import Buffer, bind_array, bind_each, bind_one
from onnxplug_directml.device.commands import new_list
from onnxplug_directml.device.device import DmlDevice
from onnxplug_directml.device.holding import Holding
from onnxplug_directml.device.loss import driving
from onnxplug_directml.device.pool import Memory
from onnxplug_directml.device.work import Execution, Recording
from onnxplug_directml.lowering.graph import Graph
from onnxplug_directml.lowering.marshal import Marshalled

_MOST_RECORDED: Final = 8
"""Sets of arrays for which a graph keeps command lists."""


class CompiledGraph:
    """A graph on a device, ready to run.

    Args:
        flags: how it is compiled.

    Attributes:
        inputs, outputs: names, in the order of :meth:`execution`.
        checks: what is wrong where an element of the last output is not 0; see
            :class:`onnxplug_directml.lowering.graph.Graph`.  Empty: there is none.
        recorded: how many command lists were recorded.

    Raises:
        Declined: DirectML does not take it.
        MemoryError: there is not enough memory.
        DeviceRemoved: the device is lost.
    """

    def __init__(
        self, device: DmlDevice, graph: Graph, flags: DML_EXECUTION_FLAGS
    ) -> None:
        self._device = device
        self._bound: Final = [each.constant is None for each in graph.inputs]
        self._read_sizes: Final = [each.tensor.size_in_bytes for each in graph.inputs]
        self._made_sizes: Final = [each.tensor.size_in_bytes for each in graph.outputs]
        self.inputs: Final = [
            each.name for each in graph.inputs if each.constant is None
        ]
        self.outputs: Final = [each.name for each in graph.outputs]
        self.checks: Final = tuple(graph.checks)
        self.recorded = 0
        self._executions: OrderedDict[tuple[int, ...], Execution] = OrderedDict()
        with driving(device):
            self._holding = Holding(device)
            self._operator: IDMLCompiledOperator = self._holding.add(
                compile_graph(device, graph, flags)
            )
            with device.lock:
                device.refuse_lost()
                needs = self._operator.GetBindingProperties()
            self._persistent = _memory(device, needs.PersistentResourceSize)
            self._sizes: Final = (
                needs.TemporaryResourceSize,
                needs.PersistentResourceSize,
            )
            self._initialise(graph)
            self._temporary = _memory(device, needs.TemporaryResourceSize)

    def _initialise(self, graph: Graph) -> None:
        """Have DirectML take over the constants, in a form of its own."""
        device = self._device
        holding = Holding(device)
        with device.lock:
            device.refuse_lost()
            initializer = holding.add(
                device.dml.CreateOperatorInitializer([self._operator])
            )
            needs = initializer.GetBindingProperties()
        temporary = _memory(device, needs.TemporaryResourceSize)
        constants = [
            None if each.constant is None else device.memory(each.tensor.size_in_bytes)
            for each in graph.inputs
        ]
        for each, memory in zip(graph.inputs, constants, strict=True):
            if memory is not None:
                device.upload(memory, np.asarray(each.constant))
        given = [
            _buffer(memory, each.tensor.size_in_bytes)
            for each, memory in zip(graph.inputs, constants, strict=True)
        ]

        def record() -> Recording:
            with _recording(holding, initializer) as (table, commands):
                bind_array(table.BindInputs, given)
                bind_each(
                    table.BindOutputs, [_buffer(self._persistent, self._sizes[1])]
                )
                bind_one(
                    table.BindTemporaryResource,
                    _buffer(temporary, needs.TemporaryResourceSize),
                )
            return Recording(commands, holding)

        device.wait(device.submit([Execution(device, record)]))

    def execution(self, read: Sequence[Memory], made: Sequence[Memory]) -> Execution:
        """The work that computes *made* from *read*, the same for the same memory.

        Raises:
            DeviceRemoved: the device is lost.
        """
        device = self._device
        key = tuple(memory.serial for memory in (*read, *made))
        with device.lock:
            device.refuse_lost()
            found = self._executions.get(key)
            if found is None:
                found = self._executions[key] = self._execution(read, made)
                if len(self._executions) > _MOST_RECORDED:
                    self._executions.popitem(last=False)
            else:
                self._executions.move_to_end(key)
            return found

    def _execution(self, read: Sequence[Memory], made: Sequence[Memory]) -> Execution:
        # by their resources, as memory that nobody uses any more is to be others'
        given = iter(read)
        inputs = [
            _buffer(next(given), size) if is_bound else None
            for is_bound, size in zip(self._bound, self._read_sizes, strict=True)
        ]
        outputs = [
            _buffer(memory, size)
            for memory, size in zip(made, self._made_sizes, strict=True)
        ]
        of = (self._holding, self._temporary, self._persistent)
        operator, device = self._operator, self._device
        scratch, weights = map(_buffer, of[1:], self._sizes)

        def record() -> Recording:
            holding = Holding(device)
            with _recording(holding, operator) as (table, commands):
                bind_each(table.BindInputs, inputs)
                bind_each(table.BindOutputs, outputs)
                bind_one(table.BindTemporaryResource, scratch)
                bind_one(table.BindPersistentResource, weights)
            self.recorded += 1
            return Recording(commands, (holding, *of))

        return Execution(device, record)

    def close(self) -> None:
        """Release it, once what is queued of it is done; no lock is waited for."""
        self._executions.clear()
        self._persistent = self._temporary = None
        self._holding = Holding(self._device)
        self._device.collect()


def compile_graph(
    device: DmlDevice, graph: Graph, flags: DML_EXECUTION_FLAGS
) -> IDMLCompiledOperator:
    """What DirectML makes of *graph*.

    Raises:
        Declined: it does not take it.
    """
    marshalled = Marshalled(graph)
    with contextlib.ExitStack() as ends:
        # it may take long, so without the lock
        dml = ends.enter_context(device.borrowed(device.dml))
        try:
            operators = [
                ends.enter_context(dml.CreateOperator(desc, asked=node.name))
                for node, desc in zip(graph.nodes, marshalled.operators, strict=True)
            ]
            addresses = [operator.address for operator in operators]
            compiled: IDMLCompiledOperator = dml.CompileGraph(
                marshalled.graph(addresses), flags, asked=f"{len(operators)} operators"
            )
        except (InvalidCall, Unsupported) as error:
            raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, str(error))) from error
        return compiled


@contextlib.contextmanager
def _recording(
    holding: Holding, dispatchable: IDMLDispatchable
) -> Iterator[tuple[IDMLBindingTable, Any]]:
    """A binding table, to be filled, and a list into which its dispatch is written at
    the end.

    Raises:
        DeviceRemoved: something that was bound does not fit.
    """
    device = holding.device
    count = max(1, dispatchable.GetBindingProperties().RequiredDescriptorCount)
    heap = holding.add(
        device.native.CreateDescriptorHeap(
            D3D12_DESCRIPTOR_HEAP_DESC(
                Type=D3D12_DESCRIPTOR_HEAP_TYPE.CBV_SRV_UAV,
                NumDescriptors=count,
                Flags=D3D12_DESCRIPTOR_HEAP_FLAGS.SHADER_VISIBLE,
            )
        )
    )
    table = device.dml.CreateBindingTable(
        DML_BINDING_TABLE_DESC(
            Dispatchable=dispatchable.address,
            CPUDescriptorHandle=heap.GetCPUDescriptorHandleForHeapStart(),
            GPUDescriptorHandle=heap.GetGPUDescriptorHandleForHeapStart(),
            SizeInDescriptors=count,
        )
    )
    with table:
        _, commands = map(holding.add, new_list(device))
        yield table, commands
        commands.SetDescriptorHeaps([heap])
        device.recorder.RecordDispatch(commands, dispatchable, table)
        commands.Close()
        device.check()


def _memory(device: DmlDevice, nbytes: int) -> Memory | None:
    return device.memory(nbytes) if nbytes else None


def _buffer(memory: Memory | None, nbytes: int) -> Buffer | None:
    return None if memory is None else Buffer(memory.resource, nbytes)
