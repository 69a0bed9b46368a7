"""Asks EPs for their compiled partitions as bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from onnxplug.authoring.checksum import Checksum
from onnxplug.authoring.entries import fingerprint
from onnxplug.authoring.nodes import describe
from onnxplug.compile.ep_context.container import Entry
from onnxplug.compile.ep_context.signature import signature
from onnxplug.ep import CompiledPartition, Declined, LoadCancelled, Reason, RefusalCode
from onnxplug.errors import OutOfMemory
from onnxplug.guard import FAILURES, ep_failure
from onnxplug.interruption import raise_interruption
from onnxplug.partition import Candidate
from onnxplug.partition.compile_partition import declined_reason
from onnxplug.partition.report import NotWritten
from onnxplug.partition.specialisations import specialisations
from onnxplug.run.compiled import CompiledGraph, CompiledUnit
from onnxplug.selection import ChosenEp
from onnxplug.selection.compatibility import compatibility_info

Entries = dict[int, Entry]
"""What came of units, by the identity of these."""


def serialise(
    compiled: CompiledGraph, chosen: Sequence[ChosenEp], prefix: str = ""
) -> tuple[Entries, list[NotWritten]]:
    """The partitions of *compiled*, those of bodies too, that can be serialised; and
    why others cannot.

    Args:
        prefix: what the names of the entries begin with.

    Raises:
        EpError, OutOfMemory, LoadCancelled: an EP failed, or says so.
    """
    entries: Entries = {}
    left: list[NotWritten] = []
    infos: dict[str, tuple[str, ...]] = {}
    by_name = {ep.name: ep for ep in chosen}
    for unit in _units(compiled):
        if unit.candidate is None or unit.compiled is None:
            continue
        ep = by_name[unit.candidate.name]
        data = _serialised(unit.candidate, unit, unit.compiled)
        if isinstance(data, Reason):
            left.append(NotWritten(unit.number, ep.name, data))
            continue
        if ep.name not in infos:
            infos[ep.name] = tuple(
                compatibility_info(ep.factory, device) for device in ep.devices
            )
        digest, types = Checksum(data).digits(), signature(unit.partition)
        # bytes need not say which types they are of
        kind = fingerprint(json.dumps(types)).hex()[:8]
        entries[id(unit)] = Entry(
            f"{prefix}{ep.name}_{digest}_{kind}",
            ep.name,
            infos[ep.name],
            ep.compiled_in,
            types,
            digest,
            data,
        )
    return entries, left


def _units(compiled: CompiledGraph) -> Sequence[CompiledUnit]:
    found = []
    for unit in compiled.units:
        found.append(unit)
        for body in unit.bodies.values():
            found += _units(body)
    return found


def _serialised(
    candidate: Candidate, unit: CompiledUnit, compiled: CompiledPartition
) -> memoryview | Reason:
    ep, serialiser = candidate.name, candidate.provider.serialiser
    if serialiser is None:
        return Reason(RefusalCode.OTHER, "the EP serialises nothing")
    if specialisations(compiled) is not None:
        return Reason(
            RefusalCode.OTHER, "it is compiled for the shapes that runs bring"
        )
    where = describe(unit.partition.nodes[0])
    try:
        data: object = serialiser.serialise(compiled)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"it returned a {type(data).__name__}; expected bytes")
        return memoryview(data).cast("B").toreadonly()
    except Declined as error:
        raise_interruption(error)
        return declined_reason(error.reason)
    except LoadCancelled:
        raise
    except MemoryError as error:
        raise_interruption(error)
        what = f"{ep}, to serialise the partition from {where} on,"
        raise OutOfMemory.of(error, what, ep=ep) from error
    except FAILURES as error:
        raise ep_failure(ep, "serialise", error) from error


def infos_by_ep(entries: Mapping[int, Entry]) -> dict[str, str]:
    """For each EP what it says of its first device, which ONNX Runtime asks for."""
    return {entry.ep: entry.info[0] for entry in entries.values()}
