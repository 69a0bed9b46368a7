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
from onnxplug.suggest import did_you_mean


def entries_by_ep(
    config: Mapping[str, str], registry: PluginRegistry
) -> dict[str, dict[str, str]]:
    """What is written to each EP by its name, by key.

    An EP that is loaded is asked at once whether it has that; another one when it is
    loaded for the session, if it is.

    Raises:
        OptionError: there is no such EP, one entry is given by two names of its EP, or
            an EP that is loaded has no such entry.
    """
    found: dict[str, dict[str, str]] = {}
    seen: dict[tuple[str, str], str] = {}
    for entry, value in config.items():
        prefix, _, rest = entry.partition(".")
        written, _, key = rest.partition(".")
        if prefix != "ep" or not key:  # it is the host's
            continue
        name = _resolve(entry, written, registry)
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
            options, _ = entries_of(factory, entries)
            parse_options(name, factory.options, options)
    return found


def entries_of(
    factory: EpFactory, written: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, OptionValue]]:
    """Options that are *written* to an EP, and all its config entries, typed.

    Raises:
        OptionError: it declares no such option or entry, or an entry does not accept
            its value.
    """
    entries = all_names(factory.config_entries)
    for key in written:
        if key not in entries and own_name(factory.options, key) is None:
            options = all_names(factory.options)
            known = sorted({*factory.options, *factory.config_entries})
            raise OptionError(
                f"{factory.name} has no option or config entry {key!r}"
                f"{did_you_mean(key, [*options, *entries])}  "
                f"It has {', '.join(known) or 'none'}."
            )
    given = {key: value for key, value in written.items() if key in entries}
    return (
        {key: value for key, value in written.items() if key not in entries},
        parse_options(factory.name, factory.config_entries, given, noun="config entry"),
    )


def _resolve(entry: str, written: str, registry: PluginRegistry) -> str:
    try:
        return registry.resolve(written).name
    except PluginNotFound:
        # what an EP is that is not there is seldom asked
        from onnxplug.selection.available import not_installed

        missing = not_installed(written, registry)
        why = f"{missing.reason}; {missing.remedy}"
    except PluginError as error:
        why = str(error)
    raise OptionError(f"session config entry {entry!r} is for no EP: {why}")
