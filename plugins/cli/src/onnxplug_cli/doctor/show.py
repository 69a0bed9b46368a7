"""The doctor's report, for people and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from onnxplug.duration import duration
from onnxplug.ep import HardwareDevice, Level
from onnxplug.plugins import PluginState
from onnxplug_cli.devices import description, hardware_data, refused_data
from onnxplug_cli.doctor.checkup import Checkup, DrivenDevice
from onnxplug_cli.doctor.compute import Verdict
from onnxplug_cli.doctor.domains import DomainCheckup
from onnxplug_cli.doctor.report import Report
from onnxplug_cli.families import device_data, other_texts, passed_text, trial_text
from onnxplug_cli.names import name_to_write
from onnxplug_cli.text import NO_BREAK, plural, print_table, say


def data(report: Report) -> dict[str, Any]:
    """The report for JSON."""
    return {
        "onnxplug": report.onnxplug,
        "spi": report.spi,
        "python": report.python,
        "executable": report.executable,
        "platform": report.platform,
        "packages": dict(report.packages),
        "settings": dict(report.settings),
        "hints": list(report.hints),
        "hardware": [hardware_data(device) for device in report.hardware],
        "plugins": [_plugin_data(plugin) for plugin in report.plugins],
        "domains": [domain.to_json() for domain in report.domains],
        "missing": [
            {
                "device": hardware_data(missing.device),
                "ep": missing.ep,
                "distribution": missing.distribution,
                "remedy": missing.remedy,
            }
            for missing in report.missing
        ],
        "isolated": report.isolated,
        "problems": list(report.problems),
    }


def _plugin_data(plugin: Checkup) -> dict[str, Any]:
    return {
        "ep": plugin.ep,
        "state": plugin.state,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "load_ms": plugin.load_ms,
        "reason": plugin.reason,
        "remedy": plugin.remedy,
        "devices": [
            {
                "device": hardware_data(driven.device),
                "distinction": driven.distinction,
                "checks": [
                    {
                        "op": check.op,
                        "verdict": str(check.verdict),
                        "detail": check.detail,
                        "remedy": check.remedy,
                    }
                    for check in driven.checks
                ],
                **device_data(driven.tried_on, driven.families),
            }
            for driven in plugin.devices
        ],
        "refused_devices": [refused_data(refused) for refused in plugin.refused],
        "findings": [
            {
                "level": str(finding.level),
                "message": finding.message,
                "remedy": finding.remedy,
            }
            for finding in plugin.findings
        ],
        "works": plugin.works,
    }


def print_report(report: Report) -> None:
    """The report for people."""
    say(f"onnxplug {report.onnxplug}, SPI {report.spi}")
    say(f"Python {report.python}, {report.executable}")
    packages = report.packages.items()
    say(", ".join(f"{name} {version or 'broken'}" for name, version in packages))
    say(report.platform)
    for name, value in report.settings.items():
        say(f"{name}={value}")
    for hint in report.hints:
        say(f"  {hint}")
    say()
    names = _Names(report.hardware)
    print_table(
        ("HARDWARE", "VENDOR", "DESCRIPTION"),
        [(names.of(d), d.vendor, description(d)) for d in report.hardware],
        wrap="DESCRIPTION",
    )
    if report.plugins:
        say()
        _print_plugins(report.plugins, names)
    if report.domains:
        say()
        _print_domains(report.domains)
    for plugin in report.plugins:
        _print_details(plugin, names)
    for domain in report.domains:
        if domain.reason:
            lines = [(f"{domain.state}: {domain.reason}", domain.remedy)]
            _print_lines(f"{domain.domain} of {domain.distribution}", lines)
    if report.missing:
        say()
    for missing in report.missing:
        say(f"no working EP for {names.of(missing.device)}: {missing.remedy}")
    say()
    if not report.problems:
        say("no problems")
        return
    say(f"{plural(len(report.problems), 'problem')}:")
    for problem in report.problems:
        say(_indented(problem))


class _Names:
    """Short names of devices: ``gpu:0``."""

    def __init__(self, hardware: Sequence[HardwareDevice]) -> None:
        self._named: list[tuple[HardwareDevice, str]] = []
        seen: defaultdict[str, int] = defaultdict(int)
        for device in hardware:
            self._named.append((device, f"{device.type}:{seen[device.type]}"))
            seen[device.type] += 1

    def of(self, device: HardwareDevice) -> str:
        """The name; the kind alone, for one that the host does not list."""
        named = (name for known, name in self._named if known == device)
        return next(named, str(device.type))

    def of_driven(self, driven: DrivenDevice) -> str:
        """The name, and what tells it from others of the EP there."""
        return f"{self.of(driven.device)} {driven.distinction}".rstrip()


def _print_plugins(plugins: Sequence[Checkup], names: _Names) -> None:
    print_table(
        ("EP", "STATE", "DISTRIBUTION", "VERSION", "LOAD", "DEVICE", "CHECK"),
        [
            (
                name_to_write(plugin.ep),
                plugin.state,
                plugin.distribution,
                plugin.version,
                "" if plugin.load_ms is None else duration(plugin.load_ms / 1e3),
                [names.of_driven(driven) for driven in plugin.devices]
                or ("none" if plugin.state == PluginState.READY else ""),
                list(map(_summary, plugin.devices)),
            )
            for plugin in plugins
        ],
        wrap="CHECK",
    )


def _print_domains(domains: Sequence[DomainCheckup]) -> None:
    print_table(
        ("DOMAIN", "STATE", "DISTRIBUTION", "VERSION", "LOAD", "OPERATORS"),
        [
            (
                each.domain,
                each.state,
                each.distribution,
                each.version,
                "" if each.load_ms is None else duration(each.load_ms / 1e3),
                str(len(each.operators)) if each.operators else "",
            )
            for each in domains
        ],
    )


def _summary(driven: DrivenDevice) -> str:
    return ", ".join(f"{check.op}{NO_BREAK}{check.verdict}" for check in driven.checks)


def _print_details(plugin: Checkup, names: _Names) -> None:
    """What there is to say beside the table, if anything."""
    lines: list[tuple[str, str]] = []
    if plugin.reason:
        lines.append((f"{plugin.state}: {plugin.reason}", plugin.remedy))
    said = [finding.message for finding in plugin.findings]
    for refused in plugin.refused:
        if not any(refused.reason in message for message in said):
            text = f"{names.of(refused.device)} is refused: {refused.reason}"
            lines.append((text, refused.remedy))
    for finding in plugin.findings:
        level = "" if finding.level is Level.OK else f"{finding.level}: "
        lines.append((f"{level}{finding.message}", finding.remedy))
    for driven in plugin.devices:
        place = names.of_driven(driven)
        for check in driven.checks:
            if check.verdict is not Verdict.OK:
                text = f"{check.op} on {place} {check.verdict}: {check.detail}"
                lines.append((text, check.remedy))
        trial = trial_text(str(driven.device.type), driven.tried_on)
        if trial and not driven.tried_on:
            lines.append((f"warning: {trial}", ""))
        if driven.families:
            lines.append((f"{passed_text(driven.families)} on {place}", ""))
        again = f"onnxplug doctor --verify {name_to_write(plugin.ep)}"
        lines += [(text, again) for text in other_texts(driven.families)]
    if lines:
        _print_lines(plugin.ep, lines)


def _print_lines(name: str, lines: Sequence[tuple[str, str]]) -> None:
    """What is to be said of *name*, each with what to do about it."""
    say(f"\n{name}")
    for text, remedy in lines:
        say(_indented(text))
        if remedy:
            say(_indented(f"→ {remedy}"))


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.split("\n"))
