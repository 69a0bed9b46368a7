"""What the passes did, as data for a session's report."""

from __future__ import annotations

from typing import NamedTuple


class PassRecord(NamedTuple):
    """One run of one pass that was not switched off.

    Attributes:
        name: the pass, as in ``PASSES``.
        round: 1 for the first time that the passes ran; later rounds work on what
            earlier ones left.
        changed: what was changed, described in words: nodes, or names of values.
    """

    name: str
    round: int
    changed: tuple[str, ...]


class Report(NamedTuple):
    """What :func:`~onnxplug.prepare.prepare` did.

    Attributes:
        passes: every run of a pass, in order.
        disabled: names of the passes that were switched off, in order.
    """

    passes: tuple[PassRecord, ...] = ()
    disabled: tuple[str, ...] = ()

    def changed(self, name: str) -> tuple[str, ...]:
        """What the pass *name* changed in all rounds."""
        return tuple(
            what
            for record in self.passes
            if record.name == name
            for what in record.changed
        )

    @property
    def counts(self) -> dict[str, int]:
        """How many things each pass changed that ran."""
        return {record.name: len(self.changed(record.name)) for record in self.passes}

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return f"prepared: {counts or 'nothing'}"
