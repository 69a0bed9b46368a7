"""An EP of a library in one session: it claims nodes and compiles partitions."""

from __future__ import annotations

import ctypes
import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NoReturn

from onnxplug import ep
from onnxplug.authoring.locks import new_lock
from onnxplug_native.abilities import NativeDynamicOptions, NativeSerialiser
from onnxplug_native.capture import NativeCapture, capture_of
from onnxplug_native.claims import Claims
from onnxplug_native.compiled import CompiledGroup
from onnxplug_native.context import (
    ENTRIES,
    ContextGraph,
    ContextNode,
    NotOfUse,
    pack,
    unpack,
)
from onnxplug_native.device import NativeContext, location_of, own_memory
from onnxplug_native.functions.capability import Group
from onnxplug_native.functions.editor import MadeNode
from onnxplug_native.functions.environment import (
    GRAPH_ID,
    NOT_CAPTURED,
    Logger,
    RunOptions,
    SessionOptions,
)
from onnxplug_native.functions.graph import GraphView, ModelFacts
from onnxplug_native.functions.kernel_registry import KernelRegistry
from onnxplug_native.functions.node import NodeView
from onnxplug_native.functions.types import element_number
from onnxplug_native.fusing import FusedNode, constants_of, in_order_of_use
from onnxplug_native.interface.handles import find
from onnxplug_native.interface.structure import Structure
from onnxplug_native.kernel_partition import KernelPartition
from onnxplug_native.layout import Layout
from onnxplug_native.measured import Judge, Measured
from onnxplug_native.profiling import NativeProfiler, profiler_of
from onnxplug_native.session_memory import SessionMemory
from onnxplug_native.stacking import BodyKernels

if TYPE_CHECKING:
    from onnxplug_native.factory import NativeFactory
    from onnxplug_native.functions.devices import Device


_KERNELS: Final = "kernels"
"""The label of the nodes that a library has kernels for, which host may divide."""


class NativeProvider(ep.ExecutionProvider):
    """An EP of a library.

    Attributes:
        factory: whose it is.
        structure: the library's own.
        memory: that of its location; ``None`` if that is the host.
        run_options: what the library is told of runs that are not captured.
    """

    def __init__(
        self,
        factory: NativeFactory,
        pairs: Sequence[Device],
        entries: Mapping[str, str],
        session: ep.SessionContext,
        measured: Measured | None = None,
    ) -> None:
        """An EP for a session.

        Args:
            entries: what the library is told of the session's config.
            measured: which nodes the library may have; ``None``: all.

        Raises:
            OnnxplugError: the library makes no EP, and says why.
        """
        self.factory = factory
        self._let_go = factory.library.hold()
        self._lock = new_lock()
        self._logger = Logger(session.logger)
        self._session = session
        self._model = ModelFacts(str(session.model_path or ""), session.model_info)
        self._groups: dict[str, Group] = {}
        self._numbers = itertools.count(1)
        self._is_closed = False
        self._profiler: NativeProfiler | None = None
        self._bodies = BodyKernels(self)
        self.memory: SessionMemory | None = None
        self._pairs = list(pairs)
        self._entries = dict(entries)
        self._capture: NativeCapture | None = None
        try:
            self.structure = self._make(self._entries)
        except BaseException:
            self._let_go_of_host()
            raise
        try:
            self.memory = self._find_memory(session)
            self._capture = self._find_capture()
            self._registry = self._kernels()
            self._layout = Layout(self.structure)
        except BaseException:
            self._release_own()
            raise
        judge = Judge(self.who, factory.version, measured)
        self._claims = Claims(
            self.who, self.structure, self._registry, judge, self._layout
        )
        # libraries do not say which others they know
        number = {} if self._capture is None else {GRAPH_ID: str(NOT_CAPTURED)}
        self.run_options = RunOptions(number)

    @property
    def preferences(self) -> ep.Preferences:  # type: ignore[override]
        """The order of axes that the library wants."""
        return self._layout.preferences

    @property
    def capture(self) -> NativeCapture | None:  # type: ignore[override]
        """What has the library capture runs, if its options say so."""
        return self._capture

    def _find_memory(self, session: ep.SessionContext) -> SessionMemory | None:
        """As :attr:`memory`."""
        memories = self._pairs[0].memories
        own = own_memory(memories)
        if own is None:
            return None
        self.location = location_of(own)
        context = session.context(self.location)
        assert isinstance(context, NativeContext), context
        return SessionMemory(self.factory, self.structure, context, memories)

    def _find_capture(self) -> NativeCapture | None:
        """As :attr:`capture`, for which the memory has streams then."""
        found = capture_of(self.structure, self.factory.structure, self.who, self.turn)
        if found is not None and self.memory is not None:
            self.memory.add_capturing(1)
        return found

    def _kernels(self) -> KernelRegistry | None:
        """The EP's kernels, which are the library's to release."""
        if not self.structure.has("GetKernelRegistry"):
            return None
        out = ctypes.c_void_p()
        self.structure.call("GetKernelRegistry", ctypes.addressof(out))
        return find(KernelRegistry, out.value) if out.value else None

    @property
    def config(self) -> Mapping[str, str]:
        """What the library is told of the session's config."""
        return self._entries

    @property
    def logger(self) -> logging.Logger:
        """The session's."""
        return self._logger.logger

    def _make(self, entries: Mapping[str, str]) -> Structure:
        """An EP of the library.

        Raises:
            OnnxplugError: the library makes none, and says why.
        """
        factory, out = self.factory.structure, ctypes.c_void_p()
        count = len(self._pairs)
        hardware = (ctypes.c_void_p * count)(
            *(pair.hardware.address for pair in self._pairs)
        )
        metadata = (ctypes.c_void_p * count)(
            *(pair.metadata.address for pair in self._pairs)
        )
        options = SessionOptions(entries)
        try:
            factory.call(
                "CreateEp",
                ctypes.addressof(hardware),
                ctypes.addressof(metadata),
                count,
                options.address,
                self._logger.address,
                ctypes.addressof(out),
            )
        finally:
            options.release()
        if not out.value:
            raise ep.EPFail(f"{self.who} made an EP that is null")
        made = Structure("OrtEp", out.value, self.who)
        name = made.text("GetName")
        if name != self.factory.name:
            factory.call("ReleaseEp", made.address)
            raise ep.EPFail(f"{self.who} made an EP that calls itself {name!r}")
        return made

    @property
    def who(self) -> str:
        """It and its library, in words."""
        return f"{self.factory.name} of {self.factory.library.name}"

    @property
    def is_concurrent(self) -> bool:
        """Whether partitions may run several times at once."""
        if not self.structure.has("IsConcurrentRunSupported"):
            return True
        out = ctypes.c_bool(True)
        self.structure.call("IsConcurrentRunSupported", ctypes.addressof(out))
        return out.value

    @property
    def profiler(self) -> NativeProfiler | None:
        """What profiles runs, if the library does; made when it is first asked for.

        Raises:
            OnnxplugError: the library makes none, and says why.
        """
        with self._lock:
            if self._profiler is None:
                self._profiler = profiler_of(self.structure)
            return self._profiler

    @property
    def turn(self) -> AbstractContextManager[Any]:
        """Held while the library is called that cannot be twice at once."""
        if self.is_concurrent:
            return nullcontext()
        return self.factory.library.turn

    # which nodes it takes

    def get_capability(self, graph: ep.Graph) -> ep.CapabilityReport:
        """What the library takes, in its groups, without what it is not to have."""
        untaken = ep.Reason(ep.RefusalCode.OP, f"{self.who} does not take it")
        with self._view(graph) as view:
            groups, reasons = self._claims.find(view)
            self._bodies.find(view, self._registry)
            claims = tuple(self._claim_all(groups))
        taken = {index for claim in claims for index in claim.nodes}
        return ep.CapabilityReport(
            claims=claims,
            refusals=tuple(
                ep.Refusal(node=node.index, reason=reasons.get(node.index, untaken))
                for node in graph.nodes
                if node.index not in taken
            ),
        )

    def _claim_all(self, groups: Sequence[Group]) -> Iterator[ep.ComputeCapability]:
        """The groups that are compiled, and one of all nodes that have kernels."""
        single = [
            index for group in groups if not group.is_fused for index in group.nodes
        ]
        if single:
            yield ep.ComputeCapability(nodes=tuple(sorted(single)), label=_KERNELS)
        yield from (self._claim(group) for group in groups if group.is_fused)

    def _claim(self, group: Group) -> ep.ComputeCapability:
        label = f"group {next(self._numbers)}"
        self._groups[label] = group
        return ep.ComputeCapability(
            nodes=group.nodes,
            atomic=True,
            keeps_constants=group.drops_constants,
            label=label,
        )

    @contextmanager
    def _view(self, graph: ep.Graph) -> Iterator[GraphView]:
        """The view of *graph*, and of all that is around it."""
        outermost, view = self._make_view(graph)
        try:
            yield view
        finally:
            outermost.release()

    def _make_view(self, graph: ep.Graph) -> tuple[GraphView, GraphView]:
        if graph.parent is None:
            view = GraphView(graph, self._model)
            return view, view
        outermost, around = self._make_view(graph.parent)
        for node in around.nodes:
            for name, body in node.node.subgraphs.items():
                if body is graph:
                    return outermost, node.bodies[name]
        # a body of no node any more: it is looked at by itself
        outermost.release()
        view = GraphView(graph, self._model)
        return view, view

    # compiling

    def compile(self, partition: ep.Partition) -> ep.CompiledPartition:
        """What the library compiles.

        Raises:
            Declined: values at the border are no tensors.
            OnnxplugError: the library fails, and says why.
        """
        first = self._layout.first(tuple(partition.nodes))
        if first:
            _decline(f"the library wants channels last, and {first} has them first")
        if partition.label == _KERNELS:
            return self._kernels_for(partition)
        constants = self._given(partition)
        for name in (*partition.inputs, *partition.outputs):
            _require_tensor(partition.value(name))
            self.require_held(partition.value(name))
        with self._part(partition, constants) as (view, fused):
            compiled = self._compile_only(view, fused)
            given = view.inputs
        return CompiledGroup(self, compiled, partition, given, fused.name)

    def require_held(
        self, value: ep.ValueInfo, nodes: Sequence[ep.Node] | None = None
    ) -> None:
        """Check that *value* can lie in the EP's memory.

        Args:
            nodes: those that are given back if it cannot; ``None``: all.

        Raises:
            Declined: it cannot.
        """
        if self.memory is not None and not self.memory.takes(value):
            _decline(
                f"{value.name!r} is {value.type}, and {self.location} holds no such "
                "tensors",
                nodes,
            )

    def _kernels_for(self, partition: ep.Partition) -> ep.CompiledPartition:
        """The kernels for the nodes of *partition*.

        Raises:
            Declined: the library has none for a node as it is now.
        """
        for node in partition.nodes:
            for name in filter(None, (*node.inputs, *node.outputs)):
                _require_tensor(partition.value(name), [node])
        view = GraphView(
            partition.graph,
            self._model,
            nodes=partition.nodes,
            inputs=partition.inputs,
            outputs=partition.outputs,
            lookup=partition,
        )
        registry = self._registry
        kernels = [
            None if registry is None else registry.find(each) for each in view.nodes
        ]
        found = [each for each in kernels if each is not None]
        if len(found) < len(kernels):
            view.release()
            without = [
                node
                for node, kernel in zip(partition.nodes, kernels, strict=True)
                if kernel is None
            ]
            _decline(f"{self.who} has registered no kernel for it", without)
        return KernelPartition(self, partition, found, view)

    @contextmanager
    def _part(
        self,
        partition: ep.Partition,
        constants: Sequence[str] = (),
        context: ContextNode | None = None,
    ) -> Iterator[tuple[GraphView, NodeView]]:
        """The view of a partition, and the node that stands for it.

        Args:
            constants: weights that are given in runs.
            context: what stands for its nodes already.
        """
        if context is None:
            source, nodes = partition.graph, partition.nodes
        else:
            source = ContextGraph(context, partition)
            nodes = source.nodes
        view = GraphView(
            source,
            self._model,
            nodes=nodes,
            inputs=in_order_of_use(nodes, [*partition.inputs, *constants]),
            outputs=partition.outputs,
            lookup=partition,
        )
        name = f"{self.factory.name}_{partition.fingerprint[:16]}_{next(self._numbers)}"
        fused = NodeView(
            FusedNode(name, self.factory.name, tuple(view.inputs), partition.outputs),
            view,
        )
        try:
            yield view, fused
        finally:
            fused.release()
            view.release()

    def _compile(
        self, structure: Structure, view: GraphView, fused: NodeView
    ) -> tuple[Structure, MadeNode | None]:
        """What an EP of the library compiles, and the node that stands for it, which is
        to be released."""
        graphs = (ctypes.c_void_p * 1)(view.address)
        nodes = (ctypes.c_void_p * 1)(fused.address)
        made = (ctypes.c_void_p * 1)()
        contexts = (ctypes.c_void_p * 1)()
        structure.call(
            "Compile",
            *map(ctypes.addressof, (graphs, nodes)),
            1,
            *map(ctypes.addressof, (made, contexts)),
        )
        node = find(MadeNode, contexts[0], quiet=True)
        try:
            if not made[0]:
                raise ep.EPFail(f"{self.who} compiled a partition to nothing")
            return Structure("OrtNodeComputeInfo", made[0], self.who), node
        except BaseException:
            _let_go_of(node)
            raise

    def _compile_only(self, view: GraphView, fused: NodeView) -> Structure:
        """What the session's EP compiles; what stands for it is not kept."""
        compiled, node = self._compile(self.structure, view, fused)
        _let_go_of(node)
        return compiled

    @property
    def dynamic_options(self) -> ep.DynamicOptions | None:  # type: ignore[override]
        """Tells the library of options that change, if it wants to know."""
        if not self.structure.has("SetDynamicOptions"):
            return None
        return NativeDynamicOptions(self)

    # keeping what is compiled

    @property
    def serialiser(self) -> ep.Serialiser:  # type: ignore[override]
        """Keeps the nodes that libraries make of what they compile."""
        return NativeSerialiser(self)

    def serialised(self, partition: ep.Partition) -> bytes:
        """The node that the library makes of what it compiles.

        Raises:
            Declined: it makes none, or one that is of no use; says why.
            OnnxplugError: the library fails, and says why.
        """
        made = self._make({**self._entries, **ENTRIES})
        try:
            with self._part(partition, self._given(partition)) as (view, fused):
                compiled, node = self._compile(made, view, fused)
                _release(made, compiled)
                if node is None:
                    _decline(f"{self.who} makes no EPContext node of it")
                try:
                    return pack(node, partition, self._compatibility(made, view))
                except NotOfUse as error:
                    _decline(f"what {self.who} makes of it cannot be kept: {error}")
                finally:
                    node.release()
        finally:
            self.factory.structure.call("ReleaseEp", made.address)

    def _compatibility(self, structure: Structure, view: GraphView) -> str:
        """What the library says that compiled partitions depend on."""
        entry = "GetCompiledModelCompatibilityInfo"
        if not structure.has(entry):
            return ""
        return structure.text(entry, view.address)

    def restored(
        self, partition: ep.Partition, data: memoryview
    ) -> ep.CompiledPartition:
        """What the library makes of the node that it made.

        Raises:
            Declined: the data is not of use; says why.
        """
        try:
            node, info = unpack(data, partition)
        except NotOfUse as error:
            _decline(str(error))
        verdict = self.factory.judge([each.hardware for each in self._pairs], info)
        if verdict is ep.Compatibility.UNSUPPORTED:
            _decline(f"{self.who} says that it was compiled for others: {info}")
        try:
            with self._part(partition, context=node) as (view, fused):
                compiled = self._compile_only(view, fused)
                given = view.inputs
        except ep.OnnxplugError as error:
            _decline(str(error))
        return CompiledGroup(self, compiled, partition, given, fused.name)

    def _given(self, partition: ep.Partition) -> list[str]:
        """The weights that the library wants given in runs."""
        group = self._groups.get(partition.label)
        drops = group is not None and group.drops_constants
        return [] if drops else constants_of(partition)

    def release(self, compiled: Structure) -> None:
        """Release what was compiled."""
        _release(self.structure, compiled)

    def close(self) -> None:
        """Release the library's EP."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._profiler is not None:
            self._profiler.release()
        self._bodies.close()
        self.run_options.release()
        self._release_own()

    def _release_own(self) -> None:
        """Release the library's EP, once nothing that it has memory for is in use."""
        if self._capture is not None:
            self._capture.close()
            if self.memory is not None:
                self.memory.add_capturing(-1)
        if self.memory is None:
            self._release_ep()
        else:
            self.memory.close(self._release_ep)

    def _release_ep(self) -> None:
        try:
            self.factory.structure.call("ReleaseEp", self.structure.address)
        finally:
            self._let_go_of_host()

    def _let_go_of_host(self) -> None:
        self._logger.release()
        self._let_go()


def _let_go_of(node: MadeNode | None) -> None:
    if node is not None:
        node.release()


def _release(structure: Structure, compiled: Structure) -> None:
    infos = (ctypes.c_void_p * 1)(compiled.address)
    if structure.has("ReleaseNodeComputeInfos"):
        structure.call("ReleaseNodeComputeInfos", ctypes.addressof(infos), 1)


def _decline(detail: str, nodes: Sequence[ep.Node] | None = None) -> NoReturn:
    raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail), nodes=nodes)


def _require_tensor(
    value: ep.ValueInfo, nodes: Sequence[ep.Node] | None = None
) -> None:
    """Decline *nodes*, or all, unless *value* is a tensor that libraries are given."""
    if not element_number(value.dtype):
        _decline(
            f"{value.name!r} is {value.type or 'of unknown type'}; libraries are given "
            "tensors of the types that the interface has",
            nodes,
        )
