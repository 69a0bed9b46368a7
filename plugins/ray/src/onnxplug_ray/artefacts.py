"""What EPs compile, made once for a kind of machine: the entries of their caches.

An entry is found by all that it depends on, so one that does not fit a node is not
found there.  The kind of machine only says who waits for whom.
"""

from __future__ import annotations

import contextlib
import platform
import socket
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Any, Final

import ray

import onnxplug
from onnxplug.authoring.cache import cache_root
from onnxplug.authoring.entries import Cache, fingerprint, size_limit
from onnxplug.errors import OnnxplugWarning
from onnxplug.warn import warn_user
from onnxplug_ray.store import MADE, MAKE

MOST_NEW: Final = 1 << 30
"""Bytes of entries that travel, of those that were just made."""

MOST_OLDER: Final = 64 << 20
"""And of those that were there before, among which may be what the session uses."""

SECONDS: Final = 120.0
"""That is waited for another node to make them; then a node makes its own."""

_LARGEST: Final = 4 << 30
_PAUSE: Final = 0.1

OWN: Final = frozenset(
    {"onnxplug", "onnxplug-ray", "onnxplug-sessions", "onnxplug-testing"}
)
"""Folders whose entries are of one machine: verdicts about its devices, and what is
found by its files."""


def machine_kind() -> str:
    """What machines have in common that can use each other's entries: system,
    processor with its instructions, devices, and what is installed."""
    facts = [
        sys.platform,
        platform.machine(),
        sys.version,
        _instructions(),
        sorted(
            repr((each.ep_name, each.device.type, sorted(each.device.metadata.items())))
            for each in onnxplug.get_ep_devices()
        ),
        sorted(
            f"{each.name} {each.version}"
            for each in metadata.distributions()
            if (each.name or "").startswith(("onnxplug", "numpy", "llvmlite"))
        ),
    ]
    return fingerprint(repr(facts)).hex()


def _instructions() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith(("flags", "Features")):
                return " ".join(sorted(line.partition(":")[2].split()))
    return platform.processor()


class Artefacts:
    """The entries of one model's sessions, which nodes of a kind give each other.

    Args:
        store: see :class:`~onnxplug_ray.store.Store`.
        session: what tells the session from others: EPs and options, as a text.
    """

    def __init__(self, store: Any, session: str) -> None:
        self._store = store
        self._key = f"{machine_kind()} {fingerprint(session).hex()}"
        self._who = f"{socket.gethostname()} {uuid.uuid4()}"
        self._sent: set[tuple[str, str]] = set()

    @contextlib.contextmanager
    def once(self, stage: str) -> Iterator[None]:
        """A context in which entries are made that all nodes of this kind need.  The
        first that comes makes them; others wait, and find them in their caches.

        Where the store is gone, or nobody is done in time, each makes its own.
        """
        key = f"{self._key} {stage}"
        try:
            makes = self._claim(key)
        except ray.exceptions.RayError as error:
            warn_user(f"compiled code is not shared: {error}", OnnxplugWarning)
            makes = False
        if not makes:
            yield
            return
        before = self._sent or set(_names())
        done = False
        try:
            yield
            done = True
        finally:
            with contextlib.suppress(ray.exceptions.RayError):
                if done:
                    made = _entries(before, older=not self._sent)
                    self._sent = before | {each[:2] for each in made}
                    ray.get(self._store.publish.remote(key, made), timeout=SECONDS)
                else:
                    ray.get(self._store.give_up.remote(key, self._who), timeout=SECONDS)

    def _claim(self, key: str) -> bool:
        """Whether this process is to make what *key* says; if not, it is there."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            what, made = ray.get(
                self._store.claim.remote(key, self._who), timeout=SECONDS
            )
            if what == MADE:
                _install(ray.get(made[0], timeout=SECONDS))
                return False
            if what == MAKE:
                return True
            time.sleep(_PAUSE)
        warn_user(
            f"nobody has compiled what is shared in {SECONDS:.0f} s; it is compiled "
            "here, too",
            OnnxplugWarning,
        )
        return False


def _caches() -> Iterator[tuple[str, Cache]]:
    """The caches of distributions on this node."""
    root = cache_root()
    if not root.is_dir():
        return
    for folder in sorted(root.iterdir()):
        if folder.name not in OWN and folder.is_dir():
            yield folder.name, Cache(folder.name, size_limit(_LARGEST))


def _names() -> Iterator[tuple[str, str]]:
    for distribution, cache in _caches():
        for name in cache.names():
            yield distribution, name


def _entries(
    before: set[tuple[str, str]], *, older: bool
) -> Sequence[tuple[str, str, bytes]]:
    """Entries with their content, the latest first, as many as may travel.

    Args:
        older: those of *before*, too.
    """
    found = []
    left = {False: MOST_NEW, True: MOST_OLDER if older else 0}
    caches = dict(_caches())
    for distribution, name in _names():
        is_older = (distribution, name) in before
        content = caches[distribution].load(name) if left[is_older] > 0 else None
        if content is not None and len(content) <= left[is_older]:
            left[is_older] -= len(content)
            found.append((distribution, name, content))
    return found


def _install(entries: Sequence[tuple[str, str, bytes]]) -> None:
    """Keep entries of another node that this one has not."""
    there = set(_names())
    caches: dict[str, Cache] = {}
    for distribution, name, content in entries:
        if (distribution, name) not in there:
            if distribution not in caches:
                caches[distribution] = Cache(distribution, size_limit(_LARGEST))
            caches[distribution].store(name, content)
    for cache in caches.values():
        cache.prune_if_due()
