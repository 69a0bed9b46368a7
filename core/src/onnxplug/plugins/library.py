"""What is loaded as one: a module or object, with hooks that supply one or more EPs.

Invariant: each library has a plugin manager of its own, for one hook that raises
would end a call to those of all others.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.locks import new_rlock
from onnxplug.ep import SPI_VERSION, EpFactory, HardwareDevice, Host
from onnxplug.errors import PluginLoadError
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.declared import check_declared
from onnxplug.plugins.versions import check_removed, check_spi_version

if TYPE_CHECKING:
    import logging

    import pluggy

    from onnxplug.ep import Domain, SelectionPolicy


class Library:
    """A source of EPs.

    Attributes:
        source: where it comes from, in words.
        lock: held while it is loaded.
        problems: what went wrong in optional hooks, by hook.
    """

    def __init__(
        self,
        source: str,
        find: Callable[[], object],
        discard: Callable[[], None] | None = None,
        *,
        logger: str = "",
    ) -> None:
        """*find* gives the module or object; *discard* undoes what it did.

        Its logger is called *logger*, or *source* if that is not given.
        """
        self.source = source
        self.lock = new_rlock()
        self.problems: dict[str, str] = {}
        self.discard = discard or (lambda: None)
        self._find = find
        self._logger = logger or source
        self._manager: pluggy.PluginManager | None = None
        self._policies: Mapping[str, SelectionPolicy] | None = None

    @classmethod
    def of_module(cls, path: str) -> Library:
        """The library that an entry point leads to."""
        return cls(path, lambda: import_path(path))

    def load(self) -> dict[str, EpFactory]:
        """Import it and ask for its factories, by name; called once.

        Raises:
            Exception: whatever the library raises.
        """
        target = self._find()
        if isinstance(target, type) and issubclass(target, EpFactory):
            target = target()
        if isinstance(target, EpFactory):
            return {target.name: target}
        manager = self._hooks_of(target, "EP: it is no EpFactory, and")
        made = manager.hook.onnxplug_ep_factories(host=PluginHost(self._logger))
        factories = _by_name(self.source, list(made or ()))
        self._manager = manager
        return factories

    def domains(self) -> dict[str, Domain]:
        """Import it and ask for its domains, by name; called once.

        Raises:
            Exception: whatever the library raises.
        """
        from onnxplug.ep import Domain

        target = self._find()
        if isinstance(target, Domain):
            return {target.name: target}
        manager = self._hooks_of(target, "domain: it is no Domain, and")
        made = manager.hook.onnxplug_domains(host=PluginHost(self._logger))
        domains: dict[str, Domain] = {}
        for domain in made or ():
            if not isinstance(domain, Domain):
                raise TypeError(
                    f"onnxplug_domains of {self.source} returned {domain!r}; expected "
                    "instances of onnxplug.ep.Domain"
                )
            if domain.name in domains:
                raise ValueError(
                    f"{self.source} supplies two domains named {domain.name!r}"
                )
            domains[domain.name] = domain
        return domains

    def _hooks_of(self, target: object, lacking: str) -> pluggy.PluginManager:
        # most plugins have no hooks, and pluggy takes long to import
        import pluggy

        from onnxplug.plugins import hookspecs

        manager = pluggy.PluginManager("onnxplug")
        manager.add_hookspecs(hookspecs)
        manager.register(target)
        if not manager.get_hookcallers(target):
            raise TypeError(
                f"{self.source} supplies no {lacking} nothing in it is marked with "
                "onnxplug.ep.hookimpl"
            )
        manager.check_pending()
        return manager

    def policies(self) -> Mapping[str, SelectionPolicy]:
        """Its selection policies; the hook is called once.

        Raises:
            PluginLoadError: the hook raised, or returned something else.
        """
        with self.lock:
            if self._policies is None:
                self._policies = self._ask("onnxplug_selection_policies", _policies)
            return self._policies

    def probe_hardware(self, host: Host | None = None) -> Sequence[HardwareDevice]:
        """Devices that only it can find.

        Raises:
            PluginLoadError: the hook raised, or returned something else.
        """
        host = host or PluginHost(self._logger)
        devices: Sequence[HardwareDevice]
        devices = self._ask("onnxplug_probe_hardware", _devices, host=host)
        return devices

    def _ask(self, hook: str, read: Callable[[Any], Any], **arguments: Any) -> Any:
        if self._manager is None:
            return read(None)
        try:
            return read(getattr(self._manager.hook, hook)(**arguments))
        except FAILURES as error:
            raise_interruption(error)
            text = f"{hook} of {self.source} failed: {type(error).__name__}: {error}"
            self.problems[hook] = text
            raise PluginLoadError(text, plugin=self.source) from error


class PluginHost:
    """See :class:`onnxplug.ep.Host`."""

    spi_version = SPI_VERSION

    def __init__(self, plugin: str) -> None:
        self._plugin = plugin

    @property
    def version(self) -> str:
        """The version of onnxplug."""
        from onnxplug import __version__

        return __version__

    @property
    def logger(self) -> logging.Logger:
        """The plugin's own."""
        import logging

        return logging.getLogger(f"onnxplug.plugin.{self._plugin}")


def import_path(path: str) -> object:
    """The module ``package.module``, or what ``package.module:attribute.path`` names.

    Raises:
        AttributeError: the module has no such attribute.
        Exception: whatever the module raises.
    """
    module, _, attributes = path.partition(":")
    found: object = importlib.import_module(module)
    reached = module
    for attribute in attributes.split(".") if attributes else ():
        if not hasattr(found, attribute):
            raise AttributeError(f"{reached} has no attribute {attribute!r}")
        found = getattr(found, attribute)
        reached = f"{reached}{'.' if ':' in reached else ':'}{attribute}"
    return found


def check_factory(factory: EpFactory) -> None:
    """Accept a factory written for this major version and a minor one not newer, that
    declares what it has to, and relies on nothing that is gone.

    Raises:
        PluginIncompatible: it is of another version, or defines what was removed since.
        TypeError, ValueError: it declares something that is not what it should be.
    """
    check_spi_version(factory)
    check_removed(factory)
    check_declared(factory)


def _by_name(source: str, made: Sequence[object]) -> dict[str, EpFactory]:
    factories: dict[str, EpFactory] = {}
    for factory in made:
        if not isinstance(factory, EpFactory):
            raise TypeError(
                f"onnxplug_ep_factories of {source} returned {factory!r}; expected "
                "instances of onnxplug.ep.EpFactory"
            )
        if factory.name in factories:
            raise ValueError(f"{source} supplies two EPs named {factory.name!r}")
        factories[factory.name] = factory
    return factories


def _policies(returned: Any) -> Mapping[str, SelectionPolicy]:
    policies = {} if returned is None else returned
    if not isinstance(policies, Mapping):
        raise TypeError(f"{policies!r} is no mapping of names to policies")
    for name, policy in policies.items():
        if not isinstance(name, str) or not callable(policy):
            raise TypeError(f"{name!r}: {policy!r} is no name and policy")
    return policies


def _devices(returned: Any) -> Sequence[HardwareDevice]:
    devices = list(returned or ())
    for device in devices:
        if not isinstance(device, HardwareDevice):
            raise TypeError(f"{device!r} is no HardwareDevice")
    return devices
