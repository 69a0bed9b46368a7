"""Whether compiled models can be used here, in ONNX Runtime's words."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any, Final

from onnxplug.ep import Compatibility, EpDevice
from onnxplug.errors import EmptyModel, InvalidArgument
from onnxplug.graph.load import read_metadata
from onnxplug.plugins import registry
from onnxplug.selection.available import find_factory
from onnxplug.selection.compatibility import check_compatibility

INFO: Final = "ep_compatibility_info."
"""What the keys of a model's metadata begin with under which EPs say what their
compiled partitions depend on."""


class OrtCompiledModelCompatibility(IntEnum):
    """Whether a compiled model can be used."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


_IN_WORDS: Final[Mapping[Compatibility, OrtCompiledModelCompatibility]] = {
    Compatibility.NOT_APPLICABLE: OrtCompiledModelCompatibility.EP_NOT_APPLICABLE,
    Compatibility.OPTIMAL: OrtCompiledModelCompatibility.EP_SUPPORTED_OPTIMAL,
    Compatibility.RECOMPILE: (
        OrtCompiledModelCompatibility.EP_SUPPORTED_PREFER_RECOMPILATION
    ),
    Compatibility.UNSUPPORTED: OrtCompiledModelCompatibility.EP_UNSUPPORTED,
}


def get_model_compatibility_for_ep_devices(
    ep_devices: Sequence[EpDevice], compatibility_info: str
) -> OrtCompiledModelCompatibility:
    """Whether what an EP compiled can be used on *ep_devices*, all of that EP.

    Of several devices the worst answer counts.  The EP's options are not looked at: a
    session refuses a model that was compiled with others.

    Args:
        compatibility_info: as :func:`get_compatibility_info_from_model` gives it.

    Raises:
        InvalidArgument: there is no device, or they are of several EPs.
        PluginError: the EP cannot be had.
        EpError: it failed to say.
    """
    names = {device.ep_name for device in ep_devices}
    if not names:
        raise InvalidArgument("Must provide one or more OrtEpDevice instances.")
    if len(names) > 1:
        raise InvalidArgument(
            "All OrtEpDevice values in ep_devices must have the same execution "
            f"provider; these have {', '.join(sorted(names))}"
        )
    factory = find_factory(names.pop(), registry)
    order = list(Compatibility)
    verdicts = [
        check_compatibility(factory, device, compatibility_info)[0]
        for device in ep_devices
    ]
    return _IN_WORDS[max(verdicts, key=order.index)]


def get_compatibility_info_from_model(
    model_path: str | os.PathLike[str], ep_type: str
) -> str | None:
    """What an EP says of what it compiled in a model; ``None`` if it did nothing there.

    Only the model's metadata are read.

    Args:
        ep_type: the EP's name.

    Raises:
        InvalidArgument: *ep_type* is empty.
        ModelError: there is no model, or it cannot be read.
    """
    return _info_for(ep_type, read_metadata(model_path))


def get_compatibility_info_from_model_bytes(
    model_data: Any, ep_type: str
) -> str | None:
    """As :func:`get_compatibility_info_from_model`, of a model in memory.

    Args:
        model_data: anything with a buffer, such as bytes.

    Raises:
        InvalidArgument: *ep_type*, or the model, is empty.
        ModelError: it is no model.
    """
    data = memoryview(model_data)
    if not data.nbytes:
        raise EmptyModel("model_data is empty; expected the bytes of an ONNX model")
    return _info_for(ep_type, read_metadata(data))


def _info_for(ep_type: str, metadata: Mapping[str, str]) -> str | None:
    if not ep_type:
        raise InvalidArgument("ep_type is empty; expected the name of an EP")
    return metadata.get(INFO + ep_type)
