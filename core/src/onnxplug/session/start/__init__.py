"""Starts of sessions from what an earlier process made of the same model.

Where the model, the options and all that is installed are as they were, a session runs
the partition that its EP restores, and checks what is fed and returned, without reading
the model.  Whatever is out of the ordinary has the model opened, as if nothing had been
kept.  Losing an entry costs time only.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Final

from onnxplug.errors import OptionError

if TYPE_CHECKING:
    from onnxplug.session.request import SessionRequest
    from onnxplug.session.start.kept import KeptStart

KEEP: Final = "ONNXPLUG_KEEP_SESSIONS"
"""The variable that says whether starts are kept."""

_PLUGINS: Final = "onnxplug.plugins"


def _logs(logid: str) -> bool:
    """Whether somebody wants to be told of a model where its nodes run."""
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    name = "onnxplug.session" + (f".{logid}" if logid else "")
    return bool(logging.getLogger(name).isEnabledFor(logging.INFO))


def kept_start(request: SessionRequest) -> KeptStart | None:
    """The start of a session, if one can be kept; there need not be one yet.

    Not of a program that has looked at plugins, as it may have changed what is known.

    Raises:
        OptionError: the variable has a value that is not understood.
    """
    switch = os.environ.get(KEEP, "1")
    if switch not in ("0", "1"):
        raise OptionError(f"{KEEP} is {switch!r}; it can be 1 or 0")
    if switch == "0" or _PLUGINS in sys.modules or _logs(request.options.logid):
        return None
    from onnxplug.session.start.key import key_of

    key = key_of(request)
    if key is None:
        return None
    from onnxplug.session.start.kept import KeptStart

    return KeptStart(key, request)
