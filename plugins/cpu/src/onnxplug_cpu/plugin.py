"""The hooks by which onnxplug finds the CPU EP."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Sequence[ep.EpFactory]:
    """The CPU EP's factory."""
    from onnxplug_cpu.factory import CpuFactory

    return [CpuFactory()]
