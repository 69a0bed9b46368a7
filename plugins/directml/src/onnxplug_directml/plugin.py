"""The hooks by which onnxplug finds the DirectML EP."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Sequence[ep.EpFactory]:
    """The DirectML EP's factory."""
    from onnxplug_directml.factory import DmlFactory

    return [DmlFactory()]
