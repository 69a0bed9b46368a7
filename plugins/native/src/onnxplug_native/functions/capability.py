"""What a library says of a graph: which nodes it takes, and in which groups."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, ClassVar

from onnxplug.authoring.record import Record
from onnxplug_native.functions.node import NodeView
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import pointers, put_pointer, require_array

if TYPE_CHECKING:
    from onnxplug_native.functions.graph import GraphView
    from onnxplug_native.functions.kernel_registry import KernelRegistry


class Group(Record):
    """Nodes that a library takes.

    Attributes:
        nodes: their indices.
        is_fused: they are compiled together; else each has a kernel.
        drops_constants: the library copies the constants when it compiles.
    """

    nodes: tuple[int, ...]
    is_fused: bool
    drops_constants: bool


class SupportInfo(Handle):
    """Takes what a library says of a graph.

    Attributes:
        graph: the view of it.
        groups: what the library takes.
        registry: the EP's kernels, if it has any.
    """

    def __init__(self, graph: GraphView, registry: KernelRegistry | None) -> None:
        super().__init__()
        self.graph = graph
        self.groups: list[Group] = []
        self.registry = registry

    def nodes(self, addresses: list[int]) -> tuple[int, ...]:
        """The indices of nodes of the graph.

        Raises:
            InterfaceError: one is of another graph.
        """
        found = [find(NodeView, address) for address in addresses]
        for node in found:
            if node.graph.source is not self.graph.source:
                raise InterfaceError(
                    Code.INVALID_ARGUMENT,
                    f"the node {node.name!r} is of another graph than the one asked "
                    "about",
                )
        return tuple(sorted({node.node.index for node in found}))


class _FusionOptions(ctypes.Structure):
    _fields_: ClassVar = [
        ("version", ctypes.c_uint32),
        ("drop_constant_initializers", ctypes.c_bool),
    ]


@implements("EpGraphSupportInfo_AddNodesToFuse", "OrtEpApi")
def add_nodes_to_fuse(info: int, nodes: int, count: int, options: int | None) -> None:
    """Nodes that are to be compiled together."""
    found = find(SupportInfo, info)
    most = len(found.graph.nodes)
    members = found.nodes(pointers(nodes, count, most, "nodes"))
    if not members:
        raise InterfaceError(Code.INVALID_ARGUMENT, "a group has no nodes")
    drops = False
    if options:
        size = ctypes.sizeof(_FusionOptions)
        require_array(options, 1, 1, size, "options of a group")
        drops = _FusionOptions.from_address(options).drop_constant_initializers
    found.groups.append(Group(members, True, drops))


@implements("EpGraphSupportInfo_AddSingleNode", "OrtEpApi")
def add_single_node(info: int, node: int) -> None:
    """A node for which there is a kernel."""
    found = find(SupportInfo, info)
    found.groups.append(Group(found.nodes([node]), False, False))


@implements("EpGraphSupportInfo_LookUpKernel", "OrtEpApi")
def look_up_kernel(info: int, node: int, out: int) -> None:
    """The EP's kernel for a node; null if it has none."""
    found = find(SupportInfo, info)
    view = find(NodeView, node)
    kernel = None if found.registry is None else found.registry.find(view)
    put_pointer(out, None if kernel is None else kernel.definition)
