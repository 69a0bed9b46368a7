"""Why the CPU EP puts nothing that it compiled into a model."""

from __future__ import annotations

from typing import NoReturn

from onnxplug import ep


def decline_to_serialise() -> NoReturn:
    """Refuse.

    Raises:
        Declined: always.
    """
    raise ep.Declined(
        ep.Reason(
            ep.RefusalCode.OTHER,
            "it compiles to machine code, which whoever writes a model could then have "
            "run; that is kept in the user's own cache instead, where sessions find it",
        )
    )
