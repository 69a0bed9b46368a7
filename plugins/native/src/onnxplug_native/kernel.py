"""The kernel that a library makes for a node."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.functions.kernel_registry import Kernel
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.structure import Structure
from onnxplug_native.interface.throwing import guarded
from onnxplug_native.prepacking import Prepacking

if TYPE_CHECKING:
    from onnxplug_native.functions.node import NodeView
    from onnxplug_native.provider import NativeProvider

Weight = tuple[ep.DataType, Any]
"""The element type of a constant, and the constant."""


class NodeKernel:
    """A kernel that computes one node.

    Attributes:
        node: it.
        hosted_inputs: the inputs that are wanted on the host.
        hosted_outputs: the outputs that are left there.
        aliases: for an output the input whose content it has.
        weights: the constants among its inputs, by position.
        packed: those inputs whose constants it has in a form of its own.
        structure: the library's own.
        function: what computes.
        pointer: where that is in the library.
    """

    def __init__(
        self,
        provider: NativeProvider,
        view: NodeView,
        kernel: Kernel,
        weights: Callable[[str, bool], Weight | None],
        turn: AbstractContextManager[Any],
    ) -> None:
        """*weights* gives a constant, on the host or in the EP's memory.

        Raises:
            OnnxplugError: the library makes no kernel.
        """
        self._turn = turn
        self.node = view.node
        memory, rule = provider.memory, kernel.definition.rule
        self.aliases = rule.aliases
        self.hosted_inputs: Collection[int] = ()
        self.hosted_outputs: Collection[int] = ()
        if memory is not None:
            self.hosted_inputs = rule.hosted_inputs()
            self.hosted_outputs = rule.hosted_outputs()
        self.weights: dict[int, Weight] = {
            slot: weight
            for slot, name in enumerate(self.node.inputs)
            if name and (weight := weights(name, slot in self.hosted_inputs))
        }
        self._info = KernelInfo(
            view,
            provider.structure,
            provider.config,
            provider.logger,
            self.weights,
            0 if memory is None else memory.allocator_address,
        )
        who = f"{provider.factory.name} of {provider.factory.library.name}"
        what = f"making a kernel of {who} for {describe(self.node)}"
        out = ctypes.c_void_p()
        try:
            with turn:
                status = guarded("!", "ppp", kernel.create)(
                    kernel.state, self._info.address, ctypes.addressof(out)
                )
            raise_status(status, what)
            if not out.value:
                raise ep.EPFail(f"{what} gave a null")
            self.structure = Structure("OrtKernelImpl", out.value, who)
            self.function = self.structure.function("Compute")
            self.pointer = self.structure.pointer("Compute")
        except BaseException:
            self._info.release()
            raise
        self._prepacking = Prepacking(
            self.structure,
            (self.node.domain, self.node.op_type),
            provider.factory.library.packed,
        )
        try:
            self._pack(0 if memory is None else memory.weights_address)
        except BaseException:
            self.release()
            raise

    def _pack(self, allocator: int) -> None:
        """Let the library pack the constants."""
        with self._turn:
            for slot, (dtype, array) in self.weights.items():
                hosted = slot in self.hosted_inputs
                self._prepacking.pack(slot, dtype, array, 0 if hosted else allocator)
        self.packed: Collection[int] = self._prepacking.packed
        for slot in self.packed:  # which frees it, if nobody else has it
            del self.weights[slot]
            self._info.forget(slot)

    def release(self) -> None:
        """Release it."""
        if self.structure.has("Release"):
            with self._turn:
                self.structure.call("Release")
        self._prepacking.release()
        self._info.release()
        self.weights.clear()
