"""Reports what became of each EP that was asked for, and warns of one that is idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from operator import itemgetter

from onnxplug.errors import EpError
from onnxplug.partition.report import EpOutcome, Explanation
from onnxplug.selection import CPU, ChosenEp, FailedEp, Origin, ProviderRequest
from onnxplug.selection.choose import WHY
from onnxplug.warn import warn_user


def report_outcomes(
    explanation: Explanation,
    chosen: Iterable[ChosenEp],
    failed: Iterable[FailedEp],
    others: Iterable[tuple[int, EpOutcome]] = (),
) -> None:
    """Add what became of each EP to *explanation*, in the order of preference.

    Args:
        others: the outcomes of further EPs, with their ranks.

    Raises:
        EpError: one runs no node, and its request says ``error_on_failure``.
    """
    outcomes = [*others]
    for failure in failed:
        outcome = EpOutcome(failure.request.name, "", "failed", str(failure.error))
        outcomes.append((failure.rank, outcome))
    used = {node.ep for node in explanation.nodes}
    for ep in chosen:
        state = reason = ""
        claimed = explanation.claimed[ep.name]
        if ep.name in used or not explanation.nodes:
            state = "used"
        elif ep.request is None or ep.name == CPU:
            state = "not needed"
        else:
            passed = (each for _, each in explanation.refusals if each.ep == ep.name)
            reason = commonest(str(each.reason) for each in passed)
            returned = ep.name in [back.ep for back in explanation.given_back]
            state = "given back" if returned else "claimed nothing"
            _complain_of_idle(ep, ep.request, reason)
        outcome = EpOutcome(ep.name, ep.device, state, reason, claimed)
        outcomes.append((ep.rank, outcome))
    outcomes.sort(key=itemgetter(0))
    explanation.eps.extend(outcome for _, outcome in outcomes)


def commonest(reasons: Iterable[str]) -> str:
    """The three that are there most often, each with how often."""
    counts = Counter(reasons)
    return "; ".join(f"{reason} ({count}×)" for reason, count in counts.most_common(3))


def _complain_of_idle(ep: ChosenEp, request: ProviderRequest, reason: str) -> None:
    text = f"{ep.name} {WHY[request.origin]} and runs no node of the model: {reason}"
    if request.error_on_failure:
        raise EpError(text, ep=ep.name, stage="get_capability")
    if request.origin is Origin.LIST:
        warn_user(text)
