"""A page that shows where each node of a model runs, and why: one file of HTML.

It has all that it shows, and fetches nothing.
"""

from __future__ import annotations

import json
from html import escape as as_html
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from onnxplug.escape import escape
from onnxplug_cli.page.content import content
from onnxplug_cli.page.times import Times, read_times

if TYPE_CHECKING:
    from onnxplug.partition.report import Explanation


def page(
    explanation: Explanation, title: str = "", trace: str | Path | None = None
) -> str:
    """The page.

    Args:
        title: what is explained, such as the model's name.
        trace: the trace of a session of the same plan, for times.

    Raises:
        RequirementMissing: what lays graphs out is not installed.
        InvalidArgument: *trace* is none.
        OSError: *trace* cannot be read.
    """
    times = Times() if trace is None else read_times(trace, explanation.nodes)
    data = content(explanation, escape(title or "onnxplug"), times)
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return Template(_part("page.html")).substitute(
        title=as_html(data["title"]),
        style=_part("page.css"),
        script=_part("graph.js") + _part("page.js"),
        # nothing in it ends the element, or begins another
        data=text.replace("<", "\\u003c"),
    )


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
