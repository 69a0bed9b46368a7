"""Runs whose launches are recorded, one by one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from onnxplug import ep
from onnxplug_webgpu.device import Launches
from onnxplug_webgpu.readback import wait_until_done

if TYPE_CHECKING:
    from onnxplug_webgpu.device import Device
    from onnxplug_webgpu.linking import Linked
    from onnxplug_webgpu.streams import WebGpuStream


def run_recorded(
    linked: Linked,
    work: Launches,
    device: Device,
    stream: WebGpuStream,
    profiler: ep.Profiler,
) -> None:
    """Queue each launch of *work* when the one before is done, and record its time.

    That is what the host waits, the way to the device and back included, which a run
    that is not recorded has once for all.
    """
    wait_until_done(device, device.submitted)
    cleared = work.cleared
    for step, launch in zip(linked.steps, work.steps, strict=True):
        started = time.perf_counter_ns()
        stream.queue(Launches((launch,), cleared, work.memories))
        wait_until_done(device, device.submitted)
        cleared = None
        profiler.record(
            step.label,
            category="Node",
            start_ns=started,
            duration_ns=time.perf_counter_ns() - started,
            details={
                "op_name": step.label,
                "tier": "compiled",
                "kernel": step.label,
                "workgroups": step.x * step.y,
                "flops": step.flops,
                "bytes": step.nbytes,
            },
        )
