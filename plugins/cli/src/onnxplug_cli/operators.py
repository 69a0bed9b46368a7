"""Every operator and its versions, and what runs each: EPs, or the host itself.

The operators are those of ONNX's schemas, those that EPs name, and those of domains
that the host knows or an installed distribution supplies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onnxplug import domains
from onnxplug.authoring.operators import having
from onnxplug.authoring.record import Record
from onnxplug.domains import HOST
from onnxplug.ep import DataType, EpFactory, OperatorSupport
from onnxplug.guard import blaming
from onnxplug.plugins.domains import SuppliedOperator


class Implementation(Record):
    """One implementation in which an operator is run.

    Attributes:
        runner: the EP's name, or who supplies what the host does instead, ``onnxplug``
            or another distribution.
        tier: the EP's tier, empty if it has only one; of the host ``kernel``: any EP
            that asks for kernels on arrays runs it, ``function``: it is
            replaced by the operators of its body, ``control flow``: its bodies are run,
            ``rewrite``: it is replaced before EPs see the model, or ``refused``.
        types: the element types by type variable; empty where nothing is said of them.
        reason: why the operator is refused.
        by_host: it is what the host does when no EP takes the node.
    """

    runner: str
    tier: str
    types: Mapping[str, tuple[DataType, ...]] = {}
    reason: str = ""
    by_host: bool = False


class Version(Record):
    """A version of an operator.

    Attributes:
        domain: empty for ONNX's own.
        since: the opset of the domain that brought it.
        until: the last opset that has it; ``None`` for the newest version.
        implementations: those of each EP, the preferred first, and last the host's,
            which is taken when no EP is; none if nothing runs it.
    """

    domain: str
    op_type: str
    since: int
    until: int | None
    implementations: tuple[Implementation, ...]


class Listing(Record):
    """What there is.

    Attributes:
        versions: sorted by domain, operator and version.
        silent: the EPs that do not say what they run.
    """

    versions: tuple[Version, ...]
    silent: tuple[str, ...]


def list_operators(factories: Iterable[EpFactory]) -> Listing:
    """Every version of every operator, with what *factories* implement it by.

    Raises:
        EpError: an EP failed when it was asked.
    """
    support = {factory.name: _ask(factory) for factory in factories}
    known = _known_versions()
    first: dict[tuple[str, str], set[int]] = {}
    supplied: defaultdict[tuple[str, str], list[SuppliedOperator]] = defaultdict(list)
    for domain, found in domains.listed():
        key = domain, found.operator.op_type
        first.setdefault(key, set()).add(found.operator.since)
        supplied[key].append(found)
    for each in (each for said in support.values() for each in said or ()):
        if (each.domain, each.op_type) not in known:
            first.setdefault((each.domain, each.op_type), set()).add(each.since)
    versions = []
    for domain, op_type in sorted({*known, *first}):
        schemas = known.get((domain, op_type), {})
        numbers = sorted({*schemas, *first.get((domain, op_type), ())})
        for number, later in zip(numbers, [*numbers[1:], None], strict=True):
            schema = schemas.get(number)
            if schema is not None and schema.deprecated:
                continue
            implementations = [
                Implementation(ep, each.tier, each.types)
                for ep, said in support.items()
                for each in said or ()
                if (each.domain, each.op_type) == (domain, op_type)
                and each.since <= number
                and (each.until is None or number <= each.until)
            ]
            own = None if schema is None else _of_host(schema)
            implementations += [] if own is None else [own]
            if schema is None or domain:  # what ONNX defines is not ONNX Runtime's
                implementations += _of_suppliers(supplied[domain, op_type], number)
            until = None if later is None else later - 1
            versions.append(
                Version(domain, op_type, number, until, tuple(implementations))
            )
    silent = tuple(ep for ep, said in support.items() if said is None)
    return Listing(tuple(versions), silent)


def _ask(factory: EpFactory) -> Sequence[OperatorSupport] | None:
    with blaming(factory.name, "operators"):
        said = factory.operators()
        return None if said is None else tuple(said)


def _known_versions() -> dict[tuple[str, str], dict[int, Any]]:
    """ONNX's schemas by domain and name, and then by version."""
    import onnx.defs

    found: defaultdict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for schema in onnx.defs.get_all_schemas_with_history():
        found[schema.domain, schema.name][schema.since_version] = schema
    return dict(found)


def _of_host(schema: Any) -> Implementation | None:
    """How the host itself does with an operator that ONNX defines."""
    if schema.domain == "" and schema.name in having("control_flow"):
        return Implementation(HOST, "control flow", by_host=True)
    if schema.has_function or schema.has_context_dependent_function:
        return Implementation(HOST, "function", by_host=True)
    return None


def _of_suppliers(
    offers: Sequence[SuppliedOperator], number: int
) -> Iterator[Implementation]:
    """What the host does with version *number* of an operator that is supplied."""
    newest: dict[str, SuppliedOperator] = {}
    for offer in sorted(offers, key=lambda offer: offer.operator.since):
        if offer.operator.since <= number:
            newest[offer.supplier] = offer
    for supplier, (operator, _) in newest.items():
        if operator.refused:
            yield Implementation(
                supplier, "refused", reason=operator.refused, by_host=True
            )
        if operator.rewrite is not None:
            yield Implementation(supplier, "rewrite", by_host=True)
        if operator.kernel is not None:
            yield Implementation(supplier, "kernel", by_host=True)
        if operator.function is not None:
            yield Implementation(supplier, "function", by_host=True)


def summary(versions: Iterable[Version]) -> Iterator[tuple[str, str, int]]:
    """How many operators, by their newest version, each runner runs in each tier.

    An operator is counted in the first tier of the first that runs it.
    """
    newest = {(each.domain, each.op_type): each for each in versions}
    counts: dict[tuple[str, str], int] = {}
    for version in newest.values():
        implementation = next(iter(version.implementations), Implementation("", ""))
        key = implementation.runner, implementation.tier
        counts[key] = counts.get(key, 0) + 1
    for (runner, tier), count in counts.items():
        yield runner, tier, count
