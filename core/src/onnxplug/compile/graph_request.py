"""One graph to compile, and all that is known of it when that begins."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onnxplug.authoring.record import Record
from onnxplug.graph import Graph
from onnxplug.options import SessionOptions
from onnxplug.partition import Candidate
from onnxplug.partition.changes import Changes
from onnxplug.partition.report import Explanation
from onnxplug.run.profiling import Profile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from onnxplug.compile.ep_context.restore import Restorer
    from onnxplug.partition.pins import Pins
    from onnxplug.partition.survey import Answers


class GraphRequest(Record):
    """What compiling a graph takes.

    Attributes:
        candidates: the EPs, the first choice first.
        explanation: each decision is noted there.
        changes: made to the model's graphs, and taken back.
        where: empty for the main graph, else the way to the body, for reports.
        answers: what the EPs said of these graphs before, if they were asked.
        restorer: restores what was compiled before.
        pins: which nodes the user wants on which EP, if any.
        by_estimates: as of ``partition.cost.find_unprofitable``.
    """

    graph: Graph
    candidates: Sequence[Candidate]
    explanation: Explanation
    changes: Changes
    options: SessionOptions
    where: str = ""
    profile: Profile | None = None
    answers: Answers | None = None
    restorer: Restorer | None = None
    pins: Pins | None = None
    by_estimates: bool = False
