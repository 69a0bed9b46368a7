"""What the target of a registration is, by its form and never by trying.

Imported when the first library is registered: a session without one needs none of it.

In this order: an object; a file; ``package.module:attribute``; the name of an EP that
is installed.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from onnxplug.authoring.files import read_file
from onnxplug.authoring.record import Record
from onnxplug.errors import (
    OptionError,
    PluginIncompatible,
    PluginLoadError,
    PluginNotFound,
)
from onnxplug.paths import why_no_path
from onnxplug.plugins.hosted import ORT_SYMBOL, HostedLibrary, host_library
from onnxplug.plugins.library import Library, import_path

if TYPE_CHECKING:
    from onnxplug.ep import HardwareDevice

_FILE_ENDINGS: Final = (".py", ".so", ".dll", ".dylib", ".pyd")

OWN_SYMBOL: Final = "onnxplug_get_ep_api"
"""What a native EP will export once onnxplug defines how."""

PYTHON_SYMBOL: Final = "PyInit_"
"""What the exported function of an extension module begins with."""


class LibraryForm(StrEnum):
    """What the target of a registration was taken for."""

    OBJECT = "object"
    FILE = "file"
    MODULE = "module"
    ENTRY_POINT = "entry point"


class LibraryRecord(Record):
    """A library that was registered by hand.

    Attributes:
        name: the handle that the caller chose.
        form: what its target was taken for.
        source: where it came from: a path, ``module:attribute``, or a name.
        eps: the names of the EPs that it supplies, sorted.
        target: as the caller gave it.
        devices: what it is shown besides those of the machine.
    """

    name: str
    form: LibraryForm
    source: str
    eps: tuple[str, ...]
    target: object
    devices: tuple[HardwareDevice, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether it is an installed plugin, which is known without it, too."""
        return self.form is LibraryForm.ENTRY_POINT


class Target(Record):
    """A library to be registered.

    Attributes:
        library: what is to be loaded; nothing will come of it for an installed EP,
            which has a library already.
    """

    form: LibraryForm
    source: str
    library: Library
    target: object
    devices: tuple[HardwareDevice, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Whether it is the name of an EP that is installed."""
        return self.form is LibraryForm.ENTRY_POINT

    def record(self, name: str, eps: tuple[str, ...]) -> LibraryRecord:
        """What is to be known of it once it is registered as *name*."""
        return LibraryRecord(
            name, self.form, self.source, eps, self.target, self.devices
        )

    def is_that_of(self, record: LibraryRecord) -> bool:
        """Whether *record* is of the very same target."""
        if self.form is LibraryForm.OBJECT:
            return self.target is record.target
        own = (self.form, self.source, self.devices)
        return own == (record.form, record.source, record.devices)


def check_handle(name: object) -> None:
    """Accept a handle for a library.

    Raises:
        OptionError: it is no text, or blank.
    """
    if not isinstance(name, str) or not name.strip():
        raise OptionError(
            f"a library is to be registered as {name!r}; expected a name of your "
            "choosing to unregister it by"
        )


def read_target(
    handle: str, target: object, devices: Sequence[HardwareDevice] = ()
) -> Target:
    """What *target* is; nothing is loaded yet.

    Args:
        devices: what a native library is shown besides those of the machine.

    Raises:
        PluginNotFound: it is a path that leads to no file.
        OptionError: it is of no known form, or is shown devices and no file.
    """
    made = _read_target(handle, target, tuple(devices))
    if devices and made.form is not LibraryForm.FILE:
        raise OptionError(
            f"library {handle!r} is to be shown {len(devices)} devices by hand, and is "
            f"{made.source}; expected the file of a native plugin EP, as other EPs "
            "find theirs themselves"
        )
    return made._replace(devices=tuple(devices))


def _read_target(
    handle: str, target: object, devices: tuple[HardwareDevice, ...]
) -> Target:
    if not isinstance(target, str | os.PathLike):
        form, source = LibraryForm.OBJECT, _describe(target)
        return Target(form, source, Library(source, lambda: target), target)
    if isinstance(target, os.PathLike) or is_path(target):
        path = _existing(handle, target)
        return Target(LibraryForm.FILE, str(path), _file(handle, path, devices), target)
    if ":" in target:
        module, _, attribute = target.partition(":")
        if not all(
            part.isidentifier() for part in (module + "." + attribute).split(".")
        ):
            raise OptionError(
                f"library {handle!r} is to come from {target!r}; expected "
                "package.module:attribute"
            )
        library = Library(target, lambda: import_path(target))
        return Target(LibraryForm.MODULE, target, library, target)
    library = Library(target, lambda: None)
    return Target(LibraryForm.ENTRY_POINT, target, library, target)


def is_path(target: str) -> bool:
    """Whether a text is taken for a path, and not for the name of something."""
    return any(sign in target for sign in "/\\") or target.lower().endswith(
        _FILE_ENDINGS
    )


def _describe(target: object) -> str:
    if isinstance(target, ModuleType):
        return target.__name__
    kind = target if isinstance(target, type) else type(target)
    return f"{kind.__module__}.{kind.__qualname__}"


def _existing(handle: str, target: str | os.PathLike[str]) -> Path:
    if why := why_no_path(os.fspath(target)):
        raise OptionError(
            f"library {handle!r} is to come from the file {os.fspath(target)!r}, {why}"
        )
    path = Path(target).resolve()
    if not path.is_file():
        what = "does not exist"
        if path.exists():
            what = "is a folder" if path.is_dir() else "is no regular file"
        raise PluginNotFound(
            f"library {handle!r} is to come from the file {path}, which {what}; "
            "expected a Python file, or an extension module",
            plugin=handle,
        )
    return path


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Loads regular files only, whatever became of the path since it was looked at."""

    def get_data(self, path: str) -> bytes:
        return read_file(path)


def _file(handle: str, path: Path, devices: tuple[HardwareDevice, ...]) -> Library:
    name = _private_name(handle)

    def find() -> object:
        symbols: frozenset[str] = frozenset()
        if path.suffix != ".py":
            symbols = _exported(handle, path)
        if ORT_SYMBOL in symbols:
            hosted.append(host_library(handle, path, devices))
            return hosted[-1]
        if devices:
            raise PluginLoadError(
                f"library {handle!r} ({path}) is shown devices by hand, and exports no "
                f"{ORT_SYMBOL}; other EPs find theirs themselves",
                plugin=handle,
            )
        if path.suffix == ".py":
            return _execute(name, _SourceLoader(name, str(path)))
        stem = _extension_stem(handle, path, symbols)
        # the last part of the name says which function initialises the module
        loader = importlib.machinery.ExtensionFileLoader
        full_name = f"{name}.{stem}"
        loaded.append(full_name)
        return _execute(full_name, loader(full_name, str(path)))

    loaded = [name]
    hosted: list[HostedLibrary] = []

    def discard() -> None:
        for each in loaded:
            sys.modules.pop(each, None)
        for library in hosted:
            library.close()

    return Library(str(path), find, discard, logger=name)


def _private_name(handle: str) -> str:
    readable = "".join(c if c.isalnum() else "_" for c in handle)
    name, count = f"onnxplug_file_{readable}", 1
    while name in sys.modules:
        count += 1
        name = f"onnxplug_file_{readable}_{count}"
    return name


_Loader = importlib.machinery.SourceFileLoader | importlib.machinery.ExtensionFileLoader


def _execute(name: str, loader: _Loader) -> ModuleType:
    """Import a file under *name*; whoever registers it discards it on failure."""
    spec = importlib.util.spec_from_file_location(name, loader.path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    # before it is executed, as with any import: dataclasses and pickle look there
    sys.modules[name] = module
    loader.exec_module(module)
    return module


def _exported(handle: str, path: Path) -> frozenset[str]:
    """The names that a native library exports.

    Raises:
        PluginLoadError: it is no library.
    """
    from onnxplug.plugins.native import NotALibrary, exported_symbols

    try:
        return exported_symbols(path)
    except NotALibrary as error:
        raise PluginLoadError(
            f"library {handle!r} ({path}) cannot be loaded: {error}; expected a Python "
            "file ending in .py, an extension module, or a native plugin EP",
            plugin=handle,
        ) from error


def _extension_stem(handle: str, path: Path, symbols: frozenset[str]) -> str:
    """The name of the extension module that a native library is.

    Raises:
        PluginIncompatible: it is a library of another kind.
        PluginLoadError: it exports nothing that is known.
    """
    about = f"library {handle!r} ({path})"
    stems = sorted(
        symbol.removeprefix(PYTHON_SYMBOL)
        for symbol in symbols
        if symbol.startswith(PYTHON_SYMBOL)
    )
    if stems:
        stem = path.name.partition(".")[0]
        if stem not in stems:
            raise PluginLoadError(
                f"{about} is the extension module {' or '.join(stems)}, and its file "
                f"is named for {stem!r}; give the file its module's name",
                plugin=handle,
            )
        return stem
    if OWN_SYMBOL in symbols:
        raise PluginIncompatible(
            f"{about} is a native EP: it exports {OWN_SYMBOL}, which is reserved, and "
            "which this onnxplug does not know how to call; upgrade onnxplug",
            plugin=handle,
        )
    raise PluginLoadError(
        f"{about} supplies no EP: of {ORT_SYMBOL}, {PYTHON_SYMBOL}<module> and "
        f"{OWN_SYMBOL} it exports none",
        plugin=handle,
    )
