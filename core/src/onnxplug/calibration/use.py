"""What a session of the policy does with verdicts: it looks for one, or measures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.calibration import store
from onnxplug.calibration.inputs import draw_all
from onnxplug.calibration.measure import Limits, NothingUsable, measure
from onnxplug.calibration.subject import Subject
from onnxplug.entries import CALIBRATE
from onnxplug.errors import OptionError
from onnxplug.warn import warn_user

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug.calibration.verdict import Verdict
    from onnxplug.graph import Graph
    from onnxplug.plugins import PluginRegistry
    from onnxplug.selection import ProviderRequest
    from onnxplug.selection.policy_choice import PolicyChoice
    from onnxplug.session.request import SessionRequest

_COMMAND = "`onnxplug calibrate` measures them"


def calibrated(
    request: SessionRequest,
    registry: PluginRegistry,
    graph: Graph,
    choice: PolicyChoice,
) -> tuple[Sequence[ProviderRequest] | None, str]:
    """The EPs that were measured to be fastest, and how they were chosen, in words.

    They are measured now if the options say so and nothing is known.

    Args:
        graph: the model's as it was loaded.

    Returns:
        ``None`` in place of the EPs if the policy's own rule is to choose.

    Raises:
        LoadCancelled: the options say so.
    """
    subject = Subject(request, graph, choice, registry)
    if len(subject.candidates) < 2:
        return None, "the static rule, as there is one EP to choose"
    verdict = store.load(subject.entry)
    why = "nothing was measured"
    if verdict is None and request.options.config[CALIBRATE] == "1":
        verdict, why = _measured(subject)
    if verdict is None:
        return None, (
            f"the static rule, as {why} for this model, these EPs, options and this "
            f"machine; {_COMMAND}"
        )
    return verdict.chosen.requests(subject.candidates), str(verdict)


def _measured(subject: Subject) -> tuple[Verdict | None, str]:
    """The verdict on *subject*, which is kept; ``None`` and why there is none."""
    options = subject.request.options
    try:
        feed = draw_all({n: subject.graph.value(n).type for n in subject.graph.inputs})
        verdict = measure(
            subject, feed, Limits(), lambda text, share: None, options.check_load
        )
    except (OptionError, NothingUsable) as error:
        why = f"measuring EPs failed ({error})"
        warn_user(
            f"session config entry {CALIBRATE!r} is set, and {why}; the policy's "
            "static rule chooses",
            cause=error,
        )
        return None, why
    warn_of_differences(verdict)
    problem = store.store(subject.entry, verdict)
    return verdict._replace(kept=problem), ""


def warn_of_differences(verdict: Verdict) -> None:
    """Warn of plans whose outputs are not those of the first that ran."""
    ran = [each for each in verdict.measured if each.runs or each.difference]
    for each in ran[1:]:
        if each.difference and not each.plan.is_mixed:
            warn_user(
                f"{each.plan.first} was not chosen whatever time it takes, as it gives "
                f"other results than {ran[0].plan.first}: {each.difference}"
            )
