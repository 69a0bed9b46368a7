"""The memories of adapters, and the libraries that all of a process share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_rlock
from onnxplug_directml.installation import Installation, find_directml, problem

if TYPE_CHECKING:
    from onnxplug_directml.com.libraries import Libraries
    from onnxplug_directml.device.adapters import Adapter
    from onnxplug_directml.device.context import DmlContext

SPACE: Final = "dml"
"""The name of the memories."""


class DmlSpaces(ep.MemorySpaces):
    """The memories of adapters: in DXGI's order, then those that only DXCore knows."""

    owned = frozenset({SPACE})

    def __init__(self) -> None:
        self._lock = new_rlock()
        self._installation: Installation | None = None
        self._libraries: Libraries | None = None

    def libraries(self, dll_path: str = "") -> Libraries:
        """Windows' libraries, with the DirectML.dll that was used first.

        Args:
            dll_path: the option's value; empty: whichever it is.

        Raises:
            OptionError: *dll_path* names another one, or none.
            RuntimeError: there is none.
        """
        reason = problem()
        if reason:
            raise RuntimeError(reason)
        from onnxplug_directml.com.libraries import Libraries

        with self._lock:
            found, used = self._libraries, self._installation
            if found is not None and not dll_path:
                return found
            wanted = find_directml(dll_path)
            if found is None or used is None or wanted.path != used.path:
                if found is not None and found.uses_directml:
                    raise ep.OptionError(
                        f"option 'dll_path' is {dll_path!r}, and this process uses "
                        f"{used} already, which stays as long as it runs; give the "
                        "option to the first session, or the same to all"
                    )
                found = self._libraries = Libraries(str(wanted.path))
                self._installation = wanted
            return found

    def adapters(self, dll_path: str = "") -> list[Adapter]:
        """All there are now.

        Raises:
            OptionError, RuntimeError: as of :meth:`libraries`.
        """
        from onnxplug_directml.device.adapters import find_adapters

        return find_adapters(self.libraries(dll_path))

    def create_context(self, location: ep.MemoryLocation) -> DmlContext:
        """The memory of an adapter, and its queue.

        Raises:
            LookupError: there is no such adapter.
            RuntimeError: DirectML is missing, or the driver gives no device.
        """
        from onnxplug_directml.device.context import DmlContext
        from onnxplug_directml.device.device import DmlDevice
        from onnxplug_directml.device.queue import release_hung

        libraries, adapters = self.libraries(), self.adapters()
        if location.ordinal >= len(adapters):
            found = ", ".join(map(str, adapters)) or "none"
            raise LookupError(
                f"there is no adapter {location.ordinal}; Windows has {found}"
            )
        adapter = adapters[location.ordinal]
        release_hung()
        return DmlContext(location, lambda: DmlDevice(libraries, adapter))
