"""Runs whose inputs come late, and what is held against what they leave."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from onnxplug import ep
from onnxplug_testing.conformance import sentences as said
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.finding import Case
from onnxplug_testing.conformance.laboratory import (
    Array,
    Laboratory,
    asking,
    has_streams,
    poison,
)
from onnxplug_testing.conformance.partitions import examined
from onnxplug_testing.conformance.specimens import (
    Specimen,
    agrees,
    differs,
    several,
    single,
)
from onnxplug_testing.conformance.trial import Trial

LARGE: Final = (64, 96)


def large(has: Any) -> Specimen:
    """Several nodes of arrays that take a while."""
    return several(has, LARGE)


def queued(trial: Trial, what: str, *choices: Any) -> Any:
    """As :func:`examined`, where the EP has streams."""
    for lab, specimen, case in examined(trial, what, *(choices or (single, large))):
        with asking(trial, said.RESULTS, case):
            if lab.bench is None:
                trial.leave_out("the EP works in the host's memory: nothing is queued")
            elif not has_streams(lab.bench):
                trial.leave_out("the device has no streams: its work is done at once")
            else:
                yield lab, specimen, case


def late_feeds(
    lab: Laboratory, feeds: Mapping[str, Array], stream: ep.Stream
) -> dict[str, Any]:
    """Inputs that hold poison until *stream*, which is busy, comes to them."""
    bench = lab.on_device
    waste = {
        name: poison(array.shape, ep.DataType.from_numpy(array.dtype))
        for name, array in feeds.items()
    }
    placed = lab.put(waste)
    stream_is_busy = False
    for name, array in placed.items():
        if isinstance(array, np.ndarray):
            placed[name] = feeds[name]
            continue
        if not stream_is_busy:
            bench.burden(stream)
            stream_is_busy = True
        bench.copy(feeds[name], array, stream)
    return placed


def fetch(
    lab: Laboratory, given: Mapping[str, Any], stream: ep.Stream
) -> dict[str, Array]:
    """Copies of results on the host, which *stream* has queued."""
    found = {}
    for name, array in given.items():
        if isinstance(array, np.ndarray):
            found[name] = array
            continue
        dtype = lab.on_device.data_type(array).numpy
        found[name] = np.zeros(tuple(array.shape), dtype)
        lab.on_device.copy(array, found[name], stream)
    return found


def hold_against(
    trial: Trial,
    found: Mapping[str, Array],
    expected: Mapping[str, Array],
    sentence: Sentence,
    what: str,
    case: Case,
    node: str = "",
) -> None:
    """Find what differs."""
    for name, array in found.items():
        if not agrees(array, expected[name]):
            trial.find(
                sentence,
                f"{what}: {name!r}: {differs(array, expected[name])}",
                node=node,
                case=case,
                kind=f"{what} {node}",
            )
