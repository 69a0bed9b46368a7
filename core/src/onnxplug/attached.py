"""Sessions by the EPs that they use, also before anybody has looked at plugins."""

from __future__ import annotations

import weakref
from typing import Final

from onnxplug.authoring.locks import new_lock


class AttachedSessions:
    """Sessions by the EPs that they use.  Every method may be called anywhere."""

    def __init__(self) -> None:
        self._lock = new_lock()
        self._by_ep: dict[str, weakref.WeakSet[object]] = {}

    def attach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP, until :meth:`detach` or the session's end."""
        with self._lock:
            self._by_ep.setdefault(ep, weakref.WeakSet()).add(session)

    def detach(self, ep: str, session: object) -> None:
        """Note that *session* uses an EP no more; not an error if it never did."""
        with self._lock:
            if ep in self._by_ep:
                self._by_ep[ep].discard(session)

    def forget(self, ep: str) -> None:
        """Note that nobody uses an EP."""
        with self._lock:
            self._by_ep.pop(ep, None)

    def of(self, ep: str) -> set[object]:
        """Those that use an EP now."""
        with self._lock:
            return set(self._by_ep.get(ep, ()))


attached: Final = AttachedSessions()
"""Those that use the plugins of this process."""
