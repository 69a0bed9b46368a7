"""What the passes did, as data for a session's report."""

from __future__ import annotations

from onnxplug.authoring.record import Record


class Skipped(Record):
    """A node of constants that was not folded.

    Attributes:
        node: in words.
        reason: why not.
    """

    node: str
    reason: str


class PassRecord(Record):
    """One run of one pass that was not switched off.

    Attributes:
        name: the pass, as in ``PASSES``.
        round: 1 for the first time that the passes ran; later rounds work on what
            earlier ones left.
        changed: what was changed, described in words: nodes, or names of values.
        skipped: what the pass could have changed and did not, if it reports that.
    """

    name: str
    round: int
    changed: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()


class Report(Record):
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

    def skipped(self, name: str) -> tuple[Skipped, ...]:
        """What the pass *name* left as it was in its last round."""
        rounds = [record.skipped for record in self.passes if record.name == name]
        return rounds[-1] if rounds else ()

    @property
    def counts(self) -> dict[str, int]:
        """How many things each pass changed that ran."""
        return {record.name: len(self.changed(record.name)) for record in self.passes}

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {count}" for name, count in self.counts.items())
        return f"prepared: {counts or 'nothing'}"
