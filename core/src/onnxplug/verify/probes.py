"""The probes of an EP, checked where they enter."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from onnxplug.ep import DataType, Probe
from onnxplug.errors import EpError
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.plugins.declared import is_text_table

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, EpFactory


def read_probes(factory: EpFactory, device: EpDevice) -> list[Probe]:
    """The probes of *factory* for *device*.

    Raises:
        EpError: it raised, or one of them is not as it has to be.
    """
    try:
        found = factory.verification
        probes = [] if found is None else list(found.probes(device))
    except FAILURES as error:
        raise ep_failure(factory.name, "probes", error) from error
    families: set[str] = set()
    for probe in probes:
        fault = _fault(probe)
        if not fault and probe.family in families:
            fault = "another one has the same family"
        if fault:
            raise EpError(
                f"{factory.name} failed in probes: of its probe "
                f"{getattr(probe, 'family', probe)!r} for {device}, {fault}",
                ep=factory.name,
                stage="probes",
            )
        families.add(probe.family)
    return probes


def read_versions(factory: EpFactory, device: EpDevice) -> dict[str, str]:
    """What *factory* says that results on *device* depend on.

    Raises:
        EpError: it raised, or says something else than texts.
    """
    try:
        versions = dict(factory.engine_versions(device))
        if not is_text_table(versions):
            raise TypeError(f"it returned {versions!r}; expected texts")
    except FAILURES as error:
        raise ep_failure(factory.name, "engine_versions", error) from error
    return versions


def _fault(probe: object) -> str:
    """What is wrong with *probe*; empty if nothing is."""
    if not isinstance(probe, Probe):
        return "it is no onnxplug.ep.Probe"
    if not isinstance(probe.family, str) or not probe.family.strip():
        return "the family is no text"
    if not isinstance(probe.operators, frozenset) or not probe.operators:
        return "operators is no frozenset of at least one operator"
    for operator in probe.operators:
        match operator:
            case (str(domain), str(), DataType()) if domain != "ai.onnx":
                pass
            case _:
                return (
                    f"the operator {operator!r} is no (domain, operator, DataType), "
                    "where ONNX's own domain is ''"
                )
    if not isinstance(probe.model, bytes):
        return "the model is no bytes"
    if not isinstance(probe.inputs, Mapping) or not all(
        isinstance(name, str) and isinstance(array, np.ndarray)
        for name, array in probe.inputs.items()
    ):
        return "inputs is no mapping of names to numpy arrays"
    match probe.tolerance:
        case (int() | float() as relative, int() | float() as absolute):
            if all(math.isfinite(x) and x >= 0 for x in (relative, absolute)):
                return ""
    return f"tolerance is {probe.tolerance!r}; expected two numbers of at least 0"
