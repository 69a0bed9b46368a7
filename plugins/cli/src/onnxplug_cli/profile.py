"""Where the time of runs goes, kernel by kernel, read from a session's trace."""

from __future__ import annotations

import bisect
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from onnxplug.duration import duration
from onnxplug.escape import escape
from onnxplug_cli.text import (
    plural,
    print_table,
    say,
)

_REST: Final = {
    "Session": "checks and steps",
    "Body": "checks and steps",
    "Partition": "between kernels",
}
"""What the time of an event is called that no event within it accounts for."""

_LEAST_SHARE: Final = 0.001
"""Rows of less than this share of a run are summed up."""


@dataclass(frozen=True, slots=True)
class Row:
    """What one kind of work took, in all runs.

    Attributes:
        name: the kernel, the operator, or what else was done.
        provider: the EP; empty for the core.
        tier: which of the EP's tiers, if it reports that.
        calls: how often.
        seconds: how long, without what other rows have.
        share: of all runs' time.
        flops, bytes: the work, if the EP reports it; 0 otherwise.
        share_of_peak: the least time that this machine needs for the work, of the time
            it took; ``None`` if the EP does not report it.
    """

    name: str
    provider: str
    tier: str
    calls: int
    seconds: float
    share: float
    flops: int
    bytes: int
    share_of_peak: float | None

    @property
    def rate(self) -> str:
        """The work a second, in words."""
        if self.flops and self.seconds:
            return f"{self.flops / self.seconds / 1e9:.3g} GFLOP/s"
        if self.bytes and self.seconds:
            return f"{self.bytes / self.seconds / 1e9:.3g} GB/s"
        return ""


@dataclass(frozen=True, slots=True)
class Remark:
    """What an EP says of nodes, such as why they are in no faster tier."""

    tier: str
    op_type: str
    note: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunProfile:
    """Where the time of some runs went.

    Attributes:
        runs: how many.
        seconds: all of their time.
        rows: those that took longest first.
        remarks: what EPs say of nodes.
    """

    runs: int
    seconds: float
    rows: tuple[Row, ...]
    remarks: tuple[Remark, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return asdict(self)


def read_profile(path: Path, runs: int) -> RunProfile:
    """That of the faster half of the last *runs* runs of a session's trace.

    The slower half is left out for what else the machine did meanwhile.  All runs are
    of one thread.
    """
    events = json.loads(path.read_text(encoding="utf-8"))
    events = [event for event in events if event["ph"] == "X"]
    # each event comes after those that it is within
    events.sort(key=lambda event: (event["ts"], -event["dur"]))
    wholes = [event for event in events if event["name"] == "model_run"][-runs:]
    wholes.sort(key=lambda event: float(event["dur"]))
    del wholes[(len(wholes) + 1) // 2 :]
    wholes.sort(key=lambda event: float(event["ts"]))
    starts = [event["ts"] for event in wholes]

    def is_within(event: Mapping[str, Any]) -> bool:
        before = bisect.bisect_right(starts, event["ts"]) - 1
        return before >= 0 and event["ts"] <= _end(wholes[before])

    events = [event for event in events if is_within(event)]
    total = sum(event["dur"] for event in wholes)
    groups: dict[tuple[str, str, str], list[tuple[Mapping[str, Any], float]]] = {}
    for event, taken in zip(events, _own_times(events), strict=True):
        groups.setdefault(_kind(event), []).append((event, taken))
    rows = [_row(kind, members, total) for kind, members in groups.items()]
    rows.sort(key=lambda row: -row.seconds)
    return RunProfile(len(wholes), total / 1e6, tuple(rows), tuple(_remarks(events)))


def _own_times(events: Sequence[Mapping[str, Any]]) -> list[float]:
    """The time in µs of each event without that of the events within."""
    own = [float(event["dur"]) for event in events]
    open_ones: list[int] = []
    for index, event in enumerate(events):
        while open_ones and _end(events[open_ones[-1]]) <= event["ts"]:
            open_ones.pop()
        if open_ones:
            own[open_ones[-1]] -= event["dur"]
        open_ones.append(index)
    return [max(0.0, taken) for taken in own]


def _end(event: Mapping[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def _kind(event: Mapping[str, Any]) -> tuple[str, str, str]:
    """The name, the EP and the tier of the row that an event belongs to."""
    facts, category = event["args"], event["cat"]
    name = event["name"].removesuffix("_kernel_time")
    if category == "Node" and "kernel" not in facts:
        name = facts.get("op_name", name)
    return (
        _REST.get(category, name),
        facts.get("provider", ""),
        facts.get("tier", ""),
    )


def _row(
    kind: tuple[str, str, str],
    members: Sequence[tuple[Mapping[str, Any], float]],
    total: float,
) -> Row:
    taken = sum(own for _, own in members)
    facts = [event["args"] for event, _ in members]
    least = [
        fact["share_of_peak"] * own
        for fact, (_, own) in zip(facts, members, strict=True)
        if "share_of_peak" in fact
    ]
    return Row(
        *kind,
        calls=len(members),
        seconds=taken / 1e6,
        share=taken / total if total else 0.0,
        flops=sum(fact.get("flops", 0) for fact in facts),
        bytes=sum(fact.get("bytes", 0) for fact in facts),
        share_of_peak=sum(least) / taken if least and taken else None,
    )


def _remarks(events: Iterable[Mapping[str, Any]]) -> list[Remark]:
    groups: dict[tuple[str, str, str], dict[str, None]] = {}
    for event in events:
        facts = event["args"]
        if "note" in facts:
            key = facts.get("tier", ""), facts.get("op_name", ""), facts["note"]
            name = event["name"].removesuffix("_kernel_time")
            groups.setdefault(key, {})[name] = None
    return [Remark(*key, nodes=tuple(names)) for key, names in groups.items()]


def print_profile(profile: RunProfile, usual: float) -> None:
    """Print it; *usual* is what a run takes when nothing is recorded, in seconds."""
    runs = profile.runs
    which = f"the {runs} fastest runs, each" if runs > 1 else "the fastest run,"
    say(
        f"where the time goes, in {which} of {duration(profile.seconds / runs)} "
        f"({duration(usual)} when nothing is recorded):"
    )
    say()
    header = ("KERNEL", "TIER", "CALLS", "TIME", "SHARE", "RATE", "OF PEAK")
    shown = [row for row in profile.rows if row.share >= _LEAST_SHARE]
    rows = [
        (
            row.name,
            row.tier,
            f"{row.calls / runs:.3g}",
            duration(row.seconds / runs),
            f"{row.share:.1%}",
            row.rate,
            "" if row.share_of_peak is None else f"{row.share_of_peak:.0%}",
        )
        for row in shown
    ]
    rest = profile.rows[len(shown) :]
    if rest:
        seconds = sum(row.seconds for row in rest)
        calls = sum(row.calls for row in rest)
        share = sum(row.share for row in rest)
        of_them = f"{plural(len(rest), 'row')} of less than {_LEAST_SHARE:.1%}"
        taken = duration(seconds / runs)
        rows.append((of_them, "", f"{calls / runs:.3g}", taken, f"{share:.1%}", "", ""))
    print_table(header, rows, right=header[2:])
    _print_totals([row for row in profile.rows if row.bytes], runs)
    if profile.remarks:
        say()
    for tier in dict.fromkeys(remark.tier for remark in profile.remarks):
        say(f"on the {escape(tier)} tier:")
        remarks = [remark for remark in profile.remarks if remark.tier == tier]
        counts: Counter[tuple[str, str]] = Counter()
        for remark in remarks:
            counts[remark.op_type, remark.note] += len(remark.nodes)
        for (op_type, note), count in counts.most_common():
            times = f"×{count}" if count > 1 else ""
            say(f"  {escape(op_type)}{times}: {escape(note)}")


def _print_totals(kernels: Sequence[Row], runs: int) -> None:
    if not kernels:
        return
    calls = sum(row.calls for row in kernels) / runs
    moved = sum(row.bytes for row in kernels) / runs
    done = sum(row.flops for row in kernels) / runs
    say()
    say(
        f"each run: {calls:.4g} calls of kernels, which read and write "
        f"{moved / 1e6:.3g} MB and do {done / 1e6:.3g} million operations"
    )
