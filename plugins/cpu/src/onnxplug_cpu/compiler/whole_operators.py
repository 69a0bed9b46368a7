"""Which nodes are compiled as they are, rather than as the body of their function."""

from __future__ import annotations

from types import SimpleNamespace

from onnxplug import ep
from onnxplug_compiler.frontend.call import call_of, numpy_dtype
from onnxplug_compiler.schedule.operations.registry import find_operation
from onnxplug_compiler.widening import widened_types
from onnxplug_cpu.compiler.cpu_target import CpuTarget
from onnxplug_cpu.compiler.machine.isa import AVX2


def why_not(graph: ep.Graph, node: ep.Node) -> str | None:
    """Why a node is not compiled, as far as the types of its inputs tell."""
    partition = SimpleNamespace(
        graph=graph, value=graph.value, infer=lambda node, inputs: ()
    )
    call = call_of(partition, node, None, None, {})
    operation = find_operation(call)
    if operation is None:
        return f"{node.op_type} is not compiled"
    dtypes = widened_types(call, [numpy_dtype(partition, name) for name in node.inputs])
    # what is taken is the same on every processor
    return operation.accepts(call, dtypes, CpuTarget(AVX2, 1))
