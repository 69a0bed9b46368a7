"""The table of EPs: what is installed or registered, and who uses it.

Invariant: the lock is never held while a plugin is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from onnxplug.attached import AttachedSessions
from onnxplug.authoring.locks import new_lock
from onnxplug.errors import PluginBlocked, PluginConflict, PluginError, PluginNotFound
from onnxplug.plugins.find import group_plugins
from onnxplug.plugins.library import Library
from onnxplug.plugins.metadata import FoundPlugin
from onnxplug.plugins.names import nearest, short_name
from onnxplug.plugins.record import Failed, Loaded, PluginRecord, PluginState
from onnxplug.plugins.settings import BLOCK, Settings, read_settings
from onnxplug.search_path import surroundings


class PluginTable:
    """One record for each EP name, read from metadata when it is first needed.

    Args:
        environment: where the settings are; ``None``: the process's variables.
        find: finds what is advertised.
        sessions: those that use its EPs; ``None``: none does yet.

    Attributes:
        lock: held while records are read or changed that other threads may change.
    """

    def __init__(
        self,
        environment: Mapping[str, str] | None,
        find: Callable[[], Sequence[FoundPlugin]],
        sessions: AttachedSessions | None = None,
    ) -> None:
        self.lock = new_lock()
        self._environment = environment
        self._find = find
        self._records: dict[str, PluginRecord] | None = None
        self._sessions = AttachedSessions() if sessions is None else sessions
        self._settings: Settings | None = None
        self._surroundings: tuple[Any, ...] | None = None

    @property
    def settings(self) -> Settings:
        """What the environment says, read when it is first needed."""
        settings = self._settings
        if settings is None:
            self._surroundings = surroundings()
            settings = self._settings = read_settings(self._environment)
        return settings

    def is_as_found(self, now: tuple[Any, ...]) -> bool:
        """Whether a process that begins *now* finds what this one found.

        It does not if anything was registered or forgotten by hand, or a plugin that is
        installed could not be loaded.

        Args:
            now: what :func:`~onnxplug.search_path.surroundings` says.
        """
        if self._records is None and self._settings is None:
            return True
        broken = (PluginState.FAILED, PluginState.INCOMPATIBLE)
        with self.lock:
            return self._surroundings == now and not any(
                record.state in broken for record in self.read_records()
            )

    def by_name(self) -> dict[str, PluginRecord]:
        """The records; whoever changes them, or looks at all, holds the lock."""
        table = self._records
        if table is None:
            # two threads may both look; the first to be done is believed
            before = surroundings()
            settings = read_settings(self._environment)
            found = group_plugins(self._find(), settings)
            with self.lock:
                if self._records is None:
                    self._settings, self._records = settings, found
                    self._surroundings = before
                table = self._records
        return table

    def read_records(self) -> list[PluginRecord]:
        """The records if metadata were read before; none otherwise."""
        return list((self._records or {}).values())

    def records(self) -> list[PluginRecord]:
        """The records, sorted by name."""
        table = self.by_name()
        with self.lock:
            return [table[name] for name in sorted(table)]

    def get(self, name: str) -> PluginRecord | None:
        """The record of the EP of exactly this name."""
        return self.by_name().get(name)

    def replace(self, records: Iterable[PluginRecord]) -> None:
        """Have *records* in the place of those of the same name and library."""
        table = self.by_name()
        with self.lock:
            for record in records:
                known = table.get(record.name)
                if known is not None and known.library is record.library:
                    table[record.name] = record

    def change(self, library: Library, into: Callable[[Loaded], Loaded]) -> None:
        """Have what *into* makes of them in the place of the EPs of *library*."""
        table = self.by_name()
        with self.lock:
            self._surroundings = None
            for name, record in table.items():
                if isinstance(record, Loaded) and record.library is library:
                    table[name] = into(record)

    def refresh(self) -> None:
        """Read settings and metadata anew; what is loaded and not blocked now stays."""
        settings = read_settings(self._environment)
        fresh = group_plugins(self._find(), settings)
        with self.lock:
            for record in self.read_records():
                is_kept_out = isinstance(fresh.get(record.name), Failed)
                if isinstance(record, Loaded) and not is_kept_out:
                    fresh[record.name] = record
                else:
                    self._sessions.forget(record.name)
            self._settings, self._records = settings, fresh
            self._surroundings = None  # what is loaded may be older

    def resolve(self, name: str, *, installed: bool = False) -> PluginRecord:
        """The record that *name* stands for.

        That is the EP of that very name before all others, then the one whose name
        without its suffix it is, then that of ``onnxplug-<name>``.

        Args:
            installed: registered EPs do not count.

        Raises:
            PluginNotFound: there is none.
            PluginError: the name fits several.
        """
        records = [
            record for record in self.records() if record.suppliers or not installed
        ]
        short = short_name(name)
        found = (
            [record for record in records if record.name == name]
            or [record for record in records if short_name(record.name) == short]
            or [record for record in records if name.lower() in record.suffixes]
        )
        if len(found) == 1:
            return found[0]
        if found:
            raise PluginError(
                f"{name!r} fits several EPs: {', '.join(r.name for r in found)}; "
                "write the whole name",
                plugin=name,
            )
        known = [record.name for record in records]
        raise PluginNotFound(
            f"no installed plugin supplies an EP named {name!r}."
            f"{nearest(name, known)}\n"
            f"Installed EPs: {', '.join(known) or 'none'}; "
            "each comes with a distribution of its own, such as onnxplug-cpu.",
            plugin=name,
        )

    def publish(self, records: Sequence[PluginRecord]) -> None:
        """Make all of *records* known, or none.

        Raises:
            PluginConflict: a name is taken.
        """
        table = self.by_name()
        with self.lock:
            for record in records:
                if record.name in table:
                    raise PluginConflict(
                        f"an EP named {record.name!r} is known already, from "
                        f"{table[record.name].distribution}; remove one of the two",
                        plugin=record.name,
                    )
            self._surroundings = None
            table.update((record.name, record) for record in records)

    def forget(self, names: Iterable[str]) -> None:
        """Remove records, where there are any; whoever calls holds the lock."""
        for name in names:
            if self._records is not None:
                self._surroundings = None
                self._records.pop(name, None)
                self._sessions.forget(name)

    def refuse_blocked(self, name: str) -> None:
        """Refuse to register what a setting keeps out.

        Raises:
            PluginBlocked: ``ONNXPLUG_BLOCK`` has *name*.
        """
        if self.settings.blocks({name.lower(), short_name(name)}):
            raise PluginBlocked(
                f"{name!r} is blocked: {BLOCK} has it, which outranks registering; "
                "take it out there to use it",
                plugin=name,
            )

    def attach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP, until :meth:`detach` or the session's end.

        Raises:
            PluginNotFound: no EP has exactly this name (any more).
        """
        if self.get(ep) is None:
            raise PluginNotFound(
                f"no EP is named {ep!r}; was its library unregistered?", plugin=ep
            )
        self._sessions.attach(ep, session)

    def detach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP no more; not an error if it never did."""
        self._sessions.detach(ep, session)

    def sessions(self, ep: str) -> set[object]:
        """Those that use an EP now."""
        return self._sessions.of(ep)
