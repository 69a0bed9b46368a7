"""The domains of operators that installed distributions supply.

Invariant: a distribution's module is imported when a model first uses an operator of a
domain that it advertises, at most once; what went wrong is kept and reported again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.locks import new_lock, new_rlock
from onnxplug.authoring.record import Record
from onnxplug.errors import (
    OnnxplugError,
    OutOfMemory,
    PluginError,
    PluginIncompatible,
)
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.plugins.declared import check_domain
from onnxplug.plugins.library import Library
from onnxplug.plugins.metadata import FoundPlugin
from onnxplug.plugins.names import PREFIX, normal_distribution
from onnxplug.plugins.record import PluginState
from onnxplug.plugins.requires import check_requirements
from onnxplug.plugins.settings import AUTOLOAD, BLOCK, PLUGINS
from onnxplug.plugins.versions import check_spi_version

if TYPE_CHECKING:
    from onnxplug.ep import Domain, Operator
    from onnxplug.plugins.settings import Settings

GROUP: Final = "onnxplug.domains"
"""The entry-point group: the name is the domain's, the value a module with hooks."""

PUBLISHED: Final[Mapping[str, str]] = {
    "ai.onnx": "onnxplug-microsoft",
    "ai.onnx.preview.training": "onnxplug-training",
    "com.microsoft": "onnxplug-microsoft",
    "com.microsoft.nchwc": "onnxplug-microsoft",
}
"""The domains that a distribution of onnxplug's own supplies."""


class SuppliedOperator(Record):
    """An operator, and the distribution that supplies it."""

    operator: Operator
    supplier: str

    def ask(self, what: str, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call *function* of the operator's supplier.

        Raises:
            OutOfMemory: for a MemoryError.
            PluginError: for whatever else it raises that is no error of onnxplug.
        """
        who = f"{self.supplier}, in {what} of {self.operator.op_type},"
        try:
            return function(*arguments)
        except OnnxplugError as error:
            raise_interruption(error)
            raise
        except MemoryError as error:
            raise_interruption(error)
            raise OutOfMemory.of(error, who) from error
        except FAILURES as error:
            raise_interruption(error)
            raise PluginError(f"{who} failed: {type(error).__name__}: {error}") from (
                error
            )


class Supplier:
    """A distribution that advertises a domain.

    Attributes:
        domain: the domain's name.
        name, version: the distribution's.
        module: what is imported of it.
        state: ``found`` until it is loaded, and then ``ready``, ``incompatible`` or
            ``failed``; or ``blocked``.
        reason: why nothing of it is used; empty when it is, or was not loaded yet.
    """

    def __init__(self, plugin: FoundPlugin, settings: Settings) -> None:
        self.domain = plugin.name
        self.name = plugin.distribution
        self.version = plugin.version
        self.module = plugin.module
        self._plugin = plugin
        self._lock = new_rlock()
        self._operators: Mapping[str, Sequence[Operator]] | None = None
        self.reason = _why_kept_out(plugin, settings)
        self.state = PluginState.BLOCKED if self.reason else PluginState.FOUND

    def operators(self) -> Mapping[str, Sequence[Operator]]:
        """Its operators by name, the newest version first; none if it is not used."""
        with self._lock:
            if self._operators is None:
                self._operators = {} if self.reason else self._load()
            return self._operators

    def __str__(self) -> str:
        return f"domain {self.domain!r} of {self.name} {self.version}".rstrip()

    def _load(self) -> Mapping[str, Sequence[Operator]]:
        try:
            found = _by_name(_domain_of(self._plugin))
        except FAILURES as error:
            raise_interruption(error)
            import logging

            is_other = isinstance(error, PluginIncompatible)
            self.state = PluginState.INCOMPATIBLE if is_other else PluginState.FAILED
            self.reason = f"it could not be loaded: {type(error).__name__}: {error}"
            logging.getLogger("onnxplug.plugins").warning(
                "the domain %r of %s is not used: %s",
                self.domain,
                self.name,
                self.reason,
            )
            return {}
        self.state = PluginState.READY
        return found


def _why_kept_out(plugin: FoundPlugin, settings: Settings) -> str:
    """Which variable keeps a supplier from being loaded, and what to do; or nothing."""
    distribution = normal_distribution(plugin.distribution)
    suffix = distribution.removeprefix(PREFIX)
    names = {plugin.name.lower(), distribution, suffix}
    if settings.blocks(names):
        return f"it is blocked: {BLOCK} has it; take it out there to use it"
    listed = settings.listed
    is_listed = listed is not None and any(
        normal_distribution(name) in map(normal_distribution, names)
        and supplier in ("", distribution)
        for name, supplier in listed.items()
    )
    if listed is not None and not is_listed:
        return f"{PLUGINS} does not list it; add {suffix!r} there to use it"
    # a model is no program: that it names a domain loads nothing
    if not settings.autoload and not is_listed:
        return f"{AUTOLOAD} is 0; list {suffix!r} in {PLUGINS} to use it"
    return ""


class DomainRegistry:
    """Who supplies which domain.  Its methods may be called from any thread.

    Args:
        settings: what the environment says of plugins.
        find: finds what is advertised in a group of entry points.
    """

    def __init__(
        self, settings: Settings, find: Callable[[str], Sequence[FoundPlugin]]
    ) -> None:
        self._settings = settings
        self._find = find
        self._lock = new_lock()
        self._suppliers: dict[str, list[Supplier]] | None = None
        self._found: dict[tuple[str, str, int], SuppliedOperator | None] = {}

    def all_suppliers(self) -> list[Supplier]:
        """Those of all domains, sorted by domain."""
        table = self._table()
        return [supplier for domain in sorted(table) for supplier in table[domain]]

    def suppliers(self, domain: str) -> Sequence[Supplier]:
        """Those that advertise *domain*, in the order of their names."""
        return self._table().get(domain, ())

    def find(self, domain: str, op_type: str, version: int) -> SuppliedOperator | None:
        """The operator, as *version* of *domain* has it.

        Args:
            version: 0 for any.

        Returns:
            ``None`` if nobody supplies it, or two do; :meth:`why_not` says which.
        """
        key = domain, op_type, version
        if key not in self._found:
            offers = self._offers(*key)
            self._found[key] = offers[0] if len(offers) == 1 else None
        return self._found[key]

    def why_not(self, domain: str, op_type: str, version: int) -> str:
        """Why :meth:`find` finds nothing, and what to do about it."""
        suppliers = self.suppliers(domain)
        if not suppliers:
            said = f"no installed distribution supplies operators of {domain!r}"
            if domain in PUBLISHED:
                said += f"; install {PUBLISHED[domain]}"
            return said
        offers = self._offers(domain, op_type, version)
        if offers:
            names = " and ".join(offer.supplier for offer in offers)
            return f"{names} both supply {op_type}, so neither is used; keep one"
        return "; ".join(
            _lacks(supplier, domain, op_type, version) for supplier in suppliers
        )

    def listed(self) -> Iterator[tuple[str, SuppliedOperator]]:
        """Every domain's operators in all versions, the suppliers imported."""
        for supplier in self.all_suppliers():
            for versions in supplier.operators().values():
                for operator in versions:
                    yield supplier.domain, SuppliedOperator(operator, supplier.name)

    def _offers(
        self, domain: str, op_type: str, version: int
    ) -> list[SuppliedOperator]:
        return [
            SuppliedOperator(found, supplier.name)
            for supplier in self.suppliers(domain)
            if (found := _of_version(supplier.operators().get(op_type, ()), version))
        ]

    def _table(self) -> Mapping[str, Sequence[Supplier]]:
        table = self._suppliers
        if table is None:
            # two threads may both look; the first to be done is believed
            table = {}
            for plugin in self._find(GROUP):
                table.setdefault(plugin.name, []).append(
                    Supplier(plugin, self._settings)
                )
            with self._lock:
                if self._suppliers is None:
                    self._suppliers = table
                table = self._suppliers
        return table


def _of_version(versions: Sequence[Operator], version: int) -> Operator | None:
    return next((each for each in versions if not 0 < version < each.since), None)


def _lacks(supplier: Supplier, domain: str, op_type: str, version: int) -> str:
    """Why the operator is not to be had from *supplier*."""
    known = supplier.operators()
    if supplier.reason:
        return f"{supplier.name} supplies {domain!r}, and {supplier.reason}"
    if op_type in known:
        return (
            f"{supplier.name} supplies {op_type} from version "
            f"{known[op_type][-1].since} of {domain!r} on, and the model imports "
            f"{version}"
        )
    import difflib

    near = difflib.get_close_matches(op_type, known, 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"{supplier.name} supplies {domain!r} without an operator {op_type!r}{hint}"


def _by_name(domain: Domain) -> Mapping[str, Sequence[Operator]]:
    table: dict[str, list[Operator]] = {}
    for operator in sorted(domain.operators, key=lambda each: -each.since):
        table.setdefault(operator.op_type, []).append(operator)
    return table


def _domain_of(plugin: FoundPlugin) -> Domain:
    """The domain that the entry point *plugin* is named for.

    Raises:
        PluginIncompatible: it needs another onnxplug.
        Exception: whatever its module raises.
    """
    # before importing: what a newer onnxplug has would be an ImportError otherwise
    check_requirements(plugin)
    domains = Library.of_module(plugin.module).domains()
    if plugin.name not in domains:
        raise LookupError(
            f"{plugin.module} supplies {sorted(domains) or 'no domain'}, and not "
            f"{plugin.name!r}, which its entry point is named for"
        )
    domain = domains[plugin.name]
    check_spi_version(domain)
    check_domain(domain)
    return domain
