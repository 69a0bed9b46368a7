"""What is known of an EP on a device without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onnxplug.ep import EpDevice, EpFactory


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What the on-device check found of a family of operators.

    Attributes:
        verdict: ``passed``, ``failed`` or ``unverified``.
        detail: what was wrong, or why it is unverified; empty when it passed.
    """

    family: str
    verdict: str
    detail: str = ""


def families(factory: EpFactory, pair: EpDevice) -> tuple[Family, ...]:
    """What was found before of each family that the EP has probes for.

    Raises:
        EpError: its probes are not as they have to be.
    """
    from onnxplug.plugins import registry
    from onnxplug.verify.check import known_verdicts

    return tuple(
        Family(family=each.family, verdict=str(each.verdict), detail=each.detail)
        for each in known_verdicts(factory, pair, registry)
    )


def tried_on(factory: EpFactory, pair: EpDevice) -> str | None:
    """On which hardware of this kind its makers ran the EP.

    Empty if they never did; ``None`` if they do not say.
    """
    kinds = factory.tried_on
    return None if kinds is None else kinds.get(pair.device.type, "")


def trial_text(kind: str, tried: str | None) -> str:
    """What :func:`tried_on` means for a *kind* of device; empty for ``None``."""
    if tried is None:
        return ""
    if tried:
        return f"its makers ran it on {tried}"
    return f"it never ran on a device of the kind {kind} in its makers' hands"


def passed_text(found: Sequence[Family]) -> str:
    """How many passed the check; empty if the EP has no probes."""
    passed = Counter(each.verdict for each in found)["passed"]
    return f"{passed} of {len(found)} families passed the check" if found else ""


def other_texts(found: Sequence[Family]) -> list[str]:
    """A line for each that did not pass the check."""
    return [
        f"family {each.family!r} {each.verdict}: {each.detail}"
        for each in found
        if each.verdict != "passed"
    ]


def device_data(tried: str | None, found: Sequence[Family]) -> dict[str, Any]:
    """The same for JSON."""
    return {"tried_on": tried, "families": [asdict(each) for each in found]}
