"""The entry of a session: found when it starts, and written when it was opened."""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Final

from onnxplug import warn
from onnxplug.authoring.entries import MARSHAL, Cache
from onnxplug.guard import FAILURES
from onnxplug.interruption import raise_interruption
from onnxplug.session.start.entry import KeptSession
from onnxplug.session.start.runner import StartRunner

if TYPE_CHECKING:
    from onnxplug.session.opening import OpenedModel
    from onnxplug.session.request import SessionRequest

FOLDER: Final = "onnxplug-sessions"
"""The name of the folder that entries are in."""


class KeptStart:
    """The entry of one session.

    Args:
        key: its name.
        request: what is asked for.
    """

    def __init__(self, key: str, request: SessionRequest) -> None:
        self._key = key
        self._request = request
        self._cache = Cache(FOLDER)
        self._warned = warn.given

    def runner(self) -> StartRunner | None:
        """What runs the session, if it was kept and can be restored."""
        content = self._cache.load(self._key)
        if content is None:
            return None
        try:
            kept = KeptSession(*marshal.loads(content))
            return StartRunner(kept, kept.restored())
        # whatever it is, the model tells
        except FAILURES as error:
            raise_interruption(error)
            return None

    def keep(self, opened: OpenedModel) -> None:
        """Keep what was opened for the next start, if plain values can stand for it.

        Not of what warned, which is to be heard each time.
        """
        if warn.given != self._warned or not self._cache.is_open:
            return
        try:
            from onnxplug.session.start.keeping import kept_session

            kept = kept_session(self._request, opened)
            if kept is not None:
                self._cache.store(self._key, marshal.dumps(tuple(kept), MARSHAL))
                self._cache.prune_if_due()
        # the session is made, and does without
        except FAILURES as error:
            raise_interruption(error)
