"""What is found out of a distribution that supplies a domain of operators: loaded."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from onnxplug.plugins import PluginState
from onnxplug.plugins.domains import Supplier


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainCheckup:
    """What is known of one distribution's operators of one domain.

    Attributes:
        state: a :class:`PluginState`, ``crashed`` or ``timed out``.
        load_ms: how long it took to load, in milliseconds; ``None`` if it was not.
        reason, remedy: why the state is what it is, and what to do; empty when ready.
        operators: the names of those that it supplies, sorted.
    """

    domain: str
    distribution: str
    version: str
    state: str
    load_ms: float | None = None
    reason: str = ""
    remedy: str = ""
    operators: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """What is wrong with it, in a few words; empty if it may be used."""
        usable = self.state in (PluginState.READY, PluginState.BLOCKED)
        return "" if usable else f"{self.domain} of {self.distribution}: {self.state}"

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> DomainCheckup:
        """The inverse of :meth:`to_json`."""
        return cls(**data | {"operators": tuple(data["operators"])})


def begin_domain(supplier: Supplier) -> DomainCheckup:
    """What is known before it is loaded."""
    why, _, remedy = supplier.reason.partition("; ")
    if supplier.state is not PluginState.BLOCKED:
        why = supplier.reason
        remedy = f"tell the makers of {supplier.name}" if why else ""
    return DomainCheckup(
        domain=supplier.domain,
        distribution=supplier.name,
        version=supplier.version,
        state=str(supplier.state),
        reason=why.removeprefix("it is blocked: "),
        remedy=remedy,
    )


def examine_domain(supplier: Supplier) -> DomainCheckup:
    """What is known once it is loaded, if nothing keeps it out."""
    is_new = supplier.state is PluginState.FOUND
    started = time.perf_counter()
    operators = tuple(sorted(supplier.operators()))
    elapsed = (time.perf_counter() - started) * 1e3
    known = begin_domain(supplier).to_json()
    return DomainCheckup(
        **known | {"operators": operators, "load_ms": elapsed if is_new else None}
    )


def conflicts(domains: Iterable[DomainCheckup]) -> Iterator[str]:
    """The operators that several distributions supply, so that none is used."""
    suppliers: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in domains:
        for op_type in each.operators:
            suppliers[each.domain, op_type].append(each.distribution)
    by_names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for (domain, op_type), names in suppliers.items():
        if len(names) > 1:
            by_names[domain, " and ".join(names)].append(op_type)
    for (domain, who), op_types in by_names.items():
        yield (
            f"{domain}: {who} both supply {', '.join(op_types)}, so "
            f"neither is used; keep one"
        )
