"""Verdicts on disk: once for all processes, until something that matters changes."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from onnxplug.authoring.entries import Cache, fingerprint
from onnxplug.ep import DataType
from onnxplug.selection.compatibility import lasting_facts
from onnxplug.verify.verdict import FamilyVerdict, Verdict

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, Probe

_FORMAT: Final = 2
_DISTRIBUTION: Final = "onnxplug"


def entry_name(
    ep: Mapping[str, str],
    engine: Mapping[str, str],
    reference: Mapping[str, str],
    device: EpDevice,
    probes: Sequence[Probe],
) -> str:
    """The name of the entry for all that verdicts depend on.

    Args:
        ep: name, versions, origin and code of the EP.
        engine: versions of what it computes with.
        reference: the same of the CPU EP.
    """
    from onnxplug import __version__

    facts = {
        "format": _FORMAT,
        "onnxplug": __version__,
        "ep": dict(ep),
        "engine": dict(engine),
        "reference": dict(reference),
        "system": [platform.system(), platform.release(), platform.version()],
        "machine": platform.machine(),
        **lasting_facts(device),
        "probes": [_probe_digest(probe) for probe in probes],
    }
    text = json.dumps(facts, sort_keys=True)
    return f"verify-{fingerprint(text).hex()}"


def load(name: str) -> list[FamilyVerdict] | None:
    """The verdicts of an entry; ``None`` if there is none that can be trusted."""
    content = _cache().load(name)
    if content is None:
        return None
    try:
        return [_from_json(row) for row in json.loads(content)]
    except (ValueError, TypeError):  # of a version that wrote them otherwise
        return None


def store(name: str, verdicts: Sequence[FamilyVerdict]) -> str:
    """Keep *verdicts*; returns why they cannot be kept, empty if they are."""
    cache = _cache()
    rows = [_to_json(verdict) for verdict in verdicts]
    cache.store(name, json.dumps(rows).encode())
    cache.prune_if_due()
    return cache.problem or ""


def _cache() -> Cache:
    return Cache(_DISTRIBUTION)


def _to_json(verdict: FamilyVerdict) -> list[Any]:
    return [
        verdict.family,
        sorted(verdict.operators),
        verdict.verdict,
        verdict.detail,
        verdict.timeouts,
    ]


def _from_json(row: Any) -> FamilyVerdict:
    family, operators, verdict, detail, timeouts = row
    return FamilyVerdict(
        family,
        frozenset(
            (domain, op_type, DataType(dtype)) for domain, op_type, dtype in operators
        ),
        Verdict(verdict),
        detail,
        timeouts=timeouts,
    )


def _probe_digest(probe: Probe) -> str:
    inputs = [
        (name, str(array.dtype), array.shape, _content(array))
        for name, array in sorted(probe.inputs.items(), key=lambda item: item[0])
    ]
    facts = [
        probe.family,
        sorted(probe.operators),
        probe.model.hex(),
        [float(bound) for bound in probe.tolerance],
        inputs,
    ]
    return fingerprint(json.dumps(facts)).hex()


def _content(array: Any) -> str:
    # the bytes of texts would be addresses
    text: str = repr(array.tolist()) if array.dtype.hasobject else array.tobytes().hex()
    return text
