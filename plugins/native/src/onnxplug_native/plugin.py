"""What onnxplug calls to have a native library: :func:`load_library`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from onnxplug import ep

if TYPE_CHECKING:
    from onnxplug_native.library import NativeLibrary


class HostedLibrary:
    """A library with the hooks of plugins."""

    def __init__(self, handle: str, library: NativeLibrary) -> None:
        self._handle = handle
        self._library = library

    @ep.hookimpl
    def onnxplug_ep_factories(self) -> Sequence[ep.EpFactory]:
        """The EPs' factories, one for each of the library's."""
        from onnxplug_native.factory import make_factory

        made = [make_factory(self._library, each) for each in self._library.factories]
        names = [factory.name for factory in made]
        if len(set(names)) < len(names):
            raise ep.PluginLoadError(
                f"{self._library.name} made several factories of one name: "
                f"{', '.join(sorted(names))}",
                plugin=self._handle,
            )
        return made

    def close(self) -> None:
        """Unload the library, as soon as nothing of it is used."""
        self._library.close()


def load_library(
    handle: str, path: Path, *, devices: Sequence[ep.HardwareDevice] = ()
) -> HostedLibrary:
    """Load the library at *path*.

    Args:
        handle: what it is registered as, which the library is told.
        devices: what it is shown besides those of the machine.

    Raises:
        PluginError: it cannot be used; the subclass and the text say why.
    """
    import logging

    from onnxplug_native.library import NativeLibrary

    logger = logging.getLogger(f"onnxplug.plugin.{handle}")
    return HostedLibrary(handle, NativeLibrary(handle, path, logger, devices))
