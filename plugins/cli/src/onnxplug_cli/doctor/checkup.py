"""What is found out of one plugin, step by step: loaded, asked, made to compute.

Invariant: nothing that a plugin raises leaves here; it is what was looked for.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Final

from onnxplug.ep import (
    DeviceType,
    EpFactory,
    Finding,
    HardwareDevice,
    Level,
    RefusedDevice,
    raise_interruption,
)
from onnxplug.errors import EpError, PluginError
from onnxplug.guard import in_words
from onnxplug.hardware import discover
from onnxplug.plugins import PluginRecord, PluginRegistry, PluginState
from onnxplug.selection.available import no_device
from onnxplug.selection.devices import hardware_for, judged_devices
from onnxplug_cli.distinctions import distinctions
from onnxplug_cli.doctor.compute import (
    TRIALS,
    Check,
    Verdict,
    compute,
    known_remedy,
    makers_of,
)
from onnxplug_cli.families import Family, families, tried_on

_NO_OPTIONS: Final[Mapping[str, str]] = {}

_LOG: Final = logging.getLogger("onnxplug.cli")


class Crash(StrEnum):
    """How a plugin ended the process that it was checked in; a state beside others."""

    CRASHED = "crashed"
    TIMED_OUT = "timed out"


USABLE: Final = (PluginState.READY, PluginState.BLOCKED)
"""States that are as they should be; a plugin is blocked because somebody said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrivenDevice:
    """A device that the EP says it drives, and what it computed there.

    Attributes:
        distinction: what tells it from others that the EP drives on the same hardware;
            empty where there are none.
        tried_on: on which hardware of this kind its makers ran the EP; empty if they
            never did, ``None`` if they do not say.
        families: what the on-device check found.
    """

    device: HardwareDevice
    distinction: str = ""
    tried_on: str | None = None
    checks: tuple[Check, ...] = ()
    families: tuple[Family, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkup:
    """What is known of one plugin so far.

    Attributes:
        state: a :class:`PluginState` or a :class:`Crash`.
        load_ms: how long it took to load, in milliseconds; ``None`` if it was not
            loaded, or before.
        reason, remedy: why the state is what it is, and what to do; empty when ready.
        refused: devices that it might drive and does not, and why.
        findings: what the EP says of itself, and what went wrong in asking it.
        probed: devices that only this plugin finds.
        doing: what comes next; empty when it is done.
    """

    ep: str
    state: str
    distribution: str
    version: str
    load_ms: float | None = None
    reason: str = ""
    remedy: str = ""
    devices: tuple[DrivenDevice, ...] = ()
    refused: tuple[RefusedDevice, ...] = ()
    findings: tuple[Finding, ...] = ()
    probed: tuple[HardwareDevice, ...] = ()
    doing: str = ""

    @property
    def checks(self) -> list[Check]:
        """Those on all devices."""
        return [check for driven in self.devices for check in driven.checks]

    @property
    def problem(self) -> str:
        """What is wrong with it, in a few words; empty if it may be used."""
        if self.state not in USABLE:
            return self.state
        faults = [f.message for f in self.findings if f.level is Level.ERROR]
        if faults:
            return faults[0].splitlines()[0]
        for check in self.checks:
            if check.verdict in (Verdict.WRONG, Verdict.FAILED):
                return f"{check.op} {check.verdict}"
        failed = [
            each.family
            for driven in self.devices
            for each in driven.families
            if each.verdict == "failed"
        ]
        if failed:
            return f"families failed on this machine: {', '.join(failed)}"
        return ""

    @property
    def works(self) -> bool:
        """Whether there is a device that it can be used on."""
        return self.state == PluginState.READY and bool(
            self.devices and not self.problem
        )

    def to_json(self) -> dict[str, Any]:
        """All of it as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Checkup:
        """The inverse of :meth:`to_json`."""
        return cls(
            **data
            | {
                "devices": tuple(
                    DrivenDevice(
                        device=_device(driven["device"]),
                        distinction=driven["distinction"],
                        tried_on=driven["tried_on"],
                        families=tuple(
                            Family(**family) for family in driven["families"]
                        ),
                        checks=tuple(
                            Check(**check | {"verdict": Verdict(check["verdict"])})
                            for check in driven["checks"]
                        ),
                    )
                    for driven in data["devices"]
                ),
                "refused": tuple(
                    RefusedDevice(**refused | {"device": _device(refused["device"])})
                    for refused in data["refused"]
                ),
                "findings": tuple(
                    Finding(**finding | {"level": Level(finding["level"])})
                    for finding in data["findings"]
                ),
                "probed": tuple(map(_device, data["probed"])),
            }
        )


def _device(data: dict[str, Any]) -> HardwareDevice:
    return HardwareDevice(**data | {"type": DeviceType(data["type"])})


def begin(record: PluginRecord) -> Checkup:
    """What is known of a plugin before it is touched."""
    reason, remedy = _describe(record)
    return Checkup(
        ep=record.name,
        state=str(record.state),
        distribution=record.distribution,
        version=record.version,
        reason=reason,
        remedy=remedy,
    )


def examine(
    record: PluginRecord,
    registry: PluginRegistry,
    options: Mapping[str, str] = _NO_OPTIONS,
) -> Iterator[Checkup]:
    """What is known before each step, which ``doing`` names; the last one is all.

    Args:
        options: of the EP, for what it computes.
    """
    checkup = begin(record)
    if record.state is PluginState.FOUND:
        yield replace(checkup, doing="being loaded")
        started = time.perf_counter()
        try:
            registry.factory(record.name)
        except PluginError as error:  # the record keeps it
            _LOG.debug("%s", error)
        elapsed = (time.perf_counter() - started) * 1e3
        record = registry.resolve(record.name)
        checkup = replace(begin(record), load_ms=elapsed)
    factory = record.factory
    if factory is None:
        yield checkup
        return

    yield replace(checkup, doing="listing its devices")
    found = discover()
    hardware = hardware_for(registry, record.name, found)
    findings = [
        Finding(level=Level.WARNING, message=text, remedy=_makers(record))
        for text in record.problems.values()
    ]
    try:
        pairs, refused = judged_devices(factory, hardware)
    except EpError as error:
        pairs = refused = ()
        _LOG.debug("%s", error)
        todo = known_remedy(error) or _makers(record)
        findings.append(Finding(level=Level.ERROR, message=str(error), remedy=todo))
    driven = [
        DrivenDevice(
            device=pair.device, distinction=told, tried_on=tried_on(factory, pair)
        )
        for pair, told in zip(
            pairs, distinctions(pairs, lambda pair: pair.device), strict=True
        )
    ]
    checkup = replace(
        checkup,
        devices=tuple(driven),
        refused=refused,
        findings=tuple(findings),
        probed=tuple(device for device in hardware if device not in found),
    )

    yield replace(checkup, doing="diagnosing itself")
    findings += _diagnose(factory, _makers(record))
    is_lacking = any(each.level is Level.ERROR for each in findings)
    if not pairs and not is_lacking:
        # an error of the EP's own says why already
        none, todo = no_device(factory, hardware, refused)
        findings.append(Finding(level=Level.WARNING, message=none, remedy=todo))
    checkup = replace(checkup, findings=tuple(findings))

    for number, pair in enumerate(pairs):
        for trial in TRIALS:
            yield replace(checkup, doing=f"computing {trial.op} on {pair.device.type}")
            check = compute(trial, pair, record.distribution, options)
            if check.verdict is Verdict.FAILED and is_lacking:
                check = replace(check, remedy="first mend what is said above")
            checks = (*driven[number].checks, check)
            driven[number] = replace(driven[number], checks=checks)
            checkup = replace(checkup, devices=tuple(driven))
        # the computations were the first, so what can be known of it is known now
        try:
            driven[number] = replace(driven[number], families=families(factory, pair))
        except EpError as error:
            text = str(error)
            findings.append(
                Finding(level=Level.WARNING, message=text, remedy=_makers(record))
            )
        checkup = replace(checkup, devices=tuple(driven), findings=tuple(findings))
    yield checkup


def _describe(record: PluginRecord) -> tuple[str, str]:
    """Why a plugin is not usable, and what to do; its reason states both."""
    if record.error is not None and record.state is PluginState.FAILED:
        why = f"{type(record.error).__name__}: {record.error}"
        remedy = record.reason.partition("\nTo remedy this, ")[2]
    else:
        why, _, remedy = record.reason.partition("; ")
        why = why.removeprefix(f"{record} is {record.state}: ")
    return why, remedy.removesuffix(".")


def _makers(record: PluginRecord) -> str:
    return makers_of(record.distribution)


def _diagnose(factory: EpFactory, remedy: str) -> list[Finding]:
    try:
        findings = list(factory.diagnose())
        for finding in findings:
            if not isinstance(finding, Finding):
                raise TypeError(f"{finding!r} is no onnxplug.ep.Finding")
    # whatever a plugin raises; its EP may work all the same
    except (Exception, SystemExit) as error:  # noqa: BLE001
        raise_interruption(error)
        _LOG.debug("%s", error)
        text = f"it cannot diagnose itself: {in_words(error)}"
        return [Finding(level=Level.WARNING, message=text, remedy=remedy)]
    return findings
