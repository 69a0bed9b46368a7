"""The hooks by which onnxplug finds the torch EP."""

from __future__ import annotations

from collections.abc import Sequence

from onnxplug import ep


@ep.hookimpl
def onnxplug_ep_factories(host: ep.Host) -> Sequence[ep.EpFactory]:
    """The torch EP's factory."""
    from onnxplug_torch.factory import TorchFactory

    return [TorchFactory()]
