"""``onnxplug ops``: every operator, its versions and types, and what runs it."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug_cli.failure import UsageError
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.text import plural, print_json, print_table, say
from onnxplug_cli.values import names

if TYPE_CHECKING:
    from onnxplug.ep import DataType, EpFactory
    from onnxplug_cli.operators import Implementation, Listing, Version

HEADER: Final = ("OPERATOR", "VERSIONS", "EP", "TIER", "TYPES")


class Row(Record):
    """One implementation in which some versions of an operator are run.

    Attributes:
        versions: the opsets that brought them.
        runner: an EP's name, or onnxplug's own; empty if nothing runs it.
        types: of the newest of them.
    """

    domain: str
    op_type: str
    versions: tuple[int, ...]
    runner: str
    tier: str
    types: Mapping[str, tuple[DataType, ...]]

    def cells(self) -> tuple[str, str, str, str, str]:
        """The row for people, without the domain."""
        return (
            self.op_type,
            " ".join(map(str, self.versions)),
            self.runner or "none",
            self.tier,
            types_text(self.types),
        )


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "ops",
        parents=[common],
        help="list the operators, and what runs each",
        description="List every operator, its versions, the element types that it "
        "takes, and the EP and tier that run it.",
    )
    parser.add_argument(
        "--ep",
        type=names,
        metavar="NAME[,NAME]",
        help="only these EPs (default: all that are installed)",
    )
    parser.add_argument(
        "--domain", metavar="D", help="only operators of this domain, such as ai.onnx"
    )
    add_library_argument(parser)
    parser.set_defaults(command=_ops)


def _ops(arguments: argparse.Namespace) -> None:
    from onnxplug_cli.operators import list_operators

    factories = _factories(arguments.ep)
    listing = list_operators(factories)
    domains = list(dict.fromkeys(domain_name(each.domain) for each in listing.versions))
    if arguments.domain is not None and arguments.domain not in domains:
        raise UsageError(
            f"there are no operators of domain {arguments.domain!r}; "
            f"the domains are {', '.join(domains)}"
        )
    versions = [
        each
        for each in listing.versions
        if arguments.domain in (None, domain_name(each.domain))
    ]
    if arguments.json:
        print_json(
            {
                "eps": [factory.name for factory in factories],
                "silent": list(listing.silent),
                "versions": [_data(version) for version in versions],
            }
        )
        return
    for domain, group in groupby(rows(versions), key=lambda row: row.domain):
        say(f"{domain_name(domain)}\n")
        print_table(HEADER, _without_repeats([row.cells() for row in group]))
        say()
    _print_ends(listing, versions)


def _factories(wanted: Sequence[str] | None) -> list[EpFactory]:
    from onnxplug.plugins import registry

    if wanted is None:
        return registry.automatic_factories()
    from onnxplug.selection.available import find_factory

    return [find_factory(name, registry) for name in dict.fromkeys(wanted)]


def _print_ends(listing: Listing, versions: Sequence[Version]) -> None:
    """How many operators there are, and what is not known."""
    from onnxplug_cli.operators import summary

    operators = {(each.domain, each.op_type) for each in versions}
    say(
        f"{plural(len(operators), 'operator')} in {plural(len(versions), 'version')}; "
        "the newest of each by what runs it first:"
    )
    for runner, tier, count in sorted(summary(versions)):
        say(f"  {' '.join(filter(None, (runner, tier))) or 'nothing'}: {count}")
    for reason, refused in refusals(versions).items():
        say(f"{', '.join(refused)} cannot be run: {reason}.")
    for name in listing.silent:
        say(f"{name} does not say which operators it runs.")


def rows(versions: Iterable[Version]) -> Iterator[Row]:
    """The table: a row for each operator and implementation in which it is run.

    An operator that onnxplug replaces when no EP takes it has no row for that in
    versions that an EP runs.
    """
    from onnxplug_cli.operators import Implementation

    for (domain, op_type), group in groupby(versions, key=_operator):
        found: dict[tuple[str, str], tuple[list[int], Implementation]] = {}
        # the newest first: what is preferred there, and its types, are shown
        for version in reversed(list(group)):
            for implementation in implementations_shown(version) or [
                Implementation("", "")
            ]:
                since, _ = found.setdefault(
                    (implementation.runner, implementation.tier), ([], implementation)
                )
                since.append(version.since)
        for (runner, tier), (since, implementation) in found.items():
            yield Row(
                domain,
                op_type,
                tuple(sorted(since)),
                runner,
                tier,
                implementation.types,
            )


def implementations_shown(version: Version) -> list[Implementation]:
    """The implementations of a version, without the host's where an EP has one."""
    by_eps = [
        implementation
        for implementation in version.implementations
        if not implementation.by_host
    ]
    return by_eps or list(version.implementations)


def refusals(versions: Iterable[Version]) -> dict[str, list[str]]:
    """The operators that are refused, by the reason."""
    found: dict[str, list[str]] = {}
    for version in versions:
        for implementation in implementations_shown(version):
            if implementation.reason:
                found.setdefault(implementation.reason, []).append(version.op_type)
    return found


def _operator(version: Version) -> tuple[str, str]:
    return version.domain, version.op_type


def _without_repeats(
    cells: Sequence[tuple[str, str, str, str, str]],
) -> list[tuple[str, ...]]:
    """The table with each operator's name in its first row only."""
    shown: list[tuple[str, ...]] = []
    last = ""
    for name, *rest in cells:
        shown.append(("" if name == last else name, *rest))
        last = name
    return shown


def domain_name(domain: str) -> str:
    """A domain as people write it."""
    return domain or "ai.onnx"


def types_text(types: Mapping[str, tuple[DataType, ...]]) -> str:
    """``T: float32, int8–64``: runs of widths are written as their ends."""
    return "; ".join(
        f"{variable}: {_names_text(found)}" for variable, found in types.items()
    )


_WIDTHS: Final = {
    "float": (16, 32, 64),
    "int": (2, 4, 8, 16, 32, 64),
    "uint": (2, 4, 8, 16, 32, 64),
}
_KINDS: Final = {
    "float8_*": ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz"),
    "float6_*": ("e2m3fn", "e3m2fn"),
}


def _names_text(dtypes: Iterable[DataType]) -> str:
    left = dict.fromkeys(map(str, dtypes))
    parts: list[str] = []
    for kind, widths in _WIDTHS.items():
        runs: list[list[int]] = [[]]
        for width in widths:
            if f"{kind}{width}" in left:
                runs[-1].append(width)
                del left[f"{kind}{width}"]
            elif runs[-1]:
                runs.append([])
        for run in filter(None, runs):
            if len(run) > 2:
                parts.append(f"{kind}{run[0]}–{run[-1]}")
            else:
                parts += [f"{kind}{width}" for width in run]
    for text, forms in _KINDS.items():
        members = [text.replace("*", form) for form in forms]
        if left.keys() >= set(members):
            left[text] = None
            for member in members:
                del left[member]
    return ", ".join([*parts, *left])


def _data(version: Version) -> dict[str, Any]:
    return {
        "domain": domain_name(version.domain),
        "operator": version.op_type,
        "since": version.since,
        "until": version.until,
        "ways": [
            {
                "ep": implementation.runner,
                "tier": implementation.tier,
                "types": {
                    name: list(map(str, t)) for name, t in implementation.types.items()
                },
                "reason": implementation.reason,
            }
            for implementation in version.implementations
        ],
    }
