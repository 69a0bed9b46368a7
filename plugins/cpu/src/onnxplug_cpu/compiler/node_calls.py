"""Nodes as calls, with bodies of control flow that may be planned with them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_compiler.frontend.call import (
    Abstract,
    Call,
    NotCompiled,
    call_of,
    numpy_dtype,
)
from onnxplug_compiler.ir.target import Support
from onnxplug_compiler.linear_codes import Unfolded
from onnxplug_compiler.schedule.bodies import Body, ControlFlowCall
from onnxplug_compiler.schedule.constants import Constants
from onnxplug_compiler.segmentation import forms_of_all
from onnxplug_compiler.widening import widened
from onnxplug_cpu.compiler.steps import FindFunction
from onnxplug_cpu.control_flow import Compile, ControlFlow, is_control_flow
from onnxplug_kernels import find_kernel


def as_call(
    partition: ep.Partition,
    node: ep.Node,
    find_function: FindFunction,
    compile_body: Compile,
    kinds: dict[Any, int],
    target: Support,
) -> Call:
    """The call of *node*.

    Args:
        find_function: the array tier's function of a node.
        compile_body: makes what runs a body of control flow by itself.
        kinds: numbers of equal calls so far; it grows.

    Raises:
        RuntimeError: the node was claimed, and has no function.
    """
    if is_control_flow(node):
        whole = ControlFlow(partition, node, compile_body)
        bodies = {
            attribute: _body(body, node, find_function, compile_body, kinds, target)
            for attribute, body in partition.bodies(node).items()
        }
        flow = ControlFlowCall(partition, node, bodies, whole)
        whole.item_shapes = functools.partial(_item_shapes, flow)
        return flow
    function = find_function(partition.graph, node)
    if isinstance(function, ep.Reason):
        raise RuntimeError(
            f"{describe(node)} was claimed, and now has no kernel: {function}"
        )
    kernel = find_kernel(node.domain, node.op_type, partition.graph.opset(node.domain))
    return call_of(partition, node, kernel, function, kinds)


def _item_shapes(
    call: ControlFlowCall, arrays: Sequence[Any]
) -> Mapping[str, tuple[int, ...]]:
    """Shapes of what a body would give in a turn, if they follow."""
    values = [
        None if each is None else Abstract.known(np.asarray(each)) for each in arrays
    ]
    left_out = len(call.inputs) - len(values)
    values[call.count - left_out : call.count - left_out] = [None] * left_out
    try:
        return call.item_shapes(values)
    except NotCompiled:
        return {}


def _body(
    partition: ep.Partition,
    node: ep.Node,
    find_function: FindFunction,
    compile_body: Compile,
    kinds: dict[Any, int],
    target: Support,
) -> Body:
    """A body of *node*, to be planned with what is around it."""
    graph = partition.graph
    calls = [
        as_call(partition, inner, find_function, compile_body, kinds, target)
        for inner in partition.nodes
    ]
    made = {name for call in calls for name in call.outputs}
    names = {name for call in calls for name in call.inputs if name}
    names.update((*graph.inputs, *graph.outputs))
    own = {*made, *graph.inputs}
    captures = [
        name
        for name in node.captures
        if name not in own and not partition.value(name).is_constant
    ]
    dtypes = {name: numpy_dtype(partition, name) for name in (*names, *captures)}
    constants = Constants(partition, names)
    wide = widened(calls, dtypes, constants, graph.outputs, target, kinds)
    every = {**dtypes, **wide.dtypes}
    found = Unfolded(wide.calls, every, constants, target, graph.opset())
    calls, dtypes = list(found.calls), {**every, **found.dtypes}
    find_forms = functools.partial(forms_of_all, calls, dtypes, constants)
    return Body(partition, calls, constants, dtypes, find_forms, captures)
