"""The plugins of a process, or of a session that has a registry of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from onnxplug.ep import EpFactory, HardwareDevice
from onnxplug.plugins.contexts import DeviceContexts
from onnxplug.plugins.find import GROUP, find_plugins
from onnxplug.plugins.loader import PluginLoader
from onnxplug.plugins.manual import RegisteredLibraries
from onnxplug.plugins.metadata import FoundPlugin
from onnxplug.plugins.record import PluginRecord
from onnxplug.plugins.settings import Settings
from onnxplug.plugins.table import PluginTable

if TYPE_CHECKING:
    from onnxplug.attached import AttachedSessions
    from onnxplug.ep import HardwareDevice, Host, SelectionPolicy
    from onnxplug.plugins.domains import DomainRegistry
    from onnxplug.plugins.target import LibraryRecord


class PluginRegistry:
    """Plugins: found, loading, ready; or what kept them from it.

    Its methods may be called from any thread.

    Args:
        environment: where the settings are; ``None``: the process's variables.
        find: finds what is advertised in a group of entry points, EPs or domains.
        sessions: those that use its EPs; ``None``: none does yet.

    Attributes:
        table: its records.
        contexts: the device contexts that its EPs made.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None = None,
        find: Callable[[str], Sequence[FoundPlugin]] = find_plugins,
        sessions: AttachedSessions | None = None,
    ) -> None:
        self._find = find
        self.table = PluginTable(environment, functools.partial(find, GROUP), sessions)
        self._loader = PluginLoader(self.table)
        self.contexts = DeviceContexts(self.table, self.factory)
        self._libraries = RegisteredLibraries(self.table, self._loader, self.contexts)

    # finding

    @property
    def settings(self) -> Settings:
        """What the environment says, read when it is first needed.

        Raises:
            OptionError: a variable has a value that is not understood.
        """
        return self.table.settings

    def records(self) -> list[PluginRecord]:
        """One record per EP name, sorted; nothing is imported.

        Raises:
            OptionError: a variable has a value that is not understood.
        """
        return self.table.records()

    def refresh(self) -> None:
        """Read settings and metadata anew; what is loaded and not blocked now stays.

        For programs that install a plugin or change a variable while they run.
        """
        self.table.refresh()
        self.__dict__.pop("domains", None)

    @functools.cached_property
    def domains(self) -> DomainRegistry:
        """The domains whose operators installed distributions supply."""
        from onnxplug.plugins.domains import DomainRegistry

        return DomainRegistry(self.settings, self._find)

    def resolve(self, name: str) -> PluginRecord:
        """The record of an EP, by its name, the name without its suffix, or what
        follows ``onnxplug-`` in that of its distribution; case does not matter.

        Raises:
            PluginNotFound: there is none.
            PluginError: the name fits several.
        """
        return self.table.resolve(name)

    # loading

    def factory(self, name: str) -> EpFactory:
        """The factory of an EP, its plugin loaded if it is not yet.

        Raises:
            PluginError: it cannot be had; the subclass and the text say why.
        """
        return self._loader.factory(name)

    def automatic_factories(self) -> list[EpFactory]:
        """The factories of all EPs that may be used without being named, sorted.

        Their plugins are loaded, unless ``ONNXPLUG_AUTOLOAD=0``: then only those
        are returned that were named before.  What cannot be used is left out, and a
        plugin that turns out so just now is logged.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin cannot be used for
                another reason than a setting.
        """
        return self._loader.automatic_factories()

    def start_child(self) -> None:
        """In the child of a fork: what a thread that is gone was loading is not."""
        self._loader.start_child()

    # registering by hand

    def add(self, factory: EpFactory) -> PluginRecord:
        """Make *factory* known under its own name, without a handle.

        Raises:
            PluginConflict: the name is taken.
            PluginBlocked: ``ONNXPLUG_BLOCK`` has it.
        """
        return self._libraries.add(factory)

    def remove(self, name: str) -> None:
        """Forget an EP that :meth:`add` made known, whether it is in use or not."""
        with self.table.lock:
            self.table.forget([name])
        self.contexts.forget(name)

    def register_ep_library(
        self, name: str, target: object, *, devices: Sequence[HardwareDevice] = ()
    ) -> LibraryRecord:
        """Load a library and make its EPs known.

        Args:
            name: a handle to unregister it by; not the name of an EP.
            target: what the library is, by its form: an EP's factory, its class,
                or a module or object with hooks; a path to a Python file or an
                extension module (with a separator in it, or ending in ``.py``, ``.so``,
                ``.dll``, ``.dylib`` or ``.pyd``); ``package.module:attribute``; or else
                the name of an EP that is installed.
            devices: what a native plugin EP is shown besides the devices of the
                machine: for tests, for compiling ahead, and for what is not found.
                Whether it drives one that is not there is its own to find out.

        Returns:
            what is known of it; the same again if it is registered already.

        Raises:
            OptionError: devices are given to what is no file.
            PluginConflict: the handle, or the name of an EP, is taken.
            PluginBlocked: a setting keeps it out.
            PluginNotFound: there is no such file, or no such EP is installed.
            PluginError: it cannot be loaded.
        """
        return self._libraries.register(name, target, devices)

    def unregister_ep_library(self, name: str) -> None:
        """Forget a library that was registered by hand, and its EPs.

        An EP that is installed, and was registered under *name* besides, stays known.

        Raises:
            PluginNotFound: nothing is registered as *name*.
            LibraryInUse: sessions use its EPs.
        """
        self._libraries.unregister(name)

    def libraries(self) -> list[LibraryRecord]:
        """The libraries that were registered by hand, sorted by handle."""
        return list(self._libraries.by_handle().values())

    # use by sessions

    def attach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP, until :meth:`detach` or the session's end.

        Raises:
            PluginNotFound: no EP has exactly this name (any more).
        """
        self.table.attach(ep, session)

    def detach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP no more; not an error if it never did."""
        self.table.detach(ep, session)

    # what plugins supply besides EPs; few sessions ask

    def policies(self) -> dict[str, SelectionPolicy]:
        """Selection policies of loaded plugins, by name, sorted.

        A name that two plugins want is left out; :meth:`policy` says so.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin's hook failed.
        """
        from onnxplug.plugins.contributions import policies

        return policies(self.table)

    def policy(self, name: str) -> SelectionPolicy:
        """The selection policy *name* of a loaded plugin.

        Raises:
            PluginNotFound: none supplies it.
            PluginConflict: two do; neither is believed.
        """
        from onnxplug.plugins.contributions import policy

        return policy(self.table, name)

    def probe_hardware(self, host: Host | None = None) -> list[HardwareDevice]:
        """Devices that loaded plugins find and the host does not, without repeats.

        Args:
            host: what the hooks are given; ``None``: a host for each.

        Raises:
            ExceptionGroup: ``ONNXPLUG_STRICT=1``, and a plugin's hook failed.
        """
        from onnxplug.plugins.contributions import probe_hardware

        return probe_hardware(self.table, host)
