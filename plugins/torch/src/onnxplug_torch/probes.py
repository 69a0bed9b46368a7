"""Small models by which the host sees whether a device computes right."""

from __future__ import annotations

from collections.abc import Iterable

from onnxplug import ep


def probes() -> Iterable[ep.Probe]:
    return []
