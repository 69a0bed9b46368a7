"""Which nodes torch computes as ONNX says, and why not the others."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from typing import Any

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug.ep import DataType
from onnxplug_kernels import UnsupportedAttribute, WrongInputs
from onnxplug_kernels.namespaces import namespace_of
from onnxplug_torch.dtypes import TENSOR_TYPES, torch_dtype
from onnxplug_torch.operators import Operator, find_operator, kernel_operator

LACKING = {"mps": frozenset({DataType.FLOAT64, DataType.COMPLEX128})}
"""Element types that kinds of devices do not compute."""


def judge(torch: Any, graph: ep.Graph, node: ep.Node, device: Any) -> ep.Reason | None:
    """Why *node* is not taken on *device*; ``None``: it is."""
    found = _choose(torch, graph, node, device)
    return found if isinstance(found, ep.Reason) else None


def find_function(
    torch: Any, graph: ep.Graph, node: ep.Node, device: Any
) -> tuple[Operator, Callable[..., Any]]:
    """What computes *node*, which was claimed, and the function of its inputs."""
    found = _choose(torch, graph, node, device)
    if isinstance(found, ep.Reason):
        raise RuntimeError(f"{describe(node)} was claimed, and now is not: {found}")
    return found


def _choose(
    torch: Any, graph: ep.Graph, node: ep.Node, device: Any
) -> tuple[Operator, Callable[..., Any]] | ep.Reason:
    """torch's function for *node*, or else a kernel, or why it is not torch's."""
    identity = node.domain, node.op_type, node.since_version
    refusal: ep.Reason | None = None
    for find in (find_operator, partial(kernel_operator, device=device)):
        found = find(*identity)
        if found is None:
            continue
        chosen = _examine(torch, graph, node, device, found)
        if not isinstance(chosen, ep.Reason):
            return found, chosen
        refusal = refusal or chosen
    name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return refusal or ep.Reason(ep.RefusalCode.OP, f"{name}-{node.since_version}")


def _examine(
    torch: Any, graph: ep.Graph, node: ep.Node, device: Any, found: Operator
) -> Callable[..., Any] | ep.Reason:
    """The function of *found* for *node*, or what it lacks."""
    reason = _wrong_types(graph, node, found, device)
    if reason is not None:
        return reason
    bound = _bind(torch, graph, node, found, device)
    if isinstance(bound, ep.Reason):
        return bound
    reason = None if found.check is None else found.check(graph, node)
    return bound if reason is None else reason


def _wrong_types(
    graph: ep.Graph, node: ep.Node, found: Operator, device: Any
) -> ep.Reason | None:
    lacking = LACKING.get(device.type, frozenset())
    for position, name in enumerate(node.inputs):
        if name is None:
            continue
        dtype = graph.value(name).dtype
        takes = found.other.get(position, found.types)
        if position in found.host:
            takes = TENSOR_TYPES
        if dtype not in takes or (dtype in lacking and position not in found.host):
            what = dtype or "not a tensor of known type"
            listed = ", ".join(sorted(takes - lacking))
            return ep.Reason(
                ep.RefusalCode.DTYPE, f"{name!r} is {what}; takes {listed}"
            )
    for name in filter(None, node.outputs):
        dtype = graph.value(name).dtype
        if dtype is None or dtype not in TENSOR_TYPES - lacking:
            return ep.Reason(
                ep.RefusalCode.DTYPE, f"{name!r} is {dtype or 'of unknown type'}"
            )
    return None


def _bind(
    torch: Any, graph: ep.Graph, node: ep.Node, found: Operator, device: Any
) -> Callable[..., Any] | ep.Reason:
    wanted = [n for n, name in enumerate(node.outputs, 1) if name]
    try:
        bound = found.kernel.bind_to(
            _namespace(torch, device) if found.is_kernel else torch,
            node.attributes,
            output_count=max(wanted, default=1),
            inputs=node.inputs,
        )
    except UnsupportedAttribute as error:
        return ep.Reason(ep.RefusalCode.ATTRIBUTE, str(error))
    except WrongInputs as error:
        return ep.Reason(ep.RefusalCode.OTHER, str(error))
    if found.is_kernel:
        return bound
    wants = _wants(found.kernel.function)
    if "device" in wants:
        bound = partial(bound, device=device)
    if "dtype" in wants and node.op_type == "Range":
        dtype = graph.value(node.outputs[0] or "").dtype
        if dtype is not None:
            bound = partial(bound, dtype=torch_dtype(torch, dtype))
    return bound


def _namespace(torch: Any, device: Any) -> Any:
    """What kernels compute with: on the host where torch is by itself."""
    where = {} if device.type == "cpu" else {"device": device}
    return namespace_of(torch, **where)


@cache
def _wants(function: Callable[..., Any]) -> frozenset[str]:
    """What of its surroundings a function takes."""
    return frozenset(inspect.signature(function).parameters) & {"device", "dtype"}
