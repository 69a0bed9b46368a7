"""Which nodes are computed on the device, and why not the others."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.operators import having
from onnxplug_compiler.frontend.call import Call, call_of, numpy_dtype
from onnxplug_compiler.gpu.execution.backend import Backend
from onnxplug_compiler.gpu.execution.positions import without_starts
from onnxplug_compiler.gpu.execution.target import GpuTarget
from onnxplug_compiler.schedule.operations.registry import find_operation
from onnxplug_compiler.segmentation import Analysis, analyse
from onnxplug_kernels import find_kernel, function_of


def calls_of(
    partition: Any, nodes: Collection[ep.Node], backend: Backend
) -> tuple[list[Call], dict[int, ep.Reason]]:
    """The calls of nodes, and why some are none.

    Args:
        partition: an ``ep.Partition``, or what has its ``graph``, ``value`` and
            ``infer``.
    """
    kinds: dict[Any, int] = {}
    calls: list[Call] = []
    refused: dict[int, ep.Reason] = {}
    for node in nodes:
        kernel = find_kernel(
            node.domain, node.op_type, partition.graph.opset(node.domain)
        )
        # what there is no kernel of is planned, or left to others
        function = None if kernel is None else function_of(kernel, node, np)
        call = call_of(partition, node, kernel, function, kinds)
        if _is_control_flow(node):
            refused[node.index] = ep.Reason(
                ep.RefusalCode.OP, "the host runs the bodies of control flow"
            )
        elif kernel is None and find_operation(call) is None:
            name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            refused[node.index] = ep.Reason(
                ep.RefusalCode.OP, f"{name} is not computed on {backend.api}"
            )
        else:
            calls.append(call)
    made = {name: call for call in calls for name in call.outputs if name}
    constants = {
        name
        for call in calls
        for name in call.inputs
        if name and partition.value(name).is_constant
    }

    def varies(name: str) -> bool:
        return _sources(name, made, constants) != set()

    return without_starts(partition, calls, varies), refused


def _is_control_flow(node: ep.Node) -> bool:
    return not node.domain and node.op_type in having("control_flow")


def read_by_host(
    partition: Any,
    calls: Collection[Call],
    inputs: Collection[str],
    constants: Collection[str],
) -> frozenset[str]:
    """Inputs whose contents are part of what a plan is made for: from them follow those
    that calls have to know when they are planned, such as axes and sizes.

    They are vectors or single elements.  Bodies of control flow have none, as these
    could have others in each run of the body.
    """
    if partition.graph.parent is not None:
        return frozenset()
    made = {name: call for call in calls for name in call.outputs if name}
    found: set[str] = set()
    for call in calls:
        operation = find_operation(call)
        for position in () if operation is None else operation.known:
            name = call.input(position)
            sources = None if name is None else _sources(name, made, constants)
            if sources and sources <= {*inputs} and _are_few(partition, sources):
                found |= sources
    return frozenset(found)


def _sources(
    name: str, made: Mapping[str, Call], constants: Collection[str]
) -> set[str] | None:
    """The inputs that *name* follows from; ``None`` if its content follows from none
    that could be known."""
    found: set[str] = set()
    stack, seen = [name], set[str]()
    while stack:
        name = stack.pop()
        if name in constants or name in seen:
            continue
        seen.add(name)
        call = made.get(name)
        if call is None:
            found.add(name)
        elif call.function is None or not call.traits.follows or call.domain:
            return None
        elif not call.traits.of_shapes:
            stack += [each for each in call.inputs if each is not None]
    return found


def _are_few(partition: Any, names: Collection[str]) -> bool:
    shapes = [partition.value(name).shape for name in names]
    return all(shape is not None and len(shape) < 2 for shape in shapes)


def analysed(
    partition: Any,
    calls: Collection[Call],
    constants: Collection[str],
    refused: Mapping[int, str],
    target: GpuTarget,
) -> tuple[Analysis, dict[str, np.dtype[Any] | None]]:
    """What is known of *calls* before any shape is, and the dtypes of all values.

    Args:
        constants: names of values that are known when plans are made.
    """
    names = {name for call in calls for name in (*call.inputs, *call.outputs) if name}
    dtypes = {name: numpy_dtype(partition, name) for name in names}
    found = analyse(list(calls), dtypes, constants, refused, target)
    return found, dtypes


def judge(
    graph: ep.Graph, forced: Mapping[str, str], largest: int, backend: Backend
) -> ep.CapabilityReport:
    """Take what is computed, and what follows from shapes.

    Args:
        forced: names of nodes that are not to be taken, and why.
        largest: bytes of an array, at most.
    """
    view = SimpleNamespace(
        graph=graph, value=graph.value, infer=lambda node, inputs: ()
    )
    calls, refusals = calls_of(view, graph.nodes, backend)
    for node in graph.nodes:
        if node.name and node.name in forced:
            why = forced[node.name]
            refusals[node.index] = ep.Reason(ep.RefusalCode.OTHER, why)
        reason = _no_arrays(graph, node) or _too_large(graph, node, largest)
        if reason is not None:
            refusals.setdefault(node.index, reason)
    calls = [call for call in calls if call.nodes[0] not in refusals]
    names = {name for call in calls for name in call.inputs if name}
    constants = {name for name in names if graph.value(name).is_constant}
    made = {name for node in graph.nodes for name in node.outputs if name}
    read = read_by_host(view, calls, names - made - constants, constants)
    analysis, _ = analysed(view, calls, constants | read, {}, backend.target)
    for call, why in analysis.reasons.items():
        refusals[call.nodes[0]] = ep.Reason(_code(call, backend.target), why)
    return ep.CapabilityReport.per_node(
        graph, lambda node: refusals.get(node.index), keeps_constants=True
    )


def _no_arrays(graph: ep.Graph, node: ep.Node) -> ep.Reason | None:
    """Why a node is not taken that takes or gives what is no array of numbers."""
    for name in filter(None, (*node.inputs, *node.outputs)):
        dtype = graph.value(name).dtype
        if dtype is None or dtype.numpy.hasobject:
            what = dtype or graph.value(name).type or "of unknown type"
            return ep.Reason(ep.RefusalCode.DTYPE, f"{name!r} is {what}; takes numbers")
    return None


def _too_large(graph: ep.Graph, node: ep.Node, largest: int) -> ep.Reason | None:
    """Why a node is not taken of which an array is known to be too large."""
    for name in filter(None, (*node.inputs, *node.outputs)):
        value = graph.value(name)
        if value.dtype is None or value.shape is None:
            continue
        sizes = [size for size in value.shape if isinstance(size, int)]
        nbytes = math.prod(sizes) * value.dtype.numpy.itemsize
        if len(sizes) == len(value.shape) and nbytes > largest:
            return ep.Reason(
                ep.RefusalCode.OTHER,
                f"{name!r} has {nbytes} bytes; the device takes {largest} at most",
            )
    return None


def _code(call: Call, target: GpuTarget) -> ep.RefusalCode:
    elements = target.elements(call.op_type)
    return ep.RefusalCode.DTYPE if elements else ep.RefusalCode.OP


def keeps_codes(graph: ep.Graph, reader: ep.Node, node: ep.Node) -> bool:
    """Whether weights stay codes: of products, which take them so; see
    :attr:`onnxplug.ep.Preferences.keeps_qdq`."""
    name = node.outputs[0]
    if name is None or reader.domain:
        return False
    shape = graph.value(name).shape
    is_made = node.op_type == "DequantizeLinear"
    if shape is None or (reader.op_type != "Transpose" and reader.inputs[0] == name):
        return False
    if reader.op_type == "Conv":
        # of others the constant is as good
        by_filters = node.attributes.get("axis", 1) in (0, -len(shape))
        return (
            is_made
            and reader.inputs[1] == name
            and not node.attributes.get("block_size")
            and (by_filters or graph.value(node.inputs[1] or "").shape == ())
        )
    if len(shape) != 2:
        return False
    if reader.op_type == "Transpose":
        return is_made
    is_weight = is_made or node.op_type == "Transpose"
    return (
        reader.op_type in ("MatMul", "Gemm")
        and is_weight
        and (reader.inputs[1] == name)
    )
