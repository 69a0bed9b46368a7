"""The models that are served, by name and version, and how they come and go.

A request that has a version keeps it until it is answered: a version is taken out of
use first, and closed when its requests are done.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from onnxplug.errors import InvalidArgument, OnnxplugError
from onnxplug.escape import escape
from onnxplug_serve.devices import DeviceRuns
from onnxplug_serve.errors import BadRequest, NoSuchModel, NotReady, RequestError
from onnxplug_serve.metrics import Metrics
from onnxplug_serve.served_model import ServedModel
from onnxplug_serve.settings import Settings

_logger = logging.getLogger("onnxplug.serve")

MODEL_FILE: Final = "model.onnx"
"""What the model of a version is called in its folder."""


class _Entry:
    """A name: its versions that are ready, and what became of the last load."""

    def __init__(self, source: Path) -> None:
        self.source = source
        self.versions: dict[str, ServedModel] = {}
        self.state = "UNAVAILABLE"
        self.reason = ""


class Repository:
    """Models by name; its methods are called in one event loop."""

    def __init__(self, settings: Settings, metrics: Metrics) -> None:
        self._settings = settings
        self._metrics = metrics
        self._entries: dict[str, _Entry] = {}
        self._changing: dict[str, asyncio.Lock] = {}
        self._devices = DeviceRuns(settings.device_runs)
        self._changes: set[asyncio.Task[None]] = set()
        self._not_entered: set[str] = set()
        self.is_ending = False
        for name, path in settings.models.items():
            self._entries[check_name(name)] = _Entry(path)
        self._find()

    def _find(self) -> None:
        """Enter the folders of the repository that are new."""
        folder = self._settings.repository
        if folder is None:
            return
        for path in sorted(folder.iterdir()):
            if not path.is_dir() or path.name.startswith("."):
                continue
            if path.name not in self._entries:
                try:
                    self._entries[check_name(path.name)] = _Entry(path)
                except InvalidArgument as error:
                    if path.name not in self._not_entered:
                        self._not_entered.add(path.name)
                        _logger.error("a folder is no model: %s", escape(error))

    @property
    def is_ready(self) -> bool:
        """Whether all models are ready that were to be."""
        return not self.is_ending and all(
            entry.versions or entry.state == "UNLOADED"
            for entry in self._entries.values()
        )

    def find(self, name: str, version: str = "") -> ServedModel:
        """The model *name*, of the newest version if none is named.

        Raises:
            NoSuchModel: there is none.
            NotReady: it is not loaded.
        """
        if self.is_ending:
            raise NotReady("the server ends")
        entry = self._entries.get(name)
        if entry is None:
            raise NoSuchModel(f"there is no model {name[:80]!r}")
        if not entry.versions:
            why = f": {entry.reason}" if entry.reason else ""
            raise NotReady(f"model {name!r} is not loaded{why}")
        if not version:
            return entry.versions[newest(entry.versions)]
        if version not in entry.versions:
            raise NoSuchModel(
                f"model {name!r} has no version {version[:40]!r}; it has "
                + ", ".join(sorted(entry.versions, key=_order))
            )
        return entry.versions[version]

    def versions(self, name: str) -> list[str]:
        """The versions of *name* that are ready, oldest first."""
        entry = self._entries.get(name)
        return sorted(entry.versions, key=_order) if entry else []

    def index(self, *, only_ready: bool = False) -> list[dict[str, str]]:
        """What there is, as the model repository extension tells it."""
        self._find()
        found = []
        for name, entry in sorted(self._entries.items()):
            for version in self.versions(name):
                found.append(
                    {"name": name, "version": version, "state": "READY", "reason": ""}
                )
            if not entry.versions and not only_ready:
                found.append(
                    {
                        "name": name,
                        "version": "",
                        "state": "UNAVAILABLE",
                        "reason": entry.reason or entry.state.lower(),
                    }
                )
        return found

    async def load_all(self) -> None:
        """Load what is not loaded; of what fails it is said why."""
        for name in list(self._entries):
            with suppress(RequestError):  # which load() has logged
                await self.load(name)

    async def load(self, name: str) -> None:
        """Load *name*, or load it anew: its versions are those on disk then.

        Requests go to what was loaded before until the new is ready.

        Raises:
            NoSuchModel: the repository has none of that name.
            BadRequest: it cannot be loaded; what was loaded before stays.
        """
        self._find()
        if name not in self._entries:
            raise NoSuchModel(f"there is no model {name[:80]!r}")
        await self._whole(self._exchange(name))

    async def _whole(self, change: Coroutine[Any, Any, None]) -> None:
        """Make *change* to its end, also when nobody waits for it any more: half of it
        would leave sessions that nobody closes."""
        task = asyncio.create_task(change)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        await asyncio.shield(task)

    async def _exchange(self, name: str) -> None:
        async with self._changing.setdefault(name, asyncio.Lock()):
            entry = self._entries[name]
            try:
                loaded = await asyncio.to_thread(self._load, name, entry.source)
            except (OnnxplugError, OSError) as error:
                _logger.error(
                    "model %s is not served%s: %s",
                    name,
                    " anew" if entry.versions else "",
                    escape(error),
                )
                # where it is on this machine is nothing to tell those who ask
                entry.reason = str(error).replace(str(entry.source), name)
                entry.state = "FAILED" if not entry.versions else entry.state
                raise BadRequest(
                    f"model {name!r} cannot be loaded: {entry.reason}"
                ) from error
            old, entry.versions = entry.versions, loaded
            entry.state, entry.reason = "READY", ""
            for version in loaded:
                self._metrics.ready(name, version, is_ready=True)
            await self._retire(name, old)

    def _load(self, name: str, source: Path) -> dict[str, ServedModel]:
        loaded: dict[str, ServedModel] = {}
        try:
            for version, path in found_versions(source).items():
                loaded[version] = ServedModel(
                    name, version, path, self._settings, self._metrics, self._devices
                )
                model = loaded[version]
                _logger.info(
                    "model %s, version %s, on %s: %s",
                    name,
                    version,
                    ", ".join(model.session.get_providers()),
                    f"requests are joined along {model.plan.dimension!r}"
                    if model.plan
                    else f"requests are not joined: {escape(model.why_not_joined)}",
                )
        except BaseException:
            for model in loaded.values():
                model.close(0.0)
            raise
        return loaded

    async def unload(self, name: str) -> None:
        """Take *name* out of use, and close it when its requests are done.

        Raises:
            NoSuchModel: there is none.
        """
        if name not in self._entries:
            raise NoSuchModel(f"there is no model {name[:80]!r}")
        await self._whole(self._take_out(name))

    async def _take_out(self, name: str) -> None:
        async with self._changing.setdefault(name, asyncio.Lock()):
            entry = self._entries[name]
            old, entry.versions = entry.versions, {}
            entry.state, entry.reason = "UNLOADED", "unloaded"
            await self._retire(name, old)

    async def _retire(self, name: str, models: Mapping[str, ServedModel]) -> None:
        for version, model in models.items():
            if version not in self._entries[name].versions:
                self._metrics.ready(name, version, is_ready=False)
            await asyncio.to_thread(model.close, self._settings.drain)

    async def close(self) -> None:
        """Finish all requests, and close all models; none is found meanwhile."""
        self.is_ending = True
        await asyncio.gather(*(self._end(name) for name in self._entries))

    async def _end(self, name: str) -> None:
        async with self._changing.setdefault(name, asyncio.Lock()):
            old, self._entries[name].versions = self._entries[name].versions, {}
            await self._retire(name, old)


def check_name(name: str) -> str:
    """*name*, if a path of HTTP can have it as it is.

    Raises:
        InvalidArgument: it cannot.
    """
    # nor such that a log or an answer is broken by it, or that is no UTF-8
    if (
        not name
        or name in (".", "..")
        or any(c in name for c in "/\\?#%")
        or not name.isprintable()
    ):
        raise InvalidArgument(
            f"a model cannot be called {name!r}; name it otherwise: NAME=PATH"
        )
    return name


def found_versions(source: Path) -> dict[str, Path]:
    """The model files in *source*, by version: it is one itself, of version 1, or a
    folder of folders with numbers for names, each with a ``model.onnx``.

    Raises:
        OSError: it cannot be read.
        NoVersions: there is none.
    """
    if not source.is_dir():
        return {"1": source}
    found = {
        path.name: path / MODEL_FILE
        for path in source.iterdir()
        if path.name.isascii()
        and path.name.isdecimal()
        and (path / MODEL_FILE).exists()
    }
    if not found:
        raise NoVersions(
            f"{source.name} has no version, such as 1/{MODEL_FILE} in its folder"
        )
    return found


class NoVersions(OnnxplugError, LookupError):
    """A folder of a repository has no version of a model."""


def newest(versions: Mapping[str, Any]) -> str:
    """The largest number."""
    return max(versions, key=_order)


def _order(version: str) -> tuple[int, str]:
    return int(version), version
