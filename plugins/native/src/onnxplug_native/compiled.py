"""A partition that a library has compiled, and its runs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from onnxplug import ep
from onnxplug_native.functions.kernel_context import (
    KernelContext,
    NodeComputeContext,
    takes,
    values_of,
)
from onnxplug_native.functions.tensor import GIVEN
from onnxplug_native.partition import NativePartition, dtype_of

if TYPE_CHECKING:
    from onnxplug_native.interface.structure import Structure
    from onnxplug_native.provider import NativeProvider


class CompiledGroup(NativePartition):
    """Nodes that a library has compiled."""

    def __init__(
        self,
        provider: NativeProvider,
        compiled: Structure,
        partition: ep.Partition,
        inputs: Sequence[str],
        name: str,
    ) -> None:
        """*inputs* are what the library wants given in each run, weights among them.

        Raises:
            OnnxplugError: the library makes no state for runs.
        """
        super().__init__(provider, partition)
        self._compiled = compiled
        places = {name: place for place, name in enumerate(partition.inputs)}
        self._dtypes_given = [dtype_of(partition, each) for each in inputs]
        self._places = [places.get(each) for each in inputs]
        self._weights = {
            slot: self.weight(each)
            for slot, each in enumerate(inputs)
            if each not in places
        }
        self._address = compiled.address
        self._context = NodeComputeContext(name)
        self._state = ctypes.c_void_p()
        try:
            compiled.call(
                "CreateState", self._context.address, ctypes.addressof(self._state)
            )
            self._function = compiled.function("Compute")
        except BaseException:
            self._context.release()
            provider.release(compiled)
            raise

    def _make(self) -> KernelContext:
        if self._is_closed:
            raise ep.EPFail(f"a partition of {self._who} was closed")
        made = KernelContext(
            values_of(self._dtypes_given),
            values_of(self._outputs),
            allocate=self._allocate,
        )
        made.feed(self._places)
        for slot, array in self._weights.items():
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
        """Make room for outputs whose shapes are known, or were so the last time that
        inputs had the shapes that they have now."""
        for place, value in enumerate(arguments.outputs):
            shape, dtype = shapes[place], self._outputs[place]
            assert value is not None and shape is not None
            array = None if bound is None else bound[place]
            if array is None:
                value.set(arguments.allocate(dtype, shape))
            elif tuple(array.shape) == shape and takes(array, dtype):
                value.set(array)

    def _compute(self, arguments: KernelContext) -> int | None:
        status: int | None = self._function(
            self._address, self._state, arguments.address
        )
        return status

    def _results(self, arguments: KernelContext) -> list[Any]:
        results: list[Any] = []
        for output in arguments.outputs:
            if output is not None:
                if not output.memory.state & GIVEN:
                    self._fail_output(self._names[len(results)])
                results.append(output.result())
        return results

    def close(self) -> None:
        """Release the state of runs, and what was compiled."""
        if self._is_closed:
            return
        super().close()
        if self._compiled.has("ReleaseState"):
            self._compiled.call("ReleaseState", self._state)
        self._context.release()
        self._provider.release(self._compiled)
        self._weights.clear()
