"""Attention, of which cuDNN computes what it has, and kernels the rest."""

from __future__ import annotations

import math
from typing import Any, Final

from onnxplug_compiler.gpu.command import EngineCall
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_compiler.gpu.families import attention
from onnxplug_compiler.ir.elements import element_of
from onnxplug_compiler.ir.families import Undefined
from onnxplug_compiler.ir.recorder import Recorder
from onnxplug_compiler.ir.views import View
from onnxplug_cuda.engines import graphs
from onnxplug_cuda.engines.cudnn import Cudnn
from onnxplug_cuda.engines.graphs import Tensor

_ELEMENTS: Final = frozenset({"f16", "bf16"})
"""Those that cuDNN's attention is of."""


class Attention:
    """A family of ``ir.families.Attention``.

    cuDNN's is taken for floats of 16 bits, without a mask or with one that is added
    where it does not matter what a query gives that sees nothing; kernels do the rest.

    Args:
        cudnn: on the GPU that is recorded for.
    """

    def __init__(self, cudnn: Cudnn) -> None:
        self._cudnn = cudnn

    def record_attention(
        self,
        recorder: Recorder[Any],
        q: View,
        k: View,
        v: View,
        out: View,
        *,
        scale: float,
        mask: View | None = None,
        causal: bool = False,
        past_length: int = 0,
        softcap: float = 0.0,
        undefined: Undefined = "masked_zero",
        hides: bool = False,
        fill: float = -math.inf,
        label: str = "Attention",
    ) -> None:
        """See ``ir.families.Attention``."""
        call = None
        if not softcap and not (mask is not None and undefined != "masked_zero"):
            call = _call(q, k, v, out, mask, scale, causal, past_length)
        if call is not None:
            try:
                workspace = self._cudnn.workspace(call)
            except KernelRefused:
                call = None
        if call is None:
            attention.record_attention(
                recorder, q, k, v, out, scale=scale, mask=mask, causal=causal,
                past_length=past_length, softcap=softcap, undefined=undefined,
                hides=hides, fill=fill, label=label,
            )  # fmt: skip
            return
        arrays = (q, k, v, out) if mask is None else (q, k, v, mask, out)
        recorder.commands.append(
            EngineCall(
                call,
                arrays,
                tuple(view is out for view in arrays),
                workspace,
                f"{label}, cuDNN",
                call.flops,
                sum(view.nbytes for view in arrays),
                recorder.nodes,
            )
        )


def _call(
    q: View,
    k: View,
    v: View,
    out: View,
    mask: View | None,
    scale: float,
    causal: bool,
    past_length: int,
) -> graphs.Attention | None:
    """What cuDNN is asked for; ``None`` if it has no such attention."""
    element = element_of(q.dtype)
    arrays = [q, k, v, out, *([] if mask is None else [mask])]
    if (
        element not in _ELEMENTS
        or any(element_of(view.dtype) != element for view in arrays)
        or any(0 in view.shape or min(view.strides) < 0 for view in arrays)
        or not math.isfinite(scale)
    ):
        return None
    queries, keys = q.shape[2], k.shape[2]
    seen = ""
    if causal:
        # with one query that sees all keys nothing is hidden
        if past_length == 0 and queries <= keys:
            seen = "first"
        elif past_length == keys - queries:
            seen = "last"
        else:
            return None
    added = None
    if mask is not None:
        lead = 4 - len(mask.shape)
        strides = (0,) * lead + mask.strides
        sizes = zip((1,) * lead + mask.shape, strides, strict=True)
        shape = tuple(size if stride else 1 for size, stride in sizes)
        if shape[2:] != (queries, keys):
            return None
        added = Tensor(shape, strides)
    assert element is not None
    return graphs.Attention(
        element, _tensor(q), _tensor(k), _tensor(v), added, _tensor(out), float(scale),
        seen,
    )  # fmt: skip


def _tensor(view: View) -> Tensor:
    return Tensor(view.shape, view.strides)
