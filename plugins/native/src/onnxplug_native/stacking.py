"""Arrays of a library's memory that bodies are given and leave, taken apart and put
together by what the library gave for kernels of Loop and Scan."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug.authoring.nodes import describe
from onnxplug_native.functions.control_flow import ControlFlowKernel
from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.functions.tensor import Value
from onnxplug_native.interface.handles import find
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.structure import Structure
from onnxplug_native.interface.throwing import guarded

if TYPE_CHECKING:
    from onnxplug_native.device import NativeContext
    from onnxplug_native.functions.device_array import DeviceArray
    from onnxplug_native.functions.graph import GraphView
    from onnxplug_native.functions.kernel_registry import Kernel, KernelRegistry
    from onnxplug_native.functions.node import NodeView
    from onnxplug_native.provider import NativeProvider

OPERATORS: Final = ("Loop", "Scan")
"""Those for whose kernels libraries give something."""


def make_kernel(
    provider: NativeProvider, view: NodeView, kernel: Kernel
) -> ControlFlowKernel:
    """The host's kernel that a library has made for a node of control flow.

    Raises:
        OnnxplugError: it fails, and says why, or makes none of the host's.
    """
    info = KernelInfo(
        view, provider.structure, provider.config, provider.logger, {}, allocator=0
    )
    out = ctypes.c_void_p()
    what = f"making a kernel of {provider.who} for {describe(view.node)}"
    try:
        with provider.turn:
            status = guarded("!", "ppp", kernel.create)(
                kernel.state, info.address, ctypes.addressof(out)
            )
        raise_status(status, what)
        found = find(ControlFlowKernel, out.value, quiet=True)
        if found is not None:
            return found
        if out.value:
            with provider.turn:
                _release(Structure("OrtKernelImpl", out.value, provider.who))
        entry = f"OrtEpApi.Create{view.node.op_type}Kernel"
        raise ep.EPFail(
            f"{what} gave {'one of its own' if out.value else 'a null'}; expected what "
            f"{entry} makes, as only the host can run bodies"
        )
    finally:
        info.release()


class BodyKernels:
    """The host's kernels that a library has made for bodies of one session."""

    def __init__(self, provider: NativeProvider) -> None:
        self._provider = provider
        self._made: dict[str, ControlFlowKernel | None] = {}

    def find(self, view: GraphView, registry: KernelRegistry | None) -> None:
        """Have the library make one for a Loop and a Scan, if there are any.

        Where it fails it is said so, and the host does without.
        """
        memory = self._provider.memory
        if memory is None or registry is None:
            return
        for each in view.nodes:
            op = each.node.op_type
            if each.node.domain or op not in OPERATORS or op in self._made:
                continue
            kernel = registry.find(each)
            if kernel is None:
                continue
            self._made[op] = None
            try:
                made = self._made[op] = make_kernel(self._provider, each, kernel)
            except ep.OnnxplugError as error:
                self._provider.logger.warning("the host does without: %s", error)
            else:
                memory.stacking.add(made)

    def close(self) -> None:
        """Release them."""
        for made in self._made.values():
            if made is not None and self._provider.memory is not None:
                self._provider.memory.stacking.remove(made)
                made.release()


def _release(kernel: Structure) -> None:
    if kernel.has("Release"):
        kernel.call("Release")


class Stacking:
    """What is done with arrays of one memory for bodies.

    Without a kernel of Scan no array is taken apart, since only libraries that ask for
    one are known to have addresses that can be counted from.
    """

    def __init__(self, context: NativeContext, turn: Any) -> None:
        """*turn* is held while the library is called."""
        self._context = context
        self._turn = turn
        self._lock = new_lock()
        self._kernels: dict[str, list[ControlFlowKernel]] = {
            operator: [] for operator in OPERATORS
        }
        self._copies: bool | None = None
        # by the array, the axis and the place that is asked for next, which is beside
        # the place of the part
        self._parts: weakref.WeakValueDictionary[tuple[int, int, int], DeviceArray] = (
            weakref.WeakValueDictionary()
        )

    def add(self, kernel: ControlFlowKernel) -> None:
        """Use what the library gave for *kernel*."""
        with self._lock:
            self._kernels[kernel.op].append(kernel)

    def remove(self, kernel: ControlFlowKernel) -> None:
        """Use it no more."""
        with self._lock:
            self._kernels[kernel.op].remove(kernel)

    def stack(self, arrays: Sequence[Any], axis: int, stream: Any) -> Any:
        """See :meth:`onnxplug.ep.DeviceContext.stack`.

        Raises:
            OnnxplugError: the library fails, and says why.
        """
        with self._lock:
            is_scanned = bool(self._kernels["Scan"]) and self._can_copy()
            can = is_scanned or (bool(self._kernels["Loop"]) and not axis)
            if not arrays or not can:
                return NotImplemented
            first = arrays[0]
            dtype = self._context.data_type(first)
            shape = (len(arrays), *first.shape)
            out = self._context.allocate(dtype, shape, stream)
            if self._kernels["Loop"]:
                self._concatenate(arrays, dtype, out, stream)
            else:
                pairs = [(each, out.part(n)) for n, each in enumerate(arrays)]
                self._context.transfer.copy(pairs, stream)
            if not axis:
                return out
            order = [*range(1, axis + 1), 0, *range(axis + 1, len(shape))]
            return self._transposed(out, order, stream)

    def take(self, array: Any, axis: int, index: int, stream: Any) -> Any:
        """See :meth:`onnxplug.ep.DeviceContext.take`; a copy.

        Raises:
            OnnxplugError: the library fails, and says why.
        """
        with self._lock:
            if not self._kernels["Scan"] or not self._can_copy():
                return NotImplemented
            front = array if not axis else self._front(array, axis, index, stream)
            source = front.part(index)
            dtype = self._context.data_type(array)
            part = self._context.allocate(dtype, source.shape, stream)
            self._context.transfer.copy([(source, part)], stream)
            if axis:
                part.beside = source
                for near in (index - 1, index + 1):
                    self._parts[id(array), axis, near] = part
            return part

    def _front(self, array: Any, axis: int, index: int, stream: Any) -> Any:
        """*array* with *axis* first, made once for a node that goes through it.

        What is filled anew between runs is not the array that it was, so whoever begins
        to go through it, from either end, has it made anew.
        """
        if 0 < index < array.shape[axis] - 1:
            part = self._parts.get((id(array), axis, index))
            if part is not None and part.beside is not None:
                return part.beside.owner
        others = [each for each in range(len(array.shape)) if each != axis]
        front = self._transposed(array, [axis, *others], stream)
        front.owner = array  # whose number nobody else has while it lives
        return front

    def _can_copy(self) -> bool:
        if self._copies is None:
            here = self._context.location
            self._copies = self._context.transfer.can_copy(here, here)
        return self._copies

    def _transposed(self, array: Any, order: Sequence[int], stream: Any) -> Any:
        """A new array whose axes are those of *array* in this order."""
        dtype = self._context.data_type(array)
        shape = tuple(array.shape[each] for each in order)
        out = self._context.allocate(dtype, shape, stream)
        if not out.nbytes:
            return out
        helper = self._kernels["Scan"][-1].helper
        assert helper is not None
        handle = getattr(stream, "handle", None)
        source, target = Value.of(array, dtype), Value.of(out, dtype)
        axes = (ctypes.c_size_t * len(order))(*order)
        try:
            with self._turn:
                helper.call(
                    "Transpose",
                    ctypes.addressof(axes),
                    len(axes),
                    source.address,
                    None if handle is None else handle.address,
                    target.address,
                )
        finally:
            source.release()
            target.release()
        return out

    def _concatenate(
        self, arrays: Sequence[Any], dtype: ep.DataType, out: Any, stream: Any
    ) -> None:
        """Fill *out* with *arrays*, one after another."""
        if not out.nbytes:
            return
        helper = self._kernels["Loop"][-1].helper
        assert helper is not None
        values = [Value.of(array, dtype) for array in arrays]
        try:
            addresses = (ctypes.c_void_p * len(values))(
                *(each.address for each in values)
            )
            with self._turn:
                helper.call(
                    "ConcatOutput",
                    None if stream is None else stream.native_handle,
                    ctypes.addressof(addresses),
                    len(values),
                    out.address,
                    out.nbytes,
                )
        finally:
            for value in values:
                value.release()
