"""What was compiled by input shapes, for reports."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from onnxplug.authoring.record import Record
from onnxplug.ep import CompiledPartition


class Specialisations(Record):
    """What was compiled of one partition by input shapes.

    Attributes:
        limit: for how many sets of shapes the host keeps it.
        kept: the shapes, in words, latest used last.
        compiled: how many were compiled, by what asked for it: ``run``, ``prepare`` or
            ``background``.
        evicted: how many were closed, as others were used later.
        failed: how often the EP failed, or declined.
        waits: how often a run waited while another compiled its shapes.
        elsewhere: how many runs another EP served meanwhile, by its name.
        last_failure: the latest, in words; empty if there was none.
        cached: how often what was done with the cache on disk; empty if the EP does
            not ask for that.
        notes: what is to be said of it, such as why no other EP can serve.
        serialised: the EP states how often something of it runs at once.
    """

    limit: int
    kept: tuple[str, ...]
    compiled: dict[str, int]
    evicted: int
    failed: int
    waits: int
    elsewhere: dict[str, int]
    last_failure: str = ""
    cached: Mapping[str, int] = MappingProxyType({})
    notes: tuple[str, ...] = ()
    serialised: bool = False


def specialisations(compiled: CompiledPartition) -> Specialisations | None:
    """What was compiled by input shapes; ``None`` if it is for all shapes."""
    # what the host makes of an EP's partition may have them
    found = getattr(compiled, "specialisations", None)
    return found if isinstance(found, Specialisations) else None


def in_lines(found: Specialisations) -> list[str]:
    """What is said of *found* in a summary."""
    compiled = sum(found.compiled.values())
    by = ", ".join(f"{n} by {what}" for what, n in found.compiled.items() if n)
    line = (
        f"by input shapes: {len(found.kept)} kept of at most {found.limit}, "
        f"{compiled} compiled" + (f" ({by})" if by else "")
    )
    for count, what in (
        (found.evicted, "evicted"),
        (found.failed, "failed"),
        (found.waits, "runs waited"),
    ):
        if count:
            line += f", {count} {what}"
    for ep, count in found.elsewhere.items():
        line += f", {plural(count, 'run')} on {ep} meanwhile"
    lines = [line]
    for outcome, count in found.cached.items():
        lines.append(f"{count} {outcome}")
    if found.last_failure:
        lines.append(f"last failure: {found.last_failure}")
    return [*lines, *found.notes]


def plural(count: int, noun: str) -> str:
    """``1 node``, ``2 nodes``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
