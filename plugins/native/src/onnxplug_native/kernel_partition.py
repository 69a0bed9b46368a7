"""Nodes that kernels of a library run, one after another."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

from onnxplug import ep
from onnxplug.authoring.nodes import describe
from onnxplug_native.frame import Copy, Frame, wire
from onnxplug_native.functions.tensor import GIVEN
from onnxplug_native.interface.looping import Loop, calls_of, loop
from onnxplug_native.kernel import NodeKernel, Weight
from onnxplug_native.partition import NativePartition, dtype_of

if TYPE_CHECKING:
    from onnxplug_native.capture import NativeCapture
    from onnxplug_native.functions.graph import GraphView
    from onnxplug_native.functions.kernel_registry import Kernel
    from onnxplug_native.provider import NativeProvider


_FIRST_PORTION: Final = 4
"""So many kernels are called before it is known how long they take."""

_LONGEST_PORTION: Final = 0.005
"""For about so many seconds kernels are called without a look at whether the run was
cancelled."""


class KernelPartition(NativePartition):
    """Nodes that a library has kernels for.

    The library is told of the start and the end of a run once, and what is between
    kernels stays where they want it.
    """

    def __init__(
        self,
        provider: NativeProvider,
        partition: ep.Partition,
        kernels: Sequence[Kernel],
        view: GraphView,
    ) -> None:
        """*view* has the nodes, and is released together with the partition.

        Args:
            kernels: for each node.

        Raises:
            OnnxplugError: the library makes no kernel.
        """
        super().__init__(provider, partition)
        self._is_static = False  # kernels say which shapes they make
        self._view = view
        self._constants: dict[tuple[str, bool], Weight] = {}
        self._kernels: list[NodeKernel] = []
        self._wiring = None
        try:
            for node, kernel in zip(view.nodes, kernels, strict=True):
                self._kernels.append(
                    NodeKernel(provider, node, kernel, self._weight, self._turn)
                )
            self._wiring = wire(
                self._kernels,
                partition.inputs,
                partition.outputs,
                self._memory is not None,
            )
            if self._memory is not None:
                self._locate()
        except BaseException:
            self._release()
            raise
        self._constants.clear()
        self._calls = [
            (number, kernel.function, kernel.structure.address)
            for number, kernel in enumerate(self._kernels)
        ]
        self._loop = loop()
        # where Python has something to do, and how many are called until it looks
        # whether the run was cancelled
        steps = self._wiring.steps
        self._stops = [n for n, step in enumerate(steps) if step.copies]
        self._stops.append(len(steps) - 1)
        self._portion = _FIRST_PORTION

    def _weight(self, name: str, is_hosted: bool) -> Weight | None:
        """A constant that nodes read; ``None`` if *name* is none."""
        if not self.partition.value(name).is_constant:
            return None
        place = (name, is_hosted)
        if place not in self._constants:
            self._constants[place] = (
                dtype_of(self.partition, name),
                self.weight(name, is_hosted),
            )
        return self._constants[place]

    def _locate(self) -> None:
        """Say where inputs are wanted and outputs are left.

        Raises:
            Declined: a value cannot lie where it is wanted.
        """
        wiring, own = self._wiring, self._provider.location
        assert wiring is not None
        for step in wiring.steps:
            for name, is_hosted in filter(None, (*step.inputs, *step.outputs)):
                if not is_hosted:
                    self._provider.require_held(
                        self.partition.value(name), [step.kernel.node]
                    )
        self.input_locations = [
            ep.HOST if is_hosted else own for _, is_hosted in wiring.inputs
        ]
        self.output_locations = [
            ep.HOST if is_hosted else own for _, is_hosted in wiring.outputs
        ]
        for place, (_, is_hosted) in enumerate(wiring.inputs):
            if is_hosted:
                self._dtypes[place] = self._inputs[place].numpy

    def _make(self) -> Frame:
        if self._is_closed:
            raise ep.EPFail(f"a partition of {self._who} was closed")
        assert self._wiring is not None
        made = Frame(
            self._wiring,
            lambda name: dtype_of(self.partition, name),
            self._memory,
            self._allocate,
        )
        made.calls = calls_of(
            (kernel.pointer, kernel.structure.address, context.address)
            for kernel, context in zip(self._kernels, made.contexts, strict=True)
        )
        return made

    def _run(
        self,
        arguments: Any,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
        known: Sequence[Any] | None = None,
    ) -> Sequence[Any]:
        arguments.run = context
        return super()._run(arguments, inputs, outputs, context, known)

    def _require_capturable(
        self, outputs: Sequence[Any | None], capture: NativeCapture
    ) -> None:
        super()._require_capturable(outputs, capture)
        assert self._wiring is not None
        steps = self._wiring.steps
        for copy in (*self._wiring.copies, *(c for step in steps for c in step.copies)):
            raise capture.failed(
                f"is to capture a run in which {copy.source[0]!r} is copied between "
                "the memories of the host and the library, which is not captured"
            )

    def _expect(
        self,
        arguments: Frame,
        shapes: Sequence[Any],
        bound: Sequence[Any | None] | None,
    ) -> None:
        arguments.expect(shapes, bound)

    def _compute(self, arguments: Frame) -> int | None:
        assert self._wiring is not None
        steps, frees, run = self._wiring.steps, arguments.frees, arguments.run
        notes = arguments.notes
        arguments.unplan()
        if self._wiring.copies:
            self._copy(arguments, self._wiring.copies)
        if self._loop is not None and arguments.is_planned:
            return self._compute_planned(arguments, self._loop)
        for number, compute, kernel in self._calls:
            if run is not None and run.cancelled:
                self._fail_cancelled()
            context = arguments.contexts[number]
            status: int | None = compute(kernel, context.address)
            if status or notes.failure is not None:
                arguments.failed_at = number
                return status
            for value in context.outputs:
                if value is not None and not value.memory.state & GIVEN:
                    arguments.failed_at = number
                    return None
            if steps[number].copies:
                self._copy(arguments, steps[number].copies)
            if not arguments.is_planned:
                for value in frees[number]:
                    value.clear()
        return None

    def _compute_planned(self, arguments: Frame, call_several: Loop) -> int | None:
        """As :meth:`_compute`, where Python has nothing to do between most kernels."""
        assert self._wiring is not None
        calls, status = ctypes.addressof(arguments.calls), ctypes.c_void_p()
        run, number = arguments.run, 0
        for stop in self._stops:
            while number <= stop:
                if run is not None and run.cancelled:
                    self._fail_cancelled()
                end = min(stop + 1, number + self._portion)
                begun = time.perf_counter()
                reached = call_several(calls, number, end, ctypes.addressof(status))
                if reached < end:
                    arguments.failed_at = reached
                    return status.value
                took = (time.perf_counter() - begun) / (end - number)
                self._portion = max(1, int(_LONGEST_PORTION / max(took, 1e-9)))
                number = end
            copies = self._wiring.steps[stop].copies
            if copies:
                self._copy(arguments, copies)
        return None

    def _fail_cancelled(self) -> NoReturn:
        raise ep.RunCancelled(f"the run was cancelled while {self._who} ran")

    def _copy(self, arguments: Frame, copies: Sequence[Copy]) -> None:
        """Copy between the memories; what lies on the host is there when this
        returns."""
        assert self._memory is not None
        for copy in copies:
            arguments.copy(copy, self._memory)

    def _results(self, arguments: Frame) -> list[Any]:
        if arguments.failed_at is not None:
            kernel = self._kernels[arguments.failed_at]
            unmade = arguments.contexts[arguments.failed_at].unmade
            assert unmade is not None
            self._fail_output(kernel.node.outputs[unmade])
        if arguments.is_off_plan:
            self._last = None
        return [value.result() for value in arguments.results]

    def _where(self, arguments: Frame) -> str:
        if arguments.failed_at is None:
            return super()._where(arguments)
        node = self._kernels[arguments.failed_at].node
        return f"{super()._where(arguments)} for {describe(node)}"

    def _release(self) -> None:
        for kernel in self._kernels:
            kernel.release()
        self._view.release()
        self._wiring = None  # which has the weights

    def close(self) -> None:
        """Release the kernels."""
        if self._is_closed:
            return
        super().close()
        self._release()
