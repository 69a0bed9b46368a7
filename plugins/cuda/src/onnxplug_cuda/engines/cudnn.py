"""Convolutions and attention by cuDNN, through its Python frontend.

What is called of the frontend is in all versions that the EP takes
(https://github.com/NVIDIA/cudnn-frontend): a graph is described, plans are asked for,
and executed on bare addresses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, TypeAlias

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug.authoring.record import Record
from onnxplug_compiler.gpu.execution.device import KernelRefused
from onnxplug_cuda.engines.choices import MOST_PLANS, Bench, Choices, Scratch
from onnxplug_cuda.engines.graphs import Attention, Convolution

Call: TypeAlias = Convolution | Attention

_MODES: Final = {
    "EXHAUSTIVE": ("A", "B", "FALLBACK"),
    "HEURISTIC": ("A", "FALLBACK"),
    "DEFAULT": ("FALLBACK", "A"),
}
"""Which of the frontend's heuristics are asked for plans, the first ones first."""


class CudnnError(RuntimeError):
    """cuDNN does not begin, or what it was asked to queue fails."""


class _Plan(Record):
    """A graph, and which of its plans is executed.

    Attributes:
        tensors: of the graph, in the order of addresses.
        number: of the plan.
        workspace: bytes that it takes.
    """

    graph: Any
    tensors: list[Any]
    number: int
    workspace: int


class Cudnn:
    """cuDNN on a GPU.  Safe for threads.

    Args:
        module: the frontend, ``cudnn``.
        current: makes the GPU the current one of a thread.
        lock: held while it plans, measures and queues.  It has to be the one that is
            held where calls are bound, and memory to measure with is taken: two threads
            could wait for each other.
        choices: which plans were the fastest; ``None``: none was measured.
        bench: measures those that were not; ``None``: they are not measured.

    Raises:
        CudnnError: it does not begin, as without a driver or a library.
    """

    def __init__(
        self,
        module: Any,
        current: AbstractContextManager[Any] | None = None,
        lock: threading.RLock | None = None,
        choices: Choices | None = None,
        bench: Bench | None = None,
    ) -> None:
        self._cudnn, self._current = module, current or nullcontext()
        self._choices, self._bench = choices, bench
        self._lock = lock or new_rlock()
        self._plans: OrderedDict[str, _Plan | KernelRefused] = OrderedDict()
        try:
            with self._current:
                self._handle = module.create_handle()
        except Exception as error:
            ep.raise_interruption(error)
            raise CudnnError(f"cuDNN does not begin: {error}") from error

    def workspace(self, call: Call) -> int:
        """Bytes that *call* takes besides its arrays; plans it, and measures plans if
        that is asked for.

        Raises:
            KernelRefused: no plan does it; no other is looked for when it is asked
                again.
        """
        return self._plan(call).workspace

    def prepare(
        self, call: Call, begins: Sequence[int], workspace: int
    ) -> PreparedGraph:
        """The plan for *call*.

        Args:
            begins: where arrays begin, which plans do not depend on.
            workspace: bytes that it may have.

        Raises:
            KernelRefused: no plan does it with as much workspace.
        """
        plan = self._plan(call)
        if plan.workspace > workspace:
            raise KernelRefused(
                f"cuDNN's plan takes {plan.workspace} bytes of workspace; there are "
                f"{workspace}"
            )
        return PreparedGraph(self, call, plan)

    def queue(
        self, plan: _Plan, number: int, pack: Any, workspace: int, stream: int
    ) -> None:
        """Queue the plan of a number on a stream of CUDA's."""
        with self._lock:
            self._cudnn.set_stream(self._handle, stream)
            plan.graph.execute_plan_at_index(
                pack, workspace, number, handle=self._handle
            )

    def _plan(self, call: Call) -> _Plan:
        key = repr((type(call).__name__, call))
        with self._lock:
            if key not in self._plans:
                try:
                    with self._current:
                        self._plans[key] = self._planned(call, key)
                # the frontend raises several types, and what it refuses kernels do
                except Exception as error:
                    ep.raise_interruption(error)
                    if isinstance(error, ep.OnnxplugError):
                        raise  # the device was lost
                    self._plans[key] = KernelRefused(
                        f"cuDNN has no plan for {call}: {error}"
                    )
                if len(self._plans) > MOST_PLANS:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            found = self._plans[key]
        if isinstance(found, KernelRefused):
            raise KernelRefused(str(found))
        return found

    def _planned(self, call: Call, key: str) -> _Plan:
        """The first plan that is built, or the fastest.

        Raises:
            Exception: there is none.
        """
        cudnn = self._cudnn
        graph = cudnn.pygraph(
            io_data_type=cudnn.data_type.FLOAT,
            intermediate_data_type=cudnn.data_type.FLOAT,
            compute_data_type=cudnn.data_type.FLOAT,
            handle=self._handle,
        )
        tensors = call.describe(cudnn, graph)
        graph.validate()
        graph.build_operation_graph()
        modes = [getattr(cudnn.heur_mode, name) for name in _MODES[call.search]]
        graph.create_execution_plans(modes)
        if call.element == "f32":
            notes = [cudnn.numerical_note.DOWN_CONVERT_INPUTS]
            if not call.tf32:
                notes.append(cudnn.numerical_note.TENSOR_CORE)
            graph.deselect_numeric_notes(notes)
        if call.most is not None:
            graph.deselect_workspace_greater_than(call.most)
        graph.check_support()
        plan = _Plan(graph, tensors, 0, 0)
        return self._first_built(plan, call, self._order(plan, call, key))

    def _order(self, plan: _Plan, call: Call, key: str) -> list[int]:
        """The numbers of plans, beginning with the one that is the fastest."""
        order = list(range(plan.graph.get_execution_plan_count()))
        if call.search != "EXHAUSTIVE" or self._choices is None:
            return order
        names = [f"{n}: {plan.graph.get_plan_name_at_index(n)}" for n in order]
        measure = None
        if self._bench is not None:
            measure = _Trial(self, self._bench, plan, call).seconds
        best = self._choices.best(key, names, measure)
        return sorted(order, key=lambda number: number != best)

    def _first_built(self, plan: _Plan, call: Call, order: Sequence[int]) -> _Plan:
        """The plan with the first number that is built.

        Raises:
            KernelRefused: none is.
        """
        reasons = []
        for number in order:
            try:
                workspace = self.built(plan.graph, number, call.most)
                return plan._replace(number=number, workspace=workspace)
            except Exception as error:  # noqa: BLE001  # the next may be built
                ep.raise_interruption(error)
                reasons.append(f"{type(error).__name__}: {error}")
        raise KernelRefused(
            f"none of {len(reasons)} plans is built; the first: "
            f"{reasons[0] if reasons else 'there is none'}"
        )

    def built(self, graph: Any, number: int, most: int | None) -> int:
        """Build the plan of a number; the bytes of workspace that it takes.

        Args:
            most: as many at most; ``None``: any number.

        Raises:
            Exception: it is not built, or takes more than it may.
        """
        graph.build_plan_at_index(number)
        nbytes = int(graph.get_workspace_size_plan_at_index(number))
        if nbytes < 0 or (most is not None and nbytes > most):
            raise KernelRefused(f"plan {number} takes {nbytes} bytes of workspace")
        return nbytes

    def close(self) -> None:
        """Give up cuDNN's own memory; idempotent, after all queued work."""
        with self._lock:
            handle, self._handle = self._handle, None
            self._plans.clear()
            if handle is not None:
                with self._current:
                    self._cudnn.destroy_handle(handle)


class PreparedGraph(Record):
    """A call, and the plan that does it."""

    library: Cudnn
    call: Call
    plan: _Plan

    def bind(self, addresses: Sequence[int], workspace: int) -> BoundGraph:
        """The call on what is at *addresses*, ready to be queued.

        Args:
            addresses: in the order of its ``needed``, which were checked to be in
                memory.
            workspace: the address of it.
        """
        pack = dict(zip(self.plan.tensors, addresses, strict=True))
        return BoundGraph(self, pack, workspace)


class BoundGraph(Record):
    """A graph of what is at fixed addresses.

    Attributes:
        pack: addresses by the graph's tensors.
        workspace: the address of it.
    """

    prepared: PreparedGraph
    pack: dict[Any, int]
    workspace: int

    def queue(self, stream: int) -> None:
        """Queue it on the CUDA stream of this address.

        Raises:
            CudnnError: cuDNN fails.
        """
        library, call, plan = self.prepared
        try:
            library.queue(plan, plan.number, self.pack, self.workspace, stream)
        except Exception as error:
            ep.raise_interruption(error)
            raise CudnnError(
                f"cuDNN fails at {type(call).__name__} {tuple(call)}: {error}"
            ) from error


class _Trial:
    """Measures the plans of a graph, on memory of its own."""

    def __init__(self, library: Cudnn, bench: Bench, plan: _Plan, call: Call) -> None:
        self._library, self._bench, self._plan = library, bench, plan
        self._needed, self._most = call.needed, call.most
        self._arrays: list[Scratch] = []

    def seconds(self, number: int) -> float:
        """The time of the plan of a number.

        Raises:
            Exception: it is not built, or fails.
            MemoryError: there is no memory to measure with.
        """
        plan = self._plan
        nbytes = self._library.built(plan.graph, number, self._most)
        if not self._arrays:
            self._arrays = [self._bench.memory(each) for each in self._needed]
        addresses = [each.address for each in self._arrays]
        pack = dict(zip(plan.tensors, addresses, strict=True))
        workspace = self._bench.memory(nbytes)
        return self._bench.seconds(
            lambda stream: self._library.queue(
                plan, number, pack, workspace.address, stream
            )
        )
