"""``onnxplug eps``: the installed EPs, their plugins' states and options; domains."""

from __future__ import annotations

import argparse
import logging
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.record import Record
from onnxplug.escape import escape
from onnxplug_cli.devices import (
    description,
    ep_device_data,
    reason_and_remedy,
    refused_data,
)
from onnxplug_cli.distinctions import distinctions
from onnxplug_cli.families import (
    Family,
    device_data,
    families,
    other_texts,
    passed_text,
    trial_text,
    tried_on,
)
from onnxplug_cli.library import add_library_argument
from onnxplug_cli.names import name_to_write
from onnxplug_cli.text import WIDTH, print_json, print_table, say

if TYPE_CHECKING:
    from onnxplug.ep import (
        EpDevice,
        EpFactory,
        HardwareDevice,
        Option,
        OptionValue,
        RefusedDevice,
    )
    from onnxplug.plugins import PluginRecord
    from onnxplug.plugins.domains import Supplier

_LOG: Final = logging.getLogger("onnxplug.cli")

_DECLARED: Final = (
    ("options", "options"),
    ("config_entries", "session config entries"),
    ("run_options", "run config entries"),
)
"""What an EP declares that users may set, and its title."""

_KEYS: Final = ("name", "distribution", "version", "state", "reason")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "eps",
        parents=[common],
        help="list the installed EPs, or show all of one: its options, its devices",
        description="List the installed EPs and domains of operators, and the state of "
        "their plugins; or show all of one EP: its options, its devices, its origin.",
    )
    parser.add_argument(
        "name", nargs="?", metavar="NAME", help="show all of this EP, which is loaded"
    )
    parser.add_argument(
        "--load",
        action="store_true",
        help="import each plugin first, to see whether that works",
    )
    add_library_argument(parser)
    parser.set_defaults(command=_eps)


def _eps(arguments: argparse.Namespace) -> None:
    from onnxplug import get_ep_devices, get_plugins
    from onnxplug.plugins import registry

    if arguments.load:
        get_ep_devices()
    if arguments.name is not None:
        _describe_one(arguments.name, as_json=arguments.json)
        return
    records, suppliers = get_plugins(), registry.domains.all_suppliers()
    if arguments.load:
        for supplier in suppliers:
            supplier.operators()
    if arguments.json:
        print_json(
            {
                "eps": [_record_data(record) for record in records],
                "domains": [_supplier_data(supplier) for supplier in suppliers],
            }
        )
        return
    if records:
        print_table(
            ("EP", "STATE", "DISTRIBUTION", "VERSION"),
            [
                (name_to_write(r.name), str(r.state), r.distribution, r.version)
                for r in records
            ],
        )
    else:
        say("No EP is installed.  onnxplug-cpu, for one, supplies the CPU's.")
    if suppliers:
        say()
        print_table(
            ("DOMAIN", "STATE", "DISTRIBUTION", "VERSION"),
            [(s.domain, str(s.state), s.name, s.version) for s in suppliers],
        )
    for reason in (
        *(record.reason for record in records),
        *(f"{s}: {s.reason}" for s in suppliers if s.reason),
    ):
        if reason:
            say(f"\n{reason}")


def _supplier_data(supplier: Supplier) -> dict[str, str]:
    return {
        "name": supplier.domain,
        "distribution": supplier.name,
        "version": supplier.version,
        "state": str(supplier.state),
        "reason": supplier.reason,
    }


def _record_data(record: PluginRecord) -> dict[str, str]:
    return {key: str(getattr(record, key)) for key in _KEYS}


# One EP...


def _describe_one(name: str, *, as_json: bool) -> None:
    from onnxplug.errors import PluginError
    from onnxplug.plugins import registry
    from onnxplug.selection.available import find_factory

    factory: EpFactory | None = None
    devices = _Devices()
    try:
        factory = find_factory(name, registry)
    except PluginError as error:
        record = _record(name, error)
        _LOG.debug("%s", error)  # for its traceback; the record has the rest
    else:
        record = registry.resolve(name)
        devices = _devices(factory)
    if as_json:
        print_json({"eps": [_data(record, factory, devices)]})
    else:
        _print(record, factory, devices)


def _record(name: str, error: Exception) -> PluginRecord:
    """What is known of an EP that cannot be had because of *error*.

    Raises:
        PluginError: *error*, where nothing is known: it is not installed, or *name*
            fits several.
    """
    from onnxplug.errors import PluginError
    from onnxplug.plugins import registry

    try:
        return registry.resolve(name)
    except PluginError:
        raise error from None


class _Devices(Record):
    """The pairs of an EP, what it refuses, and if there is no pair why."""

    pairs: Sequence[EpDevice] = ()
    refused: Sequence[RefusedDevice] = ()
    none: str = ""


def _devices(factory: EpFactory) -> _Devices:
    from onnxplug.errors import EpError
    from onnxplug.hardware import discover
    from onnxplug.plugins import registry
    from onnxplug.selection.available import no_device
    from onnxplug.selection.devices import hardware_for, judged_devices

    hardware = hardware_for(registry, factory.name, discover())
    try:
        pairs, refused = judged_devices(factory, hardware)
    except EpError as error:
        return _Devices(none=str(error))
    none = "" if pairs else "; ".join(no_device(factory, hardware, refused))
    return _Devices(pairs, refused, none)


def _data(
    record: PluginRecord, factory: EpFactory | None, devices: _Devices
) -> dict[str, Any]:
    return {
        **_record_data(record),
        "short_name": name_to_write(record.name),
        "library": record.library.source,
        "vendor": factory.vendor if factory else "",
        "vendor_id": factory.vendor_id if factory else 0,
        "ep_version": factory.version if factory else "",
        "spi": _spi(factory),
        "devices": [
            ep_device_data(pair)
            | device_data(tried_on(factory, pair), _families(factory, pair))
            for pair in devices.pairs
            if factory
        ],
        "no_device": devices.none,
        "refused_devices": [refused_data(refused) for refused in devices.refused],
        **{kind: _options_data(factory, kind) for kind, _ in _DECLARED},
    }


def _options_data(factory: EpFactory | None, kind: str) -> list[dict[str, Any]]:
    declared = getattr(factory, kind, {})
    return [_option_data(name, option) for name, option in declared.items()]


def _option_data(name: str, option: Option) -> dict[str, Any]:
    return {
        "name": name,
        "type": type(option.default).__name__,
        "default": _finite(option.default),
        "choices": list(option.choices),
        "minimum": _finite(option.minimum),
        "maximum": _finite(option.maximum),
        "aliases": list(option.aliases),
        "doc": option.doc,
        "substitutes": dict(option.substitutes),
        "refused": option.refused,
    }


def _finite(value: OptionValue | None) -> OptionValue | None:
    """JSON has no infinity, which becomes text."""
    is_finite = not isinstance(value, float) or math.isfinite(value)
    return value if is_finite else str(value)


def _spi(factory: EpFactory | None) -> str:
    return ".".join(map(str, factory.spi_version)) if factory else ""


def _print(record: PluginRecord, factory: EpFactory | None, devices: _Devices) -> None:
    source = f"{record.distribution} {record.version}".rstrip()
    facts = [("state", str(record.state)), ("distribution", source)]
    if record.reason:
        facts.insert(1, ("reason", record.reason))
    if not record.suppliers:
        facts.append(("library", record.library.source))
    if factory is not None:
        facts += [
            ("vendor", factory.vendor),
            ("version", factory.version),
            ("SPI", _spi(factory)),
            *_device_facts(factory, devices.pairs),
        ]
        if devices.none:
            facts.append(("devices", f"none: {devices.none}"))
        facts += [
            ("refused", f"{_device(refused.device)}: {reason_and_remedy(refused)}")
            for refused in devices.refused
            if refused.reason not in devices.none  # which says it already
        ]
    short = name_to_write(record.name)
    say(record.name if short == record.name else f"{record.name}, or {short}")
    for label, text in facts:
        for line in text.splitlines():
            _print_wrapped(f"  {label:<12}  ", line)
            label = ""
    if factory is None:
        return
    for kind, title in _DECLARED:
        declared = getattr(factory, kind)
        if declared or kind == "options":
            say()
            say(f"{title}:" if declared else f"no {title}")
        lead = f"ep.{short}." if kind == "config_entries" else ""
        for name, option in declared.items():
            _print_option(f"{lead}{name}", option)


def _device_facts(
    factory: EpFactory, pairs: Sequence[EpDevice]
) -> Iterator[tuple[str, str]]:
    apart = distinctions(pairs)
    for pair, told in zip(pairs, apart, strict=True):
        found = _families(factory, pair)
        yield "device", _device(pair.device)
        for note in (
            told,
            trial_text(str(pair.device.type), tried_on(factory, pair)),
            passed_text(found),
            *other_texts(found),
        ):
            if note:
                yield "", note


def _families(factory: EpFactory, pair: EpDevice) -> Sequence[Family]:
    from onnxplug.errors import EpError

    try:
        return families(factory, pair)
    except EpError as error:
        _LOG.warning("%s", error)
        return ()


def _device(device: HardwareDevice) -> str:
    return f"{device.type}  {description(device)}".rstrip()


def _print_option(name: str, option: Option) -> None:
    default = str(option.default) or "empty"
    parts = [f"{type(option.default).__name__}, default {default}"]
    if option.choices:
        parts.append(
            f"one of {', '.join(str(each) or 'empty' for each in option.choices)}"
        )
    for value, instead in option.substitutes.items():
        parts.append(f"{value} stands for {instead}")
    if option.minimum is not None or option.maximum is not None:
        low = "" if option.minimum is None else f"from {option.minimum:g}"
        high = "" if option.maximum is None else f"up to {option.maximum:g}"
        parts.append(f"{low} {high}".strip())
    if option.aliases:
        parts.append(f"also written {', '.join(option.aliases)}")
    _print_wrapped(f"  {escape(name)}: ", "; ".join(parts), hang=6)
    if option.doc:
        _print_wrapped("      ", option.doc)
    if option.refused:
        _print_wrapped("      ", f"It cannot be set: {option.refused}")


def _print_wrapped(lead: str, text: str, *, hang: int | None = None) -> None:
    lines = textwrap.wrap(
        text,
        WIDTH,
        initial_indent=lead,
        subsequent_indent=" " * (len(lead) if hang is None else hang),
        break_long_words=False,
        break_on_hyphens=False,
    )
    say("\n".join(lines) if lines else lead.rstrip())
