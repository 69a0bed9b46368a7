"""A node that a kernel of a library runs."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_native.compiled import NativePartition, dtype_of
from onnxplug_native.functions.kernel_context import KernelContext
from onnxplug_native.functions.kernel_info import KernelInfo
from onnxplug_native.functions.kernel_registry import CreateKernel, Kernel
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.structure import Structure

if TYPE_CHECKING:
    from onnxplug_native.functions.graph import GraphView
    from onnxplug_native.provider import NativeProvider


class KernelPartition(NativePartition):
    """A node, run by a kernel that a library made for it."""

    def __init__(
        self,
        provider: NativeProvider,
        partition: ep.Partition,
        kernel: Kernel,
        view: GraphView,
    ) -> None:
        """*view* has the node, and is released together with the partition.

        Raises:
            OnnxplugError: the library makes no kernel.
        """
        super().__init__(provider, partition)
        (self._node,) = partition.nodes
        self._view = view
        places = {name: place for place, name in enumerate(partition.inputs)}
        self._slots: list[int | None] = [
            None if name is None else places.get(name) for name in self._node.inputs
        ]
        rule = kernel.definition.rule
        self._hosted_outputs = rule.hosted_outputs()
        hosted = rule.hosted_inputs()
        self._weights = {
            slot: (dtype_of(partition, name), self.weight(name, slot in hosted))
            for slot, name in enumerate(self._node.inputs)
            if name is not None and name not in places
        }
        self._allocator = 0
        if self._memory is not None:
            self._allocator = self._memory.allocator_address
            self._locate(hosted)
        self._info = KernelInfo(
            view.nodes[0],
            provider.structure,
            provider.config,
            provider.logger,
            self._weights,
            self._allocator,
        )
        wanted = [name for name in self._node.outputs if name in partition.outputs]
        if wanted != list(partition.outputs):
            self._release()
            raise ep.EPFail(f"the outputs of {describe(self._node)} are in disorder")
        what = f"making a kernel of {self._who} for {describe(self._node)}"
        out = ctypes.c_void_p()
        try:
            with self._turn:
                status = CreateKernel(kernel.create)(
                    kernel.state, self._info.address, ctypes.addressof(out)
                )
            raise_status(status, what)
            if not out.value:
                raise ep.EPFail(f"{what} gave a null")
            self._kernel = Structure("OrtKernelImpl", out.value, self._who)
            self._function = self._kernel.function("Compute")
        except BaseException:
            self._release()
            raise

    def _locate(self, hosted: Collection[int]) -> None:
        """Say where inputs are wanted and outputs are left.

        Raises:
            Declined: an input is wanted both on the host and elsewhere, or cannot lie
                where it is wanted.
        """
        partition, own = self.partition, self._provider.location
        wanted: list[set[bool]] = [set() for _ in partition.inputs]
        for slot, place in enumerate(self._slots):
            if place is not None:
                wanted[place].add(slot in hosted)
        locations = []
        for place, name in enumerate(partition.inputs):
            if len(wanted[place]) > 1:
                self._view.release()
                detail = f"{name!r} is wanted both on the host and in {own}"
                raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))
            is_host = wanted[place] == {True}
            locations.append(self._location_of(name, is_host))
            if is_host:
                self._dtypes[place] = self._inputs[place].numpy
        self.input_locations = locations
        slots = {name: slot for slot, name in enumerate(self._node.outputs)}
        self.output_locations = [
            self._location_of(name, slots[name] in self._hosted_outputs)
            for name in partition.outputs
        ]

    def _location_of(self, name: str, is_host: bool) -> ep.MemoryLocation:
        if is_host:
            return ep.HOST
        try:
            self._provider.require_held(self.partition.value(name))
        except ep.Declined:
            self._view.release()
            raise
        return self._provider.location

    def _release(self) -> None:
        self._info.release()
        self._view.release()

    def _make(self) -> KernelContext:
        if self._is_closed:
            raise ep.EPFail(f"a partition of {self._who} was closed")
        dtypes: list[ep.DataType | None] = []
        for slot, place in enumerate(self._slots):
            if place is not None:
                dtypes.append(self._inputs[place])
            else:
                dtypes.append(self._weights.get(slot, (None,))[0])
        outputs = dict(zip(self._names, self._outputs, strict=True))
        made = KernelContext(
            dtypes,
            [outputs.get(name) if name else None for name in self._node.outputs],
            allocate=self._allocate,
        )
        made.hosted, made.allocator = self._hosted_outputs, self._allocator
        made.feed(self._slots)
        for slot, (_, array) in self._weights.items():
            value = made.inputs[slot]
            assert value is not None
            value.set(array)
        return made

    def _expect(
        self,
        arguments: KernelContext,
        shapes: Sequence[tuple[int, ...] | None],
        bound: Sequence[Any | None] | None,
    ) -> None:
        # a kernel says itself which outputs it makes
        return None

    def _compute(self, context: int) -> int | None:
        status: int | None = self._function(self._kernel.address, context)
        return status

    def close(self) -> None:
        """Release the kernel."""
        if self._is_closed:
            return
        super().close()
        if self._kernel.has("Release"):
            with self._turn:
                self._kernel.call("Release")
        self._release()
