"""Partitions that TensorRT runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from onnxplug import ep
from onnxplug.authoring.arrays import usual_form
from onnxplug_tensorrt.arrays import UNSHARED, DeviceArrays
from onnxplug_tensorrt.capturing import TensorrtCapture
from onnxplug_tensorrt.engine import Engine, EngineSource, Execution, Port


class TensorrtPartition(ep.CompiledPartition):
    """An engine, and how a partition's values are bound to it.

    Runs may overlap: each has an execution context of its own.

    Args:
        source: gives the engine for a run, the same or one that takes more shapes, and
            is closed with this.
        partition: what it is of.
        context: the memory that values are in.
        capture: of bound runs, where options ask for it.

    Raises:
        Declined: the engine's inputs or outputs are not the partition's.
    """

    def __init__(
        self,
        source: EngineSource,
        partition: ep.Partition,
        context: ep.DeviceContext,
        *,
        capture: TensorrtCapture | None = None,
    ) -> None:
        self._source: EngineSource | None = source
        self._context = context
        self._arrays = DeviceArrays(context)
        self._capture = capture
        engine = source.open()
        try:
            self._inputs = [
                _checked(engine.inputs.get(name), partition.value(name), "input")
                for name in partition.inputs  # for some TensorRT has no use
            ]
            self._outputs = [
                _required(
                    _checked(engine.outputs.get(name), partition.value(name), "output")
                )
                for name in partition.outputs
            ]
            if capture is not None:
                _check_captures(engine, (*filter(None, self._inputs), *self._outputs))
        finally:
            engine.close()
        self.input_locations = self._places(self._inputs)
        self.output_locations = self._places(self._outputs)
        self._has_host_outputs = any(port.on_host for port in self._outputs)

    def _places(self, ports: Sequence[Port | None]) -> Sequence[ep.MemoryLocation]:
        home = self._context.location
        return [ep.HOST if port and port.on_host else home for port in ports]

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """The engine, as long as it is needed.

        Raises:
            RuntimeError: the partition was closed.
        """
        source = self._source
        if source is None:
            raise RuntimeError("the partition was closed")
        engine = source.open()
        try:
            yield engine
        finally:
            engine.close()

    @property
    def report(self) -> ep.PartitionReport:  # type: ignore[override]
        """How many execution contexts runs have needed at once."""
        if self._source is None:
            return ep.PartitionReport()
        with self.engine() as engine:
            return ep.PartitionReport(counts={"execution contexts": engine.contexts})

    def run(
        self,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        context: ep.RunContext | None,
    ) -> Sequence[Any]:
        """Queue the work; GIL released while TensorRT does that."""
        if context is not None and context.cancelled:
            raise ep.RunCancelled("the run was cancelled before TensorRT began")
        stream = None if context is None else context.stream
        if stream is not None:
            assert context is not None
            is_captured = context.capture is ep.CapturePhase.CAPTURE
            with self.engine() as engine:
                return self._queued(engine, inputs, outputs, stream, is_captured)
        own = self._context.create_stream()
        if own is None:
            raise RuntimeError(f"{self._context.location} has no streams")
        try:
            with self.engine() as engine:
                results = self._queued(engine, inputs, outputs, own, False)
                own.synchronize()
                return results
        finally:
            own.close()

    def _queued(
        self,
        engine: Engine,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        stream: ep.Stream,
        is_captured: bool,
    ) -> Sequence[Any]:
        self._check_shapes(engine, inputs)
        with engine.library.current:
            execution = engine.take(stream, self._arrays)
            try:
                results = self._run(execution, inputs, outputs, stream)
                if not is_captured:
                    execution.ended()
            except BaseException:
                execution.abandon()
                raise
            if is_captured:
                # what is launched again computes in the context's memory
                assert self._capture is not None
                self._capture.keep(execution, stream)
            else:
                engine.give_back(execution)
        if self._has_host_outputs:
            stream.synchronize()
        return results

    def _run(
        self,
        execution: Execution,
        inputs: Sequence[Any],
        outputs: Sequence[Any | None],
        stream: ep.Stream,
    ) -> list[Any]:
        for port, array in zip(self._inputs, inputs, strict=True):
            if port is not None:
                if port.on_host:
                    assert port.dtype is not None
                    array = usual_form(array, port.dtype.numpy)
                execution.set_input(port, array)
        results = [
            self._prepared(execution, port, bound, stream)
            for port, bound in zip(self._outputs, outputs, strict=True)
        ]
        execution.queue()
        for position, port in enumerate(self._outputs):
            if results[position] is None:
                results[position] = self._taken(
                    execution.grown_output(port), outputs[position], stream
                )
        return results

    def _check_shapes(self, engine: Engine, inputs: Sequence[Any]) -> None:
        for port, array in zip(self._inputs, inputs, strict=True):
            if port is None or port.on_host:
                continue
            known = engine.profile.get(port.name)
            if known is not None and not known.has(array.shape):
                raise ValueError(
                    f"input {port.name!r} is of shape {list(array.shape)}, and the "
                    f"engine was built for {known}; feed such, or widen options "
                    "'trt_profile_min_shapes' and 'trt_profile_max_shapes'"
                )

    def _prepared(
        self, execution: Execution, port: Port, bound: Any | None, stream: ep.Stream
    ) -> Any | None:
        """The array that an output is written to; ``None``: its shape is not known."""
        shape, dtype = execution.output_shape(port), port.dtype
        assert dtype is not None
        if -1 in shape:
            execution.grow_output(port)
            return None
        if bound is None:
            array = (
                np.empty(shape, dtype.numpy)
                if port.on_host
                else self._arrays.new(shape, dtype, stream)
            )
        elif port.on_host:
            array = bound
            if bound.shape != shape or bound.dtype != dtype.numpy:
                _mismatch(port, shape, bound)
        elif self._arrays.fits(bound, shape, dtype):
            array = bound
        else:
            _mismatch(port, shape, bound)
        execution.set_output(port, array)
        return array

    def _taken(self, array: Any, bound: Any | None, stream: ep.Stream) -> Any:
        """An output whose shape is known now, in what is bound for it."""
        if bound is None:
            return array
        if not self._arrays.fits(bound, array.shape, self._context.data_type(array)):
            raise ep.OutputMismatch(
                f"an output is of shape {list(array.shape)}, and the array bound to it "
                f"of {list(bound.shape)}; bind one like the output, or only its place"
            )
        self._context.transfer.copy([(array, bound)], stream)
        return bound

    def close(self) -> None:
        """Release the engine."""
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _checked(port: Port | None, value: ep.ValueInfo, side: str) -> Port | None:
    """The port, once it is seen to be that of *value*.

    Raises:
        Declined: it is another.
    """
    if port is None:
        return None
    if value.dtype is None or port.dtype is not value.dtype:
        _decline(f"TensorRT's {side} {value.name!r} is {port.dtype}, not {value.dtype}")
    if port.shared_with:
        _decline(
            f"TensorRT writes output {value.name!r} over input {port.shared_with!r}, "
            "which the model may still read"
        )
    if port.dtype in UNSHARED:
        _decline(f"{side} {value.name!r} is {port.dtype}, of which no array is shared")
    shape = value.shape
    if shape is not None and (
        len(shape) != len(port.shape)
        or any(
            isinstance(size, int) and found not in (-1, size)
            for size, found in zip(shape, port.shape, strict=True)
        )
    ):
        _decline(
            f"TensorRT's {side} {value.name!r} is of shape {list(port.shape)}, not "
            f"{list(map(str, shape))}"
        )
    return port


def _required(port: Port | None) -> Port:
    if port is None:
        _decline("TensorRT's engine lacks an output of the partition")
    return port


def _check_captures(engine: Engine, ports: Sequence[Port]) -> None:
    """See whether runs wait for nothing.

    Raises:
        Declined: they do.
    """
    has_open_inputs = any(-1 in port.shape for port in engine.inputs.values())
    for port in ports:
        if port.on_host:
            why = f"TensorRT has {port.name!r} on the host"
        elif -1 in port.shape and not has_open_inputs:
            why = f"sizes of {port.name!r} depend on elements"
        else:
            continue
        _decline(
            f"{why}, which a run that is captured cannot wait for; turn "
            "trt_cuda_graph_enable off"
        )


def _decline(detail: str) -> NoReturn:
    raise ep.Declined(ep.Reason(ep.RefusalCode.OTHER, detail))


def _mismatch(port: Port, shape: Sequence[int], bound: Any) -> NoReturn:
    raise ep.OutputMismatch(
        f"output {port.name!r} is {port.dtype}{list(shape)}, and the array bound to it "
        f"is of shape {list(bound.shape)} or another type; bind one like the output"
    )
