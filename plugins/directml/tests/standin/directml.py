"""The device of DirectML: what it makes, and how it records dispatches."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import definitions
from .binding import BindingTable
from .com import ComObject, object_at
from .commands import GraphicsCommandList
from .decoding import Operator, decode
from .dispatch import (
    EXECUTION_FLAGS,
    CompiledOperator,
    Dispatch,
    Dispatchable,
    OperatorInitializer,
    compiled,
)
from .graph import Graph, decode_graph, single
from .operators import Rejected
from .results import (
    DXGI_ERROR_DEVICE_REMOVED,
    DXGI_ERROR_UNSUPPORTED,
    Failure,
    Invalid,
)
from .schema import members

if TYPE_CHECKING:
    from .device import D3D12Device
    from .windows import Windows

COPY = 3
"""The type of command lists that do not compute."""


class DmlDevice(ComObject):
    """A device of DirectML; there may be many on one of Direct3D 12.

    Attributes:
        level: its feature level.
        removed: why it is lost, or 0.
    """

    INTERFACE = "IDMLDevice1"

    def __init__(
        self, windows: Windows, device: D3D12Device, level: tuple[int, int]
    ) -> None:
        super().__init__(windows, device)
        self.dml = self
        self.device = device
        self.level = level
        self.removed = device.removed
        device.directml.add(self)

    def dispose(self) -> None:
        self.device.directml.discard(self)

    def lose(self, reason: int) -> None:
        """Invalid use of a method without an HRESULT removes the device."""
        self.removed = self.removed or reason

    def present(self) -> None:
        """Fails if the device is lost.

        Raises:
            Failure: it is.
        """
        if self.removed:
            raise Failure(DXGI_ERROR_DEVICE_REMOVED, "the device is removed")

    def GetDeviceRemovedReason(self) -> int:
        return self.removed

    def GetParentDevice(self, riid: Any, place: Any) -> int | None:
        return self.device.QueryInterface(riid, place)

    def CheckFeatureSupport(
        self, feature: int, query_size: int, query: int | None, size: int, place: int
    ) -> None:
        self.present()
        names = {0: "TENSOR_DATA_TYPE_SUPPORT", 1: "FEATURE_LEVELS"}
        if feature not in names:
            raise Failure(DXGI_ERROR_UNSUPPORTED, f"there is no feature {feature}")
        name = names[feature]
        asked = definitions.find(f"DML_FEATURE_QUERY_{name}")
        answered = definitions.find(f"DML_FEATURE_DATA_{name}")
        if not query or query_size != ctypes.sizeof(asked):
            raise Invalid(f"{query_size} bytes for {asked.__name__}")
        if not place or size != ctypes.sizeof(answered):
            raise Invalid(f"{size} bytes for {answered.__name__}")
        question, data = asked.from_address(query), answered.from_address(place)
        if feature == 0:
            name = members("DML_TENSOR_DATA_TYPE").get(question.DataType, "")
            data.IsSupported = int(name in self.device.adapter.data_types)
            return
        major, minor = self.level
        count = question.RequestedFeatureLevelCount
        levels = [question.RequestedFeatureLevels[i] for i in range(count)]
        known = [level for level in levels if level <= major << 12 | minor << 8]
        if not known:
            raise Failure(DXGI_ERROR_UNSUPPORTED, "no level of these is supported")
        data.MaxSupportedFeatureLevel = max(known)

    def CreateOperator(self, desc: Any, riid: Any, place: Any) -> None:
        self.present()
        if not desc:
            raise Invalid("the description is null")
        level, types = self.level, self.device.adapter.data_types
        found = _accepted(lambda: decode(desc.contents, level, types))
        DmlOperator(self, found).hand_out(riid, place)

    def _compile(
        self, flags: int, riid: Any, place: Any, make: Callable[[], Graph]
    ) -> None:
        self.present()
        if flags & ~EXECUTION_FLAGS:
            raise Invalid(f"flags {flags:#x} are not known")
        counts, faults = self.windows.counts, self.windows.faults
        counts.compilations += 1
        if counts.compilations == faults.compile_at:
            raise Failure(faults.compile_result, "as the test wants")
        CompiledOperator(self, _accepted(make), flags).hand_out(riid, place)

    def CompileOperator(
        self, operator: int | None, flags: int, riid: Any, place: Any
    ) -> None:
        self._compile(flags, riid, place, lambda: single(self._operator(operator)))

    def CompileGraph(self, desc: Any, flags: int, riid: Any, place: Any) -> None:
        if not desc:
            raise Invalid("the description is null")
        self._compile(
            flags, riid, place, lambda: decode_graph(desc.contents, self._operator)
        )

    def _operator(self, address: int | None) -> Operator:
        found = object_at(address, DmlOperator, "an operator")
        if found.dml is not self:
            raise Invalid(f"{found} is of another device")
        return found.operator

    def CreateOperatorInitializer(
        self, count: int, operators: Any, riid: Any, place: Any
    ) -> None:
        self.present()
        found = compiled(self, count, operators)
        OperatorInitializer(self, found).hand_out(riid, place)

    def CreateCommandRecorder(self, riid: Any, place: Any) -> None:
        self.present()
        CommandRecorder(self).hand_out(riid, place)

    def CreateBindingTable(self, desc: Any, riid: Any, place: Any) -> None:
        self.present()
        BindingTable(self, desc).hand_out(riid, place)

    def Evict(self, count: int, objects: Any) -> None:
        self.present()

    def MakeResident(self, count: int, objects: Any) -> None:
        self.present()


def _accepted(make: Callable[[], Any]) -> Any:
    """What is made, or why its description is rejected.

    Raises:
        Invalid: it is rejected.
    """
    try:
        return make()
    except Rejected as error:
        raise Invalid(str(error)) from error


class DmlOperator(ComObject):
    """An operator, to be compiled."""

    INTERFACE = "IDMLOperator"

    def __init__(self, dml: DmlDevice, operator: Operator) -> None:
        super().__init__(dml.windows, dml)
        self.dml = dml
        self.device = dml.device
        self.operator = operator

    def GetDevice(self, riid: Any, place: Any) -> int | None:
        return self.dml.QueryInterface(riid, place)


class CommandRecorder(ComObject):
    """Records dispatches on command lists."""

    INTERFACE = "IDMLCommandRecorder"

    def __init__(self, dml: DmlDevice) -> None:
        super().__init__(dml.windows, dml)
        self.dml = dml
        self.device = dml.device

    def GetDevice(self, riid: Any, place: Any) -> int | None:
        return self.dml.QueryInterface(riid, place)

    def failed(self, failure: Invalid) -> None:
        self.dml.lose(failure.result)

    def RecordDispatch(
        self, commands: int | None, dispatchable: int | None, bindings: int | None
    ) -> None:
        if self.dml.removed:
            return
        into = object_at(commands, GraphicsCommandList, "the command list")
        target = object_at(dispatchable, Dispatchable, "the dispatchable")
        table = object_at(bindings, BindingTable, "the binding table")
        if into.device is not self.device:
            raise Invalid(f"{into} is of another device")
        for found in (target, table):
            if found.dml is not self.dml:
                raise Invalid(f"{found} is of another device")
        if into.kind == COPY:
            raise Invalid(f"{into} is of a type that does not compute")
        if table.dispatchable is not target:
            raise Invalid(
                f"the binding table is for {table.dispatchable}, not {target}"
            )
        if isinstance(target, OperatorInitializer) and not target.operators:
            return
        assert table.gpu is not None
        heap, first = table.gpu
        if heap not in into.heaps:
            raise Invalid(
                f"{heap}, in which the descriptors are, is not set on {into}: call "
                "SetDescriptorHeaps before RecordDispatch"
            )
        dispatch = Dispatch(target, table.bindings, heap, first)
        if not dispatch.volatile:
            table.bindings.complete(target)
        into.record(dispatch)
