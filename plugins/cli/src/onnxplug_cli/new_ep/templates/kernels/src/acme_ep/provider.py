"""The EP in one session: which kernel runs a node, or why none does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring import kernels

from .operators import OPERATORS


class AcmeExecutionProvider(kernels.KernelExecutionProvider):
    """Runs nodes of float32 whose operators have kernels."""

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        """The kernel for *node*, or what was found in its way, and what is taken."""
        operator = None if node.domain else OPERATORS.get(node.op_type)
        if operator is None:
            known = ", ".join(OPERATORS)
            return ep.Reason(ep.RefusalCode.OP, f"{node.op_type}; takes {known}")
        if node.since_version not in operator.versions:
            known = ", ".join(map(str, sorted(operator.versions)))
            detail = f"version {node.since_version}; takes {known}"
            return ep.Reason(ep.RefusalCode.OPSET, detail)
        unknown = sorted(set(node.attributes) - operator.attributes)
        if unknown:
            detail = f"{unknown[0]}, which it does not heed"
            return ep.Reason(ep.RefusalCode.ATTRIBUTE, detail)
        for name in filter(None, node.inputs):
            dtype = graph.value(name).dtype
            if dtype is not ep.DataType.FLOAT32:
                detail = f"{name!r} is {dtype or 'of unknown type'}; takes float32"
                return ep.Reason(ep.RefusalCode.DTYPE, detail)
        return _as_the_host_wants(operator.make(node.attributes))


def _as_the_host_wants(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arrays: Any) -> Any:
        # infinities and NaNs are results like others
        with np.errstate(all="ignore"):
            result = function(*arrays)
        # numpy makes scalars of arrays of rank 0; the host wants arrays
        return np.asarray(result)

    return call
