"""Bases of EPs that are a table from operator to function on numpy arrays."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter_ns
from typing import Any

from onnxplug.authoring.arrays import fill_bound
from onnxplug.authoring.liveness import last_uses
from onnxplug.authoring.memory_limit import WORTH_ASKING
from onnxplug.authoring.nodes import describe
from onnxplug.authoring.record import Record
from onnxplug.authoring.result_memory import (
    are_large,
    check_results,
    check_stretched,
    large_results,
)
from onnxplug.authoring.traces import type_shapes
from onnxplug.ep.capability import CapabilityReport, Reason
from onnxplug.ep.compiled import CompiledPartition, RunContext
from onnxplug.ep.graph import Graph, Node, Partition
from onnxplug.ep.provider import ExecutionProvider
from onnxplug.ep.types import DataType, TensorType, named_sizes
from onnxplug.errors import NodeError, OutOfMemory, RunCancelled


class HostFunction(CompiledPartition):
    """A partition that is one function of its inputs, on the host.

    *function* takes the partition's inputs by position and returns one array, or a
    sequence of them in the order of the partition's outputs.  If it has a parameter
    called *context*, it is given the run's :class:`RunContext`, or ``None``.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._takes_context = _takes(function, "context")

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Call the function, and fill bound outputs from its results."""
        results = (
            self._function(*inputs, context=context)
            if self._takes_context
            else self._function(*inputs)
        )
        if not isinstance(results, tuple | list):
            results = (results,)
        return fill_bound(results, outputs)


def _takes(function: Callable[..., Any], parameter: str) -> bool:
    from inspect import signature  # it takes a while to import, and few need it

    try:
        return parameter in signature(function).parameters
    except ValueError:  # a native function that does not say
        return False


class KernelExecutionProvider(ExecutionProvider):
    """An EP that runs each node by one function.

    Subclasses implement :meth:`find_kernel`; capability and compilation follow.
    """

    @abstractmethod
    def find_kernel(self, graph: Graph, node: Node) -> Callable[..., Any] | Reason:
        """A function of *node*'s inputs, or why there is none.

        The function takes arrays by position, ``None`` for inputs that are left out,
        after them what the node's bodies capture, in the order of ``Node.captures``,
        and returns the first output, or a tuple of outputs, each an array and no
        scalar.  It must not write to its inputs.  Called for capability and again for
        compilation; pure.

        If it has a parameter called *out* and makes a single output, it is given by
        that name the array which the caller of the session bound to the output, and
        else nothing.  The array has the shape that the graph states and, if it is
        numpy's, the element type, without gaps, aligned and in the order of C; it
        shares no memory with an input.  The function
        fills and returns it; where its result is of another shape or element type all
        the same, it leaves the array as it is and returns a new one.  Ufuncs of numpy's
        are called so, too.  What other functions return is copied there.
        """

    def get_capability(self, graph: Graph) -> CapabilityReport:
        """Take the nodes that have a kernel."""

        def check(node: Node) -> Reason | None:
            found = self.find_kernel(graph, node)
            if isinstance(found, Reason):
                return found
            if not callable(found):
                raise TypeError(
                    f"find_kernel gave {found!r} for {describe(node)}; expected a "
                    "function, or a Reason why there is none"
                )
            return None

        return CapabilityReport.per_node(graph, check)

    def compile(self, partition: Partition) -> CompiledPartition:
        """A list of kernel calls over numbered slots."""
        return KernelSequence(partition, self.find_kernel)


class _Call(Record):
    """One kernel call.

    Attributes:
        may_be_large: it gives arrays, of which the sizes are not known to be small.
        writes: its results are written, and not known to be small.
    """

    kernel: Callable[..., Any]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    frees: tuple[int, ...]
    node: Node
    may_be_large: bool
    writes: bool


class KernelSequence(CompiledPartition):
    """Kernel calls in order over slots: inputs first, then constants, then the rest.

    A slot is cleared after its last use, so that its array's memory is free again.
    """

    tier = ""
    """(optional) Which of the EP's tiers calls are of, for traces of runs."""

    def __init__(
        self,
        partition: Partition,
        find_kernel: Callable[[Graph, Node], Callable[..., Any] | Reason],
    ) -> None:
        slots: dict[str | None, int] = {None: 0}
        template: list[Any] = [None]
        for name in partition.inputs:
            slots[name] = len(template)
            template.append(None)
        self._first_input = 1
        self._input_end = len(template)
        calls: list[_Call] = []
        for node in partition.nodes:
            kernel = find_kernel(partition.graph, node)
            if isinstance(kernel, Reason):
                raise RuntimeError(
                    f"{describe(node)} was claimed, and now has no kernel: {kernel}"
                )
            taken = (*node.inputs, *node.captures)
            for value in (*taken, *node.outputs):
                if value not in slots:
                    slots[value] = len(template)
                    template.append(partition.constant(value) if value else None)
            calls.append(
                _Call(
                    kernel,
                    tuple(slots[name] for name in taken),
                    tuple(slots[name] for name in _wanted(node)),
                    (),
                    node,
                    *large_results(partition, node),
                )
            )
        self._outputs = tuple(slots[name] for name in partition.outputs)
        self._template = template
        kept = {number for number, value in enumerate(template) if value is not None}
        ends = last_uses(
            [(*call.inputs, *call.outputs) for call in calls],
            {0, *self._outputs} | kept,
        )
        self._calls = tuple(
            # slot 0 is what later nodes see as an input left out
            call._replace(frees=(0, *ended) if 0 in call.outputs else ended)
            for call, ended in zip(calls, ends, strict=True)
        )
        self._partition = partition
        self._single = self._find_single(calls)
        self._fillable: dict[int, bool] = {}
        # only once an array is large is there more to ask before each call
        self._may_be_large = any(call.writes for call in calls)
        self._is_large = are_large(template)
        self._stretches = any(
            call.may_be_large and call.node.op_type == "Expand" for call in calls
        )

    def _find_single(self, calls: Sequence[_Call]) -> Callable[..., Any] | None:
        # one node on the partition's inputs as they are: no slots are needed
        if len(calls) != 1 or self._outputs != calls[0].outputs[:1]:
            return None
        in_order = tuple(range(self._first_input, self._input_end))
        return calls[0].kernel if calls[0].inputs == in_order else None

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: RunContext | None,
    ) -> Sequence[Any]:
        """Call the kernels in order."""
        if self._single is not None and context is None:
            kernel = self._single
            if outputs[0] is not None:
                bound = self._bound_slots(inputs, outputs)
                kernel = self._filling(self._calls[0], inputs, bound)
            try:
                if self._may_be_large and are_large(inputs):
                    check_results(self._partition, self._calls[0].node, inputs)
                result = kernel(*inputs)
            except Exception as error:
                raise _node_error(self._calls[0].node, inputs, error) from error
            if isinstance(result, tuple):
                result = result[0]
            if outputs[0] is None:
                return (result,)
            return fill_bound((result,), outputs)
        slots = self._template.copy()
        slots[self._first_input : self._input_end] = inputs
        large = self._may_be_large and (self._is_large or are_large(inputs))
        bound = {}
        for array in outputs:
            if array is not None:
                bound = self._bound_slots(inputs, outputs)
                break
        for call in self._calls:
            kernel, takes, gives, frees, node, may_be_large, writes = call
            if context is not None and context.cancelled:
                raise RunCancelled(f"the run was cancelled before {describe(node)}")
            arguments = [slots[slot] for slot in takes]
            if bound:
                kernel = self._filling(call, arguments, bound)
            # any exception of a kernel is reported with the node it happened in
            try:
                if large and writes:
                    check_results(self._partition, node, arguments)
                if large and self._stretches:
                    check_stretched(node, arguments)
                results = (
                    kernel(*arguments)
                    if context is None
                    else self.call(node, kernel, arguments, context)
                )
            except (RunCancelled, OutOfMemory):
                raise
            except Exception as error:
                raise _node_error(node, arguments, error) from error
            if isinstance(results, tuple):
                if len(results) < len(gives):
                    raise _too_few(node, len(gives), len(results))
                for slot, result in zip(gives, results, strict=False):
                    slots[slot] = result
                large = large or (may_be_large and are_large(results))
            else:
                if len(gives) > 1:
                    raise _too_few(node, len(gives), 1)
                slots[gives[0]] = results
                if may_be_large and results.nbytes >= WORTH_ASKING:
                    large = True
            for slot in frees:
                slots[slot] = None
        return fill_bound([slots[slot] for slot in self._outputs], outputs)

    def _bound_slots(
        self, inputs: Sequence[Any], outputs: Sequence[Any | None]
    ) -> dict[int, Any]:
        """The bound arrays that kernels may fill, by the slots of their outputs.

        There are none if any bound array is not of the stated element type and shape,
        or has gaps, or the shape is not known: nothing is written until all are seen to
        fit.
        """
        names, value = self._partition.outputs, self._partition.value
        sizes = named_sizes(
            (value(name).type for name in self._partition.inputs),
            (getattr(array, "shape", None) for array in inputs),
        )
        slots: dict[int, Any] = {}
        for name, slot, bound in zip(names, self._outputs, outputs, strict=True):
            if bound is None:
                continue
            type_ = value(name).type
            shape = type_.shape_for(sizes) if isinstance(type_, TensorType) else None
            if shape != tuple(bound.shape) or not _is_usual(bound, value(name).dtype):
                return {}
            slots[slot] = bound
        return slots

    def _filling(
        self, call: _Call, arguments: Sequence[Any], bound: Mapping[int, Any]
    ) -> Callable[..., Any]:
        """The call's kernel, which fills what is bound to its output if it can."""
        array = bound.get(call.outputs[0]) if len(call.outputs) == 1 else None
        if array is None:
            return call.kernel
        takes = self._fillable.get(call.outputs[0])
        if takes is None:
            takes = _is_ufunc(call.kernel) or _takes(call.kernel, "out")
            self._fillable[call.outputs[0]] = takes
        if takes and (
            not _is_ufunc(call.kernel) or _gives(call.kernel, arguments, array)
        ):
            return partial(call.kernel, out=array)
        return call.kernel

    def call(
        self,
        node: Node,
        kernel: Callable[..., Any],
        arguments: Sequence[Any],
        context: RunContext,
    ) -> Any:
        """(optional) Call the kernel of *node* in a run that has a context.

        Subclasses whose kernels look at the context pass it on here.
        """
        profiler = context.profiler
        if profiler is None:
            return kernel(*arguments)
        started = perf_counter_ns()
        results = kernel(*arguments)
        taken = perf_counter_ns() - started
        profiler.record(
            node.name or describe(node),
            category="Node",
            start_ns=started,
            duration_ns=taken,
            details=self.details(node, arguments, results),
        )
        return results

    def details(
        self, node: Node, arguments: Sequence[Any], results: Any
    ) -> dict[str, object]:
        """(optional) What a trace has of a call; see :class:`Profiler`."""
        tier = {"tier": self.tier} if self.tier else {}
        return {
            "op_name": node.op_type,
            "node_index": node.index,
            **tier,
            "input_type_shape": type_shapes(arguments),
            "output_type_shape": type_shapes(
                results if isinstance(results, tuple) else (results,)
            ),
        }


def _is_usual(array: Any, dtype: DataType | None) -> bool:
    """Whether an array of numpy's is of *dtype*, without gaps, aligned and in the order
    of C; others are for kernels to judge."""
    import numpy as np

    return dtype is not None and (
        not isinstance(array, np.ndarray)
        or (array.dtype == dtype.numpy and array.flags.carray)
    )


def _is_ufunc(kernel: Callable[..., Any]) -> bool:
    import numpy as np

    return isinstance(kernel, np.ufunc)


def _gives(ufunc: Any, arguments: Sequence[Any], array: Any) -> bool:
    """Whether *ufunc* gives an array like *array*, to which it would else convert."""
    import numpy as np

    if (
        ufunc.signature is not None
        or len(arguments) != ufunc.nin
        or not all(isinstance(each, np.ndarray) for each in (array, *arguments))
    ):
        return False
    try:
        shape = np.broadcast_shapes(*[argument.shape for argument in arguments])
        *_, dtype = ufunc.resolve_dtypes((*[a.dtype for a in arguments], None))
    except (TypeError, ValueError):  # the call will say what is wrong
        return False
    return bool(shape == array.shape and dtype == array.dtype)


def _wanted(node: Node) -> tuple[str | None, ...]:
    """The outputs of *node* up to the last one that is used."""
    outputs = list(node.outputs)
    while len(outputs) > 1 and outputs[-1] is None:
        outputs.pop()
    return tuple(outputs)


def _too_few(node: Node, wanted: int, made: int) -> NodeError:
    return NodeError(
        f"{describe(node)} has {wanted} outputs, but its operator makes {made}",
        node=node.name or describe(node),
    )


def _node_error(
    node: Node, arguments: Sequence[Any], error: Exception
) -> NodeError | OutOfMemory:
    if isinstance(error, NodeError):
        return error
    found = ", ".join(_summary(argument) for argument in arguments) or "no inputs"
    if isinstance(error, MemoryError) or str(error).startswith(_TOO_LARGE):
        return OutOfMemory.of(
            error,
            f"{describe(node)}, on {found},",
            node=node.name or describe(node),
            nbytes=_bytes_asked(error),
        )
    return NodeError(
        f"{describe(node)} failed on {found}: {type(error).__name__}: {error}",
        node=node.name or describe(node),
    )


_TOO_LARGE = (
    "array is too big",
    "Maximum allowed dimension exceeded",
    "Maximum allowed size exceeded",
)
"""What numpy says in a ValueError of an array that no memory could hold."""


def _bytes_asked(error: Exception) -> int | None:
    """What numpy's own MemoryError was to be of."""
    shape, dtype = getattr(error, "shape", None), getattr(error, "dtype", None)
    if shape is None or dtype is None:
        return None
    return int(math.prod(shape) * dtype.itemsize)


def _summary(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        name = "string" if value.dtype == object else value.dtype
        return f"{name}{list(value.shape)}"
    return "nothing" if value is None else type(value).__name__
