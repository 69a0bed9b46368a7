"""The hooks by which onnxplug finds the OpenVINO EP."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Sequence[ep.EpFactory]:
    """The OpenVINO EP's factory."""
    from onnxplug_openvino.factory import OpenVINOFactory

    return [OpenVINOFactory()]
