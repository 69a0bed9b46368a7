"""The hooks by which onnxplug finds the CoreML EP."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Sequence[ep.EpFactory]:
    """The CoreML EP's factory."""
    from onnxplug_coreml.factory import CoreMLFactory

    return [CoreMLFactory()]
