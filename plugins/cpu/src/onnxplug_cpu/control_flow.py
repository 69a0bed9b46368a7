"""If, Loop and Scan by partitions that are their bodies, turn after turn in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any, Final, TypeAlias

import numpy as np

from onnxplug import ep
from onnxplug.authoring.control_flow import (
    Placement,
    no_items,
    nothing_stacked,
    run_bodies,
)
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record

Compile: TypeAlias = Callable[[ep.Partition], ep.CompiledPartition]

_SCAN_WITHOUT_BATCH: Final = 9
"""The version since which Scan has no batch."""


def is_control_flow(node: ep.Node) -> bool:
    """Whether *node* is ``If``, ``Loop`` or ``Scan``."""
    return not node.domain and node.op_type in having("control_flow")


def why_not_whole(
    graph: ep.Graph,
    node: ep.Node,
    why_not: Callable[[ep.Graph, ep.Node], ep.Reason | None],
) -> ep.Reason | None:
    """Why the host is to run the bodies of *node*, ``None`` if nothing is in the way.

    Args:
        why_not: why a node of a body is not to be run here.
    """
    if node.op_type == "Scan" and node.since_version < _SCAN_WITHOUT_BATCH:
        return _host("a Scan of batches")
    for name in (*node.inputs, *node.outputs, *node.captures):
        if name is not None and not _is_of_numbers(graph.value(name)):
            return _host(f"{name!r} is no tensor of numbers")
    count = len(node.inputs)
    if node.op_type != "Scan":  # a Loop may leave out the two that its body has
        count = 0 if node.op_type == "If" else max(2, count)
    for body in node.subgraphs.values():
        if len(body.inputs) != count:  # others may have defaults
            return _host(f"a body takes {len(body.inputs)} inputs, and not {count}")
        for name in (*body.inputs, *body.outputs):
            if not _is_of_numbers(body.value(name)):
                return _host(f"{name!r} of a body is no tensor of numbers")
        for inner in body.nodes:
            reason = why_not(body, inner)
            if reason is not None:
                return _host(f"{describe(inner)} of a body: {reason.detail}")
    return None


def _host(why: str) -> ep.Reason:
    return ep.Reason(ep.RefusalCode.OP, f"the host runs the bodies: {why}")


def _is_of_numbers(value: ep.ValueInfo) -> bool:
    return value.dtype is not None and value.dtype is not ep.DataType.STRING


class ControlFlow:
    """A node of control flow as a function of its inputs, and what bodies capture.

    Bodies are compiled when they are first wanted.

    Args:
        partition: has the node.
        compile: makes what runs a body.

    Attributes:
        item_shapes: of what a body would give in a turn for these inputs, by name, as
            far as that follows.
        batches: does many turns of a Loop at a time, natively; ``None`` if nothing
            does.  What it gives is ``None`` for inputs with which it does not.
    """

    def __init__(
        self, partition: ep.Partition, node: ep.Node, compile: Compile
    ) -> None:
        self._node = node
        self._partition = partition
        self._partitions = partition.bodies(node)
        self._compile = compile
        self._bodies: dict[str, _Body] | None = None
        self._placement = Placement.on_host(node)
        self.item_shapes: Callable[[Sequence[Any]], Mapping[str, tuple[int, ...]]]
        self.item_shapes = lambda arrays: {}
        self.batches: (
            Callable[[Sequence[Any], ep.RunContext | None], Sequence[Any] | None] | None
        ) = None

    def compiled(self) -> Mapping[str, _Body]:
        """The bodies, by attribute."""
        if self._bodies is None:
            captures = self._node.captures
            self._bodies = {
                attribute: _Body.of(partition, captures, self._compile)
                for attribute, partition in self._partitions.items()
            }
        return self._bodies

    def report(self) -> dict[str, ep.PartitionReport]:
        """What is to be said of the bodies."""
        return {
            attribute: (body.compiled and body.compiled.report) or ep.PartitionReport()
            for attribute, body in self.compiled().items()
        }

    def close(self) -> None:
        """Give up what runs need."""
        for body in (self._bodies or {}).values():
            if body.compiled is not None:
                body.compiled.close()

    def __call__(
        self, *arrays: Any, context: ep.RunContext | None = None
    ) -> tuple[Any, ...]:
        """The outputs of the node."""
        if self.batches is not None:
            found = self.batches(arrays, context)
            if found is not None:
                return tuple(found)
        bodies = self._bodies or self.compiled()
        count = len(self._node.inputs)
        captured = arrays[count:]

        def run_body(attribute: str, arguments: Sequence[Any]) -> list[Any]:
            if context is not None and context.cancelled:
                raise ep.RunCancelled(
                    f"the run was cancelled in {describe(self._node)}"
                )
            values = [*arguments, *captured]
            profiler = None if context is None else context.profiler
            if profiler is None:
                return bodies[attribute].run(values, context)
            started = perf_counter_ns()
            results = bodies[attribute].run(values, context)
            profiler.record(
                f"{describe(self._node)}.{attribute}",
                category="Body",
                start_ns=started,
                duration_ns=perf_counter_ns() - started,
                details={},
            )
            return results

        results = run_bodies(
            self._node,
            arrays[:count],
            run_body,
            self._placement,
            _HostArrays(partial(self._item_shape, arrays)),
        )
        return tuple(results)

    def _item_shape(
        self, arrays: Sequence[Any], name: str, axis: int
    ) -> Sequence[int] | None:
        """The shape of what a body gives by that *name* in a turn, or would give."""
        found = self.item_shapes(arrays).get(name)
        if found is not None:
            return found
        node, value = self._node, self._partition.value
        names = node.subgraphs["body"].outputs
        lead = len(names) - len(node.outputs)
        output = node.outputs[names.index(name) - lead]
        type = None if output is None else value(output).type
        if not isinstance(type, ep.TensorType):
            return None
        taken = (*node.inputs, *node.captures)
        shape = type.shape_for(
            ep.named_sizes(
                (None if name is None else value(name).type for name in taken),
                (getattr(array, "shape", None) for array in arrays),
            )
        )
        if not shape:
            return None
        axis = axis % len(shape)
        return [size or 0 for at, size in enumerate(shape) if at != axis]


class _Body(Record):
    """A body that can run.

    Attributes:
        compiled: runs its nodes; ``None`` if it has none.
        takes: which of its inputs, and of what the bodies of its node capture behind
            them, the nodes read.
        gives: which of these, of *constants* behind them, and of what the nodes make
            behind these are the outputs.
        constants: outputs that never change.
        unbound: for each output of *compiled* no array.
    """

    compiled: ep.CompiledPartition | None
    takes: tuple[int, ...]
    gives: tuple[int, ...]
    constants: tuple[Any, ...]
    unbound: tuple[None, ...]

    @classmethod
    def of(
        cls, partition: ep.Partition, captures: Sequence[str], compile: Compile
    ) -> _Body:
        """The body that *partition* is, of a node with these *captures*."""
        graph = partition.graph
        # names of the body hide those around it
        places = {name: len(graph.inputs) + n for n, name in enumerate(captures)}
        places |= {name: n for n, name in enumerate(graph.inputs)}
        count = len(graph.inputs) + len(captures)
        constants: list[Any] = []
        made = set(partition.outputs)
        for name in graph.outputs:
            if name not in made and name not in places:
                places[name] = count + len(constants)
                constants.append(np.array(graph.constant(name)))
        results = {
            name: count + len(constants) + n for n, name in enumerate(partition.outputs)
        }
        places_of_all = places | results
        return cls(
            compile(partition) if partition.nodes else None,
            tuple(places[name] for name in partition.inputs),
            tuple(places_of_all[name] for name in graph.outputs),
            tuple(constants),
            (None,) * len(partition.outputs),
        )

    def run(self, values: list[Any], context: ep.RunContext | None) -> list[Any]:
        """The outputs for the inputs, and what is captured behind them."""
        compiled, takes, gives, constants, unbound = self
        values += constants
        if compiled is not None:
            arguments = [values[place] for place in takes]
            values += compiled.run(arguments, unbound, context)
        return [values[place] for place in gives]


class _HostArrays:
    """What there is to do with arrays, which are all on the host.

    Args:
        item_shape: of what a body would give in a turn, by name and the axis along
            which it is stacked; ``None`` if it is not known.
    """

    def __init__(self, item_shape: Callable[[str, int], Sequence[int] | None]) -> None:
        self._item_shape = item_shape

    def no_items(
        self, node: ep.Node, name: str, axis: int, at: ep.MemoryLocation
    ) -> Any:
        shape = self._item_shape(name, axis)
        dtype = node.subgraphs["body"].value(name).dtype
        if shape is None or dtype is None:
            return no_items(node, name, axis)
        return nothing_stacked(shape, dtype.numpy, axis)

    def stack(self, items: Sequence[Any], axis: int, at: ep.MemoryLocation) -> Any:
        raise AssertionError(f"{len(items)} items of a body are not on the host")

    def take(self, array: Any, axis: int, index: int, at: ep.MemoryLocation) -> Any:
        raise AssertionError("what a body takes is not on the host")

    def put(self, array: Any, at: ep.MemoryLocation) -> Any:
        raise AssertionError("what a body takes is not on the host")
