"""Bound runs that are captured as a CUDA graph, and launched again."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep
from onnxplug_tensorrt.driver import CurrentContext
from onnxplug_tensorrt.engine import Execution


class TensorrtCapture(ep.GraphCapture):
    """Captures what TensorRT queues, and keeps what that computes in.

    Args:
        capture: of the streams, which another EP owns.
        current: makes the CUDA context the thread's.
    """

    def __init__(self, capture: ep.GraphCapture, current: CurrentContext) -> None:
        self._capture = capture
        self._current = current
        self._executions: dict[int, list[Execution]] = {}

    def begin(self, stream: ep.Stream) -> None:
        self._executions[id(stream)] = []
        self._capture.begin(stream)

    def keep(self, execution: Execution, stream: ep.Stream) -> None:
        """Have *execution*, whose work is captured on *stream*, stay as it is."""
        self._executions[id(stream)].append(execution)

    def end(self, stream: ep.Stream) -> ep.CapturedGraph:
        executions = self._executions.pop(id(stream))
        try:
            graph = self._capture.end(stream)
        except BaseException:
            release(executions, self._current)
            raise
        return _Graph(graph, executions, self._current)


class _Graph(ep.CapturedGraph):
    def __init__(
        self,
        graph: ep.CapturedGraph,
        executions: Sequence[Execution],
        current: CurrentContext,
    ) -> None:
        self._graph = graph
        self._executions = executions
        self._current = current

    def launch(self, stream: ep.Stream) -> None:
        self._graph.launch(stream)

    def close(self) -> None:
        self._graph.close()
        release(self._executions, self._current)


def release(executions: Sequence[Execution], current: CurrentContext) -> None:
    """Release execution contexts."""
    with current:
        for execution in executions:
            execution.close()
