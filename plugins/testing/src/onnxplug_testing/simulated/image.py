"""Compiled partitions of simulated devices as bytes: models, with a sign in front."""

from __future__ import annotations

from typing import Any, Final

from onnxplug import ep

_SIGN: Final = b"simulated\0"


def write_model(model: Any) -> bytes:
    """The image of a partition's ``onnx.ModelProto``."""
    return _SIGN + bytes(model.SerializeToString())


def read_model(data: memoryview) -> Any:
    """The ``onnx.ModelProto`` of an image.

    Raises:
        Declined: it is no image, or not a whole one.
    """
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    if bytes(data[: len(_SIGN)]) != _SIGN:
        raise ep.Declined(
            ep.Reason(ep.RefusalCode.OTHER, "it is no image of a simulated device")
        )
    try:
        return onnx.load_from_string(bytes(data[len(_SIGN) :]))
    except DecodeError as error:
        raise ep.Declined(
            ep.Reason(ep.RefusalCode.OTHER, f"the image is damaged: {error}")
        ) from error
