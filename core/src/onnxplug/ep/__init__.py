"""The service provider interface (SPI): what a plugin is written against.

An EP is an :class:`EpFactory`, which lists the devices it can drive and creates an
:class:`ExecutionProvider` per session, which claims nodes of a :class:`Graph` and
compiles each :class:`Partition` to a :class:`CompiledPartition`.

Importing this package imports the standard library only; ``hookimpl`` brings pluggy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onnxplug.ep.types import (
    DataType,
    Dimension,
    MapType,
    OptionalType,
    SequenceType,
    SparseTensorType,
    TensorType,
    ValueType,
    named_sizes,
)
from onnxplug.ep.version import DEPRECATED, SPI_VERSION
from onnxplug.errors import (
    Declined,
    EPFail,
    InvalidModel,
    LoadCancelled,
    NodeError,
    OnnxplugError,
    OptionError,
    OutOfMemory,
    OutputMismatch,
    PluginError,
    PluginIncompatible,
    PluginLoadError,
    RunCancelled,
    SessionRefused,
    UnsupportedModel,
    status_class,
)
from onnxplug.interruption import raise_interruption

if TYPE_CHECKING:
    from onnxplug.authoring.sizes import Size
    from onnxplug.ep.capability import (
        CapabilityReport,
        ComputeCapability,
        Reason,
        Refusal,
        RefusalCode,
    )
    from onnxplug.ep.compatibility import Compatibility, CompatibilityCheck
    from onnxplug.ep.compiled import (
        CompiledPartition,
        Prewarmer,
        Restorable,
        RunContext,
    )
    from onnxplug.ep.costs import CostModel, Costs
    from onnxplug.ep.device_context import DeviceContext, MemoryKind, MemorySpaces
    from onnxplug.ep.devices import DeviceType, EpDevice, HardwareDevice
    from onnxplug.ep.domain import Domain, FunctionBody, InferTypes, Operator, Trait
    from onnxplug.ep.dynamic import DynamicOptions
    from onnxplug.ep.editor import GraphEditor
    from onnxplug.ep.factory import (
        EpFactory,
        Finding,
        Host,
        Level,
        SessionContext,
    )
    from onnxplug.ep.function import Call, ComputedConstant, Function
    from onnxplug.ep.graph import (
        AttributeValue,
        ExportedModel,
        Graph,
        Node,
        Partition,
        SparseTensor,
        TensorFacts,
        ValueInfo,
    )
    from onnxplug.ep.hooks import hookimpl
    from onnxplug.ep.memory import HOST, Allocator, DataTransfer, MemoryLocation
    from onnxplug.ep.operators import OperatorSupport
    from onnxplug.ep.option import OpenOptions, Option, OptionValue
    from onnxplug.ep.policy import ModelInfo, SelectionPolicy
    from onnxplug.ep.preferences import Preferences
    from onnxplug.ep.profiler import Profiler
    from onnxplug.ep.provider import ExecutionProvider
    from onnxplug.ep.random import next_seed
    from onnxplug.ep.refused import RefusedDevice
    from onnxplug.ep.report import PartitionReport
    from onnxplug.ep.serialiser import Serialiser
    from onnxplug.ep.specialiser import Specialiser, ValueLocations
    from onnxplug.ep.streams import (
        CapturedGraph,
        CapturePhase,
        Event,
        GraphCapture,
        Stream,
    )
    from onnxplug.ep.verification import Probe, Verification
    from onnxplug.ep.weights import WeightSource, WeightStore

__all__ = [
    "HOST",
    "SPI_VERSION",
    "Allocator",
    "AttributeValue",
    "Call",
    "CapabilityReport",
    "CapturePhase",
    "CapturedGraph",
    "Compatibility",
    "CompatibilityCheck",
    "CompiledPartition",
    "ComputeCapability",
    "ComputedConstant",
    "CostModel",
    "Costs",
    "DataTransfer",
    "DataType",
    "Declined",
    "DeviceContext",
    "DeviceType",
    "Dimension",
    "Domain",
    "DynamicOptions",
    "EPFail",
    "EpDevice",
    "EpFactory",
    "Event",
    "ExecutionProvider",
    "ExportedModel",
    "Finding",
    "Function",
    "FunctionBody",
    "Graph",
    "GraphCapture",
    "GraphEditor",
    "HardwareDevice",
    "Host",
    "InferTypes",
    "InvalidModel",
    "Level",
    "LoadCancelled",
    "MapType",
    "MemoryKind",
    "MemoryLocation",
    "MemorySpaces",
    "ModelInfo",
    "Node",
    "NodeError",
    "OnnxplugError",
    "OpenOptions",
    "Operator",
    "OperatorSupport",
    "Option",
    "OptionError",
    "OptionValue",
    "OptionalType",
    "OutOfMemory",
    "OutputMismatch",
    "Partition",
    "PartitionReport",
    "PluginError",
    "PluginIncompatible",
    "PluginLoadError",
    "Preferences",
    "Prewarmer",
    "Probe",
    "Profiler",
    "Reason",
    "Refusal",
    "RefusalCode",
    "RefusedDevice",
    "Restorable",
    "RunCancelled",
    "RunContext",
    "SelectionPolicy",
    "SequenceType",
    "Serialiser",
    "SessionContext",
    "SessionRefused",
    "Size",
    "SparseTensor",
    "SparseTensorType",
    "Specialiser",
    "Stream",
    "TensorFacts",
    "TensorType",
    "Trait",
    "UnsupportedModel",
    "ValueInfo",
    "ValueLocations",
    "ValueType",
    "Verification",
    "WeightSource",
    "WeightStore",
    "hookimpl",
    "named_sizes",
    "next_seed",
    "raise_interruption",
    "status_class",
]


# all but types and errors, as the start of a program needs few of them
_LATER = {
    "Allocator": "memory",
    "AttributeValue": "graph",
    "Call": "function",
    "CapabilityReport": "capability",
    "CapturePhase": "streams",
    "CapturedGraph": "streams",
    "Compatibility": "compatibility",
    "CompatibilityCheck": "compatibility",
    "CompiledPartition": "compiled",
    "ComputeCapability": "capability",
    "ComputedConstant": "function",
    "CostModel": "costs",
    "Costs": "costs",
    "DataTransfer": "memory",
    "DeviceContext": "device_context",
    "DeviceType": "devices",
    "Domain": "domain",
    "DynamicOptions": "dynamic",
    "EpDevice": "devices",
    "EpFactory": "factory",
    "Event": "streams",
    "ExecutionProvider": "provider",
    "ExportedModel": "graph",
    "Finding": "factory",
    "Function": "function",
    "FunctionBody": "domain",
    "Graph": "graph",
    "GraphCapture": "streams",
    "GraphEditor": "editor",
    "HOST": "memory",
    "HardwareDevice": "devices",
    "Host": "factory",
    "InferTypes": "domain",
    "Level": "factory",
    "MemoryKind": "device_context",
    "MemoryLocation": "memory",
    "MemorySpaces": "device_context",
    "ModelInfo": "policy",
    "Node": "graph",
    "OpenOptions": "option",
    "Operator": "domain",
    "OperatorSupport": "operators",
    "Option": "option",
    "OptionValue": "option",
    "Partition": "graph",
    "PartitionReport": "report",
    "Preferences": "preferences",
    "Prewarmer": "compiled",
    "Probe": "verification",
    "Profiler": "profiler",
    "Reason": "capability",
    "Refusal": "capability",
    "RefusalCode": "capability",
    "RefusedDevice": "refused",
    "Restorable": "compiled",
    "RunContext": "compiled",
    "SelectionPolicy": "policy",
    "Serialiser": "serialiser",
    "SessionContext": "factory",
    "Size": ".authoring.sizes",
    "SparseTensor": "graph",
    "Specialiser": "specialiser",
    "Stream": "streams",
    "TensorFacts": "graph",
    "Trait": "domain",
    "ValueInfo": "graph",
    "ValueLocations": "specialiser",
    "Verification": "verification",
    "WeightSource": "weights",
    "WeightStore": "weights",
    "hookimpl": "hooks",
    "next_seed": "random",
}


_MOVED = {
    "HostFunction": "kernels",
    "KernelExecutionProvider": "kernels",
    "KernelSequence": "kernels",
    "cache_directory": "cache",
    "describe": "nodes",
    "fill_bound": "arrays",
}
"""What was here before SPI 0.6, and which module of ``onnxplug.authoring`` has it."""


def __getattr__(name: str) -> Any:
    if name in _MOVED:
        # no AttributeError, of which an import statement would drop the text
        raise PluginIncompatible(
            f"written for an SPI before 0.6, it uses onnxplug.ep.{name}, which is "
            f"onnxplug.authoring.{_MOVED[name]}.{name} now; upgrade the plugin"
        )
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(f".{_LATER[name]}", __name__)
    value = getattr(module, name)
    if name in DEPRECATED:
        import warnings

        text = DEPRECATED[name].text(f"onnxplug.ep.{name}")
        warnings.warn(text, DeprecationWarning, stacklevel=2)
    else:
        globals()[name] = value
    return value
