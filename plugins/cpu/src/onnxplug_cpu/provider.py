"""The CPU EP in one session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from onnxplug import ep
from onnxplug.authoring.kernels import KernelExecutionProvider, KernelSequence
from onnxplug.authoring.operators import having
from onnxplug_cpu.capability import FindSupplied, Found, Tier, find
from onnxplug_cpu.control_flow import ControlFlow, is_control_flow, why_not_whole
from onnxplug_cpu.threads import on_arrays, uses_blas
from onnxplug_kernels import is_refusal

if TYPE_CHECKING:
    from onnxplug_cpu.compiler.kept_plans import KeptPlans
    from onnxplug_cpu.compiler.runtime.arena import Arenas
    from onnxplug_cpu.compiler.segment import Compiler

_FASTER_AS_FUNCTIONS: Final = frozenset({"RotaryEmbedding"})
"""ONNX's operators whose function bodies compile, and take a sixth of the time of their
kernels on arrays."""


_ROTATED: Final = (
    ep.DataType.FLOAT32,
    ep.DataType.FLOAT16,
    ep.DataType.BFLOAT16,
)
"""What bodies of these compute with; of 16 bits, too, they round results only."""

_COMPILED_WHOLE: Final = frozenset({"MatMulNBits", "GroupQueryAttention"})
"""ONNX Runtime's operators that are compiled as they are; where nothing is, their
bodies are faster than their kernels on arrays."""

_COMPILED_AS_FUNCTIONS: Final = frozenset({"QAttention"})
"""ONNX Runtime's operators whose bodies compile."""


class CpuProvider(KernelExecutionProvider):
    """Runs partitions as programs of machine code, and on numpy arrays what is left.

    Args:
        threads: of a run; 0 for as many as there are cores.
        compiles: ``False`` runs everything on arrays.
        splits: compute products of float32 from bfloat16 terms where that is faster.
        largest_tile: of convolutions by transforms, used where faster; 0 for none.
        rounds: of how many terms of bfloat16 factors of products are at most, where
            that is faster, by the dtype of weights.
        arenas: memory of programs, if it is to be taken otherwise than usual.
        supplied: finds the kernels of operators that other distributions supply.
        weights: where packed constants are shared with other sessions.
    """

    def __init__(
        self,
        threads: int = 0,
        *,
        compiles: bool = True,
        splits: bool = True,
        largest_tile: int = 0,
        rounds: tuple[tuple[str, int], ...] = (),
        arenas: Arenas | None = None,
        supplied: FindSupplied | None = None,
        weights: ep.WeightStore | None = None,
    ) -> None:
        self._find = partial(find, supplied=supplied)
        self._arenas = arenas
        self._weights = weights
        self.threads = threads
        self.compiles = compiles
        self.splits = splits
        self.largest_tile = largest_tile
        self.rounds = rounds
        self._compiler: Compiler | None = None

    def find_kernel(
        self, graph: ep.Graph, node: ep.Node
    ) -> Callable[..., Any] | ep.Reason:
        """The array tier's function of *node*, or the reference tier's."""
        found = self._find(graph, node)
        if isinstance(found, ep.Reason):
            return found
        return found.function

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """Take the nodes that have a kernel, and control flow whose bodies' all have
        one."""
        return ep.CapabilityReport.per_node(
            graph, partial(self._why_not, graph, whole=False)
        )

    def _why_not(
        self, graph: ep.Graph, node: ep.Node, *, whole: bool
    ) -> ep.Reason | None:
        """Why *node* is not taken; if *whole*, with the body that it is a node of."""
        if is_control_flow(node):
            return why_not_whole(graph, node, partial(self._why_not, whole=True))
        found = self._find(graph, node)
        if isinstance(found, ep.Reason):
            return found
        # which the host does with nodes that are given to the EP, and not with those
        # within
        if whole and self._expands(graph, node):
            return ep.Reason(ep.RefusalCode.OP, "is preferred as a function")
        if whole and node.op_type in having("dequantize"):
            return ep.Reason(ep.RefusalCode.OP, "weights may be made floats once")
        return None

    @property
    def preferences(self) -> ep.Preferences:  # type: ignore[override]
        """Has some operators as others, and some weights as codes."""
        return ep.Preferences(keeps_qdq=self._keeps_qdq, expands=self._expands)

    @property
    def cost_model(self) -> ep.CostModel | None:  # type: ignore[override]
        """How long nodes take where they are compiled."""
        if not self.compiles:
            return None
        from onnxplug_cpu.costs import costs  # which few sessions ask for

        return costs(self.threads)

    def _keeps_qdq(self, graph: ep.Graph, reader: ep.Node, node: ep.Node) -> bool:
        # which most models do not need
        from onnxplug_cpu.quantised_weights import keeps_codes

        return self.compiles and keeps_codes(graph, reader, node)

    def _expands(self, graph: ep.Graph, node: ep.Node) -> bool:
        """Whether the operators of the body are compiled, and the node is not."""
        if node.domain == "com.microsoft" and node.op_type in _COMPILED_WHOLE:
            return not self._is_compiled_whole(graph, node)
        if node.domain == "com.microsoft" and node.op_type in _COMPILED_AS_FUNCTIONS:
            return self.compiles
        if node.op_type not in _FASTER_AS_FUNCTIONS or not self.compiles:
            return False
        found = self._find(graph, node)
        # a body would compute what the kernel knows to be wrong
        return (
            not isinstance(found, ep.Reason)
            and not is_refusal(found.function)
            and _is_faster_as_function(graph, node)
        )

    def _is_compiled_whole(self, graph: ep.Graph, node: ep.Node) -> bool:
        """Whether there are kernels for such a node of ONNX Runtime's."""
        from onnxplug_cpu.compiler.runtime.jit import machine_code_unavailable

        if not self.compiles or machine_code_unavailable() is not None:
            return False
        from onnxplug_cpu.compiler.whole_operators import why_not

        return why_not(graph, node) is None

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """A program, or calls on arrays where code cannot be compiled or run."""
        return self._compile(partition, self.threads)

    def _compile_body(self, partition: ep.Partition) -> ep.CompiledPartition:
        """A body of control flow, for runs within those of what is around it, which
        limit threads."""
        return self._compile(partition, 0)

    def _compile(self, partition: ep.Partition, threads: int) -> ep.CompiledPartition:
        # what has no inputs runs once, to be folded, and is not worth compiling
        if self.compiles and partition.inputs:
            return self._program(partition, threads)
        return ArrayPartition(partition, threads, self._find, self._compile_body)

    def _program(self, partition: ep.Partition, threads: int) -> ep.CompiledPartition:
        from onnxplug_cpu.compiler.runtime.jit import machine_code_unavailable

        reason = machine_code_unavailable()
        if reason is not None:
            return self._on_arrays(partition, threads, reason)
        from onnxplug_cpu.compiler.kept_plans import KeptPlans
        from onnxplug_cpu.compiler.machine.cores import default_workers
        from onnxplug_cpu.compiler.runtime.arena import Arenas
        from onnxplug_cpu.compiler.runtime.jit import Library, warn_of_precision

        arenas = self._arenas = self._arenas or Arenas()
        library, workers = Library.host(), self.threads or default_workers()
        if self.rounds and not library.isa.multiplies_bf16:
            if "float32" in dict(self.rounds):
                warn_of_precision(library.isa)
            self.rounds = ()
        how = workers, threads, self.splits, self.largest_tile, self.rounds
        plans = units = None
        if type(arenas) is Arenas:  # others may lay temporary buffers out otherwise
            plans = KeptPlans.of(partition, library, how)
        if plans is not None:
            units = plans.units()
        if plans is None or units is None:
            return self._planned(partition, threads, plans)
        from onnxplug_cpu.compiler.kept_partition import KeptPartition
        from onnxplug_cpu.compiler.restore import restorable
        from onnxplug_cpu.compiler.runtime.kept import KeptConstants, NothingKept

        try:
            return KeptPartition(
                partition,
                units,
                plans,
                KeptConstants(partition, library, workers, arenas, self._weights),
                self.find_kernel,
                threads,
                partial(self._planned, partition, threads, plans),
                partial(restorable, partition, units, plans),
            )
        except NothingKept:
            return self._planned(partition, threads, plans)

    def _planned(
        self, partition: ep.Partition, threads: int, plans: KeptPlans | None
    ) -> ep.CompiledPartition:
        """A partition that is planned, and keeps some of its *plans*."""
        from onnxplug_cpu.compiler.partition import ProgramPartition
        from onnxplug_cpu.compiler.runtime.jit import KernelUnavailable
        from onnxplug_cpu.compiler.segment import Compiler

        if self._compiler is None:
            self._compiler = Compiler.for_threads(
                self.threads,
                splits=self.splits,
                largest_tile=self.largest_tile,
                rounds=self.rounds,
                arenas=self._arenas,
                weights=self._weights,
            )
        try:
            program = ProgramPartition(
                partition,
                self._compiler,
                self.find_kernel,
                self._compile_body,
                threads,
                plans,
            )
        except KernelUnavailable as error:
            return self._on_arrays(partition, threads, str(error))
        if program.is_compiled:
            return program
        notes = program.report.notes
        return ArrayPartition(partition, threads, self._find, self._compile_body, notes)

    def _on_arrays(
        self, partition: ep.Partition, threads: int, reason: str
    ) -> ArrayPartition:
        """A partition of which nothing is compiled, for a reason that is logged."""
        from onnxplug_cpu.compiler.runtime.jit import warn_of_arrays

        warn_of_arrays(reason)
        notes = dict.fromkeys(range(len(partition.nodes)), reason)
        return ArrayPartition(partition, threads, self._find, self._compile_body, notes)

    def close(self) -> None:
        """Give up the memory of runs and of packed weights."""
        if self._compiler is not None:
            self._compiler.close()
        elif self._arenas is not None:
            self._arenas.clear()


def _is_faster_as_function(graph: ep.Graph, node: ep.Node) -> bool:
    """Whether the host should replace *node* by its body, which it can."""
    if node.domain:
        return False
    from onnxplug_cpu.compiler.runtime.jit import machine_code_unavailable

    x = graph.value(node.inputs[0]) if node.inputs[0] else None
    return (
        x is not None
        and x.dtype in _ROTATED
        and x.shape is not None
        and machine_code_unavailable() is None
    )


class ArrayPartition(KernelSequence):
    """A list of calls on arrays.

    Overflow, division by zero and invalid values are ordinary results in ONNX, not
    worth a warning.

    Args:
        partition: what to run.
        threads: of a run; 0 for no limit.
        find: what computes a node, or why nothing does.
        compile_body: makes what runs a body of control flow.
        notes: why nodes, by their position, are not compiled.
    """

    def __init__(
        self,
        partition: ep.Partition,
        threads: int,
        find: Callable[[ep.Graph, ep.Node], Found | ep.Reason],
        compile_body: Callable[[ep.Partition], ep.CompiledPartition],
        notes: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        places = {node.index: n for n, node in enumerate(partition.nodes)}
        tiers: dict[int, str] = {}
        whole: dict[int, ControlFlow] = {}

        def find_kernel(
            graph: ep.Graph, node: ep.Node
        ) -> Callable[..., Any] | ep.Reason:
            if is_control_flow(node):
                place = places[node.index]
                tiers[place] = str(Tier.ARRAY)
                return whole.setdefault(
                    place, ControlFlow(partition, node, compile_body)
                )
            found = find(graph, node)
            if isinstance(found, ep.Reason):
                return found
            tiers[places[node.index]] = str(found.tier)
            return found.function

        super().__init__(partition, find_kernel)
        multiplies = any(uses_blas(n.domain, n.op_type) for n in partition.nodes)
        self._threads = threads if multiplies else 0
        self._tiers = tiers
        self._whole = whole
        self._notes = notes
        self._places = {id(node): n for n, node in enumerate(partition.nodes)}

    @property
    def report(self) -> ep.PartitionReport:  # type: ignore[override]
        """Which tier each node is in, and why not in a faster one."""
        return ep.PartitionReport(
            tiers=self._tiers,
            notes=self._notes,
            bodies={place: each.report() for place, each in self._whole.items()},
        )

    def close(self) -> None:
        """Give up what runs of bodies need."""
        for each in self._whole.values():
            each.close()

    def call(
        self,
        node: ep.Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: ep.RunContext,
    ) -> Any:
        """Call a kernel; that of control flow has a look at the run, too."""
        if isinstance(kernel, ControlFlow):
            kernel = partial(kernel, context=context)
        return super().call(node, kernel, arguments, context)

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Call the functions in order."""
        with on_arrays(self._threads):
            return super().run(inputs, outputs, context)

    def details(
        self, node: ep.Node, arguments: Sequence[Any], results: Any
    ) -> dict[str, object]:
        """What a profile has of a call: its tier, and why it is not compiled, too."""
        place = self._places[id(node)]
        facts = super().details(node, arguments, results)
        facts["tier"] = self._tiers[place]
        if place in self._notes:
            facts["note"] = self._notes[place]
        return facts
