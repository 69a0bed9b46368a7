"""Runs whose steps are recorded, one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnxplug import ep
from onnxplug_compiler.gpu.execution.device import DeviceStream, Launches
from onnxplug_compiler.gpu.execution.linking import AnyStep, CallStep


def run_recorded(
    steps: Sequence[AnyStep],
    work: Launches,
    stream: DeviceStream,
    profiler: ep.Profiler,
) -> None:
    """Queue *work*, which are these steps, and record the time of each; see
    :meth:`~.device.DeviceStream.timed`."""
    times = stream.timed(work)
    for step, (started, took) in zip(steps, times, strict=True):
        profiler.record(
            step.label,
            category="Node",
            start_ns=started,
            duration_ns=took,
            details=_details(step),
        )


def _details(step: AnyStep) -> dict[str, Any]:
    kind: dict[str, Any] = {"tier": "library"}
    if not isinstance(step, CallStep):
        kind = {"tier": "compiled", "workgroups": step.x * step.y}
    return {
        "op_name": step.label,
        "kernel": step.label,
        "flops": step.flops,
        "bytes": step.nbytes,
        **kind,
    }
