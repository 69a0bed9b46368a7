"""The door to the pages of the distribution ``onnxplug-cli``, which show reports."""

from __future__ import annotations

from collections.abc import Callable
from html import escape as as_html

from onnxplug.errors import RequirementMissing


def page_maker() -> Callable[..., str]:
    """What makes a page of an explanation, a title and the path of a trace.

    Raises:
        RequirementMissing: it is not installed.
    """
    try:
        from onnxplug_cli.page import page
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("onnxplug_cli"):
            raise
        raise RequirementMissing(
            "the page of a session is made by onnxplug-cli, which is not installed; "
            "pip install 'onnxplug-cli[html]'"
        ) from error
    return page


def in_frame(make: Callable[[], str], text: str) -> str:
    """The page that *make* makes, in a frame, which keeps its style and its script to
    itself; if that is not installed, *text* and the remedy."""
    try:
        page = make()
    except RequirementMissing as error:
        return f"<pre>{as_html(text)}</pre><p>{as_html(str(error))}</p>"
    return (
        f'<iframe srcdoc="{as_html(page)}" sandbox="allow-scripts" title="onnxplug" '
        'style="width:100%;height:640px;border:1px solid #8884"></iframe>'
    )
