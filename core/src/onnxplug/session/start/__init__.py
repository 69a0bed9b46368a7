"""Starts of sessions from what an earlier process made of the same model.

Where the model, the options and all that is installed are as they were, a session runs
the partition that its EP restores, and checks what is fed and returned, without reading
the model.  Whatever is out of the ordinary has the model opened, as if nothing had been
kept.  Losing an entry costs time only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from onnxplug.errors import OptionError
from onnxplug.search_path import surroundings

if TYPE_CHECKING:
    from onnxplug.session.request import SessionRequest
    from onnxplug.session.start.kept import KeptStart

KEEP: Final = "ONNXPLUG_KEEP_SESSIONS"
"""The variable that says whether starts are kept."""


def _logs(logid: str) -> bool:
    """Whether somebody wants to be told of a model where its nodes run, or which
    options have no effect."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    name = "onnxplug.session" + (f".{logid}" if logid else "")
    return bool(
        logging.getLogger(name).isEnabledFor(logging.INFO)
        or logging.getLogger("onnxplug.options").isEnabledFor(logging.DEBUG)
    )


def _around() -> tuple[Any, ...] | None:
    """What :func:`~onnxplug.search_path.surroundings` says; ``None`` unless a process
    that begins now makes the session as this one does: no model was opened before, no
    default providers are set, and plugins are as installed.

    A module that is being imported, in another thread, does not tell.
    """
    selection = sys.modules.get("onnxplug.selection.defaults")
    if selection is not None:
        defaults = getattr(selection, "defaults", None)
        if defaults is None or not defaults.are_untouched:
            return None
    now = surroundings()
    plugins = sys.modules.get("onnxplug.plugins")
    if now is None or plugins is None:
        return now
    registry = getattr(plugins, "registry", None)
    return now if registry is not None and registry.table.is_as_found(now) else None


def kept_start(request: SessionRequest) -> KeptStart | None:
    """The start of a session, if one can be kept; there need not be one yet.

    Raises:
        OptionError: the variable has a value that is not understood.
    """
    switch = os.environ.get(KEEP, "1")
    if switch not in ("0", "1"):
        raise OptionError(f"{KEEP} is {switch!r}; it can be 1 or 0")
    if switch == "0" or _logs(request.options.logid):
        return None
    now = _around()
    if now is None:
        return None
    from onnxplug.session.start.key import key_of

    key = key_of(request, now)
    if key is None:
        return None
    from onnxplug.session.start.kept import KeptStart

    return KeptStart(key, request)
