"""Interfaces of DirectML.h."""

from __future__ import annotations

from ctypes import POINTER

from onnxplug_directml.abi import guids
from onnxplug_directml.abi.directml import (
    DML_BINDING_DESC,
    DML_BINDING_PROPERTIES,
    DML_BINDING_TABLE_DESC,
    DML_GRAPH_DESC,
    DML_OPERATOR_DESC,
)
from onnxplug_directml.abi.types import BOOL, ENUM, FLAGS, HRESULT
from onnxplug_directml.com.d3d12 import ID3D12CommandList
from onnxplug_directml.com.method import Method
from onnxplug_directml.com.signature import CHECKED, Array, Creates, SizeThenData, Text
from onnxplug_directml.com.unknown import IUnknown


class IDMLObject(IUnknown):
    SetName = Method(6, CHECKED, Text())


class IDMLOperator(IDMLObject):
    IID = guids.IID_IDMLOperator


class IDMLDispatchable(IDMLObject):
    IID = guids.IID_IDMLDispatchable
    GetBindingProperties = Method(8, DML_BINDING_PROPERTIES)


class IDMLCompiledOperator(IDMLDispatchable):
    IID = guids.IID_IDMLCompiledOperator


class IDMLOperatorInitializer(IDMLDispatchable):
    IID = guids.IID_IDMLOperatorInitializer
    Reset = Method(9, CHECKED, Array(IDMLCompiledOperator))


class IDMLBindingTable(IDMLObject):
    IID = guids.IID_IDMLBindingTable
    BindInputs = Method(8, None, Array(DML_BINDING_DESC))
    BindOutputs = Method(9, None, Array(DML_BINDING_DESC))
    BindTemporaryResource = Method(10, None, POINTER(DML_BINDING_DESC))
    BindPersistentResource = Method(11, None, POINTER(DML_BINDING_DESC))
    Reset = Method(12, CHECKED, POINTER(DML_BINDING_TABLE_DESC))


class IDMLCommandRecorder(IDMLObject):
    IID = guids.IID_IDMLCommandRecorder
    RecordDispatch = Method(
        8, None, ID3D12CommandList, IDMLDispatchable, IDMLBindingTable
    )


class IDMLDevice1(IDMLObject):
    """``IDMLDevice``, and ``CompileGraph``."""

    IID = guids.IID_IDMLDevice1
    CheckFeatureSupport = Method(7, CHECKED, ENUM, SizeThenData(), SizeThenData())
    CreateOperator = Method(8, Creates(IDMLOperator), POINTER(DML_OPERATOR_DESC))
    CompileOperator = Method(9, Creates(IDMLCompiledOperator), IDMLOperator, FLAGS)
    CreateOperatorInitializer = Method(
        10, Creates(IDMLOperatorInitializer), Array(IDMLCompiledOperator)
    )
    CreateCommandRecorder = Method(11, Creates(IDMLCommandRecorder))
    CreateBindingTable = Method(
        12, Creates(IDMLBindingTable), POINTER(DML_BINDING_TABLE_DESC)
    )
    GetDeviceRemovedReason = Method(15, HRESULT)
    CompileGraph = Method(
        17, Creates(IDMLCompiledOperator), POINTER(DML_GRAPH_DESC), FLAGS
    )

    @property
    def device(self) -> IUnknown:
        """Itself."""
        return self


class IDMLDebugDevice(IUnknown):
    IID = guids.IID_IDMLDebugDevice
    SetMuteDebugOutput = Method(3, None, BOOL)
