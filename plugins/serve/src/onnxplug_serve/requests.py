"""A request to run a model, and its answer, whatever protocol they travel by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class InferRequest:
    """What a model is to be run on.

    Attributes:
        feeds: arrays, by input.
        outputs: names of those that are wanted; empty for all.
        id: is in the answer, too.
        timeout: seconds from when it was read until it is answered; 0: the server's.
        held: bytes that it takes while it waits.
    """

    feeds: Mapping[str, Any]
    outputs: Sequence[str] = ()
    id: str = ""
    timeout: float = 0.0
    held: int = 0


@dataclass(frozen=True, slots=True)
class InferResponse:
    """What came of it.

    Attributes:
        results: arrays, by output, in the order in which they were asked for.
        parameters: of the protocol: how many requests were joined in the run.
    """

    model: str
    version: str
    id: str
    results: Mapping[str, Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)
