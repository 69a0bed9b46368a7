"""A partition ready to run on a device of torch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import check_bound
from onnxplug.ep import DataType
from onnxplug_torch.border import Border
from onnxplug_torch.compilation import CompiledProgram
from onnxplug_torch.dtypes import data_type
from onnxplug_torch.execution import execute
from onnxplug_torch.options import Settings
from onnxplug_torch.program import Program


class TorchPartition(ep.CompiledPartition):
    """A program, and what it takes from the host and leaves there.

    Args:
        torch: the module.
        border: of the memory where its tensors are.
    """

    def __init__(
        self,
        torch: Any,
        partition: ep.Partition,
        program: Program,
        settings: Settings,
        border: Border,
    ) -> None:
        self._torch = torch
        self._program = program
        self._border = border
        self._settings = settings
        self._narrow = settings.narrow(torch)
        self.input_locations = [
            ep.HOST if form == "numbers" else border.location
            for form in program.input_forms
        ]
        self.output_locations = [
            ep.HOST if form == "numbers" else border.location
            for form in program.output_forms
        ]
        self._types = [partition.value(name).dtype for name in partition.outputs]
        self._names = tuple(partition.outputs)
        self._constants = {
            _memory(each) for each in program.template if _is_tensor(each)
        }
        self._compiled = (
            CompiledProgram(torch, program, settings.compile_mode)
            if settings.compile
            else None
        )

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        stream = None if context is None else context.stream
        with self._torch.inference_mode(), self._border.queued(stream):
            given = [
                value if form == "numbers" else self._border.tensor(value)
                for value, form in zip(inputs, self._program.input_forms, strict=True)
            ]
            arguments = [
                self._argument(value, form)
                for value, form in zip(given, self._program.input_forms, strict=True)
            ]
            if self._compiled is not None:
                results = self._compiled(arguments, context)
            else:
                results = execute(self._program, arguments, context)
            del arguments
            made = [
                self._result(result, form, dtype)
                for result, form, dtype in zip(
                    results, self._program.output_forms, self._types, strict=True
                )
            ]
            return self._fill(self._unshared(made, given), outputs)

    def _argument(self, tensor: Any, form: str) -> Any:
        if form == "numbers":
            return tensor.tolist()
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
        return value if self._border.is_host else value.contiguous()

    def _unshared(self, results: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """*results*, none of them in memory of constants, which are for all runs; on a
        device of nothing else either."""
        taken = self._constants.copy()
        if not self._border.is_host:
            taken |= {_memory(each) for each in inputs if _is_tensor(each)}
        unshared = []
        for result in results:
            if _is_tensor(result):
                if _memory(result) in taken and result.numel():
                    result = result.clone()
                if not self._border.is_host:
                    taken.add(_memory(result))
            unshared.append(result)
        return unshared

    def _fill(
        self, results: Sequence[Any], outputs: Sequence[Any | None]
    ) -> Sequence[Any]:
        if all(bound is None for bound in outputs):
            return [self._array(result) for result in results]
        rows = list(zip(results, map(self._room, outputs), strict=True))
        for name, (result, room) in zip(self._names, rows, strict=True):
            if isinstance(room, np.ndarray):
                check_bound(f"output {name!r}", self._array(result), room)
            elif room is not None and (
                result.shape != room.shape or result.dtype != room.dtype
            ):
                raise ep.OutputMismatch(
                    f"output {name!r} is {data_type(result.dtype)}"
                    f"{list(result.shape)}, but the array bound to it is "
                    f"{data_type(room.dtype)}{list(room.shape)}; bind an array of "
                    "the same dtype and shape"
                )
        for result, room in rows:
            if isinstance(room, np.ndarray):
                np.copyto(room, self._array(result))
            elif room is not None:
                room.copy_(result, non_blocking=True)
        return [
            self._array(result) if bound is None else bound
            for result, bound in zip(results, outputs, strict=True)
        ]

    def _array(self, result: Any) -> Any:
        return self._border.array(result) if _is_tensor(result) else result

    def _room(self, bound: Any) -> Any:
        """What is filled in the place of what is *bound*: a tensor on a device."""
        if bound is None or isinstance(bound, np.ndarray):
            return bound
        return self._border.tensor(bound)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _memory(tensor: Any) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address
