"""The config entries of runs: checked before a run, and typed as its EPs declare.

EPs that were written for an SPI without ``run_options`` are given all entries, as they
are written; what nobody else declares may be for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from onnxplug.entries import RUN
from onnxplug.errors import OptionTypeError
from onnxplug.options import RunOptions
from onnxplug.plugins.declared import all_names
from onnxplug.plugins.versions import declares_run_options
from onnxplug.selection import parse_options
from onnxplug.strictness import STRICT, Strictness
from onnxplug.suggest import did_you_mean

if TYPE_CHECKING:
    from onnxplug.ep import EpFactory, OptionValue

OptionsByEp: TypeAlias = "Mapping[str, Mapping[str, OptionValue]]"
"""What a run's config entries say to each EP, by its name."""


class RunEntries:
    """The config entries that runs of one session may have."""

    def __init__(self, factories: Iterable[EpFactory]) -> None:
        factories = list(factories)
        declaring = [each for each in factories if declares_run_options(each)]
        self._names = {each.name: all_names(each.run_options) for each in declaring}
        self._declared = {each.name: each.run_options for each in declaring}
        self._older = [each.name for each in factories if each not in declaring]
        self._last: tuple[dict[str, str], Strictness, OptionsByEp]
        self._last = {}, STRICT, self._parse({}, STRICT)

    def read(self, options: RunOptions | None) -> OptionsByEp:
        """What *options* say to each EP of the session.

        Raises:
            OptionError: an entry does not accept its value; or it is neither the
                host's nor an EP's, if *options* are strict.
        """
        if not isinstance(options, RunOptions | None):
            raise OptionTypeError(
                f"run_options is a {type(options).__name__}; expected "
                "onnxplug.RunOptions"
            )
        given: Mapping[str, str] = {} if options is None else options.config
        strictness = STRICT if options is None else options.strictness
        # many runs in a row have the same
        last, told, parsed = self._last
        if given != last or (given and strictness is not told):
            own = dict(given)
            parsed = self._parse(own, strictness)
            self._last = own, strictness, parsed
        return parsed

    def _parse(self, given: dict[str, str], strictness: Strictness) -> OptionsByEp:
        known = {key for names in self._names.values() for key in names}
        for key in given:
            if key not in RUN and key not in known and not self._older:
                names = ", ".join(sorted(set().union(*self._declared.values())))
                strictness.unknown(
                    key,
                    f"there is no run config entry {key!r}"
                    f"{did_you_mean(key, [*RUN, *known])}; the host has "
                    f"{', '.join(RUN)}, and the session's EPs ("
                    f"{', '.join(self._declared)}) have {names or 'none'}",
                )
        parsed: dict[str, Mapping[str, OptionValue]] = {}
        for ep, declared in self._declared.items():
            own = {key: text for key, text in given.items() if key in self._names[ep]}
            values = parse_options(ep, declared, own, noun="run option")
            parsed[ep] = MappingProxyType(values)
        return parsed | dict.fromkeys(self._older, MappingProxyType(given))
