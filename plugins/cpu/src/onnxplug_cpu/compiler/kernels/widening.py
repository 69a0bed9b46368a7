"""Copies of narrow floats as float32, for kernels that read nothing narrower."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from onnxplug_compiler.ir.elements import element_of, is_half
from onnxplug_compiler.ir.elementwise import Chain, Step
from onnxplug_cpu.compiler.kernels.elementwise.commands import record_chain

if TYPE_CHECKING:
    from onnxplug_compiler.ir.views import View
    from onnxplug_cpu.compiler.commands.recording import Recorder

_F32: Final = np.dtype(np.float32)


def widened(recorder: Recorder, view: View) -> View:
    """*view* if it is of float32, or a copy of its elements that is."""
    if not is_half(view.dtype):
        return view
    starts = [0] * len(view.shape)
    sizes = [
        1 if stride == 0 else size
        for size, stride in zip(view.shape, view.strides, strict=True)
    ]
    single = view.slice(starts, sizes)
    copy = recorder.ordered_like(single, sizes, _F32)
    element = element_of(view.dtype)
    assert element is not None
    cast = Chain((element,), (), (Step("Cast", (0,), "f32", ()),), (1,))
    record_chain(recorder, cast, [single], [copy], label="Cast")
    return copy.broadcast_to(view.shape)
