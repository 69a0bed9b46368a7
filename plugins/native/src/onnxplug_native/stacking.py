"""Outputs that Loop and Scan gather, put together in the memory of a library."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from onnxplug_native.functions.control_flow import ControlFlowKernel
from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.functions.tensor import Value
from onnxplug_native.interface.handles import find
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.throwing import guarded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug import ep
    from onnxplug_native.functions.kernel_registry import Kernel
    from onnxplug_native.functions.node import NodeView
    from onnxplug_native.provider import NativeProvider


def make_loop_kernel(
    provider: NativeProvider, view: NodeView, kernel: Kernel
) -> ControlFlowKernel | None:
    """The host's kernel that a library has made for a Loop; ``None`` if it makes none.

    Raises:
        OnnxplugError: it fails, and says why.
    """
    info = KernelInfo(
        view, provider.structure, provider.config, provider.logger, {}, allocator=0
    )
    out = ctypes.c_void_p()
    try:
        with provider.turn:
            status = guarded("!", "ppp", kernel.create)(
                kernel.state, info.address, ctypes.addressof(out)
            )
        raise_status(status, f"making a kernel of {provider.who} for Loop")
        return find(ControlFlowKernel, out.value, quiet=True)
    finally:
        info.release()


def concatenate(
    kernel: ControlFlowKernel,
    arrays: Sequence[Any],
    dtype: ep.DataType,
    out: Any,
    stream: int | None,
) -> None:
    """Fill *out* with *arrays*, one after another, by what the library gave for Loop.

    Args:
        stream: what the device's own API calls the stream to queue on.

    Raises:
        OnnxplugError: the library fails, and says why.
    """
    assert kernel.helper is not None
    values = [Value.of(array, dtype) for array in arrays]
    try:
        addresses = (ctypes.c_void_p * len(values))(*(each.address for each in values))
        kernel.helper.call(
            "ConcatOutput",
            stream,
            ctypes.addressof(addresses),
            len(values),
            out.address,
            out.nbytes,
        )
    finally:
        for value in values:
            value.release()
