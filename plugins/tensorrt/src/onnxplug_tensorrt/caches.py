"""Engines, and how long kernels took, on disk for later sessions and processes."""

from __future__ import annotations

import json
import os
from typing import Any, Final

from onnxplug.authoring.entries import Cache, fingerprint, size_limit
from onnxplug_tensorrt import __version__
from onnxplug_tensorrt.library import Library
from onnxplug_tensorrt.plans import Plan, unpacked
from onnxplug_tensorrt.settings import NamedFolder, Settings

FOLDER: Final = "onnxplug-tensorrt"
"""The name of the folder that they are in, in onnxplug's cache or where options say."""

DEFAULT_SIZE: Final = 16 << 30
"""Bytes that they may take where ``ONNXPLUG_CACHE_SIZE`` does not say."""


class EngineCache:
    """Engines by all that they depend on.

    One of another version, GPU or option is never found, and deleted in time, as the
    least used are.

    Args:
        library: TensorRT, on the GPU that engines are for.
        settings: those of the session.

    Raises:
        OptionError: engines cannot be kept where the options say, or not safely.
    """

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        caches = settings.caches
        self._store = _opened(caches.folder) if caches.engines else None
        self._prefix = f"{caches.prefix}_" if caches.prefix else ""
        self._facts = json.dumps(_facts(library, settings), sort_keys=True)

    def name_of(self, fingerprint_of_partition: str, profile: object) -> str:
        """The name of an engine.

        Args:
            profile: what is asked of shapes, as JSON has it.
        """
        text = json.dumps([fingerprint_of_partition, profile, self._facts])
        return f"{self._prefix}engine-{fingerprint(text).hex()[:40]}"

    def load(self, name: str) -> Plan | None:
        """The engine of that name; ``None``: there is none that can be used."""
        if self._store is None:
            return None
        content = self._store.map(name)
        if content is None:
            return None
        try:
            plan = unpacked(content)
        except ValueError:
            self.discard(name)
            return None
        library = self._library
        if plan.obstacle(str(library.tensorrt.__version__), library.facts):
            return None
        return plan

    def store(self, name: str, plan: Plan) -> None:
        """Keep *plan*."""
        if self._store is not None:
            problem = self._store.store(name, *plan.packed())
            self._store.prune_if_due()
            if problem:
                self._library.logger.warning("an engine is not cached: %s", problem)

    def discard(self, name: str) -> None:
        """Delete an engine that is of no use."""
        if self._store is not None:
            self._store.remove(name)


class TimingCache:
    """How long kernels took, for builds of the same TensorRT on the same GPU.

    Args:
        library: TensorRT, on that GPU.
        settings: those of the session.

    Raises:
        OptionError: times cannot be kept where the options say, or not safely.
    """

    def __init__(self, library: Library, settings: Settings) -> None:
        self._library = library
        caches = settings.caches
        self._ignores_device = caches.ignores_device
        self._store = _opened(caches.times_folder) if caches.times else None
        facts = [str(library.tensorrt.__version__), library.facts.architecture]
        self._name = f"times-{fingerprint(json.dumps(facts)).hex()[:40]}"

    def begin(self, config: Any) -> None:
        """Have a build use what was measured before."""
        if self._store is None:
            return
        known = self._store.load(self._name)
        if known is not None:
            cache = config.create_timing_cache(known)
            if cache is not None and config.set_timing_cache(
                cache, self._ignores_device
            ):
                return
            self._store.remove(self._name)
        empty = config.create_timing_cache(b"")
        if empty is not None:
            config.set_timing_cache(empty, False)

    def end(self, config: Any) -> None:
        """Keep what was measured."""
        if self._store is None:
            return
        cache = config.get_timing_cache()
        if cache is not None:
            self._store.store(self._name, memoryview(cache.serialize()))
            self._store.prune_if_due()


def _opened(folder: NamedFolder | None) -> Cache:
    limit = size_limit(DEFAULT_SIZE)
    if folder is None:
        return Cache(FOLDER, limit)
    try:
        # relative to the working folder of now, also when the program leaves it
        root = folder.path
        if not os.path.isabs(root):
            root = os.path.join(os.getcwd(), root)
        found = Cache(FOLDER, limit, root)
    except (OSError, ValueError) as error:
        raise folder.refused(str(error)) from error
    if found.problem is not None:
        raise folder.refused(found.problem)
    return found


def _facts(library: Library, settings: Settings) -> dict[str, object]:
    """What engines depend on besides partition and shapes."""
    build = settings.build._replace(sequential=False, detailed_log=False)
    device = library.facts
    precision = settings.precision
    return {
        "onnxplug-tensorrt": __version__,
        "tensorrt": str(library.tensorrt.__version__),
        "device": "ampere+" if build.hardware_compatible else [
            device.name, device.capability, device.processors
        ],
        "build": list(build),
        "precision": list(map(str, precision._replace(ranges={}))),
        "ranges": precision.of_ranges,
        "plugins": settings.plugins,
    }  # fmt: skip
