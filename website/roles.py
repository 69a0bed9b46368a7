"""Has docstrings, in which roles of Sphinx name things, written as Markdown."""

from __future__ import annotations

import re
from typing import Any

import griffe

import onnxplug
from onnxplug import ep

ROLE = re.compile(r":\w+:`~?\.?([^`]+)`")


class Roles(griffe.Extension):
    """Replaces roles: a link where the site has what is named, code elsewhere."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(_link, obj.docstring.value)


def _link(role: re.Match[str]) -> str:
    *_, name = role[1].removeprefix("onnxplug.").split("ep.")
    first = name.split(".")[0]
    for module in (ep, onnxplug):
        if first in module.__all__:
            return f"[`{name}`][{module.__name__}.{first}]"
    return f"`{name}`"
