"""Facts and settings of the whole process, in ONNX Runtime's words."""

from __future__ import annotations

import operator
import platform

from onnxplug.ep import SPI_VERSION, random
from onnxplug.errors import InvalidArgument
from onnxplug.log import LEVELS, show_from


def set_default_logger_severity(severity: int) -> None:
    """Set the level of the logger ``onnxplug``: 0 verbose, 1 info … 4 fatal.

    Without a handler anywhere, what it logs goes to stderr from then on.

    Raises:
        InvalidArgument: *severity* is none of the five.
    """
    if severity not in range(len(LEVELS)):
        raise InvalidArgument(f"severity {severity!r} is not one of 0 to 4")
    show_from("onnxplug", severity)


def set_seed(seed: int) -> None:
    """Let what nodes without a seed draw follow from *seed*, in the whole process.

    The numbers are the same again when it is set again, and the same runs are done in
    the same order.

    Raises:
        InvalidArgument: *seed* is no whole number.
    """
    try:
        random.set_seed(operator.index(seed))
    except TypeError as error:
        raise InvalidArgument(f"seed {seed!r} is no whole number") from error


def get_version_string() -> str:
    """The version of onnxplug."""
    from onnxplug import __version__

    return __version__


def get_build_info() -> str:
    """What this is, in one line."""
    major, minor = SPI_VERSION
    return (
        f"onnxplug {get_version_string()}, EP interface {major}.{minor}, Python "
        f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )


def get_device() -> str:
    """The kinds of devices that installed EPs drive, best first: ``GPU-CPU``."""
    from onnxplug.queries import get_available_providers, get_ep_devices

    usable = get_available_providers()
    pairs = sorted(get_ep_devices(), key=lambda pair: usable.index(pair.ep_name))
    return "-".join(dict.fromkeys(str(pair.device.type).upper() for pair in pairs))
