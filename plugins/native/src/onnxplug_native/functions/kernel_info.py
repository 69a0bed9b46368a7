"""What a kernel may ask about the node that it is made for."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_native.functions.allocator import (
    allocate_bytes,
    allocate_text,
    host_allocator,
)
from onnxplug_native.functions.environment import KeyValuePairs, Logger, copy_text
from onnxplug_native.functions.graph import ep_contiguous
from onnxplug_native.functions.node import (
    Attribute,
    AttributeType,
    NodeView,
    attribute_bytes,
    texts_of,
)
from onnxplug_native.functions.tensor import Value
from onnxplug_native.functions.types import TypeInfo
from onnxplug_native.interface.arena import placed
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    put,
    put_int,
    put_long,
    put_pointer,
    put_size,
)

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure


KERNEL_TAG: Final = 0x6F6E6E78_6B696E31
"""What the memory of a kernel's node begins with."""


class KernelMemory(ctypes.Structure):
    """What lies at the address of a kernel's node, for compiled entries to read.

    Attributes:
        tag: :data:`KERNEL_TAG` while it lives.
        name: the address of the node's name.
        size: the bytes of that, with its end.
    """

    _fields_: ClassVar = [
        ("tag", ctypes.c_uint64),
        ("name", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
    ]


class KernelInfo(Handle):
    """The node of a kernel.

    Attributes:
        view: the node, which lives as long.
        ep: the EP's structure.
        config: the session's config entries.
        weights: constants among the inputs, where kernels want them.
        allocator: of the library's, for memory that is not the host's; 0 for none.
    """

    def __init__(
        self,
        view: NodeView,
        ep: Structure,
        config: Mapping[str, str],
        logger: logging.Logger,
        weights: Mapping[int, tuple[ep.DataType, Any]],
        allocator: int = 0,
    ) -> None:
        self.memory = memory = placed(KernelMemory)
        super().__init__(memory)
        memory.name, memory.size = self.text(view.name), len(view.name.encode()) + 1
        memory.tag = KERNEL_TAG
        self.view = view
        self.ep = ep
        self.config = config
        self.logger = Logger(logger)
        self.weights = weights
        self.allocator = allocator
        self._constants: dict[int, Value] = {}

    def constant(self, slot: int) -> Value | None:
        """The content of an input; ``None`` if it is no constant."""
        if slot in self.weights and slot not in self._constants:
            dtype, array = self.weights[slot]
            self._constants[slot] = Value.of(array, dtype)
        return self._constants.get(slot)

    def forget(self, slot: int) -> None:
        """Let an input be no constant any more."""
        value = self._constants.pop(slot, None)
        if value is not None:
            value.release()

    def attribute(self, name: bytes | None, *types: AttributeType) -> Attribute:
        """The attribute *name*, of one of *types*.

        Raises:
            InterfaceError: the node has none of that kind.
        """
        text = (name or b"").decode("utf-8", "replace")
        found = self.view.attributes.get(text)
        if found is None or found.type not in types:
            has = "none" if found is None else f"one of type {found.type.name}"
            raise InterfaceError(
                Code.FAIL,
                f"{ep_name(self.view)} has no attribute {text!r} of type "
                f"{' or '.join(each.name for each in types)}, but {has}",
            )
        return found

    def release(self) -> None:
        """Release it, its logger and its constants."""
        self.memory.tag = 0
        self.logger.release()
        for value in self._constants.values():
            value.release()
        super().release()


def ep_name(view: NodeView) -> str:
    """A node in words."""
    return describe(view.node)


@implements("CopyKernelInfo")
def copy_kernel_info(info: int, out: int) -> None:
    """One like it, which the library releases."""
    found = find(KernelInfo, info)
    made = KernelInfo(
        found.view,
        found.ep,
        found.config,
        found.logger.logger,
        found.weights,
        found.allocator,
    )
    put_pointer(out, made)


@implements("KernelInfo_GetEp", "OrtEpApi")
def get_ep(info: int, out: int) -> None:
    """The EP."""
    put_pointer(out, find(KernelInfo, info).ep.address)


@implements("KernelInfo_GetInputCount")
def get_input_count(info: int, out: int) -> None:
    """How many inputs."""
    put_size(out, len(find(KernelInfo, info).view.node.inputs))


@implements("KernelInfo_GetOutputCount")
def get_output_count(info: int, out: int) -> None:
    """How many outputs."""
    put_size(out, len(find(KernelInfo, info).view.node.outputs))


def _name(names: tuple[str | None, ...], index: int, what: str) -> str:
    if index >= len(names):
        raise InterfaceError(
            Code.INVALID_ARGUMENT, f"there is no {what} {index} of {len(names)}"
        )
    return names[index] or ""


@implements("KernelInfo_GetInputName")
def get_input_name(info: int, index: int, out: int | None, size: int) -> None:
    """The name of an input; empty for one that is left out."""
    name = _name(find(KernelInfo, info).view.node.inputs, index, "input")
    copy_text(name, out, size, "the name")


@implements("KernelInfo_GetOutputName")
def get_output_name(info: int, index: int, out: int | None, size: int) -> None:
    """The name of an output; empty for one that nobody wants."""
    name = _name(find(KernelInfo, info).view.node.outputs, index, "output")
    copy_text(name, out, size, "the name")


@implements("KernelInfo_GetInputTypeInfo")
def get_input_type(info: int, index: int, out: int) -> None:
    """The type of an input, which the library releases."""
    view = find(KernelInfo, info).view
    name = _name(view.node.inputs, index, "input")
    put_pointer(out, TypeInfo(view.graph.info(name).type))


@implements("KernelInfo_GetOutputTypeInfo")
def get_output_type(info: int, index: int, out: int) -> None:
    """The type of an output, which the library releases."""
    view = find(KernelInfo, info).view
    name = _name(view.node.outputs, index, "output")
    put_pointer(out, TypeInfo(view.graph.info(name).type))


@implements("KernelInfoGetConstantInput_tensor")
def get_constant_input(info: int, index: int, constant: int, out: int) -> None:
    """The content of an input that is a constant, which lives as long as the kernel."""
    found = find(KernelInfo, info)
    _name(found.view.node.inputs, index, "input")
    content = found.constant(index)
    put_int(constant, content is not None)
    put_pointer(out, content)


@implements("KernelInfo_GetNodeName")
def get_node_name(info: int, out: int | None, size: int) -> None:
    """The node's name."""
    copy_text(find(KernelInfo, info).view.name, out, size, "the name")


@implements("KernelInfo_GetOperatorDomain")
def get_operator_domain(info: int, out: int | None, size: int) -> None:
    """The operator's domain."""
    copy_text(find(KernelInfo, info).view.node.domain, out, size, "the domain")


@implements("KernelInfo_GetOperatorType")
def get_operator_type(info: int, out: int | None, size: int) -> None:
    """The operator."""
    copy_text(find(KernelInfo, info).view.node.op_type, out, size, "the operator")


@implements("KernelInfo_GetOperatorSinceVersion")
def get_operator_since_version(info: int, out: int) -> None:
    """The version at which the operator last changed."""
    put_int(out, find(KernelInfo, info).view.since_version)


@implements("KernelInfo_GetLogger")
def get_logger(info: int, out: int) -> None:
    """Where the kernel may log."""
    put_pointer(out, find(KernelInfo, info).logger)


@implements("KernelInfo_GetConfigEntries")
def get_config_entries(info: int, out: int) -> None:
    """A copy of the session's config entries, which the library releases."""
    put_pointer(out, KeyValuePairs(find(KernelInfo, info).config))


@implements("KernelInfoGetAllocator")
def get_allocator(info: int, kind: int, out: int) -> None:
    """The allocator of the EP's memory, or of the host's where that is meant."""
    own = find(KernelInfo, info).allocator
    put_pointer(out, own if own and kind >= 0 else host_allocator().address)


# Attributes


@implements("KernelInfoGetAttribute_float")
def get_float(info: int, name: bytes | None, out: int) -> None:
    """A number."""
    found = find(KernelInfo, info).attribute(name, AttributeType.FLOAT)
    put(ctypes.c_float, out, found.value)


@implements("KernelInfoGetAttribute_int64")
def get_int(info: int, name: bytes | None, out: int) -> None:
    """A whole number."""
    put_long(out, find(KernelInfo, info).attribute(name, AttributeType.INT).value)


@implements("KernelInfoGetAttribute_string")
def get_string(info: int, name: bytes | None, out: int | None, size: int) -> None:
    """A text."""
    found = find(KernelInfo, info).attribute(name, AttributeType.STRING)
    copy_text(texts_of(found.value)[0], out, size, "the attribute")


@implements("KernelInfoGetAttribute_tensor")
def get_tensor(info: int, name: bytes | None, _: int, out: int) -> None:
    """A tensor, which the library releases."""
    array = find(KernelInfo, info).attribute(name, AttributeType.TENSOR).value
    dtype = ep.DataType.from_numpy(array.dtype)
    put_pointer(out, Value.of(ep_contiguous(array), dtype))


def _copy_array(found: Attribute, out: int | None, size: int, width: int) -> None:
    data = attribute_bytes(found)
    if not size:
        raise InterfaceError(Code.INVALID_ARGUMENT, "where to put the size is null")
    room = ctypes.c_size_t.from_address(size)
    given, room.value = room.value, len(data) // width
    if not out:
        return
    if given < len(data) // width:
        raise InterfaceError(
            Code.INVALID_ARGUMENT,
            f"attribute {found.name!r} has {len(data) // width} elements, and there is "
            f"room for {given}",
        )
    ctypes.memmove(out, data, len(data))


@implements("KernelInfoGetAttributeArray_float")
def get_floats(info: int, name: bytes | None, out: int | None, size: int) -> None:
    """Numbers."""
    found = find(KernelInfo, info).attribute(name, AttributeType.FLOATS)
    _copy_array(found, out, size, np.dtype(np.float32).itemsize)


@implements("KernelInfoGetAttributeArray_int64")
def get_ints(info: int, name: bytes | None, out: int | None, size: int) -> None:
    """Whole numbers."""
    found = find(KernelInfo, info).attribute(name, AttributeType.INTS)
    _copy_array(found, out, size, np.dtype(np.int64).itemsize)


@implements("KernelInfoGetAttributeArray_string")
def get_strings(
    info: int, name: bytes | None, allocator: int, out: int, count: int
) -> None:
    """Texts, which the library frees one by one."""
    found = find(KernelInfo, info).attribute(name, AttributeType.STRINGS)
    texts: list[Any] = [allocate_text(allocator, t) for t in texts_of(found.value)]
    array = bytes((ctypes.c_void_p * len(texts))(*texts))
    put_pointer(out, allocate_bytes(allocator, array) if texts else None)
    put_size(count, len(texts))
