"""``onnxplug doctor --verify EP``: the on-device check, without a limit of time."""

from __future__ import annotations

import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from onnxplug.authoring.record import Record
from onnxplug.duration import duration
from onnxplug.hardware import discover
from onnxplug.plugins import registry
from onnxplug.selection.available import find_factory, no_device
from onnxplug.selection.devices import hardware_for, judged_devices
from onnxplug.verify.check import run_probes
from onnxplug.verify.verdict import FamilyVerdict, Verdict
from onnxplug_cli.devices import description, hardware_data
from onnxplug_cli.distinctions import distinctions
from onnxplug_cli.failure import CommandFailed
from onnxplug_cli.families import trial_text, tried_on
from onnxplug_cli.progress import Progress
from onnxplug_cli.text import print_json, print_table, say

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, EpFactory


class Checked(Record):
    """What was found of one family, and how long it took, in seconds."""

    verdict: FamilyVerdict
    seconds: float


def verify_ep(name: str, *, as_json: bool) -> bool:
    """Run all probes of an EP, and print what is found; whether none failed.

    Raises:
        CommandFailed: it drives no device here.
        OnnxplugError: it cannot be had, or its probes are not as they have to be.
    """
    factory = find_factory(name, registry)
    hardware = hardware_for(registry, factory.name, discover())
    pairs, refused = judged_devices(factory, hardware)
    if not pairs:
        raise CommandFailed("; ".join(no_device(factory, hardware, refused)))
    apart = distinctions(
        pairs, lambda pair: (pair.device.type, description(pair.device))
    )
    checked = [
        (pair, told, _check(factory, pair))
        for pair, told in zip(pairs, apart, strict=True)
    ]
    if as_json:
        print_json(
            {
                "ep": factory.name,
                "version": factory.version,
                "devices": [_data(factory, *each) for each in checked],
            }
        )
    else:
        for pair, told, found in checked:
            _print(factory, pair, told, found)
    return not any(
        each.verdict.verdict is Verdict.FAILED
        for _, _, found in checked
        for each in found
    )


def _check(factory: EpFactory, pair: EpDevice) -> list[Checked]:
    found = []
    # what a plugin prints is no result of ours
    with Progress("") as progress, contextlib.redirect_stdout(sys.stderr):
        progress.text = f"checking {pair} …"
        started = time.perf_counter()
        for verdict in run_probes(factory, pair, registry):
            now = time.perf_counter()
            found.append(Checked(verdict, now - started))
            started = now
    return found


def _data(
    factory: EpFactory, pair: EpDevice, told: str, found: list[Checked]
) -> dict[str, Any]:
    return {
        "device": hardware_data(pair.device),
        "distinction": told,
        "tried_on": tried_on(factory, pair),
        "families": [
            {
                "family": each.family,
                "operators": [list(operator) for operator in sorted(each.operators)],
                "verdict": str(each.verdict),
                "detail": each.detail,
                "seconds": seconds,
            }
            for each, seconds in found
        ],
    }


def _print(factory: EpFactory, pair: EpDevice, told: str, found: list[Checked]) -> None:
    kind = str(pair.device.type)
    device = " ".join(filter(None, (kind, description(pair.device), told)))
    say(f"{factory.name} {factory.version} on {device}")
    text = trial_text(kind, tried_on(factory, pair))
    if text:
        say(text)
    if not found:
        say("It has no probes: what it claims is used unverified.")
        return
    print_table(
        ("FAMILY", "VERDICT", "TIME", "DETAIL"),
        [
            (each.family, str(each.verdict), duration(seconds), each.detail)
            for each, seconds in found
        ],
        right=("TIME",),
        wrap="DETAIL",
    )
