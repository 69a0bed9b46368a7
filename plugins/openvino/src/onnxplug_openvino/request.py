"""Infer requests, each used by one run at a time, with tensors set beforehand.

A small tensor of known shape is copied to or from one that stays set; a large one is
used where it lies.  Outputs belong to the host: every array handed out is forgotten
before the next run writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import fill_bound, usual_form
from onnxplug_openvino.engine import import_openvino
from onnxplug_openvino.lookups import check_indices
from onnxplug_openvino.model import to_tensor

openvino: Final = import_openvino()

_COPIED_UP_TO: Final = 32 * 1024
"""Bytes up to which copying a tensor costs less than setting another."""

_LEAST, _MOST = np.iinfo(np.int32).min, np.iinfo(np.int32).max

# the method below that of openvino.InferRequest, which takes 5 µs to look at its input
_infer: Final = openvino._pyopenvino.InferRequest.infer
_NO_INPUTS: Final[dict[int, Any]] = {}
_copy: Final = np.ndarray.copy


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a compiled model.

    Attributes:
        kind: OpenVINO's element type.
        dtype: numpy's.
        shape: ``None`` when it is known only at run time.
        copied: the tensor stays set, and arrays are copied to or from it.
    """

    kind: Any
    dtype: Any
    rank: int
    shape: tuple[int, ...] | None
    copied: bool


def make_port(port: Any, dtype: ep.DataType) -> Port:
    """The facts of a port of a compiled model."""
    partial = port.get_partial_shape()
    numpy_dtype = dtype.numpy
    rank = partial.rank.get_length() if partial.rank.is_static else 0
    if partial.is_dynamic:
        return Port(port.get_element_type(), numpy_dtype, rank, None, False)
    shape = tuple(partial.to_shape())
    size = int(np.prod(shape, dtype=np.int64)) * numpy_dtype.itemsize
    return Port(
        port.get_element_type(), numpy_dtype, rank, shape, size <= _COPIED_UP_TO
    )


def check_fits(array: Any, name: str) -> None:
    """Look whether an input of int64 has what OpenVINO can read of it.

    Raises:
        OverflowError: it has numbers of more than 32 bits.
    """
    if array.size and (array.min() < _LEAST or array.max() > _MOST):
        worst = array.max() if array.max() > _MOST else array.min()
        raise OverflowError(
            f"input {name!r} has {worst}, and OpenVINO computes int64 in 32 bits; feed "
            "smaller numbers, or leave the nodes that read it to another EP"
        )


class Request:
    """One infer request and its tensors.

    Args:
        narrowed: the names of inputs of int64 that are read as int32, by position.
        guarded: the operators that the last output tells of, if there are any.
    """

    def __init__(
        self,
        compiled: Any,
        inputs: Sequence[Port],
        outputs: Sequence[Port],
        narrowed: Mapping[int, str],
        guarded: Sequence[str],
    ) -> None:
        self._request = compiled.create_infer_request()
        self._narrowed = narrowed
        self._guarded = guarded
        self._inputs = inputs
        self._outputs = outputs
        # arrays that tensors lie on, held while they are set
        self._set_inputs: list[Any] = [None] * len(inputs)
        self._set_outputs: list[Any] = [None] * len(outputs)
        self._own_inputs: list[Any] = [None] * len(inputs)
        self._own_outputs: list[Any] = [None] * len(outputs)
        for position, port in enumerate(inputs):
            if port.copied:
                own = np.zeros(port.shape or (), port.dtype)
                self._own_inputs[position] = own
                tensor = to_tensor(own, port.kind)
                self._request.set_input_tensor(position, tensor)
        for position, port in enumerate(outputs):
            if port.copied:
                own = np.zeros(port.shape or (), port.dtype)
                self._own_outputs[position] = own
                self._set_own(position)
        self._is_small = all(port.copied for port in (*inputs, *outputs))
        self._was_bound = False

    def run(self, inputs: Sequence[Any], bound: Sequence[Any | None]) -> list[Any]:
        """The outputs, each a new array or the one bound for it.

        Raises:
            IndexError: an index is out of range.
            OverflowError: an input of int64 does not fit in 32 bits.
            OutputMismatch: a bound array cannot take its output.
        """
        for position, name in self._narrowed.items():
            check_fits(inputs[position], name)
        if self._guarded:
            *results, flags = self._results(inputs, [*bound, None])
            check_indices(flags, self._guarded)
            return results
        return self._results(inputs, bound)

    def _results(self, inputs: Sequence[Any], bound: Sequence[Any | None]) -> list[Any]:
        for array in bound:
            if array is not None:
                self._check(bound)
                self._was_bound = True
                return self._run(inputs, bound)
        if self._was_bound or not self._is_small:
            self._was_bound = False
            return self._run(inputs, bound)
        # models of one node come here: no step but copying and inferring
        for own, array in zip(self._own_inputs, inputs, strict=False):
            own[...] = array
        _infer(self._request, _NO_INPUTS, True, False)
        return list(map(_copy, self._own_outputs))

    def _check(self, bound: Sequence[Any | None]) -> None:
        for port, array in zip(self._outputs, bound, strict=True):
            if array is not None and (
                array.dtype != port.dtype
                or (port.shape is not None and array.shape != port.shape)
            ):
                shape = "[…]" if port.shape is None else list(port.shape)
                raise ep.OutputMismatch(
                    f"an output is {port.dtype}{shape}, and the array bound to it is "
                    f"{array.dtype}{list(array.shape)}; bind one like the output"
                )

    def _run(self, inputs: Sequence[Any], bound: Sequence[Any | None]) -> list[Any]:
        for position, array in enumerate(inputs):
            own = self._own_inputs[position]
            if own is not None:
                own[...] = array
            elif (
                array is not self._set_inputs[position]
                or self._inputs[position].shape is None
            ):
                self._set_input(position, array)
        results = [self._prepare(*item) for item in enumerate(bound)]
        _infer(self._request, _NO_INPUTS, True, False)
        for position, result in enumerate(results):
            if result is None:
                results[position] = self._take(position)
        return self._fill(results, bound)

    def _set_input(self, position: int, array: Any) -> None:
        array = usual_form(array, self._inputs[position].dtype)
        tensor = to_tensor(array, self._inputs[position].kind)
        self._request.set_input_tensor(position, tensor)
        self._set_inputs[position] = array

    def _prepare(self, position: int, bound: Any | None) -> Any | None:
        """Set the tensor of an output; its array, if that is known before running."""
        port = self._outputs[position]
        if port.shape is None:
            # OpenVINO allocates; the tensor of the last run belongs to the host
            empty = openvino.Tensor(port.kind, openvino.Shape([0] * port.rank))
            self._request.set_output_tensor(position, empty)
            return None
        if port.copied and bound is None:
            if self._set_outputs[position] is not None:
                self._set_own(position)
            return None
        if bound is not None and bound.flags.carray:
            array = bound
        else:
            array = np.empty(port.shape, port.dtype)
        if array is not self._set_outputs[position]:
            # of a bound array the dtype may be an equal one, which OpenVINO refuses
            tensor = to_tensor(array.view(port.dtype), port.kind)
            self._request.set_output_tensor(position, tensor)
            self._set_outputs[position] = array
        return array

    def _set_own(self, position: int) -> None:
        tensor = to_tensor(self._own_outputs[position], self._outputs[position].kind)
        self._request.set_output_tensor(position, tensor)
        self._set_outputs[position] = None

    def _take(self, position: int) -> Any:
        """The array of an output that is known only now."""
        if self._own_outputs[position] is not None:
            return self._own_outputs[position].copy()
        port = self._outputs[position]
        array = self._request.get_output_tensor(position).data
        return array if array.dtype == port.dtype else array.view(port.dtype)

    def _fill(self, results: list[Any], bound: Sequence[Any | None]) -> list[Any]:
        if any(
            b is not None and b is not r for r, b in zip(results, bound, strict=True)
        ):
            return list(fill_bound(results, bound))
        return results
