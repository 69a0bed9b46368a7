"""The log of discovery: what was left out, at level DEBUG and never louder."""

from __future__ import annotations

import sys


def left_out(message: str, *args: object) -> None:
    """Log why something is not among the devices."""
    # importing logging takes as long as all of discovery; where nobody has, nobody
    # can have asked for its messages
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("onnxplug.hardware").debug(message, *args)
