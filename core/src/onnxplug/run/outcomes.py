"""Reports what became of each EP that was asked for, and warns of one that is idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from onnxplug.errors import EpError
from onnxplug.run.partition.report import EpOutcome, Explanation
from onnxplug.selection import CPU, ChosenEp, FailedEp, Origin, ProviderRequest
from onnxplug.selection.choose import WHY
from onnxplug.warn import warn_user


def report_outcomes(
    explanation: Explanation, chosen: Iterable[ChosenEp], failed: Iterable[FailedEp]
) -> None:
    """Add what became of each EP to *explanation*.

    Raises:
        EpError: one runs no node, and its request says ``error_on_failure``.
    """
    for failure in failed:
        explanation.eps.append(
            EpOutcome(failure.request.name, "", "failed", str(failure.error))
        )
    used = {node.ep for node in explanation.nodes}
    for ep in chosen:
        if ep.name in used or not explanation.nodes:
            outcome = EpOutcome(ep.name, ep.device, "used")
        elif ep.request is None or ep.name == CPU:
            outcome = EpOutcome(ep.name, ep.device, "unused")
        else:
            reason = _commonest_reasons(explanation, ep.name)
            claimed = ep.name in [back.ep for back in explanation.given_back]
            state = "given back" if claimed else "claimed nothing"
            outcome = EpOutcome(ep.name, ep.device, state, reason)
            _complain_of_idle(ep, ep.request, reason)
        explanation.eps.append(outcome)


def _commonest_reasons(explanation: Explanation, ep: str) -> str:
    counts = Counter(
        str(passed.reason) for _, passed in explanation.refusals if passed.ep == ep
    )
    return "; ".join(f"{reason} ({count}×)" for reason, count in counts.most_common(3))


def _complain_of_idle(ep: ChosenEp, request: ProviderRequest, reason: str) -> None:
    text = f"{ep.name} {WHY[request.origin]} and runs no node of the model: {reason}"
    if request.error_on_failure:
        raise EpError(text, ep=ep.name, stage="get_capability")
    if request.origin is Origin.LIST:
        warn_user(text)
