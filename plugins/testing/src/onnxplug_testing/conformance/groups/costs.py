"""Whether what an EP says that work costs can be weighed."""

from __future__ import annotations

import math

from onnxplug_testing.conformance.check import check
from onnxplug_testing.conformance.contract import Sentence
from onnxplug_testing.conformance.trial import Trial

FINITE = Sentence("Costs", "All are finite and not less than 0.")


@check("costs", share=0.2)
def of_pairs(trial: Trial) -> None:
    """The costs of each device are finite and not less than 0."""
    for pair in trial.subject.pairs:
        if pair.costs is None:
            trial.leave_out(f"{pair} states none, and the host's are taken")
            continue
        trial.count()
        for name in (
            "seconds_per_copy",
            "seconds_per_byte",
            "seconds_gained_per_node",
        ):
            seconds = getattr(pair.costs, name)
            if not (math.isfinite(seconds) and seconds >= 0):
                trial.find(FINITE, f"{name} of {pair} is {seconds}")
