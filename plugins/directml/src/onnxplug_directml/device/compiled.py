"""Graphs that DirectML has compiled, and the command lists that run them.

A list is recorded for a set of arrays, and executed again whenever these come again:
memory from the pool does, and so does what is bound.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
from onnxplug_directml.device.work import Execution
from onnxplug_directml.lowering.graph import Graph
from onnxplug_directml.lowering.marshal import Marshalled

_MOST_RECORDED: Final = 8
"""Command lists that are kept for a graph."""


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
            needs = self._operator.GetBindingProperties()
            self._persistent = _buffer(device, needs.PersistentResourceSize)
            self._initialise(graph)
            self._temporary = _buffer(device, needs.TemporaryResourceSize)

    def _initialise(self, graph: Graph) -> None:
        """Have DirectML take over the constants, in a form of its own."""
        device = self._device
        holding = Holding(device)
        initializer = holding.add(
            device.dml.CreateOperatorInitializer([self._operator])
        )
        needs = initializer.GetBindingProperties()
        temporary = _buffer(device, needs.TemporaryResourceSize)
        constants: list[Buffer | None] = []
        for each in graph.inputs:
            if each.constant is None:
                constants.append(None)
            else:
                nbytes = each.tensor.size_in_bytes
                buffer = Buffer(device.memory(nbytes), nbytes)
                device.upload(buffer.memory, np.asarray(each.constant))
                constants.append(buffer)
        with device.lock, _recording(holding, initializer) as (table, commands):
            bind_array(table.BindInputs, constants)
            bind_each(table.BindOutputs, [self._persistent])
            bind_one(table.BindTemporaryResource, temporary)
        device.wait(device.submit([Execution(commands, holding)]))

    def execution(self, read: Sequence[Memory], made: Sequence[Memory]) -> Execution:
        """The work that computes *made* from *read*.

        Raises:
            MemoryError: there is not enough memory for another command list.
            DeviceRemoved: the device is lost.
        """
        device = self._device
        key = tuple(memory.serial for memory in (*read, *made))
        with device.lock:
            device.refuse_lost()
            found = self._executions.get(key)
            if found is None:
                with driving(device):
                    found = self._record(read, made)
                self._executions[key] = found
                if len(self._executions) > _MOST_RECORDED:
                    self._executions.popitem(last=False)
            else:
                self._executions.move_to_end(key)
            return found

    def _record(self, read: Sequence[Memory], made: Sequence[Memory]) -> Execution:
        given = iter(read)
        inputs = [
            Buffer(next(given), size) if is_bound else None
            for is_bound, size in zip(self._bound, self._read_sizes, strict=True)
        ]
        outputs = [
            Buffer(memory, size)
            for memory, size in zip(made, self._made_sizes, strict=True)
        ]
        holding = Holding(self._device)
        with _recording(holding, self._operator) as (table, commands):
            bind_each(table.BindInputs, inputs)
            bind_each(table.BindOutputs, outputs)
            bind_one(table.BindTemporaryResource, self._temporary)
            bind_one(table.BindPersistentResource, self._persistent)
        self.recorded += 1
        uses = (holding, self._holding, self._temporary, self._persistent)
        return Execution(commands, uses)

    def close(self) -> None:
        """Release it, once what is queued of it is done."""
        with self._device.lock:
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
    dml, marshalled = device.dml, Marshalled(graph)
    operators = []
    try:
        for node, desc in zip(graph.nodes, marshalled.operators, strict=True):
            operators.append(dml.CreateOperator(desc, asked=node.name))
        addresses = [operator.address for operator in operators]
        compiled: IDMLCompiledOperator = dml.CompileGraph(
            marshalled.graph(addresses), flags, asked=f"{len(operators)} operators"
        )
        return compiled
    except (InvalidCall, Unsupported) as error:
        raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, str(error))) from error
    finally:
        for operator in operators:
            operator.close()


@contextmanager
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


def _buffer(device: DmlDevice, nbytes: int) -> Buffer | None:
    return Buffer(device.memory(nbytes), nbytes) if nbytes else None
