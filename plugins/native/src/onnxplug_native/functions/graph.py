"""The model's graph as libraries see it: names, inputs, outputs and initializers.

A graph view lives during one call to a library.  What lies around a body of control
flow is a view, too; values are looked up where their graph is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug_native.functions.allocator import (
    allocate_bytes,
    allocate_text,
)
from onnxplug_native.functions.tensor import Value
from onnxplug_native.functions.types import TypeInfo
from onnxplug_native.interface.codes import Code, InterfaceError
from onnxplug_native.interface.handles import Handle, find
from onnxplug_native.interface.host import implements
from onnxplug_native.interface.memory import (
    pointers,
    put_all,
    put_bool,
    put_long,
    put_pointer,
    put_pointers,
    put_size,
)

if TYPE_CHECKING:
    from onnxplug_native.functions.node import NodeView


class ExternalData(Handle):
    """Where the bytes of an initializer are in a file.

    Attributes:
        file: its path.
        offset: in bytes.
        nbytes: how many.
    """

    def __init__(self, file: str, offset: int, nbytes: int) -> None:
        super().__init__()
        self.file = file
        self.offset = offset
        self.nbytes = nbytes


class ValueInfo(Handle):
    """A value of a graph.

    Attributes:
        name: the value's.
        graph: the view that it was asked for in.
    """

    def __init__(self, name: str, graph: GraphView) -> None:
        super().__init__()
        self.name = name
        self.graph = graph
        self._type: TypeInfo | None = None
        self._content: Value | None = None

    @property
    def type(self) -> TypeInfo:
        """What is known of its type."""
        if self._type is None:
            self._type = TypeInfo(self.graph.info(self.name).type)
        return self._type

    @property
    def content(self) -> Value | None:
        """Its content, if it is a constant."""
        if self._content is None and self.graph.is_constant(self.name):
            array = self.graph.constant(self.name)
            dtype = self.graph.info(self.name).dtype
            if array is not None and dtype is not None:
                self._content = Value.of(ep_contiguous(array), dtype)
        return self._content

    def release(self) -> None:
        """Release it, its type and its content."""
        for each in (self._type, self._content):
            if each is not None:
                each.release()
        super().release()


def ep_contiguous(array: Any) -> Any:
    """*array*, C-contiguous and of its shape."""
    import numpy as np

    return array if array.flags.c_contiguous else np.array(array, order="C")


class ModelFacts:
    """What libraries may ask of the model around all graphs.

    Attributes:
        path: where it was loaded from; empty if it was not from a file.
        info: what it says of itself.
    """

    def __init__(self, path: str = "", info: ep.ModelInfo | None = None) -> None:
        self.path = path
        self.info = info or ep.ModelInfo()


class GraphView(Handle):
    """A graph, or a part of one.

    Attributes:
        source: the host's graph.
        name: may be empty.
        model: what is around all graphs.
        parent: the view of the node that this is a body of; ``None``: of none.
        inputs: names that are given, initializers among them that are to be.
        outputs: names that are asked for.
    """

    def __init__(
        self,
        source: ep.Graph,
        model: ModelFacts,
        *,
        parent: NodeView | None = None,
        nodes: Sequence[ep.Node] | None = None,
        inputs: Sequence[str] | None = None,
        outputs: Sequence[str] | None = None,
        lookup: ep.Graph | ep.Partition | None = None,
    ) -> None:
        super().__init__()
        self.source = source
        self.name = source.name
        self.model = model
        self.parent = parent
        self.inputs = list(source.inputs if inputs is None else inputs)
        self.outputs = list(source.outputs if outputs is None else outputs)
        self._lookup = source if lookup is None else lookup
        self._members = list(source.nodes if nodes is None else nodes)
        self._nodes: list[NodeView] | None = None
        self._values: dict[str, ValueInfo] = {}
        self._views: list[Handle] = []

    def keep(self, view: Handle) -> None:
        """Release *view* together with this one."""
        self._views.append(view)

    @property
    def nodes(self) -> list[NodeView]:
        """Views of the nodes, in topological order."""
        if self._nodes is None:
            from onnxplug_native.functions.node import NodeView

            self._nodes = [NodeView(node, self) for node in self._members]
        return self._nodes

    def node(self, node: ep.Node) -> NodeView:
        """The view of *node*."""
        return self.nodes[[each.index for each in self._members].index(node.index)]

    def value(self, name: str) -> ValueInfo:
        """The view of a value."""
        if name not in self._values:
            self._values[name] = ValueInfo(name, self)
        return self._values[name]

    def info(self, name: str) -> ep.ValueInfo:
        """What is known of a value."""
        return self._lookup.value(name)

    def is_constant(self, name: str) -> bool:
        """Whether a value is an initializer that nobody overrides."""
        return self.info(name).is_constant

    def constant(self, name: str) -> Any | None:
        """The content of an initializer."""
        return self._lookup.constant(name)

    def external(self, name: str) -> ExternalData | None:
        """Where an initializer is in a file, if it is in one."""
        # a partition says that, a graph does not
        ask = getattr(self._lookup, "weight", None)
        found = None if ask is None or self._lookup is self.source else ask(name)
        if found is None or found.path is None:
            return None
        return ExternalData(str(found.path), found.offset, found.nbytes)

    def is_from_outside(self, name: str) -> bool:
        """Whether a value is one of the graphs around this body."""
        if self.parent is None or name in self.inputs:
            return False
        if any(name in node.outputs for node in self._members):
            return False
        outer = self.parent.graph
        info = outer.info(name)
        return info.is_constant or info.type is not None or outer.makes(name)

    def makes(self, name: str) -> bool:
        """Whether a value is an input here, or made here or further outside."""
        if name in self.inputs or any(name in node.outputs for node in self._members):
            return True
        return self.parent is not None and self.parent.graph.makes(name)

    @property
    def initializers(self) -> list[str]:
        """The names of the constants that this graph itself has, or uses of others."""
        names: dict[str, None] = {}
        for node in self._members:
            for name in (*node.inputs, *node.captures):
                if name is not None and self.is_constant(name):
                    names[name] = None
        names.update((name, None) for name in self.outputs if self.is_constant(name))
        return [name for name in names if not self.is_from_outside(name)]

    @property
    def opsets(self) -> dict[str, int]:
        """The versions of the domains of its operators."""
        domains = {"": None, **{node.domain: None for node in self._members}}
        versions = {domain: self.source.opset(domain) for domain in domains}
        return {domain: version for domain, version in versions.items() if version}

    def producer(self, name: str) -> tuple[NodeView | None, int]:
        """The node that makes a value, and which of its outputs that is."""
        for node in self.nodes:
            if name in node.node.outputs:
                return node, node.node.outputs.index(name)
        if self.parent is not None and self.is_from_outside(name):
            return self.parent.graph.producer(name)
        return None, 0

    def consumers(self, name: str) -> list[tuple[NodeView, int]]:
        """The nodes that use a value, and as which input; -1 for bodies that do."""
        found: list[tuple[NodeView, int]] = []
        for node in self.nodes:
            found += [(node, i) for i, n in enumerate(node.node.inputs) if n == name]
            if name in node.node.captures:
                found.append((node, -1))
        return found

    def release(self) -> None:
        """Release it and all that was asked for in it."""
        for node in self._nodes or ():
            node.release()
        for each in (*self._values.values(), *self._views):
            each.release()
        super().release()


class Metadata(Handle):
    """What a model says of itself.

    Attributes:
        info: it.
    """

    def __init__(self, info: ep.ModelInfo) -> None:
        super().__init__()
        self.info = info


# Graphs


@implements("Graph_GetName")
def graph_get_name(graph: int, out: int) -> None:
    """The graph's name."""
    found = find(GraphView, graph)
    put_pointer(out, found.text(found.name))


@implements("Graph_GetModelPath")
def graph_get_model_path(graph: int, out: int) -> None:
    """Where the model was loaded from; empty if from memory."""
    found = find(GraphView, graph)
    put_pointer(out, found.path(found.model.path))


@implements("Graph_GetOnnxIRVersion")
def graph_get_ir_version(graph: int, out: int) -> None:
    """The least version of ONNX's format that has the graph's operators."""
    import onnx

    opsets = [
        onnx.helper.make_opsetid(domain, version)
        for domain, version in find(GraphView, graph).opsets.items()
    ]
    put_long(out, onnx.helper.find_min_ir_version_for(opsets, ignore_unknown=True))


@implements("Graph_GetNumOperatorSets")
def graph_get_opset_count(graph: int, out: int) -> None:
    """How many domains it has operators of."""
    put_size(out, len(find(GraphView, graph).opsets))


@implements("Graph_GetOperatorSets")
def graph_get_opsets(graph: int, domains: int, versions: int, count: int) -> None:
    """The domains and their versions."""
    found = find(GraphView, graph)
    opsets = found.opsets
    put_pointers(domains, [found.text(each) for each in opsets], count, "domains")
    put_all(ctypes.c_int64, versions, list(opsets.values()), count, "domains")


@implements("Graph_GetNumInputs")
def graph_get_input_count(graph: int, out: int) -> None:
    """How many inputs."""
    put_size(out, len(find(GraphView, graph).inputs))


@implements("Graph_GetInputs")
def graph_get_inputs(graph: int, out: int, count: int) -> None:
    """The inputs."""
    found = find(GraphView, graph)
    put_pointers(out, [found.value(name) for name in found.inputs], count, "inputs")


@implements("Graph_GetNumOutputs")
def graph_get_output_count(graph: int, out: int) -> None:
    """How many outputs."""
    put_size(out, len(find(GraphView, graph).outputs))


@implements("Graph_GetOutputs")
def graph_get_outputs(graph: int, out: int, count: int) -> None:
    """The outputs."""
    found = find(GraphView, graph)
    put_pointers(out, [found.value(name) for name in found.outputs], count, "outputs")


@implements("Graph_GetNumInitializers")
def graph_get_initializer_count(graph: int, out: int) -> None:
    """How many initializers."""
    put_size(out, len(find(GraphView, graph).initializers))


@implements("Graph_GetInitializers")
def graph_get_initializers(graph: int, out: int, count: int) -> None:
    """The initializers."""
    found = find(GraphView, graph)
    values = [found.value(name) for name in found.initializers]
    put_pointers(out, values, count, "initializers")


@implements("Graph_GetNumNodes")
def graph_get_node_count(graph: int, out: int) -> None:
    """How many nodes."""
    put_size(out, len(find(GraphView, graph).nodes))


@implements("Graph_GetNodes")
def graph_get_nodes(graph: int, out: int, count: int) -> None:
    """The nodes, in topological order."""
    put_pointers(out, find(GraphView, graph).nodes, count, "nodes")


@implements("Graph_GetParentNode")
def graph_get_parent_node(graph: int, out: int) -> None:
    """The node that this is a body of; null if it is none."""
    put_pointer(out, find(GraphView, graph).parent)


@implements("Graph_GetGraphView")
def graph_get_graph_view(graph: int, nodes: int, count: int, out: int) -> None:
    """The part of a graph that some nodes are, which the library releases."""
    from onnxplug_native.functions.node import NodeView

    whole = find(GraphView, graph)
    members = sorted(
        (
            find(NodeView, each).node
            for each in pointers(nodes, count, len(whole.nodes), "nodes")
        ),
        key=lambda node: node.index,
    )
    made = {name for node in members for name in node.outputs if name}
    inputs: dict[str, None] = {}
    for node in members:
        for name in (*node.inputs, *node.captures):
            if name and name not in made and not whole.is_constant(name):
                inputs[name] = None
    inside = {node.index for node in members}
    outputs = [
        name
        for node in members
        for name in node.outputs
        if name
        and (
            name in whole.outputs
            or any(user.node.index not in inside for user, _ in whole.consumers(name))
        )
    ]
    view = GraphView(
        whole.source,
        whole.model,
        parent=whole.parent,
        nodes=members,
        inputs=list(inputs),
        outputs=outputs,
        lookup=whole._lookup,
    )
    put_pointer(out, view)


# Values


@implements("GetValueInfoName")
def value_get_name(value: int, out: int) -> None:
    """The value's name."""
    found = find(ValueInfo, value)
    put_pointer(out, found.text(found.name))


@implements("GetValueInfoTypeInfo")
def value_get_type(value: int, out: int) -> None:
    """The type, which lives as long as the value."""
    put_pointer(out, find(ValueInfo, value).type)


@implements("ValueInfo_GetValueProducer")
def value_get_producer(value: int, out: int, index: int | None) -> None:
    """The node that makes a value, and as which output; null for inputs."""
    found = find(ValueInfo, value)
    node, place = found.graph.producer(found.name)
    put_pointer(out, node)
    if index:
        put_size(index, place)


@implements("ValueInfo_GetValueNumConsumers")
def value_get_consumer_count(value: int, out: int) -> None:
    """How often a value is used."""
    found = find(ValueInfo, value)
    put_size(out, len(found.graph.consumers(found.name)))


@implements("ValueInfo_GetValueConsumers")
def value_get_consumers(value: int, nodes: int, places: int, count: int) -> None:
    """The nodes that use a value, and as which input; -1 for their bodies."""
    found = find(ValueInfo, value)
    users = found.graph.consumers(found.name)
    put_pointers(nodes, [node for node, _ in users], count, "uses")
    put_all(ctypes.c_int64, places, [place for _, place in users], count, "uses")


@implements("ValueInfo_GetInitializerValue")
def value_get_content(value: int, out: int) -> None:
    """The content of an initializer, which lives as long as the value."""
    found = find(ValueInfo, value)
    content = found.content
    if content is None:
        raise InterfaceError(
            Code.FAIL, f"the value {found.name!r} is no initializer of a tensor"
        )
    put_pointer(out, content)


@implements("ValueInfo_GetExternalInitializerInfo")
def value_get_external(value: int, out: int) -> None:
    """Where an initializer is in a file, which the library releases; null if not."""
    found = find(ValueInfo, value)
    put_pointer(out, found.graph.external(found.name))


@implements("ValueInfo_IsRequiredGraphInput")
def value_is_required_input(value: int, out: int) -> None:
    """Whether it has to be given."""
    found = find(ValueInfo, value)
    put_bool(out, found.name in found.graph.inputs)


@implements("ValueInfo_IsOptionalGraphInput")
def value_is_optional_input(value: int, out: int) -> None:
    """No: what has a default is an input like others here."""
    find(ValueInfo, value)
    put_bool(out, False)


@implements("ValueInfo_IsGraphOutput")
def value_is_output(value: int, out: int) -> None:
    """Whether it is asked for."""
    found = find(ValueInfo, value)
    put_bool(out, found.name in found.graph.outputs)


@implements("ValueInfo_IsConstantInitializer")
def value_is_constant(value: int, out: int) -> None:
    """Whether it is an initializer that nobody overrides."""
    found = find(ValueInfo, value)
    put_bool(out, found.graph.is_constant(found.name))


@implements("ValueInfo_IsFromOuterScope")
def value_is_from_outside(value: int, out: int) -> None:
    """Whether it is one of the graphs around a body."""
    found = find(ValueInfo, value)
    put_bool(out, found.graph.is_from_outside(found.name))


@implements("ExternalInitializerInfo_GetFilePath")
def external_get_path(info: int) -> int:
    """The file's path."""
    found = find(ExternalData, info)
    return found.path(found.file)


@implements("ExternalInitializerInfo_GetFileOffset")
def external_get_offset(info: int) -> int:
    """Where in the file."""
    return find(ExternalData, info).offset


@implements("ExternalInitializerInfo_GetByteSize")
def external_get_size(info: int) -> int:
    """How many bytes."""
    return find(ExternalData, info).nbytes


@implements("CreateExternalInitializerInfo")
def create_external(
    path: bytes | str | None, offset: int, nbytes: int, out: int
) -> None:
    """A place in a file, as a library says it."""
    import os

    put_pointer(out, ExternalData(os.fsdecode(path or b""), offset, nbytes))


# Metadata


@implements("Graph_GetModelMetadata")
def graph_get_metadata(graph: int, out: int) -> None:
    """What the model says of itself, which the library releases."""
    put_pointer(out, Metadata(find(GraphView, graph).model.info))


def _texts() -> Mapping[str, str]:
    return {
        "ModelMetadataGetProducerName": "producer_name",
        "ModelMetadataGetGraphName": "graph_name",
        "ModelMetadataGetDomain": "domain",
        "ModelMetadataGetDescription": "doc_string",
        "ModelMetadataGetGraphDescription": "graph_description",
    }


def _define(entry: str, attribute: str) -> None:
    @implements(entry)
    def get_text(metadata: int, allocator: int, out: int) -> None:
        text = getattr(find(Metadata, metadata).info, attribute)
        put_pointer(out, allocate_text(allocator, text))


for _entry, _attribute in _texts().items():
    _define(_entry, _attribute)


@implements("ModelMetadataGetVersion")
def metadata_get_version(metadata: int, out: int) -> None:
    """The producer's number for the model."""
    put_long(out, find(Metadata, metadata).info.model_version)


@implements("ModelMetadataLookupCustomMetadataMap")
def metadata_lookup(metadata: int, allocator: int, key: bytes | None, out: int) -> None:
    """A custom entry; null if there is none."""
    entries = find(Metadata, metadata).info.metadata
    text = entries.get((key or b"").decode("utf-8", "replace"))
    put_pointer(out, None if text is None else allocate_text(allocator, text))


@implements("ModelMetadataGetCustomMetadataMapKeys")
def metadata_get_keys(metadata: int, allocator: int, out: int, count: int) -> None:
    """The keys of the custom entries, which the library frees one by one."""
    keys = [*find(Metadata, metadata).info.metadata]
    if not keys:
        put_pointer(out, None)
    else:
        texts = [allocate_text(allocator, key) for key in keys]
        array = bytes((ctypes.c_void_p * len(texts))(*texts))
        put_pointer(out, allocate_bytes(allocator, array))
    put_long(count, len(keys))
