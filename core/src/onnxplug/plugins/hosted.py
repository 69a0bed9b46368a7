"""Native plugin EPs, by ONNX Runtime's C interface: who hosts them, and which are
installed.

The core does not call native libraries.  A distribution that does advertises, in the
group :data:`GROUP`, under the name of the function that such libraries export, what
loads one: a callable of the library's handle and path, and of ``devices`` if it is
shown any by hand, that returns a :class:`HostedLibrary`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from onnxplug.errors import PluginIncompatible
from onnxplug.plugins.library import import_path
from onnxplug.plugins.metadata import (
    FoundPlugin,
    find_advertised,
    installed_distributions,
)
from onnxplug.plugins.requires import check_requirements

if TYPE_CHECKING:
    from pathlib import Path

    from onnxplug.ep import HardwareDevice

GROUP: Final = "onnxplug.library_hosts"
"""The entry-point group of distributions that host native libraries."""

ORT_SYMBOL: Final = "CreateEpFactories"
"""What a plugin EP of ONNX Runtime exports."""

HOST: Final = "onnxplug-native"
"""The distribution of onnxplug's own that hosts these."""


class HostedLibrary(Protocol):
    """A native library that was loaded: an object with the hooks of plugins."""

    def onnxplug_ep_factories(self) -> Any:
        """The factories of the library's EPs."""

    def close(self) -> None:
        """Unload the library, as soon as nothing of it is used.  Idempotent."""


def has_host() -> bool:
    """Whether a distribution is installed that hosts native plugin EPs."""
    return bool(_hosts())


def host_library(
    handle: str, path: Path, devices: Sequence[HardwareDevice] = ()
) -> HostedLibrary:
    """Load the plugin EP of ONNX Runtime at *path*.

    Args:
        devices: what it is shown besides those of the machine.

    Raises:
        PluginIncompatible: no distribution is installed that hosts it, or it needs
            another onnxplug.
        PluginError: the library cannot be used.
    """
    for found in _hosts():
        check_requirements(found)
        load = cast("Callable[..., HostedLibrary]", import_path(found.module))
        # hosts of before know of none
        return load(handle, path, devices=devices) if devices else load(handle, path)
    raise PluginIncompatible(
        f"library {handle!r} ({path}) is a plugin EP of ONNX Runtime: it exports "
        f"{ORT_SYMBOL}.  {HOST} hosts those, and is not installed; pip install {HOST}",
        plugin=handle,
    )


def _hosts() -> list[FoundPlugin]:
    """What is advertised that hosts native plugin EPs of ONNX Runtime."""
    found = find_advertised(GROUP, installed_distributions())
    return [each for each in found if each.name == ORT_SYMBOL]
