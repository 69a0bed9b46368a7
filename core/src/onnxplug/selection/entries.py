"""The config entries of a session that are EPs', ``ep.<ep>.<key>``.

``<ep>`` is an EP's name, in any case and with its suffix or without; ``<key>`` is an
option of it, which the entry sets for the session, or one of its config entries.
"""

from __future__ import annotations

from collections.abc import Mapping

from onnxplug.ep import EpFactory, OptionValue
from onnxplug.errors import OptionError, PluginError, PluginNotFound
from onnxplug.plugins import PluginRegistry
from onnxplug.plugins.declared import all_names, own_name
from onnxplug.selection.options import parse_options
from onnxplug.strictness import STRICT, Strictness
from onnxplug.suggest import did_you_mean


def entries_by_ep(
    config: Mapping[str, str],
    registry: PluginRegistry,
    strictness: Strictness = STRICT,
) -> dict[str, dict[str, str]]:
    """What is written to each EP by its name, by key.

    An EP that is loaded is asked at once whether it has that; another one when it is
    loaded for the session, if it is.

    Args:
        strictness: is told where there is no such EP, or it has no such entry.

    Raises:
        OptionError: one entry is given by two names of its EP; or there is none.
    """
    found: dict[str, dict[str, str]] = {}
    seen: dict[tuple[str, str], str] = {}
    for entry, value in config.items():
        prefix, _, rest = entry.partition(".")
        written, _, key = rest.partition(".")
        if prefix != "ep" or not key:  # it is the host's
            continue
        name = _resolve(entry, written, registry, strictness)
        if name is None:
            continue
        other = seen.setdefault((name, key), entry)
        if other != entry:
            raise OptionError(
                f"session config entries {other!r} and {entry!r} are one; leave one "
                "of them out"
            )
        found.setdefault(name, {})[key] = value
    for name, entries in found.items():
        factory = registry.resolve(name).factory
        if factory is not None:
            options, _ = entries_of(factory, entries, strictness)
            parse_options(name, factory.options, options, strictness=strictness)
    return found


def entries_of(
    factory: EpFactory, written: Mapping[str, str], strictness: Strictness = STRICT
) -> tuple[dict[str, str], dict[str, OptionValue]]:
    """Options that are *written* to an EP, and all its config entries, typed.

    Args:
        strictness: is told where it declares no such option or entry.

    Raises:
        OptionError: an entry does not accept its value; or there is none.
    """
    entries = all_names(factory.config_entries)
    options: dict[str, str] = {}
    given: dict[str, str] = {}
    for key, value in written.items():
        if key in entries:
            given[key] = value
        elif own_name(factory.options, key) is not None:
            options[key] = value
        else:
            names = [*all_names(factory.options), *entries]
            known = sorted({*factory.options, *factory.config_entries})
            near = did_you_mean(key, names) or "."
            strictness.unknown(
                f"ep.{factory.name}.{key}",
                f"{factory.name} has no option or config entry {key!r}{near}  "
                f"It has {', '.join(known) or 'none'}",
            )
    typed = parse_options(
        factory.name,
        factory.config_entries,
        given,
        noun="config entry",
        strictness=strictness,
    )
    return options, typed


def _resolve(
    entry: str, written: str, registry: PluginRegistry, strictness: Strictness
) -> str | None:
    """The EP that *entry* is for; ``None`` where there is none."""
    try:
        return registry.resolve(written).name
    except PluginNotFound:
        # what an EP is that is not there is seldom asked
        from onnxplug.selection.available import not_installed

        missing = not_installed(written, registry)
        why = f"{missing.reason}; {missing.remedy}"
    except PluginError as error:
        why = str(error)
    strictness.unknown(entry, f"session config entry {entry!r} is for no EP: {why}")
    return None
