"""Bound runs that are captured as a CUDA graph, and launched again."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep
from onnxplug_tensorrt.engine import Execution
from onnxplug_tensorrt.library import Library


class TensorrtCapture(ep.GraphCapture):
    """Captures what TensorRT queues, and keeps what that computes in.

    Args:
        capture: of the streams, which another EP owns.
        library: TensorRT, which captured work is of.
    """

    def __init__(self, capture: ep.GraphCapture, library: Library) -> None:
        self._capture = capture
        self._library = library
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
            release(executions, self._library)
            raise
        return _Graph(graph, executions, self._library)


class _Graph(ep.CapturedGraph):
    def __init__(
        self,
        graph: ep.CapturedGraph,
        executions: Sequence[Execution],
        library: Library,
    ) -> None:
        self._graph = graph
        self._executions = executions
        self._library = library

    def launch(self, stream: ep.Stream) -> None:
        self._graph.launch(stream)

    def close(self) -> None:
        self._graph.close()
        release(self._executions, self._library)


def release(executions: Sequence[Execution], library: Library) -> None:
    """Release execution contexts."""
    with library.current:
        for execution in executions:
            execution.close()
