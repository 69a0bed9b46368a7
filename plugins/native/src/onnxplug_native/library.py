"""A library of EPs, from when it is loaded until nothing of it is used."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from onnxplug import ep
from onnxplug.authoring.locks import new_lock, new_rlock
from onnxplug_native import functions
from onnxplug_native.causes import cause_and_remedy, explained
from onnxplug_native.functions.environment import Logger
from onnxplug_native.interface.ending import lasting
from onnxplug_native.interface.host import api_base, asked_in_vain
from onnxplug_native.interface.status import raise_status
from onnxplug_native.interface.structure import Structure
from onnxplug_native.interface.table import API_VERSION
from onnxplug_native.interface.throwing import guarded
from onnxplug_native.neighbours import load_neighbours
from onnxplug_native.prepacking import PackedWeights

_MAKE: Final = "CreateEpFactories"
_RELEASE: Final = "ReleaseEpFactory"

_MOST_FACTORIES: Final = 4
"""How many factories a library may make, as in ONNX Runtime."""


class NativeLibrary:
    """A library and its factories.

    It is unloaded when all of its factories are released and nobody holds it.

    Attributes:
        name: in messages.
        path: its file.
        devices: what it is shown besides those of the machine.
        factories: those that are not released.
        turn: held while the library works with memory of its own, and while an EP
            computes that cannot do so several times at once: such a library cannot be
            called twice at once for anything, by whatever session.
        packed: what its kernels made of weights, and share.
    """

    def __init__(
        self,
        handle: str,
        path: Path,
        logger: logging.Logger,
        devices: Sequence[ep.HardwareDevice] = (),
    ) -> None:
        """Load the library, and ask for its factories.

        Raises:
            PluginLoadError: it cannot be loaded, or has not what it has to.
            PluginIncompatible: it was built for a newer version of the interface.
            OnnxplugError: it made no factories, and says why.
        """
        self.name = f"library {handle!r} ({path.name})"
        self.path = path
        self.devices = tuple(devices)
        self.factories: list[Structure] = []
        self._lock = new_lock()
        self.turn = new_rlock()
        self.packed = PackedWeights()
        self._holders = 0
        self._released: list[Structure] = []
        self._logger = Logger(logger)
        self._library = self._load(handle)
        try:
            self._make(handle)
        except BaseException:
            self.close()
            raise

    def _load(self, handle: str) -> Any:
        # its neighbours are where the system looks for what it needs
        with _searched(self.path.parent):
            try:
                with contextlib.suppress(OSError):
                    return ctypes.CDLL(str(self.path))
                for neighbour in load_neighbours(self.path):
                    lasting(neighbour)
                return ctypes.CDLL(str(self.path))
            except OSError as error:
                said = explained(str(error))
                made = ep.PluginLoadError(
                    f"{self.name} cannot be loaded: {said}", plugin=handle
                )
                _, made.remedy = cause_and_remedy(said)
                raise made from error

    def _make(self, handle: str) -> None:
        make = self._export(handle, _MAKE, "!", "spppnp")
        self._export(handle, _RELEASE, "!", "p")
        room = (ctypes.c_void_p * _MOST_FACTORIES)()
        count = ctypes.c_size_t()
        functions.load()
        asked_in_vain()
        status = make(
            handle.encode(),
            api_base(),
            self._logger.address,
            ctypes.addressof(room),
            _MOST_FACTORIES,
            ctypes.addressof(count),
        )
        try:
            raise_status(status, f"{_MAKE} of {self.name}")
            if not 0 < count.value <= _MOST_FACTORIES:
                raise ep.PluginLoadError(
                    f"{self.name} says that it made {count.value} factories; expected "
                    f"1 to {_MOST_FACTORIES}",
                    plugin=handle,
                )
        except ep.OnnxplugError as error:
            newer = asked_in_vain()
            if newer is None:
                raise
            raise ep.PluginIncompatible(
                f"{self.name} was built for version {newer} of ONNX Runtime's "
                f"interface, and this onnxplug-native hosts up to {API_VERSION}; "
                f"upgrade onnxplug-native, or install an older version of the "
                f"library ({error})",
                plugin=handle,
            ) from error
        for place in range(count.value):
            address = room[place]
            if not address:
                raise ep.PluginLoadError(
                    f"factory {place} of {self.name} is null", plugin=handle
                )
            self.factories.append(Structure("OrtEpFactory", address, self.name))

    def _export(self, handle: str, name: str, result: str, arguments: str) -> Any:
        try:
            exported = self._library[name]
        except AttributeError as error:
            raise ep.PluginLoadError(
                f"{self.name} does not export {name}, which libraries of EPs have to",
                plugin=handle,
            ) from error
        address = ctypes.cast(exported, ctypes.c_void_p).value
        assert address is not None
        return guarded(result, arguments, address)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """A context in which the library stays loaded."""
        release = self.hold()
        try:
            yield
        finally:
            release()

    def hold(self) -> Callable[[], None]:
        """Let the library stay loaded until what this returns is called, once.

        Raises:
            PluginError: it is unloaded already.
        """
        with self._lock:
            if self._library is None:
                raise ep.PluginError(f"{self.name} is unloaded")
            self._holders += 1
        held = [True]

        def release() -> None:
            with self._lock:
                if held:
                    held.clear()
                    self._holders -= 1
            self._end_what_is_unused()

        return release

    def release(self, factory: Structure) -> None:
        """Release one of the factories, once nobody holds the library.  Idempotent."""
        with self._lock:
            if factory not in self.factories:
                return
            self.factories.remove(factory)
            self._released.append(factory)
        self._end_what_is_unused()

    def close(self) -> None:
        """Release all factories, and unload the library once nobody holds it."""
        for factory in list(self.factories):
            with contextlib.suppress(ep.OnnxplugError, AttributeError):
                self.release(factory)
        self._end_what_is_unused()

    def _end_what_is_unused(self) -> None:
        """Release factories and unload the library, as far as nobody uses them.

        EPs of a factory outlive it otherwise, and are released through it.
        """
        with self._lock:
            if self._library is None or self._holders:
                return
            factory = self._released.pop() if self._released else None
        if factory is None:
            self._unload_if_unused()
            return
        try:
            release = self._export(self.name, _RELEASE, "!", "p")
            raise_status(release(factory.address), f"{_RELEASE} of {self.name}")
        finally:
            self._end_what_is_unused()

    def _unload_if_unused(self) -> None:
        with self._lock:
            if self._library is None or self._holders or self.factories:
                return
            library, self._library = self._library, None
        _unload(library)
        self._logger.release()


def _unload(library: Any) -> None:
    # not as ctypes itself does it, which lets no other thread into Python meanwhile:
    # the library may wait for threads of its own, and these for an entry of ours
    if os.name == "nt":
        unload = ctypes.WinDLL("kernel32").FreeLibrary  # type: ignore[attr-defined]
    else:
        unload = ctypes.CDLL(None).dlclose
    unload.argtypes = [ctypes.c_void_p]
    unload(library._handle)


@contextlib.contextmanager
def _searched(folder: Path) -> Iterator[None]:
    """A context in which Windows looks for libraries in *folder*, too."""
    if os.name != "nt":
        yield
        return
    with os.add_dll_directory(str(folder)):  # type: ignore[attr-defined]
        yield
