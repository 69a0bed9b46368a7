"""A partition ready to run on a device of torch's."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from time import perf_counter_ns
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.ep import DataType
from onnxplug.ep.arrays import check_bound
from onnxplug_torch.arrays import to_numpy, to_tensor
from onnxplug_torch.dtypes import data_type
from onnxplug_torch.options import Settings
from onnxplug_torch.program import Program, Step


class TorchPartition(ep.CompiledPartition):
    """A program, and the border between it and the host's arrays.

    Args:
        torch: the module.
        device: where tensors are.
        location: the same for the host; ``HOST`` for torch's CPU.
    """

    def __init__(
        self,
        torch: Any,
        partition: ep.Partition,
        program: Program,
        settings: Settings,
        device: Any,
        location: ep.MemoryLocation,
    ) -> None:
        self._torch = torch
        self._program = program
        self._device = device
        self._settings = settings
        self._is_host = location == ep.HOST
        self._narrow = settings.narrow(torch)
        self.input_locations = [
            ep.HOST if form == "numbers" else location for form in program.input_forms
        ]
        self.output_locations = [
            ep.HOST if form == "numbers" else location for form in program.output_forms
        ]
        self._types = [partition.value(name).dtype for name in partition.outputs]
        self._names = tuple(partition.outputs)
        self._constants = (
            set()
            if self._is_host
            else {_memory(each) for each in program.template if _is_tensor(each)}
        )
        self._call = _Compiled(torch, program, settings) if settings.compile else None

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = None if context is None else context.stream
        with (
            self._torch.inference_mode(),
            (
                nullcontext() if stream is None else stream.used()  # type: ignore[attr-defined]
            ),
        ):
            arguments = [
                self._argument(value, form)
                for value, form in zip(inputs, self._program.input_forms, strict=True)
            ]
            if self._call is not None:
                results = self._call(arguments)
            else:
                results = _execute(self._program, arguments, context)
            del arguments
            made = [
                self._result(result, form, dtype)
                for result, form, dtype in zip(
                    results, self._program.output_forms, self._types, strict=True
                )
            ]
            if not self._is_host:
                made = self._unshared(made, inputs)
            return self._fill(made, outputs)

    def _argument(self, value: Any, form: str) -> Any:
        if form == "numbers":
            return value.tolist()
        tensor = to_tensor(self._torch, value) if self._is_host else value
        if self._narrow is not None and tensor.dtype == self._torch.float32:
            tensor = tensor.to(self._narrow)
        if self._settings.channels_last and tensor.ndim == 4:
            tensor = tensor.contiguous(memory_format=self._torch.channels_last)
        return tensor

    def _result(self, value: Any, form: str, dtype: DataType | None) -> Any:
        if form == "numbers":
            assert dtype is not None
            return np.asarray(value, dtype.numpy)
        if self._narrow is not None and dtype is DataType.FLOAT32:
            value = value.to(self._torch.float32)
        if not self._is_host:
            return value.contiguous()
        return to_numpy(value, data_type(value.dtype))

    def _unshared(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """*results* on the device, none of them in memory of anything else."""
        taken = self._constants | {_memory(each) for each in inputs if _is_tensor(each)}
        apart = []
        for result in results:
            if _is_tensor(result):
                if _memory(result) in taken and result.numel():
                    result = result.clone()
                taken.add(_memory(result))
            apart.append(result)
        return apart

    def _fill(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        if all(bound is None for bound in outputs):
            return results
        rows = list(zip(self._names, results, outputs, strict=True))
        for name, result, bound in rows:
            if bound is None:
                continue
            if isinstance(bound, np.ndarray):
                check_bound(f"output {name!r}", result, bound)
            elif result.shape != bound.shape or result.dtype != bound.dtype:
                raise ep.OutputMismatch(
                    f"output {name!r} is {data_type(result.dtype)}"
                    f"{list(result.shape)}, but the array bound to it is "
                    f"{data_type(bound.dtype)}{list(bound.shape)}; bind an array of "
                    "the same dtype and shape"
                )
        filled = []
        for _, result, bound in rows:
            if isinstance(bound, np.ndarray):
                np.copyto(bound, result)
            elif bound is not None:
                bound.copy_(result, non_blocking=True)
            filled.append(result if bound is None else bound)
        return filled


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _memory(tensor: Any) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address


def _execute(
    program: Program, arguments: Sequence[Any], context: ep.RunContext | None
) -> list[Any]:
    """Call the steps in order."""
    slots = list(program.template)
    for slot, argument in zip(program.inputs, arguments, strict=True):
        slots[slot] = argument
    profiler = None if context is None else context.profiler
    for step in program.steps:
        if context is not None and context.cancelled:
            raise ep.RunCancelled(
                f"the run was cancelled before {ep.describe(step.node)}"
            )
        given = [slots[slot] for slot in step.inputs]
        started = 0 if profiler is None else perf_counter_ns()
        # any exception is reported with the node that it happened in
        try:
            results = step.function(*given)
        except Exception as error:
            raise _located(step, given, error) from error
        if profiler is not None:
            _record(profiler, step, started)
        _store(slots, step, results)
    return [slots[slot] for slot in program.outputs]


def _store(slots: list[Any], step: Step, results: Any) -> None:
    if isinstance(results, tuple):
        if len(results) < len(step.outputs):
            raise ep.NodeError(
                f"{ep.describe(step.node)} has {len(step.outputs)} outputs, but its "
                f"operator makes {len(results)}",
                node=step.node.name or ep.describe(step.node),
            )
        for slot, result in zip(step.outputs, results, strict=False):
            slots[slot] = result
    else:
        slots[step.outputs[0]] = results
    for slot in step.frees:
        slots[slot] = None


def _record(profiler: ep.Profiler, step: Step, started: int) -> None:
    profiler.record(
        step.node.name or ep.describe(step.node),
        category="Node",
        start_ns=started,
        duration_ns=perf_counter_ns() - started,
        details={"op_name": step.node.op_type, "node_index": step.node.index},
    )


def _located(
    step: Step, given: Sequence[Any], error: Exception
) -> ep.NodeError | ep.OutOfMemory:
    found = ", ".join(map(_summary, given)) or "no inputs"
    what = f"{ep.describe(step.node)} on {found}"
    name = step.node.name or ep.describe(step.node)
    if isinstance(error, MemoryError) or any(each in str(error) for each in _NO_MEMORY):
        return ep.OutOfMemory.of(error, what, node=name)
    return ep.NodeError(
        f"{ep.describe(step.node)} failed on {found}: {type(error).__name__}: {error}",
        node=name,
    )


_NO_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")


def _summary(value: Any) -> str:
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{data_type(value.dtype)}{list(value.shape)}"
    return "nothing" if value is None else str(value)[:60]


class _Compiled:
    """A program by ``torch.compile``, as one function of tensors and numbers."""

    def __init__(self, torch: Any, program: Program, settings: Settings) -> None:
        self._lock = threading.Lock()
        steps, template = program.steps, program.template
        inputs, outputs = program.inputs, program.outputs

        def function(*arguments: Any) -> Any:
            slots = list(template)
            for slot, argument in zip(inputs, arguments, strict=True):
                slots[slot] = argument
            for step in steps:
                results = step.function(*[slots[slot] for slot in step.inputs])
                if isinstance(results, tuple):
                    for slot, result in zip(step.outputs, results, strict=False):
                        slots[slot] = result
                else:
                    slots[step.outputs[0]] = results
                for slot in step.frees:
                    slots[slot] = None
            return [slots[slot] for slot in outputs]

        self._function = torch.compile(
            function, dynamic=None, mode=settings.compile_mode or None
        )

    def __call__(self, arguments: Sequence[Any]) -> Any:
        with self._lock:  # torch compiles on the first call of each kind of shapes
            return self._function(*arguments)
